"""Encoders: features of one input alone, the cache, and ensembles on top; any function."""

import hashlib

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.naive_bayes import GaussianNB
from sklearn.preprocessing import StandardScaler

import runoff
from runoff import Encoder
from runoff.heads import RidgeHead

X, Y = load_digits(return_X_y=True)
AXES = PCA(12, whiten=True, random_state=0).fit(X[:400])


def pca(rows):
    return (rows - AXES.mean_) @ AXES.components_.T / AXES.explained_variance_**0.5


KINDS = {"scikit-learn": runoff.RunoffClassifier}
try:
    from runoff.torch import TorchClassifier

    KINDS["torch"] = TorchClassifier
except ImportError:
    pass


TODAY = {"use_legacy_attributes": False, "l1_ratios": (0,)}  # of scikit-learn, which warns without them


def ensemble(kind="scikit-learn", encoder=pca, **settings):
    given = {"n_partitions": 20, "classes": range(10), "encoder": encoder, **settings}
    return KINDS[kind](**given)


def test_inputs_of_one_content_have_the_same_features():
    encoder = Encoder(pca, "pca")
    features = encoder.features(X[:50])
    np.testing.assert_allclose(features, AXES.transform(X[:50]), rtol=1e-5, atol=1e-5)
    for other in (X[:50][::-1], X[:50].astype(np.int64)[::-1], np.repeat(X[:50][::-1], 2, axis=0)[::2]):
        np.testing.assert_array_equal(encoder.features(other)[::-1], features)
    np.testing.assert_array_equal(encoder.features(X[7:8])[0], features[7])


def test_blocks_are_filled_up():
    sizes = []

    def rows(block):
        sizes.append(len(block))
        return block[:, :3]

    encoder = Encoder(rows, "rows", batch=8)
    np.testing.assert_array_equal(encoder.features(X[:21]), X[:21, :3].astype(np.float32))
    assert set(sizes) == {8}


def test_one_more_input_moves_no_other_in_its_block():
    """Rows at the edge of a matrix product differ from others in their last bits."""

    def by_place(block):
        return block[:, :3] + np.arange(len(block))[:, None]

    few, all_ = (Encoder(by_place, "place", batch=8).features(X[:n]) for n in (60, 90))
    np.testing.assert_array_equal(few, all_[:60])
    np.testing.assert_array_equal(Encoder(by_place, "place", batch=8).features(X[59:60]), few[59:])
    assert len(set((few - X[:60, :3].astype(np.float32))[:, 0])) == 8  # all places are used


def test_workers_do_not_change_features():
    one, many = (Encoder(pca, "pca", workers=n).features(X[:60]) for n in (1, 4))
    np.testing.assert_array_equal(one, many)


@pytest.mark.parametrize(
    ("encoder", "message"),
    [
        (Encoder(StandardScaler().fit_transform, "scaler", batch=9), "the other inputs of a block, too: use batch=1"),
        (Encoder(lambda x: x[:, :3] + np.random.default_rng().normal(), "noise"), "depend on something else, too"),
        (Encoder(lambda x: x[0], "flat"), r"an array \(1, features\) of numbers for 1 input\(s\), got shape \(64,\)"),
        (Encoder(lambda x: x[:, : int(x.sum()) % 9 + 1], "ragged"), "as many features for all inputs"),
    ],
)
def test_functions_that_are_not_encoders_are_refused(encoder, message):
    with pytest.raises(ValueError, match=message):
        encoder.features(X[:20])


def test_features_that_are_not_finite_are_zeros():
    x = np.array([[1.0, 2.0], [3.0, 0.0]])
    with np.errstate(divide="ignore"):
        features = Encoder(lambda rows: np.stack([rows[:, 0], rows[:, 0] / rows[:, 1]], 1), "ratio").features(x)
    np.testing.assert_array_equal(features, [[1.0, 0.5], [0.0, 0.0]])


class Counting:
    def __init__(self, fail_after=None):
        self.calls, self.fail_after = 0, fail_after

    def __call__(self, rows):
        self.calls += len(rows)
        if self.fail_after is not None and self.calls > self.fail_after:
            raise KeyboardInterrupt
        return rows[:, :5]


def test_features_are_computed_once_and_interruptions_lose_nothing(tmp_path):
    def encoder(function, sha256="0" * 64):
        return Encoder(function, "counting", sha256, cache=tmp_path)

    with pytest.raises(KeyboardInterrupt):
        encoder(Counting(fail_after=30)).features(X[:50])
    resumed = Counting()
    features = encoder(resumed).features(X[:50])
    assert 20 <= resumed.calls <= 26  # and three to check the function
    np.testing.assert_array_equal(features, X[:50, :5].astype(np.float32))
    again = Counting()
    np.testing.assert_array_equal(encoder(again).features(X[:60][::-1])[::-1], X[:60, :5].astype(np.float32))
    assert 10 <= again.calls <= 13
    other = Counting()
    encoder(other, "1" * 64).features(X[:50])
    assert other.calls >= 50


def test_damaged_files_of_the_cache_are_ignored(tmp_path, caplog):
    Encoder(Counting(), "counting", "0" * 64, cache=tmp_path).features(X[:50])
    (file,) = tmp_path.glob("*/*.npy")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == file.stem
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    counting = Counting()
    features = Encoder(counting, "counting", "0" * 64, cache=tmp_path).features(X[:50])
    np.testing.assert_array_equal(features, X[:50, :5].astype(np.float32))
    assert counting.calls >= 50
    assert "is ignored: altered or damaged" in caplog.text


def test_a_cache_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    features = Encoder(Counting(), "counting", "0" * 64, cache=tmp_path / "file").features(X[:5])
    np.testing.assert_array_equal(features, X[:5, :5].astype(np.float32))
    assert "could not be cached" in caplog.text


@pytest.mark.parametrize("kind", KINDS)
def test_an_edit_changes_its_own_members_only(kind):
    before = ensemble(kind).fit(X[:600], Y[:600])
    poisoned, labels = np.concatenate([X[:600], np.full((1, 64), 1e6)]), np.append(Y[:600], 3)
    after = ensemble(kind).fit(poisoned, labels)
    one, other = (c.scores(X[600:700]).values for c in (before, after))
    changed = [m for m in range(20) if not np.array_equal(one[:, m], other[:, m])]
    assert len(changed) == 1
    updated = before.update(add=(poisoned[600:], labels[600:]))
    np.testing.assert_array_equal(updated.scores(X[600:700]).values, other)
    assert updated.updated_members_.tolist() == changed
    updated.update(remove=(poisoned[600:], labels[600:]))
    np.testing.assert_array_equal(updated.scores(X[600:700]).values, one)


@pytest.mark.parametrize("wrap", [lambda function: function, lambda function: Encoder(function, "mine")])
@pytest.mark.parametrize("kind", KINDS)
def test_heads_of_another_encoder_with_the_same_name_are_never_reused(kind, wrap):
    def scaled(factor):
        return wrap(lambda rows: np.tanh(rows * factor))

    one, other = scaled(np.linspace(0, 1, 64)), scaled(np.linspace(1, 0, 64))
    expected = ensemble(kind, other).fit(X[:200], Y[:200]).scores(X[200:210]).values
    again = ensemble(kind, one).fit(X[:200], Y[:200]).set_params(encoder=other).fit(X[:200], Y[:200])
    np.testing.assert_array_equal(again.scores(X[200:210]).values, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_fitted_again_if_the_function_of_an_encoder_has_changed(kind):
    factor = np.linspace(0, 1, 64)
    classifier = ensemble(kind, Encoder(lambda rows: np.tanh(rows * factor), "mine")).fit(X[:200], Y[:200])
    factor[:] = factor[::-1].copy()
    expected = ensemble(kind, Encoder(lambda rows: np.tanh(rows * factor), "mine")).fit(X[:200], Y[:200])
    again = classifier.fit(X[:200], Y[:200]).scores(X[200:210]).values
    np.testing.assert_array_equal(again, expected.scores(X[200:210]).values)


@pytest.mark.parametrize("kind", KINDS)
def test_heads_are_fitted_again_after_a_change_that_only_float64_shows(kind):
    lost = Encoder(lambda rows: (rows - rows.astype(np.float32)) * 1e9, "lost", sha256="0" * 64)
    x, y = np.random.default_rng(0).normal(size=(12, 3)), np.arange(12) % 2
    settings = {"n_partitions": 1, "classes": [0, 1]}
    for i in range(12):
        changed = x.copy()
        changed[i] += 1e-10
        np.testing.assert_array_equal(changed.astype(np.float32), x.astype(np.float32))
        fresh = ensemble(kind, lost, **settings).fit(changed, y).scores(x).values
        updated = ensemble(kind, lost, **settings).fit(x, y)
        updated.update(add=(changed[i : i + 1], y[i : i + 1]), remove=(x[i : i + 1], y[i : i + 1]))
        np.testing.assert_array_equal(updated.scores(x).values, fresh)


@pytest.mark.skipif("torch" not in KINDS, reason="needs torch")
def test_checkpoints_need_an_encoder_that_can_be_told_from_others(tmp_path):
    with pytest.raises(ValueError, match="needs sha256= if heads are kept in checkpoints"):
        ensemble("torch", checkpoints=tmp_path / "heads").fit(X[:200], Y[:200])
    known = Encoder(pca, "pca", sha256="0" * 64)
    first = ensemble("torch", known, checkpoints=tmp_path / "heads").fit(X[:200], Y[:200])
    assert list((tmp_path / "heads").iterdir())
    again = ensemble("torch", known, checkpoints=tmp_path / "heads").fit(X[:200], Y[:200])
    np.testing.assert_array_equal(first.scores(X[:9]).values, again.scores(X[:9]).values)


@pytest.mark.parametrize("kind", KINDS)
def test_radii_on_features(kind):
    classifier = ensemble(kind, n_partitions=40).fit(X[400:1400], Y[400:1400])
    accuracy = runoff.certified_accuracy(classifier.certify(X[1400:]), Y[1400:], [0, 4])
    assert accuracy[0] > 0.8
    assert accuracy[1] > 0.65


def test_the_default_head_is_a_ridge_and_any_estimator_will_do():
    assert isinstance(ensemble().fit(X[:400], Y[:400]).members_[0].fitted[0], RidgeHead)
    bayes = ensemble(estimator=GaussianNB(), n_partitions=8).fit(X[:400], Y[:400])
    assert bayes.certify(X[400:500]).radius.max() > 0


def test_texts_have_encoders_too():
    texts = [f"{'good' if i % 2 else 'bad'} film number {i}" for i in range(200)]
    hashing = HashingVectorizer(n_features=64)
    classifier = ensemble(encoder=lambda block: hashing.transform(block).toarray(), classes=[0, 1])
    classifier.fit(texts, [i % 2 for i in range(200)])
    assert classifier.predict(["good", "bad"]).tolist() == [1, 0]


def test_an_estimator_tunes_itself_inside_the_member():
    tuned = LogisticRegressionCV(Cs=3, cv=2, max_iter=2000, scoring="accuracy", **TODAY)
    settings = {"estimator": tuned, "n_partitions": 4, "classes": [False, True]}
    before = ensemble(**settings).fit(X[:300], Y[:300] < 5)
    after = ensemble(**settings).fit(X[:301], Y[:301] < 5)
    one, other = (c.scores(X[400:450]).values for c in (before, after))
    assert [np.array_equal(one[:, m], other[:, m]) for m in range(4)].count(False) == 1
    assert all(member.fitted for member in before.members_)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"encoder": 3}, "encoder must be a name, the path of a safetensors file, a function"),
        ({"encoder": PCA}, "got type|got ABCMeta"),
        ({"shared": PCA(2), "threat": "labels"}, "encoder and shared cannot be combined"),
    ],
)
def test_invalid_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        ensemble(**settings).fit(X[:100], Y[:100])


def test_invalid_encoders():
    with pytest.raises(ValueError, match="batch must be a whole number of at least 1, got 0"):
        Encoder(pca, "pca", batch=0)
    with pytest.raises(ValueError, match="needs sha256="):
        Encoder(pca, "pca", cache="somewhere")
    with pytest.raises(ValueError, match="X must be an array of numbers or a list of texts for an encoder, got list"):
        Encoder(pca, "pca").features([1, 2])
    with pytest.raises(ValueError, match="at least one input"):
        Encoder(pca, "pca").features(X[:0])


@pytest.mark.parametrize("kind", KINDS)
def test_classifiers_with_an_encoder_say_so_when_they_cannot_be_saved(kind, tmp_path):
    with pytest.raises(ValueError, match="cannot be saved, because the encoder would be lost"):
        ensemble(kind).fit(X[:300], Y[:300]).save(tmp_path / "saved")
