"""The isolation contract: an edit touches the members that the spread names, and no other, bit for bit."""

import signal
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.svm import LinearSVC

from runoff import RunoffClassifier, hashing, samples
from runoff.errors import FittedInFrontWarning, MemberError
from runoff.isolation import seeds_of

X, Y = load_digits(return_X_y=True)
TEST = np.arange(len(Y)) % 5 == 0
TRAIN_X, TRAIN_Y, TEST_X, TEST_Y = X[~TEST], Y[~TEST], X[TEST][:60], Y[TEST][:60]


def states(classifier):
    """Return a digest of everything that each member has learnt."""
    return [joblib.hash((m.classes.tolist(), m.shares, m.fitted)) for m in classifier.members_]


def changed(a, b):
    return [m for m, (s, t) in enumerate(zip(states(a), states(b), strict=True)) if s != t]


def classifier(**settings):
    return RunoffClassifier(**{"n_partitions": 6, "spread": 2, "classes": range(10)} | settings)


BASE = classifier().fit(TRAIN_X, TRAIN_Y)


def test_the_order_of_the_samples_does_not_matter():
    order = np.random.default_rng(0).permutation(len(TRAIN_Y))
    again = classifier().fit(TRAIN_X[order], TRAIN_Y[order])
    assert changed(BASE, again) == []
    np.testing.assert_array_equal(BASE.scores(TEST_X).values, again.scores(TEST_X).values)


@pytest.mark.parametrize("n_jobs", [2, 3])
def test_the_number_of_workers_does_not_matter(n_jobs):
    again = classifier(n_jobs=n_jobs).fit(TRAIN_X, TRAIN_Y)
    assert changed(BASE, again) == []
    np.testing.assert_array_equal(BASE.scores(TEST_X).values, again.scores(TEST_X).values)


def test_any_joblib_backend_works():
    with joblib.parallel_backend("threading", n_jobs=2):
        assert changed(BASE, classifier(n_jobs=2).fit(TRAIN_X, TRAIN_Y)) == []


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float32, ">f8"])
def test_the_type_of_the_array_does_not_matter(dtype):
    """One inserted row with a fraction converts all integers to floats."""
    assert changed(BASE, classifier().fit(TRAIN_X.astype(dtype), TRAIN_Y)) == []


def test_an_insertion_touches_the_members_of_its_bucket_only():
    extreme = np.full((1, 64), 1e9)
    again = classifier().fit(np.concatenate([TRAIN_X, extreme]), np.append(TRAIN_Y, 3))
    bucket = again._buckets[-1]
    assert changed(BASE, again) == sorted(BASE.partition_.spread[bucket])


def test_a_deletion_touches_the_members_of_its_bucket_only():
    again = classifier().fit(TRAIN_X[1:], TRAIN_Y[1:])
    assert changed(BASE, again) == sorted(BASE.partition_.spread[BASE._buckets[0]])


def test_a_relabelling_touches_the_members_of_its_bucket_only():
    labels = TRAIN_Y.copy()
    labels[0] = (labels[0] + 1) % 10
    again = classifier().fit(TRAIN_X, labels)
    assert changed(BASE, again) == sorted(BASE.partition_.spread[BASE._buckets[0]])


def test_a_scaler_in_front_voids_this_and_one_inside_does_not():
    """Pipelines must be inside the classifier."""
    extreme = np.concatenate([TRAIN_X, np.full((1, 64), 1e9)]), np.append(TRAIN_Y, 3)
    outside = [StandardScaler().fit(rows).transform(rows) for rows in (TRAIN_X, extreme[0])]
    with pytest.warns(FittedInFrontWarning):
        a, b = classifier().fit(outside[0], TRAIN_Y), classifier().fit(outside[1], extreme[1])
    assert len(changed(a, b)) == 12
    inside = classifier(estimator=make_pipeline(StandardScaler(), LogisticRegression(max_iter=500)))
    assert len(changed(inside.fit(TRAIN_X, TRAIN_Y), classifier(estimator=inside.estimator).fit(*extreme))) == 2


def test_a_bucket_depends_on_the_sample_alone():
    samples_ = samples.from_any(TRAIN_X)
    whole = BASE.partition_.digests(samples_)
    for rows in (np.arange(5), np.arange(700, 600, -7)):
        part = samples.from_any(TRAIN_X[rows])
        np.testing.assert_array_equal(BASE.partition_.digests(part), whole[rows])


def test_seeds_come_from_the_member_and_never_repeat():
    states_ = {tuple(s.generate_state(4)) for m in range(500) for s in seeds_of(0, m, 3)}
    assert len(states_) == 1500
    few, many = (seeds_of(7, 4, n) for n in (1, 3))
    assert few[0].generate_state(4).tolist() == many[0].generate_state(4).tolist()


@pytest.mark.parametrize("estimator", [RandomForestClassifier(5), HistGradientBoostingClassifier(max_iter=5)])
def test_estimators_with_random_numbers_and_threads_of_their_own(estimator):
    order = np.random.default_rng(0).permutation(len(TRAIN_Y))
    a = classifier(estimator=estimator, n_partitions=3).fit(TRAIN_X, TRAIN_Y)
    b = classifier(estimator=estimator, n_partitions=3, n_jobs=2).fit(TRAIN_X[order], TRAIN_Y[order])
    np.testing.assert_array_equal(a.scores(TEST_X).values, b.scores(TEST_X).values)


def test_a_new_label_touches_the_members_of_its_bucket_only():
    names = np.array([f"digit {y}" for y in TRAIN_Y])
    known = [f"digit {y}" for y in range(10)] + ["x" * 99]
    a = classifier(classes=known).fit(TRAIN_X, names)
    b = classifier(classes=known).fit(np.concatenate([TRAIN_X, TRAIN_X[:1] + 1]), np.append(names, "x" * 99))
    assert changed(a, b) == sorted(b.partition_.spread[b._buckets[-1]])
    assert a.predict(TEST_X)[0] == f"digit {BASE.predict(TEST_X)[0]}"


class Fussy(ClassifierMixin, BaseEstimator):
    """Reject training data without all ten classes; has only `predict`."""

    def fit(self, X, y):  # noqa: ARG002
        if len(set(y)) < 10:
            raise ValueError("ten classes, please")
        self.classes_ = np.unique(y)
        return self

    def predict(self, X):
        return self.classes_[(X.sum(axis=1).astype(int)) % 10]


@pytest.mark.filterwarnings("ignore:.*members learn nothing")
def test_empty_and_one_class_parts_vote_by_a_fixed_rule():
    few = classifier(n_partitions=40, spread=1).fit(TRAIN_X[:30], TRAIN_Y[:30])
    sizes = few.member_sizes_
    assert (sizes == 0).any()
    scores = few.scores(TEST_X).values
    for m in np.flatnonzero(sizes == 0):
        assert (scores[:, m] == -1).all()  # all classes equal: by index
    for m in np.flatnonzero(sizes == 1):
        own = TRAIN_Y[:30][few._buckets == m][0]
        assert (scores[:, m].argmax(axis=1) == own).all()
    assert few.certify(TEST_X).radius.min() >= 0


def test_an_estimator_that_refuses_a_part_votes_by_shares():
    whole = classifier(estimator=Fussy(), n_partitions=2, spread=1).fit(TRAIN_X, TRAIN_Y)
    rows = np.flatnonzero((TRAIN_Y != 4) | (whole._buckets == 0))  # member 1 never sees a four
    with pytest.warns(UserWarning, match=r"member 1 votes by its class shares, since it could not be trained"):
        fussy = classifier(estimator=Fussy(), n_partitions=2, spread=1).fit(TRAIN_X[rows], TRAIN_Y[rows])
    assert changed(whole, fussy) == [1]
    counts = np.bincount(TRAIN_Y[rows][fussy._buckets == 1], minlength=10)
    np.testing.assert_allclose(fussy.scores(TEST_X).values[0, 1], np.where(counts, counts / counts.sum(), -1))
    rows = np.flatnonzero(TRAIN_Y != 4)
    with pytest.warns(UserWarning, match="no member could be trained, so all vote by their class shares; member"):
        none = classifier(estimator=Fussy(), n_partitions=2, spread=1).fit(TRAIN_X[rows], TRAIN_Y[rows])
    assert len(none.predict(TEST_X)) == 60
    with pytest.raises(MemberError, match="nothing to certify, since no member could be trained; member 0: ValueError"):
        none.certify(TEST_X)


@pytest.mark.filterwarnings("ignore:member:UserWarning")
@pytest.mark.filterwarnings("ignore:.*(overflow|invalid value|divide by zero):RuntimeWarning")
@pytest.mark.filterwarnings("ignore:.*[Ii]ll-conditioned")
def test_a_sample_that_breaks_an_estimator_breaks_its_members_only():
    monster = np.full((1, 64), 1e308)
    for estimator in (None, RidgeClassifier()):
        a = classifier(estimator=estimator).fit(TRAIN_X, TRAIN_Y)
        b = classifier(estimator=estimator).fit(np.concatenate([TRAIN_X, monster]), np.append(TRAIN_Y, 3))
        assert changed(a, b) == sorted(b.partition_.spread[b._buckets[-1]])
        assert np.isfinite(b.scores(TEST_X).values).all()


class Writes(ClassifierMixin, BaseEstimator):
    """Scale the input in place, and draw from the global random numbers."""

    def fit(self, X, y):
        X /= 16
        self.inner_ = LogisticRegression(C=np.random.uniform(0.5, 1), max_iter=500).fit(X, y)  # noqa: NPY002
        self.classes_ = self.inner_.classes_
        return self

    def predict_proba(self, X):
        X /= 16
        return self.inner_.predict_proba(X)


def test_estimators_that_write_to_their_input_or_use_global_random_numbers():
    before, state = TRAIN_X.copy(), np.random.get_state()[1].copy()  # noqa: NPY002
    a = classifier(estimator=Writes(), n_seeds=2).fit(TRAIN_X, TRAIN_Y)
    b = classifier(estimator=Writes(), n_seeds=2, n_jobs=2).fit(TRAIN_X, TRAIN_Y)
    np.testing.assert_array_equal(a.scores(TEST_X).values, b.scores(TEST_X).values)
    more = classifier(estimator=Writes(), n_seeds=2).fit(
        np.concatenate([TRAIN_X, TRAIN_X[:1] + 1]), np.append(TRAIN_Y, 3)
    )
    assert changed(a, more) == sorted(more.partition_.spread[more._buckets[-1]])
    np.testing.assert_array_equal(TRAIN_X, before)
    np.testing.assert_array_equal(np.random.get_state()[1], state)  # noqa: NPY002


def test_a_bare_label_is_completed_by_shares():
    fussy = classifier(estimator=Fussy(), n_partitions=2, spread=1).fit(TRAIN_X, TRAIN_Y)
    scores = fussy.scores(TEST_X).values
    np.testing.assert_array_equal(scores[:, 0].argmax(axis=1), TEST_X.sum(axis=1).astype(int) % 10)
    counts = np.bincount(TRAIN_Y[fussy._buckets == 0], minlength=10)
    rest = np.argsort(-counts, kind="stable")
    first = scores[0, 0].argmax()
    ranked = np.argsort(-scores[0, 0], kind="stable")
    assert ranked.tolist() == [first, *(c for c in rest if c != first)]


def test_scores_of_every_sort_are_on_one_scale():
    for estimator in (LogisticRegression(max_iter=500), LinearSVC(), KNeighborsClassifier(3)):
        scores = classifier(estimator=estimator, n_partitions=3).fit(TRAIN_X, TRAIN_Y).scores(TEST_X).values
        assert ((scores >= 0) & (scores <= 1) | (scores == -1)).all()


def test_seeds_are_averaged_and_differ():
    tree = RandomForestClassifier(3)
    one, three = (classifier(estimator=tree, n_partitions=2, n_seeds=n).fit(TRAIN_X, TRAIN_Y) for n in (1, 3))
    assert [len(m.fitted) for m in three.members_] == [3] * 4
    assert joblib.hash(three.members_[1].fitted[0]) == joblib.hash(one.members_[1].fitted[0])
    each = np.array([e.predict_proba(TEST_X) for e in three.members_[1].fitted])
    assert (each[0] != each[1]).any()
    np.testing.assert_allclose(three.scores(TEST_X).values[:, 1], each.mean(axis=0))


def test_duplicates_are_a_multiset():
    twice = classifier().fit(np.concatenate([TRAIN_X, TRAIN_X[:1]]), np.append(TRAIN_Y, TRAIN_Y[0]))
    assert twice._buckets[0] == twice._buckets[-1]
    assert twice.member_sizes_.sum() == BASE.member_sizes_.sum() + 2
    assert changed(BASE, twice) == sorted(BASE.partition_.spread[BASE._buckets[0]])


def frame(rows):
    data = load_breast_cancer()
    table = pd.DataFrame(data.data[rows, :4], columns=["a", "b", "c", "d"]).round(2)
    table["kind"] = pd.Categorical(np.where(data.data[rows, 5] > 0.1, "big", "small"))
    table["count"] = (data.data[rows, 3]).astype(int)
    table["id"] = 2**60 + rows
    return table, data.target[rows]


@pytest.mark.parametrize(
    "row",
    [
        {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "kind": "another kind", "count": 3},  # a new category
        {"a": None, "b": 1.0, "c": 1.0, "d": 1.0, "kind": None, "count": None},  # integers become floats
        {"a": "many", "b": 1.0, "c": 1.0, "d": 1.0, "kind": "big", "count": "lots"},  # numbers become objects
        {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "kind": "big", "count": 0.5, "id": None},  # large integers, rounded
    ],
)
def test_a_row_that_changes_the_types_of_a_table_touches_its_members_only(row):
    table, labels = frame(np.arange(200))
    settings = {"n_partitions": 4, "classes": [0, 1]}
    a = RunoffClassifier(HistGradientBoostingClassifier(max_iter=5, categorical_features="from_dtype"), **settings)
    a.fit(table, labels)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        longer = pd.concat([table, pd.DataFrame([row])], ignore_index=True)
    b = RunoffClassifier(a.estimator, **settings)
    b.fit(longer, np.append(labels, 1))
    bucket = b._buckets[-1]
    inputs, _ = frame(np.arange(200, 260))
    np.testing.assert_array_equal(a._buckets, b._buckets[:-1])
    untouched = [m for m in range(4) if m not in a.partition_.spread[bucket]]
    np.testing.assert_array_equal(a.scores(inputs).values[:, untouched], b.scores(inputs).values[:, untouched])


@pytest.mark.filterwarnings("ignore:.*members learn nothing")
@pytest.mark.parametrize(
    ("kind", "entries"), [("u1", [200, 100]), ("?", [1, 1]), ("f4", [1, 2**-24]), ("f4", [9, 1e-8])]
)
def test_a_row_that_changes_the_type_of_a_sparse_matrix_touches_its_members_only(kind, entries):
    """Entries at the same place are added, which wraps or rounds in small types; an inserted row may widen the type."""
    rows, columns = np.repeat(np.arange(1, 40), 3), np.tile(np.arange(3), 39)
    data = np.append(np.array(entries, kind), (1 + rows * (columns + 2) % 5).astype(kind))
    where = np.append([0, 0], rows), np.append([1, 1], columns)
    counts = sparse.coo_matrix((data, where), (40, 3))
    inserted = tuple(np.append(places, at) for places, at in zip(where, (40, 2), strict=True))
    longer = sparse.coo_matrix((np.append(data, np.float64(0.3)), inserted), (41, 3))
    labels, settings = np.arange(41) % 2, {"n_partitions": 4, "classes": [0, 1]}
    a, b = (RunoffClassifier(**settings).fit(m, labels[: m.shape[0]]) for m in (counts, longer))
    np.testing.assert_array_equal(a._digests, b._digests[:-1])
    untouched = [m for m in range(4) if m != b._buckets[-1]]
    one, other = (c.scores(counts).values for c in (a, b))
    np.testing.assert_array_equal(one[:, untouched], other[:, untouched])


def means(images):
    return images.mean(axis=(1, 2))


def last_bits(images):
    return (np.abs(images.sum(axis=(1, 2, 3))) * 1e13).astype(np.int64)


def test_a_row_that_changes_the_order_of_images_in_memory_touches_its_members_only():
    """Sums follow the order in memory, and concatenating transposed images with others makes them contiguous."""
    draws, labels = np.random.default_rng(0), np.arange(81) % 3
    first = draws.normal(size=(80, 3, 9, 9))
    first[:, 0] += labels[:80, None, None]
    images = first.transpose(0, 2, 3, 1)  # from channels first
    longer = np.concatenate([images, draws.normal(size=(1, 9, 9, 3))])
    assert longer[:80].strides != images.strides
    estimator = make_pipeline(FunctionTransformer(means), LogisticRegression())
    settings = {"n_partitions": 8, "classes": range(3)}
    for how in ("content", last_bits):
        a = RunoffClassifier(estimator, hash=how, **settings).fit(images, labels[:80])
        b = RunoffClassifier(estimator, hash=how, **settings).fit(longer, labels)
        np.testing.assert_array_equal(a._buckets, b._buckets[:-1])
        one, other = (c.scores(images[:20]).values for c in (a, b))
        untouched = [m for m in range(8) if m != b._buckets[-1]]
        np.testing.assert_array_equal(one[:, untouched], other[:, untouched])


def test_tables_texts_sparse_matrices_and_images():
    table, labels = frame(np.arange(300))
    inputs, truth = frame(np.arange(300, 500))
    assert RunoffClassifier(n_partitions=5).fit(table, labels).score(inputs, truth) > 0.8
    counts = sparse.csr_matrix(TRAIN_X)
    texts = [" ".join(f"p{c}" for c in np.flatnonzero(row > 8)) for row in X]
    for train, test, floor in (
        (counts, sparse.csr_matrix(TEST_X), 0.8),
        (TRAIN_X.reshape(-1, 8, 8), TEST_X.reshape(-1, 8, 8), 0.8),
        ([texts[i] for i in np.flatnonzero(~TEST)], [texts[i] for i in np.flatnonzero(TEST)[:60]], 0.7),
    ):
        fitted = classifier().fit(train, TRAIN_Y)
        assert np.mean(fitted.certify(test).prediction == TEST_Y) > floor
    shuffled = sparse.coo_matrix(counts)
    order = np.random.default_rng(0).permutation(shuffled.nnz)
    scattered = sparse.coo_matrix((shuffled.data[order], (shuffled.row[order], shuffled.col[order])), shuffled.shape)
    assert changed(classifier().fit(counts, TRAIN_Y), classifier().fit(scattered, TRAIN_Y)) == []
    wide = counts.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert changed(classifier().fit(counts, TRAIN_Y), classifier().fit(wide, TRAIN_Y)) == []


def test_hashes_of_other_kinds():
    pixels = classifier(hash="pixel-sum").fit(TRAIN_X.astype(np.uint8), TRAIN_Y)
    np.testing.assert_array_equal(pixels._buckets, TRAIN_X.sum(axis=1) % 12)
    own = classifier(hash=lambda X: X[:, 20].astype(int)).fit(TRAIN_X, TRAIN_Y)
    np.testing.assert_array_equal(own._buckets, TRAIN_X[:, 20] % 12)
    with pytest.raises(ValueError, match="the pixel-sum hash needs the original integer pixels, got dtype float64"):
        classifier(hash="pixel-sum").fit(TRAIN_X / 16, TRAIN_Y)
    with pytest.raises(ValueError, match="hash must return a non-negative integer for each of 1437 samples"):
        classifier(hash=lambda X: X[:, 20] / 3).fit(TRAIN_X, TRAIN_Y)
    with pytest.raises(ValueError, match="hash must be one of 'content', 'pixel-sum' or a function, got 'md5'"):
        classifier(hash="md5").fit(TRAIN_X, TRAIN_Y)


def test_keys_are_kept_and_not_shown():
    key = hashing.new_key()
    fitted = classifier(hash_key=key).fit(TRAIN_X, TRAIN_Y)
    assert fitted.partition_.key == key
    assert (fitted._buckets != BASE._buckets).any()
    for shown in (
        repr(key),
        str(key),
        f"{key}",
        repr(fitted),
        str(fitted),
        repr(fitted.partition_),
        repr(classifier(hash_key=bytes(key))),
    ):
        assert key.hex() not in shown
        assert repr(bytes(key)) not in shown
    assert fitted.partition_.fingerprint != BASE.partition_.fingerprint
    assert fitted.certify(TEST_X).fingerprint == fitted.partition_.fingerprint
    with pytest.raises(ValueError, match="hash_key must be 16 to 64 secret bytes"):
        classifier(hash_key=b"short").fit(TRAIN_X, TRAIN_Y)


def test_partitions_are_balanced_and_their_offsets_fixed():
    assert BASE.partition_.offsets == classifier().fit(TRAIN_X[:50], TRAIN_Y[:50]).partition_.offsets
    assert len(set(BASE.partition_.offsets)) == 2
    assert BASE.member_sizes_.sum() == 2 * len(TRAIN_Y)
    assert (
        0.5
        < BASE.member_sizes_.min() / BASE.member_sizes_.mean()
        < BASE.member_sizes_.max() / BASE.member_sizes_.mean()
        < 1.5
    )


class Interrupted(LogisticRegression):
    """Ends training early at Ctrl-C, and returns as if it were fitted, as MLPClassifier does."""

    def __init__(self, and_fails=False):
        super().__init__()
        self.and_fails = and_fails

    def fit(self, X, y):
        super().fit(X, y)
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            if self.and_fails:
                raise ValueError("training was interrupted") from None
        return self


@pytest.fixture
def interruptible():
    """Handle SIGINT as Python does by default; a process in the background of a script may ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("and_fails", [False, True])
def test_an_interruption_that_an_estimator_catches_makes_no_member(and_fails):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        RunoffClassifier(Interrupted(and_fails), n_partitions=3, classes=range(10)).fit(TEST_X, TEST_Y)
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("interruptible")
@pytest.mark.filterwarnings("ignore:Training interrupted")
def test_an_interruption_of_a_network_of_scikit_learn_makes_no_member():
    """After some epochs; without the check, this member would have fewer than the others."""

    class Slow(MLPClassifier):
        def _update_no_improvement_count(self, *given):
            if len(self.loss_curve_) == 3:
                signal.raise_signal(signal.SIGINT)
            super()._update_no_improvement_count(*given)

    with pytest.raises(KeyboardInterrupt):
        RunoffClassifier(Slow(max_iter=5), n_partitions=3, classes=range(10)).fit(TEST_X, TEST_Y)
