"""update, save and load, and scikit-learn's tools around a RunoffClassifier."""

import json
import os
import re
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import runoff
from runoff import RunoffClassifier
from runoff.errors import MemberError, StorageError
from test_isolation import changed, states

X, Y = load_digits(return_X_y=True)
X, Y = X[:600], Y[:600]
INPUTS = load_digits(return_X_y=True)[0][600:640]


def small(**settings):
    members = RidgeClassifier(alpha=50)
    return RunoffClassifier(**{"estimator": members, "n_partitions": 5, "spread": 2, "classes": range(10)} | settings)


def test_predictions_are_labels_and_explanations_use_them():
    names = np.array(["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"])
    fitted = small(classes=names).fit(X, names[Y])
    certificates = fitted.certify(INPUTS)
    assert set(certificates.prediction) <= set(names)
    np.testing.assert_array_equal(certificates.prediction, fitted.predict(INPUTS))
    assert certificates.prediction[3] in certificates[3:5].explain(0)
    accuracy = runoff.certified_accuracy(certificates, names[load_digits(return_X_y=True)[1][600:640]], [0, 1])
    assert accuracy[0] > 0.7
    with pytest.raises(ValueError, match="y_true must be labels from"):
        runoff.certified_accuracy(certificates, np.array(["ten"] * 40), [0])


def test_scores_bring_their_spread_along():
    fitted = small().fit(X, Y)
    scores = fitted.scores(INPUTS)
    certificates = runoff.certify(scores)
    np.testing.assert_array_equal(certificates.radius, fitted.certify(INPUTS).radius)
    assert certificates.fingerprint == scores.fingerprint == fitted.partition_.fingerprint
    np.testing.assert_array_equal(runoff.certify(scores[3:5]).radius, certificates.radius[3:5])
    np.testing.assert_array_equal(runoff.certify(scores, spread=fitted.partition_.spread).radius, certificates.radius)
    out = np.empty(scores.values.shape, np.uint8)
    for ballots in (runoff.rank(scores), runoff.rank(iter([scores[:20], scores[20:]])), runoff.rank(scores, out=out)):
        assert ballots.values.dtype == np.uint8
        np.testing.assert_array_equal(runoff.certify(ballots).radius, certificates.radius)
    other = small(random_state=1).fit(X, Y)
    with pytest.raises(ValueError, match="spread must be the one that these scores' members were trained with"):
        runoff.certify(scores, spread=other.partition_.spread)
    assert other.partition_.fingerprint != fitted.partition_.fingerprint
    assert fitted.balance().startswith("10 members, each bucket in 2: ")


def test_update_equals_a_fit_from_scratch():
    order = np.random.default_rng(0).permutation(600)
    gone, stay, new = order[:7], order[7:500], order[500:509]
    updated = small().fit(X[order[:500]], Y[order[:500]])
    before = states(updated)
    updated.update(add=(X[new], Y[new]), remove=(X[gone], Y[gone]))
    rows = np.concatenate([stay, new])
    scratch = small().fit(X[rows], Y[rows])
    assert changed(updated, scratch) == []
    np.testing.assert_array_equal(updated.scores(INPUTS).values, scratch.scores(INPUTS).values)
    np.testing.assert_array_equal(updated.member_sizes_, scratch.member_sizes_)
    moved = [m for m in range(10) if before[m] != states(updated)[m]]
    assert set(moved) <= set(updated.updated_members_)


def test_unlearning_a_sample_trains_d_members_again():
    fitted = small().fit(X, Y)
    fitted.update(remove=(X[:1], Y[:1]))
    assert len(fitted.updated_members_) == 2
    assert changed(fitted, small().fit(X[1:], Y[1:])) == []


def test_relabelling_by_update_and_classes_that_come_and_go():
    fitted = small(classes=None).fit(X, Y)
    fitted.update(remove=(X[:2], Y[:2]), add=(X[:2], [77, 77]))
    assert fitted.classes_.tolist() == [*range(10), 77]
    labels = Y.copy()
    labels[:2] = 77
    np.testing.assert_array_equal(
        fitted.scores(INPUTS).values, small(classes=None).fit(X, labels).scores(INPUTS).values
    )
    fitted.update(remove=(X[:2], [77, 77]))
    assert fitted.classes_.tolist() == list(range(10))


def test_update_of_copies_removes_one_each():
    twice = np.concatenate([X, X[:1]]), np.append(Y, Y[0])
    fitted = small().fit(*twice).update(remove=(X[:1], Y[:1]))
    assert changed(fitted, small().fit(X, Y)) == []
    with pytest.raises(ValueError, match=r"sample 1 \(label 0\) is not one of them, or occurs less often: nothing was"):
        fitted.update(remove=(X[[0, 0]], Y[[0, 0]]))
    assert changed(fitted, small().fit(X, Y)) == []
    with pytest.raises(ValueError, match="update must leave at least one training sample"):
        fitted.update(remove=(X, Y))


def test_an_update_that_fails_changes_nothing_and_data_that_changed_is_noticed(monkeypatch):
    def full(_source):
        raise MemoryError

    own = X.copy()
    fitted = small().fit(own, Y)
    before = states(fitted)
    monkeypatch.setattr(fitted._unfitted, "seeded", full)
    with pytest.raises(MemberError, match=r"could not be trained on its .* samples: MemoryError"):
        fitted.update(remove=(own[:1], Y[:1]))
    assert states(fitted) == before
    assert len(fitted._labels) == 600
    own[5] += 1
    with pytest.raises(ValueError, match="X was changed in place since fit"):
        fitted.update(remove=(own[:1], Y[:1]))


@pytest.mark.filterwarnings("ignore:.*(overflow|invalid value|[Ii]ll-conditioned)")
def test_an_update_by_a_sample_that_breaks_all_members_it_reaches_equals_a_fit():
    monster = np.full((1, 64), 1e308), Y[:1]
    fitted = small().fit(X, Y)
    with pytest.warns(UserWarning, match="votes by its class shares"):
        fitted.update(add=monster)
    with pytest.warns(UserWarning, match="votes by its class shares"):
        scratch = small().fit(np.concatenate([X, monster[0]]), np.append(Y, monster[1]))
    assert sum(member.refused is not None for member in scratch.members_) == 2
    assert changed(fitted, scratch) == []


def test_classes_set_after_the_fit_do_not_void_certificates():
    fitted = small().fit(X, Y)
    fitted.set_params(classes=None)
    with pytest.raises(ValueError, match="y must hold labels from classes="):
        fitted.update(add=(X[:1], [-1]))


def test_an_update_keeps_to_the_recipe_of_the_fit():
    fitted = small().fit(X, Y)
    fitted.set_params(estimator__alpha=1e6, n_seeds=2)
    assert changed(fitted.update(remove=(X[:1], Y[:1])), small().fit(X[1:], Y[1:])) == []


def test_updates_scores_and_files_keep_to_the_type_of_numbers_of_the_fit(tmp_path):
    fine = X + 1e-9 * np.arange(64)  # other numbers in single precision
    fitted = small().fit(fine, Y)
    expected = fitted.scores(fine[:20]).values
    fitted.set_params(dtype="float32")
    np.testing.assert_array_equal(fitted.scores(fine[:20]).values, expected)
    fitted.save(tmp_path / "saved")
    np.testing.assert_array_equal(RunoffClassifier.load(tmp_path / "saved").scores(fine[:20]).values, expected)
    assert changed(fitted.update(remove=(fine[:1], Y[:1])), small().fit(fine[1:], Y[1:])) == []


def test_labels_of_mixed_kinds_are_refused():
    with pytest.raises(ValueError, match="y must hold labels of one kind, got strings and numbers"):
        small().fit(X[:3], [1, 2, "3"])


@pytest.mark.filterwarnings("ignore:.*members learn nothing")
def test_inputs_are_typed_as_the_member_saw_them():
    table = pd.DataFrame({"a": np.where(Y > 4, "x", "y"), "b": Y % 3})
    codes = make_pipeline(FunctionTransformer(lambda t: t.assign(a=t["a"].cat.codes)), LogisticRegression())
    fitted = RunoffClassifier(codes, n_partitions=3).fit(table, Y > 4)
    only = table[table["a"] == "x"]
    assert fitted.predict(only).all()
    numbers = pd.DataFrame({"a": pd.Series([1, "z"] * 300, dtype=object), "b": Y % 3})
    same = numbers.assign(a=pd.Series([1.0, "z"] * 300, dtype=object))
    fitted = RunoffClassifier(n_partitions=3).fit(numbers, Y % 2)
    np.testing.assert_array_equal(fitted.scores(numbers).values, fitted.scores(same).values)
    with pytest.raises(ValueError, match="X must be a table with"):
        RunoffClassifier(n_partitions=3).fit(pd.DataFrame(X[:, :3]), Y).predict(pd.DataFrame(X[:, :3])[[2, 1, 0]])


def test_update_of_tables_and_texts():
    table = pd.DataFrame({"a": Y % 7, "b": np.where(Y > 4, "x", "y")})
    fitted = RunoffClassifier(n_partitions=4).fit(table[:500], Y[:500])
    fitted.update(add=(table[500:], Y[500:]), remove=(table[:3], Y[:3]))
    scratch = RunoffClassifier(n_partitions=4).fit(table[3:], Y[3:])
    np.testing.assert_array_equal(fitted.scores(table).values, scratch.scores(table).values)
    texts = [f"{'even' if y % 2 == 0 else 'odd'} {y}" for y in Y]
    fitted = RunoffClassifier(n_partitions=4).fit(texts[:500], Y[:500])
    fitted.update(add=(texts[500:], Y[500:]))
    np.testing.assert_array_equal(
        fitted.scores(texts[:50]).values, RunoffClassifier(n_partitions=4).fit(texts, Y).scores(texts[:50]).values
    )


def test_save_and_load(tmp_path):
    names = np.array([f"digit {y}" for y in Y])
    fitted = small(hash_key=runoff.new_key(), estimator=None, classes=np.unique(names)).fit(X, names)
    fitted.save(tmp_path / "model")
    loaded = RunoffClassifier.load(tmp_path / "model")
    certificates, again = fitted.certify(INPUTS), loaded.certify(INPUTS)
    np.testing.assert_array_equal(certificates.prediction, again.prediction)
    np.testing.assert_array_equal(certificates.radius, again.radius)
    assert certificates.fingerprint == again.fingerprint
    np.testing.assert_array_equal(fitted.scores(INPUTS).values, loaded.scores(INPUTS).values)
    assert (tmp_path / "model" / "key").stat().st_mode & 0o077 == 0
    assert sorted(os.listdir(tmp_path)) == ["model"]  # noqa: PTH208
    loaded.save(tmp_path / "again")
    np.testing.assert_array_equal(RunoffClassifier.load(tmp_path / "again").certify(INPUTS).radius, again.radius)
    shutil.rmtree(tmp_path / "again")
    assert repr(bytes(fitted.hash_key)) not in str(small(hash_key=bytes(fitted.hash_key))._repr_mimebundle_())
    with pytest.raises(ValueError, match="a loaded classifier has no training samples to update"):
        loaded.update(add=(X[:1], names[:1]))
    with pytest.raises(FileExistsError, match="already exists: save to a new directory"):
        fitted.save(tmp_path / "model")
    with pytest.raises(ValueError, match="X has 10 features, but RunoffClassifier is expecting 64 features"):
        loaded.predict(INPUTS[:, :10])


def test_members_of_a_table_survive_saving(tmp_path):
    table = pd.DataFrame({"a": Y % 7, "b": np.where(Y > 4, "x", "y")})
    fitted = RunoffClassifier(n_partitions=3).fit(table, Y)
    fitted.save(tmp_path / "model")
    np.testing.assert_array_equal(
        RunoffClassifier.load(tmp_path / "model").scores(table).values, fitted.scores(table).values
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "model"
    small().fit(X, Y).save(path)
    return path


def hurt(saved, tmp_path, name, change):
    copy = tmp_path / "model"
    shutil.copytree(saved, copy)
    file = copy / name
    data = change(file.read_bytes())
    if data is None:
        file.unlink()
    else:
        file.write_bytes(data)
    return copy


DAMAGE = [
    ("manifest.json", lambda data: data[:-9], "is damaged: manifest.json is not JSON"),
    ("manifest.json", lambda _: None, "is not a saved classifier: manifest.json cannot be read (No such file"),
    ("manifest.json", lambda _: b"[]", "is not a saved classifier: manifest.json describes something else"),
    ("manifest.json", lambda data: data.replace(b'"version": 2', b'"version": 9'), "has version 9, this release reads"),
    ("manifest.json", lambda data: data.replace(b'"key"', b'"../key"'), "names files outside the directory"),
    ("manifest.json", lambda data: data.replace(b'"spread": 2', b'"spred": 2'), "has invalid settings"),
    ("classes.npy", lambda data: data[:-1], "was altered or damaged: classes.npy does not match the SHA-256"),
    (
        "members/000003.skops",
        lambda data: data + b"x",
        "damaged: members/000003.skops does not match the SHA-256",
    ),
    ("members/000003.skops", lambda _: None, "is incomplete: members/000003.skops cannot be read"),
    ("key", lambda data: bytes(len(data)), "was altered or damaged: key does not match the SHA-256"),
]


@pytest.mark.parametrize(("name", "change", "message"), DAMAGE)
def test_damaged_directories_get_one_sentence(saved, tmp_path, name, change, message):
    copy = hurt(saved, tmp_path, name, change)
    with pytest.raises(StorageError, match=re.escape(message)) as caught:
        RunoffClassifier.load(copy)
    assert "\n" not in str(caught.value)


def forged(copy, name, data):
    """Change a file like an attacker who also writes its digest into the manifest."""
    import hashlib

    (copy / name).write_bytes(data)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(data).hexdigest()
    (copy / "manifest.json").write_text(json.dumps(manifest))


def test_hostile_members_are_not_run(saved, tmp_path):
    import skops.io as sio

    copy = tmp_path / "model"
    shutil.copytree(saved, copy)
    forged(copy, "members/000001.skops", b"cos\nsystem\n(S'touch owned'\ntR.")
    loaded = RunoffClassifier.load(copy)  # members are read on first use
    with pytest.raises(StorageError, match=r"members/000001.skops cannot be read"):
        loaded.predict(INPUTS)
    forged(copy, "members/000001.skops", sio.dumps({"index": os.system}))
    with pytest.raises(StorageError, match="holds types that are not on the list of trusted types, posix"):
        RunoffClassifier.load(copy).predict(INPUTS)
    forged(copy, "key", bytes(32))
    with pytest.raises(StorageError, match="has a partition that does not match its fingerprint"):
        RunoffClassifier.load(copy)


def test_saving_leaves_nothing_behind_when_it_fails(tmp_path, monkeypatch):
    fitted = small().fit(X, Y)

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        fitted.save(tmp_path / "model")
    assert os.listdir(tmp_path) == []  # noqa: PTH208
    with pytest.raises(ValueError, match="whose hash is a function cannot be saved"):
        small(hash=lambda X: X[:, 20].astype(int)).fit(X, Y).save(tmp_path / "other")


def test_scikit_learns_tools():
    data, labels = load_iris(return_X_y=True)
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    scores = cross_validate(RunoffClassifier(inner, n_partitions=3), data, labels, cv=3)
    assert scores["test_score"].mean() > 0.8
    choices = {"n_partitions": [2, 4], "estimator__logisticregression__C": [1, 10]}
    grid = GridSearchCV(RunoffClassifier(inner), choices, cv=3)
    assert grid.fit(data, labels).best_score_ > 0.8
    piped = make_pipeline(RunoffClassifier(inner, n_partitions=3)).fit(data, labels)
    assert piped.score(data, labels) > 0.8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"n_partitions": 0}, "n_partitions must be a whole number of at least 1, got 0"),
        ({"spread": 1.5}, "spread must be a whole number of at least 1, got 1.5"),
        ({"n_seeds": True}, "n_seeds must be a whole number of at least 1, got True"),
        ({"election": "borda"}, "election must be one of 'maximin', 'plurality', 'runoff', got 'borda'"),
        ({"bound": "loose"}, "bound must be one of 'tight', 'paper', got 'loose'"),
        ({"classes": range(5)}, "y must hold labels from classes=[0, 1, 2, 3, 4], got 5"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        small(**settings).fit(X, Y)


@pytest.mark.filterwarnings("ignore:.*members learn nothing")
def test_bad_use():
    with pytest.raises(NotFittedError):
        small().certify(X)
    with pytest.raises(ValueError, match="X and y must be of the same length, got 600 samples and 599 labels"):
        small().fit(X, Y[1:])
    assert small(classes=None).fit(X[:20], np.zeros(20, int)).predict(INPUTS).tolist() == [0] * 40
    with pytest.raises(ValueError, match=re.escape("certificates need at least 2 classes, got [0]: extend classes=")):
        small(classes=[0]).fit(X[:20], np.zeros(20, int)).certify(INPUTS)
    assert (small(classes=[0, 1]).fit(X[:20], np.zeros(20, int)).certify(INPUTS).radius == 2).all()
    with pytest.raises(ValueError, match=re.escape("X must be an array of shape (n, 64), as in fit, got texts")):
        small().fit(X, Y).predict(["a", "b"])
