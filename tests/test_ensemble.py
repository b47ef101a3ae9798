"""Ensembles by hand: labels, edits, and what `fit`, `update` and `certify` do with members that a test can compute."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression

import runoff
from runoff import RunoffClassifier, hashing, samples
from runoff.ensemble import Ensemble
from runoff.errors import InputError, MemberError
from runoff.fitting import edits, labels
from runoff.partition import Hashed, Partition

KEY = bytes(range(16))


class Means(ClassifierMixin, BaseEstimator):
    """Scores classes by how near their mean is, and remembers the rows and labels that it was trained on."""

    def fit(self, X, y):
        self.classes_, self.seen_ = np.unique(y), (X.copy(), y.copy())
        self.means_ = np.array([X[y == c].mean(axis=0) for c in self.classes_])
        return self

    def predict_proba(self, X):
        near = np.exp(-((X[:, None] - self.means_) ** 2).sum(axis=2))
        return near / near.sum(axis=1, keepdims=True)


RNG = np.random.default_rng(4)
Y = np.arange(40) % 3
X = RNG.normal(size=(40, 2)) + 3 * np.eye(3)[Y][:, :2]
INPUTS = RNG.normal(size=(9, 2)) + 2 * np.eye(3)[np.arange(9) % 3][:, :2]


def fitted(x=X, y=Y, groups=None, **settings):
    known = {"estimator": Means(), "n_partitions": 3, "spread": 2, "classes": range(3), "hash_key": KEY}
    return RunoffClassifier(**known | settings).fit(x, y, groups)


def trained_on(classifier):
    """Return the samples and labels of each member, as sorted pairs."""
    return [sorted(map(repr, zip(*(a.tolist() for a in m.fitted[0].seen_), strict=True))) for m in classifier.members_]


def expected_parts(classifier, x, y, buckets):
    parts = [[] for _ in classifier.members_]
    for row, label, bucket in zip(np.asarray(x, float).tolist(), y, buckets, strict=True):
        for m in classifier.partition_.spread[bucket]:
            parts[m].append(repr((row, label)))
    return [sorted(part) for part in parts]


# -- labels ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("classes", "told"),
    [
        (3, "got 3: write classes=range(3)"),
        (np.int64(4), "got 4: write classes=range(4)"),
        (True, "got True: write them as in classes=[0, 1]"),
        ("ab", "got 'ab': write them as in classes=[0, 1]"),
        (b"ab", "got b'ab': write them as in"),
        (1.5, "got 1.5: write them as in"),
        ([], "got []: write them as in"),
        ([[0, 1]], "got [[0, 1]]: write them as in"),
        ([1, [2, 3]], "got [1, [2, 3]]: write them as in"),
        (np.eye(2), "write them as in"),
        ([1, "1"], "classes must be all strings or all numbers, got [1, '1']"),
        ([2**53 + 1, 0.5], "classes must stay distinct in one array"),
        (np.array([2.0**53, 1]), "labels must be exact, got np.float64(9007199254740992.0) in an array of float64"),
        (np.float32([1, -(2.0**24)]), "labels must be exact, got np.float32(-1.6777216e+07) in an array of float32"),
    ],
)  # fmt: skip
def test_classes_that_are_refused(classes, told):
    with pytest.raises(InputError, match=re.escape(told)):
        labels.sorted_classes(classes)


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        ([2, 0, 1, 1], [0, 1, 2]), (range(3), [0, 1, 2]), (np.array([1, -1]), [-1, 1]), ({"b", "a"}, ["a", "b"]),
        (np.array([2.0**53 - 1]), [2.0**53 - 1]), ([True, False], [False, True]), ((np.int8(3), 2), [2, 3]),
        (frozenset([0.5]), [0.5]), (iter([5]) and [5], [5]), (np.float32([2.0**24 - 1]), [2.0**24 - 1]),
        ([np.float32(0.5), 1], [0.5, 1.0]), (pd.Index(["y", "x"]), ["x", "y"]),
    ],
)  # fmt: skip
def test_classes_are_sorted(classes, expected):
    assert labels.sorted_classes(classes).tolist() == expected


@pytest.mark.parametrize(
    ("y", "told"),
    [
        (None, "a classifier requires y to be passed, but the target y is None: pass one label per sample"),
        (np.eye(3), "pass y.argmax(axis=1)"),
        (np.zeros((2, 2, 2)), "y must be one label per sample, a 1d array, got shape (2, 2, 2)"),
        (5, "y must be one label per sample, a 1d array, got shape ()"),
        ([1.0, np.nan], "Input y contains NaN: give every sample a label, or leave it out"),
        ([1.0, np.inf], "Input y contains infinity or a value too large for dtype('float64'): give every sample"),
        ([1, "a"], "y must hold labels of one kind, got strings and numbers"),
        ([0.5, 1.5, 2.5], "(Unknown label type: continuous)"),
    ],
)
def test_labels_that_are_refused(y, told):
    with pytest.raises(InputError, match=re.escape(told)) as error:
        labels.checked(y)
    assert str(error.value).endswith(told) or "argmax" not in told


def test_labels_are_returned_as_an_array_and_as_values():
    for y in ([1, 2, 1], (1, 2, 1), np.array([1, 2, 1]), np.array([1, 2, 1], object), pd.Series([1, 2, 1])):
        array, values = labels.checked(y)
        assert (array.tolist(), values, array.dtype.kind) == ([1, 2, 1], [1, 2, 1], "i")
    array, values = labels.checked(np.array(["b", "a"], object))
    assert (array.tolist(), values, array.dtype) == (["b", "a"], ["b", "a"], object)
    array, values = labels.checked(np.array([5], object))
    assert (array.tolist(), values, array.dtype.kind) == ([5], [5], "i")
    assert [type(value) for value in labels.checked([np.int8(1), 2**60])[1]] == [int, int]
    assert labels.checked([2**53 + 1, 2**53])[1] == [2**53 + 1, 2**53]
    assert labels.checked([0.5, 1.5], fixed=True)[1] == [0.5, 1.5]
    assert labels.checked([], fixed=False)[1] == []
    with pytest.warns(UserWarning, match="A column-vector y was passed"):
        assert labels.checked(np.array([[1], [2]]))[1] == [1, 2]


def test_codes_and_equal_classes():
    classes = labels.sorted_classes(["c", "a", "b"])
    assert labels.codes(["b", "b", "a"], classes).tolist() == [1, 1, 0]
    assert labels.codes([], classes).dtype == np.int64
    assert labels.codes([True, 0.0], np.array([0, 1])).tolist() == [1, 0]
    with pytest.raises(InputError, match=re.escape("y must hold labels from classes=['a', 'b', 'c'], got 'd'")):
        labels.codes(["a", "d"], classes)
    assert labels.same_classes(np.array([1, 2]), np.array([1, 2]))
    assert not labels.same_classes(np.array([1, 2]), np.array([1.0, 2.0]))
    assert not labels.same_classes(np.array([1, 2]), np.array([1, 3]))


# -- edits -------------------------------------------------------------------------------------------------------------


def hashed(*rows, with_sources=False):
    """Return samples by name, each with a label, and maybe a source: the content is the name."""
    digests = np.array([[ord(name), 1] for name, *_ in rows], np.uint64).reshape(-1, 2)
    sources = np.array([[ord(row[2]), 2] for row in rows], np.uint64) if with_sources else None
    some = samples.from_any(digests.astype(float))
    return Hashed(
        some, np.array([row[1] for row in rows]), digests, sources, np.array([ord(row[0]) % 3 for row in rows])
    )


def names(some):
    return [(chr(int(digest)), label) for digest, label in zip(some.digests[:, 0], some.labels.tolist(), strict=True)]


def test_an_edit_removes_each_copy_once_and_adds_at_the_end():
    data = hashed("a0", "b1", "a0", "a1")
    parse = [(name, int(label)) for name, label in ["a0", "b1", "a0", "a1"]]
    data = hashed(*parse)
    assert names(edits.edited(data, None, None, "samples")) == parse
    assert names(edits.edited(data, hashed(("a", 0)), None, "samples")) == [("a", 0), ("b", 1), ("a", 1)]
    after = edits.edited(data, hashed(("a", 1), ("a", 0), ("a", 0)), hashed(("c", 2)), "samples")
    assert names(after) == [("b", 1), ("c", 2)]
    assert after.buckets.tolist() == [ord("b") % 3, ord("c") % 3]
    assert names(edits.edited(data, hashed(*parse), hashed(("c", 2)), "samples")) == [("c", 2)]
    with pytest.raises(InputError, match="update must leave at least one training sample, got none"):
        edits.edited(data, hashed(*parse), None, "samples")
    with pytest.raises(
        InputError,
        match=r"with their labels, but sample 1 \(label 2\) is not one of them, or occurs less often: nothing",
    ):
        edits.edited(data, hashed(("a", 0), ("b", 2)), None, "samples")


def test_samples_are_removed_from_their_source():
    data = hashed(("a", 0, "p"), ("a", 0, "q"), with_sources=True)
    after = edits.edited(data, hashed(("a", 0, "p"), with_sources=True), None, "sources")
    assert after.sources.tolist() == [[ord("q"), 2]]
    with pytest.raises(InputError, match=r"with their labels and sources, but sample 0 \(label 0\)"):
        edits.edited(data, hashed(("a", 0, "r"), with_sources=True), None, "sources")


def test_where_labels_are_counted_only_labels_change():
    data = hashed(("a", 0), ("b", 1), ("a", 2))
    after = edits.edited(data, hashed(("a", 0)), hashed(("a", 5)), "labels")
    assert names(after) == [("b", 1), ("a", 2), ("a", 5)]
    for removed, added in ((("a", 0), ("b", 0)), (("a", 0), None), (None, ("a", 0)), (("b", 1), ("c", 1))):
        with pytest.raises(InputError, match="update can only relabel with threat='labels', where samples are fixed"):
            edits.edited(data, removed and hashed(removed), added and hashed(added), "labels")
    other = data.digests.copy()
    other[0, 1] = 9  # equal in half of the digest
    assert not edits._same_contents(data.digests, other)
    assert edits._same_contents(data.digests, data.digests[[2, 0, 1]])
    halves = np.array([[1, 5], [1, 6], [0, 6]], np.uint64)
    assert edits._same_contents(halves, halves[[1, 2, 0]])


def test_buckets_of_training_samples_are_looked_up():
    data = hashed(("a", 0), ("b", 1))
    assert edits.buckets_of_known(data.digests[[1, 1, 0]], data.digests, np.array([7, 8])).tolist() == [8, 8, 7]
    with pytest.raises(InputError, match="X must hold training samples only with threat='labels'"):
        edits.buckets_of_known(hashed(("c", 0)).digests, data.digests, np.array([7, 8]))


@pytest.mark.parametrize(
    ("edit", "with_groups", "told"),
    [
        ((1, 2), True, "add must be (X, y, groups), as fit was called with groups, got 2 values"),
        ([1], False, "add must be (X, y), as in fit, got 1 values"),
        ((1, 2, 3), False, "add must be (X, y), as in fit, got 3 values"),
        (np.eye(2), False, "add must be (X, y), as in fit, got a ndarray"),
        ("ab", False, "add must be (X, y), as in fit, got a str"),
    ],
)
def test_the_form_of_an_edit(edit, with_groups, told):
    with pytest.raises(InputError, match=re.escape(told)):
        edits.check_edit("add", edit, with_groups)
    edits.check_edit("add", (1, 2), False)
    edits.check_edit("add", [1, 2, 3], True)


# -- fit ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("groups", [None, [f"s{i % 13}" for i in range(40)]])
def test_members_are_trained_on_their_buckets(groups):
    classifier = fitted(groups=groups)
    hashes = hashing.digests(samples.from_any(X).content(), KEY) if groups is None else hashing.sources(groups, 40, KEY)
    buckets = (hashes[:, 0] % np.uint64(6)).astype(int)
    assert classifier._buckets.tolist() == buckets.tolist()
    parts = expected_parts(classifier, X, Y.tolist(), buckets)
    assert trained_on(classifier) == parts
    assert classifier.member_sizes_.tolist() == [len(part) for part in parts]
    assert [m.index for m in classifier.members_] == list(range(6))
    assert classifier.partition_.unit == ("samples" if groups is None else "sources")
    given = classifier.training_samples()
    assert given.labels.tolist() == Y.tolist()
    assert classifier.buckets_of(given.samples, groups).tolist() == buckets.tolist()
    ballots, own = classifier.training_votes(np.array([5, 2]))
    assert own.tolist() == buckets[[5, 2]].tolist()
    np.testing.assert_array_equal(ballots, runoff.rank(classifier.scores(X[[5, 2]]).values))


def test_scores_ballots_and_shares():
    classifier = fitted()
    scores = classifier.scores(INPUTS)
    assert (scores.classes_fixed, scores.unit, scores.fingerprint) == (
        True,
        "samples",
        classifier.partition_.fingerprint,
    )
    np.testing.assert_array_equal(scores.spread, classifier.partition_.spread)
    for m, member in enumerate(classifier.members_):
        np.testing.assert_array_equal(scores.values[:, m], member.fitted[0].predict_proba(INPUTS))
    inputs = samples.from_any(INPUTS)
    np.testing.assert_array_equal(Ensemble._ranked(classifier, inputs), classifier._ranked(inputs))
    first = scores.values.argmax(axis=2)
    shares = np.stack([(first == c).mean(axis=1) for c in range(3)], axis=1)
    certificates = classifier.certify(INPUTS)
    again = runoff.certify(scores)
    np.testing.assert_array_equal(certificates.radius, again.radius)
    assert certificates.prediction.tolist() == again.prediction.tolist() == classifier.predict(INPUTS).tolist()
    assert (certificates.fingerprint, certificates.unit) == (scores.fingerprint, "samples")
    found = classifier.decision_function(INPUTS)
    assert found.argmax(axis=1).tolist() == certificates.prediction.tolist()
    np.testing.assert_allclose(found, shares, atol=1e-12)
    plain = shares.argmax(axis=1) == certificates.prediction
    np.testing.assert_array_equal(found[plain], shares[plain])


class Points(ClassifierMixin, BaseEstimator):
    """Scores that the input holds itself."""

    def fit(self, X, y):  # noqa: ARG002
        self.classes_ = np.arange(3)
        return self

    def predict_proba(self, X):
        return X


def test_a_class_that_wins_with_fewer_first_choices_is_raised_just_above_the_largest():
    """Two members of five rank class 0 first, two class 1; one class 2, then 1: class 1 wins the second round."""
    tables = [[3, 2, 1], [3, 2, 1], [3, 2, 1], [1, 3, 2], [1, 3, 2], [1, 2, 3], [1, 2, 3]]
    classifier = fitted(estimator=Points(), n_partitions=7, spread=1, x=np.repeat(X, 3, axis=1)[:, :3])
    classifier._ranked = lambda inputs: runoff.rank(np.array([tables] * len(inputs), float))
    [row] = classifier.decision_function(np.zeros((1, 3)))
    assert row.tolist() == [3 / 7, np.nextafter(3 / 7, 1), 2 / 7]
    assert classifier.predict(np.zeros((1, 3))).tolist() == [1]
    classifier.set_params(election="plurality")
    assert classifier.decision_function(np.zeros((1, 3))).tolist() == [[3 / 7, 2 / 7, 2 / 7]]


def test_two_classes_and_one_class():
    two = fitted(y=Y > 0, classes=[False, True])
    assert two.certify(INPUTS).prediction.tolist() == two.predict(INPUTS).tolist()
    first = two.scores(INPUTS).values.argmax(axis=2)
    np.testing.assert_allclose(two.decision_function(INPUTS), (2 * first - 1).mean(axis=1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one = fitted(y=["only"] * 40, classes=["only"])
    assert one.predict(INPUTS).tolist() == ["only"] * 9
    assert one.decision_function(INPUTS).tolist() == [1.0] * 9
    with pytest.raises(
        InputError, match=re.escape("certificates need at least 2 classes, got ['only']: extend classes=")
    ):
        one.certify(INPUTS)
    assert one.n_idle() == 6


@pytest.mark.parametrize("election", ["runoff", "plurality", "maximin"])
def test_predictions_do_not_depend_on_the_bound(election):
    tight = fitted(election=election)
    paper = fitted(election=election, bound="paper") if election != "maximin" else tight
    certificates = tight.certify(INPUTS)
    assert certificates.election.name == election
    assert paper.certify(INPUTS).bound == ("tight" if election == "maximin" else "paper")
    assert certificates.bound == "tight"
    assert tight.predict(INPUTS).tolist() == certificates.prediction.tolist() == paper.predict(INPUTS).tolist()
    np.testing.assert_array_equal(tight.decision_function(INPUTS).argmax(axis=1), certificates.prediction)


def test_classes_that_are_not_fixed_cannot_be_certified():
    free = fitted(classes=None)
    assert free.classes_.tolist() == [0, 1, 2]
    assert free.scores(INPUTS).classes_fixed is False
    assert free.predict(INPUTS).tolist() == fitted().predict(INPUTS).tolist()
    with pytest.raises(InputError, match=re.escape("(y holds [0, 1, 2])")):
        free.certify(INPUTS)
    assert free.fitted_state().classes_fixed is False
    assert fitted().fitted_state().classes_fixed is True


class Refuses(Means):
    def fit(self, X, y):  # noqa: ARG002
        raise ValueError("no. ")


def test_nothing_is_certified_if_no_member_learnt():
    with pytest.warns(
        UserWarning, match=r"no member could be trained, so all vote.*; member 0: ValueError: no"
    ) as told:
        none = fitted(estimator=Refuses())
    assert len(told) == 1
    assert told[0].filename == __file__
    with pytest.raises(
        MemberError, match=r"^there is nothing to certify, since no member could be trained; member 0: V"
    ):
        none.certify(INPUTS)
    assert none.predict(INPUTS).shape == (9,)


class Picky(Means):
    """Refuses parts that hold the largest number."""

    def fit(self, X, y):
        if X.max() > 99:
            raise ValueError("too large")
        return super().fit(X, y)


def test_members_that_were_refused_are_warned_of_by_fit_and_by_update():
    large = np.array([[100.0, 100.0]])
    with pytest.warns(
        UserWarning, match=r"^member \d votes by its class shares, since it could not be trained: Val"
    ) as told:
        some = fitted(np.concatenate([X, large]), [*Y, 1], estimator=Picky())
    assert [warning.filename for warning in told] == [__file__] * 2
    assert len(some.certify(INPUTS)) == 9
    refused = [m for m, member in enumerate(some.members_) if member.refused]
    assert refused == sorted(some.partition_.spread[some._buckets[-1]].tolist())
    updated = fitted(estimator=Picky())
    with pytest.warns(UserWarning, match=r"^member \d votes by its class shares") as told:
        updated.update(add=(large, [1]))
    assert [warning.filename for warning in told] == [__file__] * 2
    assert [m for m, member in enumerate(updated.members_) if member.refused] == refused


def test_members_without_samples_are_warned_of_and_counted():
    with pytest.warns(UserWarning, match=r"^40 of 40 members learn nothing: 36 have no samples and 4 have") as told:
        few = fitted(X[:4], Y[:4], n_partitions=40, spread=1)
    assert told[0].filename == __file__
    assert "use fewer partitions for 4 samples" in str(told[0].message)
    sizes = few.member_sizes_
    single = [m for m, member in enumerate(few.members_) if len(member.classes) == 1]
    assert few.n_idle() == (sizes == 0).sum() + len(single)
    assert few.balance() == few.partition_.balance(sizes, None, len(single))
    with pytest.warns(UserWarning, match="use fewer partitions for 2 sources"):
        some = fitted(X[:4], Y[:4], ["a", "a", "b", "b"], n_partitions=40, spread=1)
    assert some.balance().endswith("; 2 sources, the largest with 50.0% of the samples")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted()


def test_settings_and_data_that_do_not_fit():
    with pytest.raises(InputError, match="groups cannot be used with threat='labels', which counts single labels"):
        fitted(groups=["a"] * 40, threat="labels")
    with pytest.raises(InputError, match="X and y must be of the same length, got 40 samples and 39 labels"):
        fitted(y=Y[:-1])
    with pytest.raises(InputError, match="n_partitions must be a whole number of at least 1, got 0"):
        fitted(n_partitions=0)
    with pytest.raises(InputError, match="sample_weight is not supported"):
        RunoffClassifier(Means()).fit(X, Y, sample_weight=Y)
    classifier = fitted()
    with pytest.raises(InputError, match=re.escape("X must be an array of shape (n, 2), as in fit, got texts")):
        classifier.predict(["a"])
    table = pd.DataFrame({"a": X[:, 0]})
    known = RunoffClassifier(n_partitions=2, classes=range(3)).fit(table, Y)
    for call in (lambda: RunoffClassifier(classes=[0, 1]).fit(table[:0], []), lambda: known.predict(table[:0])):
        with pytest.raises(InputError, match=re.escape("X must hold at least one sample, got 0 sample(s)")):
            call()
    with pytest.raises(InputError, match="Unknown label type: continuous"):
        fitted(y=Y / 2 + X[:, 0], classes=None)
    assert fitted(y=Y / 2, classes=[0, 0.5, 1]).classes_.tolist() == [0, 0.5, 1]
    for call in ("predict", "scores", "decision_function", "certify", "update", "balance", "n_idle", "fit_undefended"):
        method = getattr(RunoffClassifier(), call)
        with pytest.raises(NotFittedError):
            method(*([] if call in ("balance", "n_idle", "update", "fit_undefended") else [INPUTS]))
    with pytest.raises(NotFittedError):
        RunoffClassifier().fitted_state()
    assert not hasattr(RunoffClassifier(), "predict_proba")


def test_a_fit_that_fails_leaves_everything_as_it_was():
    classifier = fitted()
    before = dict(classifier.__dict__)
    with pytest.raises(InputError, match="the same length"):
        classifier.fit(X, Y[:-1])
    with pytest.raises(InputError, match="each of 40 samples, got 1 names"):
        classifier.fit(X, Y, ["a"])
    assert classifier.__dict__.keys() == before.keys()
    assert all(classifier.__dict__[name] is value for name, value in before.items())


def test_labels_are_copied_and_have_the_type_of_the_classes():
    y = Y.astype(float)
    classifier = fitted(y=y, classes=[0, 1, 2])
    assert classifier._labels.dtype == np.int64
    free = fitted(y=y, classes=None)
    y[:] = 0
    assert free._labels.tolist() == Y.tolist()
    assert classifier.predict(INPUTS).dtype == np.int64
    assert set(classifier.members_[0].fitted[0].seen_[1].tolist()) == {0, 1, 2}
    assert classifier.members_[0].fitted[0].seen_[1].dtype == np.int64


def test_the_seed_and_the_key():
    derived = fitted(hash_key=None, random_state=5)
    assert derived.partition_.key == hashing.derived_key(5)
    assert derived.partition_.offsets == Partition.make(3, 2, 5, KEY).offsets
    assert bytes(fitted().partition_.key) == KEY
    assert type(fitted().partition_.key) is hashing.Key
    params = fitted().get_params()
    assert type(params["hash_key"]) is hashing.Key
    assert RunoffClassifier().get_params()["hash_key"] is None
    assert "estimator__C" in RunoffClassifier(LogisticRegression()).get_params()


def test_a_step_fitted_on_all_samples_is_warned_of_unless_samples_are_trusted():
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    with pytest.warns(runoff.errors.FittedInFrontWarning, match="StandardScaler") as told:
        fitted(scaled)
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(scaled, threat="labels")


# -- features ----------------------------------------------------------------------------------------------------------


class Shift(TransformerMixin, BaseEstimator):
    """Counts the rows that it transforms at once."""

    def fit(self, X):
        self.n_ = len(X)
        return self

    def transform(self, X):
        self.last_ = len(X)
        return X + 10


def test_the_shared_transformer_runs_once_per_content():
    x = np.concatenate([X, X[:7]])
    classifier = fitted(x, np.append(Y, Y[:7]), threat="labels", shared=Shift())
    assert classifier.shared_.fitted.n_ == 47
    assert classifier.shared_.fitted.last_ == 40
    np.testing.assert_array_equal(classifier._features.data, x + 10)
    np.testing.assert_array_equal(classifier.features_of(samples.from_any(INPUTS)).data, INPUTS + 10)
    assert classifier.features_of(samples.from_any(x)).numbers == np.float64
    parts = expected_parts(classifier, x + 10, np.append(Y, Y[:7]).tolist(), classifier._buckets)
    assert trained_on(classifier) == parts
    assert (classifier.certify(INPUTS).unit, classifier.scores(INPUTS).unit) == ("labels", "labels")
    assert classifier.buckets_of(samples.from_any(X[3:5])).tolist() == classifier._buckets[3:5].tolist()


@pytest.mark.parametrize(
    "settings", [{}, {"encoder": lambda rows: rows * 2.0}, {"threat": "labels", "shared": Shift()}]
)
def test_numbers_of_members_have_the_type_of_the_setting(settings):
    for dtype, expected in ((None, np.float64), ("float32", np.float32)):
        classifier = fitted(dtype=dtype, **settings)
        assert classifier._features.numbers == expected
        assert classifier.members_[0].fitted[0].seen_[0].dtype == expected
        assert classifier.features_of(samples.from_any(INPUTS)).numbers == expected
        classifier.set_params(dtype="float32" if dtype is None else None)  # of no effect until the next fit
        assert classifier.features_of(samples.from_any(INPUTS)).numbers == expected
        assert classifier.fitted_state().numbers == np.dtype(expected).name
        loaded = RunoffClassifier()
        loaded.restore(classifier.fitted_state())
        assert loaded.features_of(samples.from_any(INPUTS)).numbers == expected


def test_an_encoder_comes_before_members():
    classifier = fitted(encoder=lambda rows: rows * 2.0)
    np.testing.assert_array_equal(classifier._features.data, np.float32(X) * 2)
    assert trained_on(classifier) == expected_parts(
        classifier, classifier._features.data, Y.tolist(), classifier._buckets
    )
    assert fitted().encoder_ is None
    assert fitted().shared_ is None


# -- update ------------------------------------------------------------------------------------------------------------


def test_an_update_trains_the_members_of_the_buckets_that_changed():
    classifier = fitted(X[:30], Y[:30])
    before = list(classifier.members_)
    own, new = classifier._buckets[4], classifier.buckets_of(samples.from_any(X[35:36]))[0]
    classifier.update(add=(X[35:36], Y[35:36]), remove=(X[4:5], Y[4:5]))
    reached = sorted({*classifier.partition_.spread[own].tolist(), *classifier.partition_.spread[new].tolist()})
    assert classifier.updated_members_.tolist() == reached
    assert [m for m in range(6) if classifier.members_[m] is not before[m]] == reached
    rows = [*(i for i in range(30) if i != 4), 35]
    again = fitted(X[rows], Y[rows])
    assert trained_on(classifier) == trained_on(again)
    for name in ("_digests", "_buckets", "_labels", "member_sizes_"):
        np.testing.assert_array_equal(getattr(classifier, name), getattr(again, name))
    assert classifier._training_sets == again._training_sets
    np.testing.assert_array_equal(classifier._features.data, X[rows])
    np.testing.assert_array_equal(classifier.training_samples().samples.data, X[rows])
    assert fitted().update().updated_members_.tolist() == []


def test_a_label_that_comes_or_goes_trains_all_members_unless_classes_are_fixed():
    free = fitted(classes=None)
    free.update(add=(X[:1] + 1, [7]))
    assert free.updated_members_.tolist() == list(range(6))
    assert free.classes_.tolist() == [0, 1, 2, 7]
    free.update(remove=(X[:1], Y[:1]))
    assert len(free.updated_members_) == 2
    fixed = fitted(classes=[0, 1, 2, 7]).update(add=(X[:1] + 1, [7]))
    assert len(fixed.updated_members_) == 2
    with pytest.raises(InputError, match="y must hold labels like 0 as in fit, got 'seven'"):
        fitted(classes=None).update(add=(X[:1], ["seven"]))
    with pytest.raises(InputError, match="y must hold labels like '0' as in fit, got 7"):
        fitted(y=Y.astype(str), classes=None).update(add=(X[:1], [7]))


def test_an_update_of_labels_only():
    classifier = fitted(threat="labels")
    classifier.update(remove=(X[:1], Y[:1]), add=(X[:1], [2]))
    assert len(classifier.updated_members_) == 2
    assert classifier._labels.tolist() == [*Y[1:].tolist(), 2]
    with pytest.raises(InputError, match="X must hold training samples only"):
        classifier.update(add=(X[:1] + 1, [2]))


def test_an_update_with_sources():
    groups = [f"s{i % 13}" for i in range(40)]
    classifier = fitted(groups=groups)
    classifier.update(add=(X[:1] + 1, [1], ["s3"]), remove=(X[5:6], Y[5:6], ["s5"]))
    rows = [i for i in range(40) if i != 5]
    again = fitted(np.concatenate([X[rows], X[:1] + 1]), [*Y[rows], 1], [*(groups[i] for i in rows), "s3"])
    assert trained_on(classifier) == trained_on(again)
    assert classifier.balance() == again.balance()
    np.testing.assert_array_equal(classifier._sources, again._sources)


def test_an_update_that_fails_and_a_loaded_classifier():
    classifier = fitted()
    before = dict(classifier.__dict__)

    def full(*_):
        raise KeyboardInterrupt

    classifier._train = full
    with pytest.raises(KeyboardInterrupt):
        classifier.update(remove=(X[:1], Y[:1]))
    del classifier._train
    assert classifier.__dict__.keys() == before.keys()
    assert all(classifier.__dict__[name] is value for name, value in before.items())
    state = classifier.fitted_state()
    loaded = RunoffClassifier()
    loaded.restore(state)
    loaded.members_ = classifier.members_
    assert loaded.partition_ is loaded.fitted_state().partition is classifier.partition_
    assert (loaded.threat, loaded.hash_key, loaded.classes.tolist()) == ("samples", KEY, [0, 1, 2])
    assert (loaded.encoder_, loaded.shared_, loaded._samples) == (None, None, None)
    assert loaded.fitted_state() is not state
    for name in ("classes", "classes_fixed", "training_sets", "member_sizes", "seed", "n_seeds", "width", "sources",
                 "n_single_class"):  # fmt: skip
        assert getattr(loaded.fitted_state(), name) is getattr(state, name) or name == "classes_fixed"
    assert loaded.fitted_state().classes_fixed is True
    assert loaded.predict(INPUTS).tolist() == classifier.predict(INPUTS).tolist()
    with pytest.raises(InputError, match="a loaded classifier has no training samples to update: fit it again"):
        loaded.update(add=(X[:1], Y[:1]))
    with pytest.raises(InputError, match="a loaded classifier has no training samples: pass them"):
        loaded.fit_undefended()
    free = RunoffClassifier()
    free.restore(fitted(classes=None, threat="labels").fitted_state())
    assert (free.classes, free._fixed_classes, free.threat) == (None, None, "labels")


def test_the_argument_of_an_update_is_named():
    with pytest.raises(InputError, match=r"^add must be"):
        fitted().update(add=(X,))
    with pytest.raises(InputError, match=r"^remove must be"):
        fitted().update(remove=(X,))


def test_samples_that_changed_in_place_are_noticed():
    own = X.copy()
    classifier = fitted(own)
    own[3, 1] += 1
    with pytest.raises(InputError, match="X was changed in place since fit, so it cannot be updated: fit again"):
        classifier.update(remove=(X[:1], Y[:1]))


def test_the_undefended_model_is_one_member_on_everything():
    classifier = fitted(random_state=np.random.RandomState(3), n_seeds=2)
    alone = classifier.fit_undefended()
    assert (len(alone.members_), alone.n_partitions, alone.spread, alone.n_seeds) == (1, 1, 1, 1)
    assert alone._seed == classifier._seed
    assert len(trained_on(alone)[0]) == 40
    assert alone.certify(INPUTS).radius.tolist() == [0] * 9
    other = classifier.fit_undefended(X[:20], Y[:20])
    assert len(trained_on(other)[0]) == 20
    assert len(classifier.members_) == 6

    class Stored(RunoffClassifier):
        def __init__(self, estimator=None, *, checkpoints=None, classes=None):
            super().__init__(estimator, n_partitions=2, classes=classes)
            self.checkpoints = checkpoints

    Stored.set_params = lambda self, **known: [setattr(self, *pair) for pair in known.items()] and self
    stored = Stored(Means(), checkpoints="folder", classes=range(3)).fit(X, Y)
    assert (stored.checkpoints, stored.fit_undefended().checkpoints) == ("folder", None)
    state = classifier.fitted_state()
    assert (state.n_seeds, state.seed) == (2, classifier._seed)
    assert [len(member.fitted) for member in classifier.members_] == [2] * 6
