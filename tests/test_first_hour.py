"""What people meet in their first hour with the Python API: baselines, warnings and errors that say what to do."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import RidgeClassifier

from runoff import RunoffClassifier
from runoff.errors import InputError

X, Y = load_digits(return_X_y=True)
X, Y, NEW, NEW_Y = X[:700], Y[:700], X[700:900], Y[700:900]


def fitted(**settings):
    return RunoffClassifier(
        **{"estimator": RidgeClassifier(alpha=100), "n_partitions": 9, "classes": range(10)} | settings
    )


def test_the_undefended_baseline_is_one_model_on_all_samples(tmp_path):
    classifier = fitted().fit(X, Y)
    undefended = classifier.fit_undefended()
    alone = RidgeClassifier(alpha=100).fit(X, Y)
    np.testing.assert_array_equal(undefended.predict(NEW), alone.predict(NEW))
    assert undefended.score(NEW, NEW_Y) == alone.score(NEW, NEW_Y)
    assert not undefended.certify(NEW).radius.any()
    assert len(classifier.members_) == 9  # the ensemble stays as it is
    classifier.save(tmp_path / "model")
    loaded = RunoffClassifier.load(tmp_path / "model")
    with pytest.raises(InputError, match=r"pass them, as in fit_undefended\(X, y\)"):
        loaded.fit_undefended()
    np.testing.assert_array_equal(loaded.fit_undefended(X, Y).predict(NEW), undefended.predict(NEW))


def test_the_undefended_baseline_of_texts_and_networks(tmp_path):
    from runoff.torch import TorchClassifier

    texts = ["good film", "fine film", "bad film", "poor film"] * 6
    classifier = RunoffClassifier(n_partitions=3, classes=[0, 1]).fit(texts, [1, 1, 0, 0] * 6)
    assert classifier.fit_undefended().predict(["a good one", "a poor one"]).tolist() == [1, 0]
    images, stored = X[:60].reshape(-1, 8, 8), tmp_path / "networks"
    networks = TorchClassifier(n_partitions=2, classes=range(10), device="cpu", checkpoints=stored, progress=False)
    networks.fit(images, Y[:60])
    kept = {path.name for path in stored.rglob("*")}
    assert networks.fit_undefended().predict(images[:5]).shape == (5,)
    assert {path.name for path in stored.rglob("*")} == kept  # a baseline deletes no member
