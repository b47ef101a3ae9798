"""Users' estimators: unseeded random numbers, threads of their own, and failures at inference time."""

import importlib
import os
import sys
import warnings

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits, load_iris
from sklearn.ensemble import RandomForestClassifier, StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import SVC

from runoff import RunoffClassifier
from runoff.errors import MemberError
from runoff.members import FIXED, MemberEstimator

X, Y = load_digits(return_X_y=True)
TRAIN_X, TRAIN_Y, INPUTS = X[:400], Y[:400], X[400:440]
FLOWERS, KINDS = load_iris(return_X_y=True)


def classifier(estimator, **settings):
    return RunoffClassifier(estimator, **{"n_partitions": 10, "classes": range(10)} | settings)


def untouched_differ(estimator, X, y, **settings):
    """Return the members whose scores differ after the first sample is deleted, except the member that had it."""
    a = classifier(estimator, **settings).fit(X, y)
    b = classifier(estimator, **settings).fit(X[1:], y[1:])
    before, after = a.scores(X[:60]).values, b.scores(X[:60]).values
    return [m for m in range(before.shape[1]) if m != a._buckets[0] and not np.array_equal(before[:, m], after[:, m])]


class TorchDraws(ClassifierMixin, BaseEstimator):
    """A linear layer whose first weights come from PyTorch's global random numbers, and with dropout at training."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.layer_ = torch.nn.Linear(X.shape[1], len(self.classes_))
        targets = torch.from_numpy(np.searchsorted(self.classes_, y))
        optimizer = torch.optim.SGD(self.layer_.parameters(), lr=0.01)
        for _ in range(5):
            logits = self.layer_(torch.nn.functional.dropout(torch.from_numpy(X).float(), 0.3))
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, targets).backward()
            optimizer.step()
        return self

    def predict_proba(self, X):
        with torch.no_grad():
            return torch.softmax(self.layer_(torch.from_numpy(X).float()), 1).numpy()


def test_random_numbers_of_pytorch_are_a_members_own():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    assert untouched_differ(TorchDraws(), TRAIN_X, TRAIN_Y) == []
    assert torch.equal(torch.rand(3), expected)  # the state afterwards is that from before


def test_a_skorch_network_is_isolated():
    skorch = pytest.importorskip("skorch")
    network = skorch.NeuralNetClassifier(
        torch.nn.Sequential(torch.nn.Linear(64, 16), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(16, 10)),
        criterion=torch.nn.CrossEntropyLoss,
        max_epochs=2,
        train_split=None,
        classes=list(range(10)),
        verbose=0,
    )
    to_single = FunctionTransformer(lambda rows: rows.astype(np.float32))
    assert untouched_differ(make_pipeline(StandardScaler(), to_single, network), TRAIN_X, TRAIN_Y) == []


class Imports(TorchDraws):
    """Import a library with its own random numbers during the first fit."""

    def fit(self, X, y):
        importlib.import_module("torch")
        return super().fit(X, y)


def test_a_library_that_is_loaded_by_the_first_fit_is_seeded_all_the_same(monkeypatch):
    settings = {"n_partitions": 3}
    expected = classifier(Imports(), **settings).fit(TRAIN_X, TRAIN_Y).scores(INPUTS).values
    loaded = sys.modules["torch"]
    monkeypatch.setattr(importlib, "import_module", lambda name: sys.modules.setdefault(name, loaded))
    monkeypatch.delitem(sys.modules, "torch")
    np.testing.assert_array_equal(
        classifier(Imports(), **settings).fit(TRAIN_X, TRAIN_Y).scores(INPUTS).values, expected
    )


class Unseeded(ClassifierMixin, BaseEstimator):
    """Draw from a source that cannot be seeded: at `when`, in fit or in predict."""

    def __init__(self, when="fit"):
        self.when = when

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.weights_ = self.drawn((X.shape[1], len(self.classes_)))
        return self

    def drawn(self, shape):
        return np.random.default_rng(int.from_bytes(os.urandom(8)) if self.when == "fit" else 0).normal(size=shape)

    def predict_proba(self, X):
        weights = self.weights_
        if self.when == "predict":
            weights = weights + np.random.default_rng(int.from_bytes(os.urandom(8))).normal(size=weights.shape)
        lifted = np.exp(X @ weights / 100)
        return lifted / lifted.sum(axis=1, keepdims=True)


def test_estimators_that_do_not_repeat_are_refused():
    with pytest.raises(MemberError, match="must learn the same from the same samples every time, but member 0"):
        classifier(Unseeded()).fit(TRAIN_X, TRAIN_Y)
    with pytest.raises(
        MemberError, match="estimator must give the same scores for the same inputs every time, but member 0"
    ):
        classifier(Unseeded("predict")).fit(TRAIN_X, TRAIN_Y)
    assert classifier(Unseeded("never")).fit(TRAIN_X, TRAIN_Y).certify(INPUTS).radius.min() >= 0


class LegacyDraws(TorchDraws):
    """Draw the first weights from NumPy's global random numbers, some time after the fit began."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        for _ in range(20):
            sum(range(2000))
            self.layer_ = torch.nn.Linear(X.shape[1], len(self.classes_))
            self.layer_.weight.data = torch.from_numpy(np.random.normal(size=(len(self.classes_), 64))).float()  # noqa: NPY002
        return self


def test_members_in_threads_do_not_share_random_numbers():
    expected = classifier(LegacyDraws()).fit(TRAIN_X, TRAIN_Y).scores(INPUTS).values
    with joblib.parallel_config(backend="threading", n_jobs=4):
        again = classifier(LegacyDraws(), n_jobs=4).fit(TRAIN_X, TRAIN_Y)
        np.testing.assert_array_equal(again.scores(INPUTS).values, expected)


def test_threads_of_an_estimator_are_turned_off_wherever_they_are_set():
    forest = RandomForestClassifier(60, n_jobs=2)
    nested = make_pipeline(StandardScaler(), VotingClassifier([("forest", forest)], voting="soft", n_jobs=2))
    for estimator in (forest, nested):
        params = MemberEstimator(estimator).unfitted.get_params()
        assert {value for name, value in params.items() if name.split("__")[-1] in FIXED} <= {1, None, "ovr"}
    fitted = classifier(forest, n_partitions=2).fit(TRAIN_X, TRAIN_Y)
    with joblib.parallel_config(backend="threading", n_jobs=2):  # an n_jobs left at None would follow this
        repeated = [fitted.scores(INPUTS).values for _ in range(6)]
        plain = classifier(RandomForestClassifier(60), n_partitions=2).fit(TRAIN_X, TRAIN_Y)
    assert all(np.array_equal(repeated[0], again) for again in repeated)
    np.testing.assert_array_equal(plain.scores(INPUTS).values, repeated[0])
    assert forest.n_jobs == 2  # the user's estimator is not changed


def test_an_estimator_that_predicts_only_after_its_fit_is_accepted():
    stacked = StackingClassifier([("bayes", GaussianNB()), ("neighbours", KNeighborsClassifier(3))], cv=2)
    assert not hasattr(stacked, "predict")
    assert RunoffClassifier(stacked, n_partitions=2, classes=range(3)).fit(FLOWERS, KINDS).score(FLOWERS, KINDS) > 0.9


def test_columns_for_pairs_of_classes_are_not_taken_for_classes():
    pairs = SVC(decision_function_shape="ovo", C=10)
    for estimator in (pairs, make_pipeline(StandardScaler(), pairs)):
        fitted = RunoffClassifier(estimator, n_partitions=3, classes=range(3)).fit(FLOWERS[::2], KINDS[::2])
        assert np.mean(fitted.predict(FLOWERS[1::2]) == KINDS[1::2]) > 0.9


@pytest.mark.filterwarnings("ignore:member:UserWarning")
def test_no_edit_turns_a_prediction_into_an_error():
    """Five neighbours of four samples: the member that a deletion left with four raised for every input."""
    rng = np.random.default_rng(0)
    points, y, inputs = rng.normal(size=(90, 2)), np.arange(90) % 2, rng.normal(size=(20, 2))
    settings = {"n_partitions": 9, "classes": [0, 1]}
    base = RunoffClassifier(KNeighborsClassifier(5), **settings).fit(points, y)
    certificates = base.certify(inputs)
    for r in (1, 2, 3):
        safe = certificates.radius >= r
        smallest = np.argsort(base.member_sizes_)[0]
        there = np.flatnonzero(base._buckets == smallest)
        for gone in (
            there[: max(r, len(there) - 4)],
            np.flatnonzero(base._buckets == np.argsort(base.member_sizes_)[1])[:r],
        ):
            now = RunoffClassifier(KNeighborsClassifier(5), **settings)
            now.fit(np.delete(points, gone, axis=0), np.delete(y, gone)).predict(inputs)
            if len(gone) <= r:
                np.testing.assert_array_equal(now.predict(inputs)[safe], certificates.prediction[safe])
    few = np.flatnonzero(base._buckets == 0)[4:]
    with pytest.warns(UserWarning, match="member 0 votes by its class shares, since it could not be trained"):
        refused = RunoffClassifier(KNeighborsClassifier(5), **settings).fit(
            np.delete(points, few, axis=0), np.delete(y, few)
        )
    own = np.bincount(np.delete(y, few)[refused._buckets == 0], minlength=2)
    np.testing.assert_allclose(refused.scores(inputs).values[0, 0], own / own.sum())


@pytest.mark.filterwarnings("ignore:.*members learn nothing")
@pytest.mark.filterwarnings("ignore:(no )?member:UserWarning")
def test_no_edit_of_the_only_trained_member_prevents_predictions():
    rng = np.random.default_rng(0)
    one_in = KNeighborsClassifier(5, algorithm="brute")
    settings = {"n_partitions": 7, "classes": [0, 1]}
    tried = 0
    for n in range(20, 40):
        points, y = rng.normal(size=(n, 2)), np.zeros(n, int)
        y[0] = 1
        base = RunoffClassifier(one_in, **settings).fit(points, y)
        if not any(member.fitted for member in base.members_):
            continue
        certificates = base.certify(points)
        there = np.flatnonzero(base._buckets == base._buckets[0])
        for gone in there[: len(there) * int(certificates.radius.min() > 0)]:
            now = RunoffClassifier(one_in, **settings).fit(np.delete(points, gone, axis=0), np.delete(y, gone))
            np.testing.assert_array_equal(now.predict(points), certificates.prediction)
            tried += 1
    assert tried > 10


class FailsOn(ClassifierMixin, BaseEstimator):
    """Raise an error for inputs whose first number is above the limit, whatever the other inputs are."""

    def __init__(self, error=RuntimeError):
        self.error = error

    def fit(self, X, y):
        self.inner_ = LogisticRegression(max_iter=500).fit(X, y)
        self.classes_ = self.inner_.classes_
        return self

    def predict_proba(self, X):
        if (X[:, 0] > 100).any():
            raise self.error("too large")
        return self.inner_.predict_proba(X)


def test_inputs_that_a_member_fails_on_get_its_shares_and_the_others_their_scores():
    fitted = classifier(FailsOn(), n_partitions=3).fit(TRAIN_X, TRAIN_Y)
    inputs = INPUTS[:9].copy()
    expected = fitted.scores(inputs).values
    inputs[[2, 7], 0] = 101
    with pytest.warns(
        UserWarning, match=r"member \d could not score 2 of 9 inputs and votes by its class shares for them: Ru"
    ):
        scores = fitted.scores(inputs).values
    fine = [0, 1, 3, 4, 5, 6, 8]
    np.testing.assert_allclose(scores[fine], expected[fine], rtol=1e-12)
    for m, member in enumerate(fitted.members_):
        np.testing.assert_array_equal(scores[2, m], member.shares)
        np.testing.assert_array_equal(scores[7, m], member.shares)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = fitted.scores(inputs[2:3]).values
        assert len(fitted.certify(inputs)) == 9
    np.testing.assert_array_equal(alone[0], scores[2])


def test_errors_of_the_machine_stop_the_fit():
    fitted = classifier(FailsOn(MemoryError), n_partitions=3).fit(TRAIN_X, TRAIN_Y)
    with pytest.raises(MemberError, match="member 0 could not be scored: MemoryError: too large"):
        fitted.predict(np.full((1, 64), 101.0))
    large = TRAIN_X.copy()
    large[:, 0] = 101
    with pytest.raises(MemberError, match=r"member 0 could not be trained on its \d+ samples: OSError: too large"):
        classifier(FailsOn(OSError), n_partitions=3).fit(large, TRAIN_Y)
    with pytest.warns(
        UserWarning, match=r"no member could be trained, so all vote .* member 0: RuntimeError: too large"
    ):
        classifier(FailsOn(), n_partitions=3).fit(large, TRAIN_Y)


def test_an_array_that_no_machine_could_hold_is_the_samples_fault():
    """Categorical naive Bayes allocates memory for as many categories as the largest number."""
    from sklearn.naive_bayes import CategoricalNB

    counts, y = np.random.default_rng(0).integers(0, 3, (60, 4)), np.arange(60) % 3
    settings = {"n_partitions": 5, "classes": range(3)}
    base = RunoffClassifier(CategoricalNB(min_categories=3), **settings).fit(counts, y)
    larger = np.concatenate([counts, [[10**12, 0, 0, 0]]])
    with pytest.warns(UserWarning, match=r"member \d votes by its class shares.* Unable to allocate"):
        edited = RunoffClassifier(CategoricalNB(min_categories=3), **settings).fit(larger, np.append(y, 0))
    others = [m for m in range(5) if m != edited._buckets[-1]]
    np.testing.assert_array_equal(base.scores(counts).values[:, others], edited.scores(counts).values[:, others])


class Wide(FailsOn):
    """Return one column more than there are classes."""

    def predict_proba(self, X):
        return np.pad(self.inner_.predict_proba(X), ((0, 0), (0, 1)))


def test_scores_of_another_shape_are_not_taken_for_classes():
    with pytest.warns(UserWarning, match=r"no member could be .* an estimator must give scores of shape \(1, 10\)"):
        classifier(Wide(), n_partitions=2).fit(TRAIN_X, TRAIN_Y)
