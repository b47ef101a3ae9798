"""Sources: everything that one source contributes is one edit."""

import hashlib
import itertools
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
import sklearn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_validate
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import runoff
from runoff import RunoffClassifier, estimates, hashing
from runoff.errors import InputError, StorageError
from runoff.verify import _content

X, Y = load_digits(return_X_y=True)
X, Y, NEW, NEW_Y = X[:900], Y[:900], X[900:960], Y[900:960]
GROUPS = np.array([f"sender {i * i % 67}" for i in range(len(Y))])
KEY = bytes(range(32))


def fitted(x=X, y=Y, groups=GROUPS, **settings):
    settings = {"estimator": RidgeClassifier(alpha=50), "n_partitions": 9, "classes": range(10)} | settings
    return RunoffClassifier(**settings).fit(x, y, groups)


def changed(a, b):
    def states(classifier):
        return [joblib.hash((m.classes.tolist(), m.shares, m.fitted)) for m in classifier.members_]

    return [m for m, (s, t) in enumerate(zip(states(a), states(b), strict=True)) if s != t]


BASE = fitted()


def reached(classifier, *names):
    """Return the members that these sources reach."""
    buckets = hashing.sources(list(names), len(names), classifier.partition_.key)[:, 0] % len(classifier.members_)
    return sorted({*classifier.partition_.spread[buckets.astype(int)].ravel().tolist()})


def name_for(classifier, bucket, start=0):
    """Return a source that hashes into a bucket, found by an attacker who knows the key."""
    names = [f"mallory {i}" for i in range(start, start + 2000)]
    hashed = hashing.sources(names, len(names), classifier.partition_.key)[:, 0] % len(classifier.members_)
    return names[int(np.flatnonzero(hashed.astype(int) == bucket)[0])]


# -- names -------------------------------------------------------------------------------------------------------------

FORMS = [
    [1, 2, 70, 0],
    [1.0, 2, "70", "-0.0"],
    (np.int8(1), np.float32(2), "70.0", -0.0),
    np.array([1, 2, 70, 0]),
    np.array([1, 2, 70, 0], np.float16),
    np.array([1, 2, 70, 0], np.uint64),
    np.array(["1", "2", "70", "0"]),
    np.array([1, 2, 70, 0], object),
    pd.Series([1, 2, 70, 0]),
    pd.Series([1, 2, 70, 0], dtype="Int64"),
    pd.Series(["1", "2", "70", "0"], dtype="category"),
]


@pytest.mark.parametrize("groups", FORMS, ids=str)
def test_a_source_is_the_same_in_any_type(groups):
    np.testing.assert_array_equal(hashing.sources(groups, 4, KEY), hashing.sources(FORMS[0], 4, KEY))


INSERTED = ["mallory", 7.0, 2**60, -1, "7.5", "nan", "", "１", np.uint64(2**64 - 1), 10**30]


@pytest.mark.parametrize("inserted", INSERTED, ids=repr)
@pytest.mark.parametrize("dtype", [np.int64, np.float64, np.float32, np.uint8, np.uint64, str])
def test_no_inserted_source_moves_another(inserted, dtype):
    """One name can convert all numbers to strings, or round them: it is rejected, or no source moves."""
    honest = np.array([1, 2, 70, 0, 255], np.uint8).astype(dtype)
    alone = hashing.sources(honest, 5, KEY)
    for together in (np.append(honest, inserted), [*honest, inserted], [*honest.tolist(), inserted]):
        try:
            found = hashing.sources(together, 6, KEY)
        except InputError:
            continue
        np.testing.assert_array_equal(found[:5], alone)
        assert found[5].tolist() not in alone.tolist()


BOUNDARIES = [0, 1, 7, 255, 999, 1000, 2047, 2048, 32767, 10**6, 10**7 - 1, 10**7, 2**24 - 1, 2**24, 10**15, 2**53 - 1]
BOUNDARIES += [2**53, 2**53 + 1, 10**16, 10**16 + 1, 2**63 - 1, 2**64 - 1, 10**20]
TYPES = [bool, np.int8, np.uint8, np.int64, np.uint64, np.float16, np.float32, np.float64, np.longdouble, str, object]
whole = st.sampled_from(BOUNDARIES) | st.integers(-(2**65), 2**65)
whole = whole | whole.map(lambda n: -n)
fractions = st.sampled_from([0.1, 0.5, 1e7, 1e16, -0.0, float("nan"), float("inf"), 3e38]) | st.floats()
texts = st.sampled_from(
    ["a", "", "7", "7.0", "-0.0", "1e7", "1e+07", "007", "nan", "a\0", "é", "e\u0301", "(1j)", "True"]
)
texts = texts | whole.map(str) | fractions.map(str) | st.text(max_size=3)
others = st.sampled_from([True, None, 1j, b"a", np.datetime64(5, "D"), pd.NA])


def scalar_of(value, dtype):
    """Return a value as a scalar of a NumPy type, or unchanged if that fails."""
    try:
        return np.asarray(value).astype(dtype)[()]
    except (TypeError, ValueError, OverflowError):
        return value


single = st.one_of(whole, whole, fractions, texts, texts, others)
single = single | st.tuples(single, st.sampled_from(TYPES)).map(lambda pair: scalar_of(*pair))
INSERTIONS = {
    "a list": lambda names, new: [*list(names), new],
    "a list of Python's types": lambda names, new: [*np.asarray(names).tolist(), new],
    "np.array": lambda names, new: np.array([*list(names), new]),
    "np.append": np.append,
    "np.concatenate": lambda names, new: np.concatenate([np.asarray(names), np.array([new])]),
    "an array of objects": lambda names, new: np.append(np.asarray(names).astype(object), new),
    "a column": lambda names, new: pd.concat([pd.Series(names), pd.Series([new])]),
    "a column of a table": lambda names, new: pd.DataFrame({"sender": [*list(names), new]})["sender"],
    "strings": lambda names, new: [str(name) for name in [*list(names), new]],
    "a column as strings": lambda names, new: pd.concat([pd.Series(names), pd.Series([new])]).astype(str).to_numpy(),
}


def column_of(names, dtype):
    try:
        return names if dtype is None else np.array(names).astype(dtype)
    except (TypeError, ValueError, OverflowError):
        return names


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::FutureWarning", "ignore::UserWarning")
@settings(max_examples=600)
@given(
    names=st.lists(whole, min_size=1, max_size=4)
    | st.lists(fractions | whole, min_size=1, max_size=4)
    | st.lists(texts, min_size=1, max_size=4)
    | st.lists(single, min_size=1, max_size=4),
    dtype=st.none() | st.sampled_from(TYPES),
    inserted=st.lists(st.tuples(single, st.sampled_from(sorted(INSERTIONS))), min_size=1, max_size=3),
)
@example(names=[1e7, 2.0], dtype=np.float32, inserted=[("mallory", "np.append")])
@example(names=[1000.0, 2.0], dtype=np.float16, inserted=[("mallory", "np.append")])
@example(names=[2**53 + 1], dtype=np.int64, inserted=[(0.5, "np.append"), ("mallory", "np.append")])
@example(names=[1, 2], dtype=np.int64, inserted=[(1j, "np.append"), ("mallory", "np.append")])
@example(names=["a\0"], dtype=None, inserted=[("mallory", "np.append")])
def test_inserted_names_move_no_other_however_they_are_inserted(names, dtype, inserted):
    """Each insertion may convert all names again: names are rejected, or no source moves."""
    n, together = len(names), column_of(names, dtype)
    try:
        alone = hashing.sources(together, n, KEY)
    except InputError:
        return
    assert_verified(together, alone)
    for new, how in inserted:
        try:
            together = INSERTIONS[how](together, new)
        except Exception:  # rejected by NumPy or pandas
            return
        try:
            found = hashing.sources(together, len(together), KEY)
        except InputError:
            continue
        np.testing.assert_array_equal(found[:n], alone)
        assert_verified(together, found)


def assert_verified(names, digests):
    """Check that the verifier, which has its own code, computes the same digests for these names."""
    theirs = _content.source_digests(names, len(names), KEY)
    assert [digest.astype("<u8").tobytes() for digest in digests] == theirs


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=300)
@given(value=single)
def test_the_verifier_refuses_the_same_names(value):
    try:
        hashing.sources([value], 1, KEY)
    except InputError:
        if not (isinstance(value, (int, str)) and len(str(value)) > 100):
            with pytest.raises(ValueError, match="the groups"):
                _content.source_digests([value], 1, KEY)
    else:
        _content.source_digests([value], 1, KEY)


def test_names_of_saved_classifiers_stay_as_they_were():
    """Digests of version 1.0 for names of every ordinary kind."""
    names = ["alice@example.org", "example.org", "", "007", "1e7", "1.5", "é", -3, 0, 41, 41.0, "41", 2**70]
    names += [np.float32(12), np.uint8(200), "12345678901234567890", "ab1e+07", "a b", "+1", "1,000"]
    found = hashlib.sha256(hashing.sources(names, len(names), KEY).astype("<u8").tobytes()).hexdigest()
    assert found.startswith("8a33fef4de3973b6")


def test_names_that_differ_are_different_sources():
    names = ["a", "A", "a ", "01", "1", "1.5", "1e0", "+1", "0x1", "", "-1", "é", 2**53, 2**53 + 1, 2**70, "True"]
    digests = hashing.sources(names, len(names), KEY)
    assert len({tuple(digest) for digest in digests.tolist()}) == len(names)
    composed = hashing.sources(["\u00e9", "e\u0301"], 2, KEY)
    assert composed[0].tolist() == composed[1].tolist()


@pytest.mark.parametrize("value", [2.0**53 - 1, np.float64(2**53 - 1), np.float32(2**24 - 1), np.float16(2**11 - 1)])
def test_the_largest_whole_numbers_that_a_float_tells_apart_are_names(value):
    assert hashing.source_name(value) == hashing.source_name(int(value)) == str(int(value))
    with pytest.raises(InputError, match="got"):
        hashing.source_name(value + type(value)(1))


def test_whole_numbers_have_a_limit():
    assert hashing.source_name(2**512 - 1) == str(2**512 - 1)
    with pytest.raises(InputError, match="a source must be a string or a whole number"):
        hashing.source_name(2**512)


def test_the_sizes_of_sources():
    digests = hashing.sources(["a", "b", "a", "c", "a", 1, "1", "a"], 8, KEY)
    assert hashing.source_sizes(digests) == (4, 0.5)


NAMELESS = [None, float("nan"), np.nan, pd.NA, pd.NaT, True, 0.5, 2.0**53, np.float32(2**24), np.datetime64(5, "ns")]
NAMELESS += [b"a", ("a", 1), ["a"], float("inf"), 1j, {"a": 1}, 2**600]


@pytest.mark.parametrize("value", NAMELESS, ids=repr)
def test_what_is_not_a_name_is_refused(value):
    groups = ["a", value, "b"]
    with pytest.raises(InputError, match=r"groups must name each sample's source by a string.*for sample 1: convert"):
        hashing.sources(groups, 3, KEY)


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([], "each of 900 samples, got 0 names"),
        (GROUPS[:-1], "each of 900 samples, got 899 names"),
        (GROUPS[:, None], r"in one dimension, got shape \(900, 1\)"),
        (np.ma.array(GROUPS, mask=[True] + [False] * 899), "name the source of each sample, got masked names: give"),
        ("sender", "groups must be a list or an array of one name per sample, got a str"),
        (iter(GROUPS), "groups must be a list or an array of one name per sample, got a iterator"),
        (map(str, GROUPS), "list or an array of one name per sample, got a map"),
        ({*GROUPS}, "list or an array of one name per sample, got a set"),
    ],
)
def test_groups_of_another_shape_are_refused(groups, message):
    with pytest.raises(InputError, match=message):
        fitted(groups=groups)


def test_sources_need_the_hash_of_the_package():
    with pytest.raises(InputError, match="hash must be 'content' if sources are counted, got 'pixel-sum'"):
        fitted(hash="pixel-sum")


# -- isolation ---------------------------------------------------------------------------------------------------------


def test_neither_order_nor_names_type_matter():
    order = np.random.default_rng(0).permutation(len(Y))
    assert changed(BASE, fitted(X[order], Y[order], GROUPS[order].tolist())) == []


def test_everything_that_a_source_contributes_reaches_its_members_only():
    own = GROUPS == "sender 4"
    assert own.sum() > 5
    replaced = X.copy(), Y.copy()
    replaced[0][own], replaced[1][own] = 1e9, 3
    gone = X[~own], Y[~own], GROUPS[~own]
    more = np.concatenate([X, 255 - X]), np.append(Y, Y), np.append(GROUPS, np.repeat("sender 4", len(Y)))
    for x, y, groups in [(*replaced, GROUPS), gone, more]:
        for d in (1, 2):
            base = BASE if d == 1 else fitted(spread=d)
            assert changed(base, fitted(x, y, groups, spread=d)) == reached(base, "sender 4")
            assert len(reached(base, "sender 4")) == d


def test_a_new_source_is_one_edit_and_a_moved_sample_two():
    x, y = np.concatenate([X, NEW]), np.append(Y, NEW_Y)
    assert changed(BASE, fitted(x, y, np.append(GROUPS, ["mallory"] * len(NEW)))) == reached(BASE, "mallory")
    target = next(g for g in sorted({*GROUPS}) if reached(BASE, g) != reached(BASE, GROUPS[0]))
    moved = GROUPS.copy()
    moved[0] = target
    assert changed(BASE, fitted(groups=moved)) == reached(BASE, GROUPS[0], target)


def test_without_groups_nothing_changes():
    """Fingerprint and training sets must be the same as before sources were added."""
    plain = fitted(groups=None)
    assert plain.partition_.fingerprint.startswith("4aa98b7506a83a72")
    assert hashlib.sha256("".join(plain._training_sets).encode()).hexdigest().startswith("44ae1dccf00b1962")
    assert BASE.partition_.fingerprint != plain.partition_.fingerprint
    assert plain.certify(NEW).unit == plain.scores(NEW).unit == "samples"


def test_the_same_content_may_come_from_two_sources():
    """Each copy stays with its source: removing those of one source leaves the other's, and reaches one member."""
    own = GROUPS == "sender 4"
    x, y = np.concatenate([X, X[own]]), np.append(Y, Y[own])
    twin = next(f"twin {i}" for i in range(50) if reached(BASE, f"twin {i}") != reached(BASE, "sender 4"))
    groups = np.append(GROUPS.astype(object), [twin] * own.sum())
    both = fitted(x, y, groups)
    assert changed(BASE, both) == reached(BASE, twin)
    assert changed(both, fitted(X[~own], Y[~own], GROUPS[~own])) == reached(BASE, "sender 4", twin)
    both.update(remove=(X[own], Y[own], [twin] * own.sum()))
    assert changed(BASE, both) == []
    with pytest.raises(InputError, match="is not one of them, or occurs less often"):
        both.update(remove=(X[own], Y[own], [twin] * own.sum()))


def test_a_column_of_a_table_names_the_sources():
    table = pd.DataFrame(X[:300, 20:30].astype(int)).add_prefix("pixel ").assign(sender=GROUPS[:300])
    settings = {"n_partitions": 3, "classes": range(10)}
    columns, senders = table.drop(columns="sender"), table["sender"]
    a = RunoffClassifier(**settings).fit(columns, Y[:300], groups=senders)
    b = RunoffClassifier(**settings).fit(columns[::-1], Y[:300][::-1], groups=senders[::-1].astype("category"))
    assert changed(a, b) == []
    assert a.certify(columns[:5]).unit == "sources"


def test_copies_of_the_estimator_keep_the_threat_and_grid_search_says_what_it_counted():
    labels = RunoffClassifier(RidgeClassifier(), threat="labels", shared=PCA(3), n_partitions=3, classes=range(10))
    copy = sklearn.base.clone(labels)
    assert (copy.threat, str(copy.shared)) == ("labels", "PCA(n_components=3)")
    plain = RunoffClassifier(RidgeClassifier(alpha=50), classes=range(10))
    search = GridSearchCV(plain, {"n_partitions": [3]}, cv=GroupKFold(2), scoring=runoff.certified_scorer(1))
    assert search.fit(X, Y, groups=GROUPS).best_estimator_.certify(NEW).unit == "samples"  # only split by groups
    with sklearn.config_context(enable_metadata_routing=True):
        plain.set_fit_request(groups=True)
        assert search.fit(X, Y, groups=GROUPS).best_estimator_.certify(NEW).unit == "sources"


def test_update_is_fit_on_the_new_data():
    own = GROUPS == "sender 4"
    x, y, groups = np.concatenate([X[~own], NEW]), np.append(Y[~own], NEW_Y), [*GROUPS[~own], *["x"] * len(NEW)]
    updated = fitted().update(add=(NEW, NEW_Y, ["x"] * len(NEW)), remove=(X[own], Y[own], GROUPS[own]))
    again = fitted(x, y, groups)
    assert changed(updated, again) == []
    assert updated.updated_members_.tolist() == reached(updated, "sender 4", "x")
    assert updated.balance() == again.balance()
    np.testing.assert_array_equal(updated.scores(NEW).values, again.scores(NEW).values)


def test_updates_need_groups_exactly_if_fit_had_them():
    with pytest.raises(InputError, match=r"add must be \(X, y, groups\), as fit was called with groups, got 2 values"):
        BASE.update(add=(NEW, NEW_Y))
    with pytest.raises(InputError, match=r"remove must be \(X, y\), as in fit, got 3 values"):
        fitted(groups=None).update(remove=(X[:1], Y[:1], GROUPS[:1]))
    with pytest.raises(InputError, match=r"add must be \(X, y, groups\).*, got a ndarray"):
        BASE.update(add=NEW)
    with pytest.raises(InputError, match="with their labels and sources, but sample 0"):
        BASE.update(remove=(X[:1], Y[:1], ["mallory"]))


# -- adversaries -------------------------------------------------------------------------------------------------------

POINTS = np.array([[0.0], [1.0], [2.0]])
NAMES = ["s0", "s2", "s3", "s11", "s8", "s1", "s19", "s4"]  # in buckets 0 1 2 3 4 0 1 2
ELECTIONS = ("plurality", "runoff", "maximin")
CONTENTS = [(), (0, 0, 0), (2, 2, 2), (1, 0, 2)]  # what a corrupt source may contribute: a class at each point


def tiny(contents):
    """Fit five members on sources that contribute these classes, one sample per point."""
    rows = [(POINTS[p], c, NAMES[s]) for s, classes in enumerate(contents) for p, c in enumerate(classes)]
    x, y, groups = zip(*rows, strict=True)
    settings = {"estimator": KNeighborsClassifier(1), "n_partitions": 5, "classes": range(3)}
    return RunoffClassifier(**settings).fit(np.array(x), np.array(y), groups)


@pytest.mark.filterwarnings("ignore:.*members learn nothing")
def test_no_source_edit_changes_a_prediction_within_its_radius():
    """Every subset of at most `radius` sources, old and new ones, each with every content, really refitted.

    The members of each refit hold all three elections.
    """
    contents = [(1, 2, 1), (1, 2, 1), (1, 2, 0), (1, 1, 1), (1, 2, 1), (1, 2, 1), (1, 2, 1)]
    victim = tiny(contents)
    assert victim.member_sizes_.min() > 0
    by_election = {rule: victim.set_params(election=rule).certify(POINTS) for rule in ELECTIONS}
    for certificates in by_election.values():
        assert certificates.prediction.tolist() == [1, 2, 1]
        assert certificates.radius.tolist() == [2, 1, 1]
    towards = {rule: [found.radius_to(c) for c in range(3)] for rule, found in by_election.items()}
    flipped, refits, reached_targets = dict.fromkeys(ELECTIONS, 0), 0, dict.fromkeys(ELECTIONS, 0)
    for size in (1, 2):
        for which in itertools.combinations(range(len(contents) + 1), size):
            for new in itertools.product(CONTENTS[: 5 - size], repeat=size):
                edited = dict(enumerate(contents)) | dict(zip(which, new, strict=True))
                again = tiny([edited[s] for s in sorted(edited)])
                refits += 1
                for rule, certificates in by_election.items():
                    predicted, safe = again.set_params(election=rule).predict(POINTS), certificates.radius >= size
                    np.testing.assert_array_equal(predicted[safe], certificates.prediction[safe])
                    for c, radius in enumerate(towards[rule]):
                        assert not (predicted[radius >= size] == c).any()
                        reached_targets[rule] += (predicted[radius == size - 1] == c).any()
                    flipped[rule] += predicted != certificates.prediction
    assert refits == 8 * 4 + 28 * 9
    for rule in ELECTIONS:
        assert reached_targets[rule]
        assert flipped[rule][0] == 0 < flipped[rule][1:].min()  # beyond the radius, some attack succeeds


def poison(classifier, i, target, how, buckets):
    """Return the training data with a corrupt source in each of these buckets."""
    x, y, groups = X.copy(), Y.copy(), GROUPS.astype(object)
    for n, bucket in enumerate(buckets):
        own = [g for g in sorted({*GROUPS}) if reached(classifier, g) == [bucket]]
        if how in ("replaced", "deleted", "relabelled") and own:
            rows = np.flatnonzero(groups == own[0])
            if how == "deleted":
                x, y, groups = np.delete(x, rows, axis=0), np.delete(y, rows), np.delete(groups, rows)
                continue
            y[rows] = target
            if how == "replaced":
                x[rows] = NEW[i] + np.random.default_rng(n).normal(scale=1e-3, size=(len(rows), 64))
            continue
        size = 400 if how == "flood" else 30
        near = NEW[i] + np.random.default_rng(n).normal(scale=1e6 if how == "extreme" else 1e-3, size=(size, 64))
        name = name_for(classifier, bucket)
        x, y, groups = np.concatenate([x, near]), np.append(y, [target] * size), np.append(groups, [name] * size)
    return x, y, groups.tolist()


@pytest.mark.parametrize("how", ["flood", "extreme", "replaced", "relabelled", "deleted"])
def test_corrupt_sources_within_the_radius_change_nothing(how):
    certificates = BASE.certify(NEW)
    for i in np.argsort(certificates.radius)[[10, 50]]:
        attack, radius = certificates.attack(int(i)), int(certificates.radius[i])
        assert radius
        target = BASE.classes_[attack.prediction]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            now = fitted(*poison(BASE, i, target, how, attack.buckets[:radius])).predict(NEW)
        safe = certificates.radius >= radius
        assert safe[i]
        np.testing.assert_array_equal(now[safe], certificates.prediction[safe])


def test_one_source_more_succeeds():
    """A source may contribute any number of samples, so one more than the radius takes over as many members."""
    certificates, flipped = BASE.certify(NEW), 0
    for i in range(4):
        attack = certificates.attack(i)
        assert len(attack) == certificates.radius[i] + 1
        target = BASE.classes_[attack.prediction]
        now = fitted(*poison(BASE, i, target, "flood", attack.buckets)).predict(NEW[i : i + 1])[0]
        flipped += now != certificates.prediction[i]
    assert flipped >= 3


# -- words and files ---------------------------------------------------------------------------------------------------


def test_certificates_say_sources_everywhere():
    certificates = BASE.certify(NEW)
    assert certificates.unit == BASE.scores(NEW).unit == runoff.certify(BASE.scores(NEW)[:5]).unit == "sources"
    assert certificates[:3].unit == "sources"
    assert certificates.to_frame().attrs == {"unit": "sources"}
    assert certificates.to_frame().columns.tolist() == ["prediction", "radius", "runner_up", "unit"]
    assert set(certificates.to_frame()["unit"]) == {"sources"}
    assert "median radius 3 sources>" in repr(certificates)
    by_radius = {int(r): certificates.explain(i) for i, r in enumerate(certificates.radius)}
    assert "Proven: no 4 sources together, whatever they contribute, can change this." in by_radius[4]
    assert "edit" not in "".join(by_radius.values())
    assert BASE.balance().endswith("; 34 sources, the largest with 3.0% of the samples")


def test_certify_takes_the_unit_of_scores_that_carry_none():
    scores = np.random.default_rng(0).random((3, 5, 4))
    assert runoff.certify(scores).unit == "samples"
    assert runoff.certify(scores, unit="sources").unit == "sources"
    with pytest.raises(InputError, match="unit must be one of 'samples', 'sources', 'labels', got 'people'"):
        runoff.certify(scores, unit="people")
    with pytest.raises(InputError, match="unit must be that of these scores' members, 'sources', got 'samples'"):
        runoff.certify(BASE.scores(NEW), unit="samples")


def test_saved_classifiers_keep_the_unit(tmp_path):
    BASE.save(tmp_path / "model")
    loaded = RunoffClassifier.load(tmp_path / "model")
    assert loaded.balance() == BASE.balance()
    assert loaded.certify(NEW).unit == "sources"
    manifest = tmp_path / "model" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"unit": "sources"', '"unit": "samples"'))
    with pytest.raises(StorageError, match="does not match"):
        RunoffClassifier.load(tmp_path / "model")


def test_out_of_part_estimates_use_the_sources_buckets():
    estimate = estimates.of_classifier(BASE, X, Y, [0, 2], groups=GROUPS)
    assert 0.5 < estimate.certified[1] <= estimate.certified[0]
    with pytest.raises(InputError, match="pass groups, as in fit"):
        estimates.of_classifier(BASE, X, Y, [0])


def test_groups_are_routed_by_scikit_learn():
    classifier = RunoffClassifier(RidgeClassifier(alpha=50), n_partitions=3, classes=range(10))
    with sklearn.config_context(enable_metadata_routing=True):
        classifier.set_fit_request(groups=True)
        results = cross_validate(classifier, X, Y, params={"groups": GROUPS}, cv=GroupKFold(2), return_estimator=True)
    assert [found.certify(NEW).unit for found in results["estimator"]] == ["sources"] * 2


# -- networks ----------------------------------------------------------------------------------------------------------


def networks(**settings):
    torch = pytest.importorskip("runoff.torch")
    recipe = torch.Recipe(epochs=1)
    known = {"n_partitions": 3, "classes": range(10), "progress": False, "device": "cpu", "network": "small"}
    return torch.TorchClassifier(recipe=recipe, **known | settings)


def same(a, b):
    return [
        all(np.array_equal(s[name], t[name]) for s, t in zip(m.fitted, n.fitted, strict=True) for name in s)
        for m, n in zip(a.members_, b.members_, strict=True)
    ]


def test_networks_take_sources():
    x, y, groups = X[:200].reshape(-1, 8, 8).astype(np.uint8), Y[:200], GROUPS[:200]
    base = networks().fit(x, y, groups)
    assert base.certify(x[:3]).unit == "sources"
    own = groups == groups[0]
    edited = networks().fit(x[~own], y[~own], groups[~own])
    touched = reached(base, groups[0])
    assert [m for m, equal in enumerate(same(base, edited)) if not equal] == touched
    base.update(remove=(x[own], y[own], groups[own]))
    assert base.updated_members_.tolist() == touched
    assert all(same(base, edited))


def flattened(images):
    return images.reshape(len(images), -1)


def test_networks_learn_from_shared_features(tmp_path):
    x, y = X[:200].reshape(-1, 8, 8).astype(np.uint8), Y[:200]
    shared = make_pipeline(FunctionTransformer(flattened), PCA(8))
    base = networks(threat="labels", shared=shared).fit(x, y, score=x[:5])
    again = networks(threat="labels", shared=shared).fit(x, y)
    assert all(same(base, again))
    np.testing.assert_array_equal(base.scores(x[:5]).values, again.scores(x[:5]).values)
    assert base.certify(x[:5]).unit == "labels"
    relabelled = np.append((y[0] + 1) % 10, y[1:])
    edited = networks(threat="labels", shared=shared).fit(x, relabelled)
    assert [m for m, equal in enumerate(same(base, edited)) if not equal] == [base._buckets[0]]
    with pytest.raises(InputError, match="networks on shared features cannot be saved"):
        base.save(tmp_path / "model")
