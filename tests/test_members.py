"""One member at a time: its seeds, its scores by hand, its failures, and the state of the process around it."""

import random
import re
import sys
import threading
import types
import warnings
from contextlib import nullcontext

import numpy as np
import pandas as pd
import pytest
import threadpoolctl
import torch
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from runoff import isolation, members, samples
from runoff.errors import InputError, MemberError

ABC = np.array(["a", "b", "c", "d"])
X = samples.from_any(np.array([[0.0, 1], [1, 1], [2, 0], [3, 5], [4, 4], [5, 0]]))
LABELS = np.array(["b", "d", "b", "d", "b", "b"])
ROWS = np.arange(6)


class Fixed(ClassifierMixin, BaseEstimator):
    """Gives scores that a test has chosen, by the method that the test names; rows above `limit` are an error."""

    def __init__(self, method="predict_proba", returned=None, error=ValueError, limit=100, classes=None):
        self.method, self.returned, self.error, self.limit, self.classes = method, returned, error, limit, classes
        self.batches_ = []

    def fit(self, X, y):
        self.seen_ = X, y
        return self

    def __getattr__(self, name):
        if name == "classes_" and self.__dict__.get("classes") is not None:
            return np.array(self.classes)
        if name in ("predict", "predict_proba", "decision_function") and name == self.__dict__.get("method"):
            return self._scores
        raise AttributeError(name)

    def _scores(self, X):
        self.batches_.append(X[:, 0].tolist())
        if (X[:, 0] > self.limit).any():
            raise self.error("too large")
        return np.array([self.returned[int(x)] for x in X[:, 0]])


def member(*fitted, shares=(0.75, 0.25), classes=("b", "d"), index=3):
    return members.Member(index, np.array(classes), np.array(shares), fitted)


def rows_of(*numbers):
    return samples.from_any(np.array([[float(number), 0.0] for number in numbers]))


# -- scores ------------------------------------------------------------------------------------------------------------


def test_a_member_without_estimator_votes_by_its_shares():
    scores = member().scores(rows_of(1, 2), ABC)
    assert scores.tolist() == [[-1.0, 0.75, -1.0, 0.25]] * 2
    assert member(classes=ABC, shares=[0, 1, 0, 0]).scores(rows_of(1), ABC).tolist() == [[0, 1, 0, 0]]


def test_scores_are_the_mean_of_the_seeds():
    one, two = Fixed(returned=[[0.1, 0.9], [0.2, 0.8]]), Fixed(returned=[[0.3, 0.7], [0.5, 0.5]])
    scores = member(one, two).scores(rows_of(0, 1), ABC)
    np.testing.assert_allclose(scores, [[-1, 0.2, -1, 0.8], [-1, 0.35, -1, 0.65]])
    alone = member(one)
    np.testing.assert_array_equal(alone.try_score(rows_of(1, 0)), [[0.2, 0.8], [0.1, 0.9]])
    np.testing.assert_array_equal(members.score_member(alone, rows_of(1), ABC), [[-1, 0.2, -1, 0.8]])
    assert members.rank_member(alone, rows_of(1), ABC).tolist() == [[1, 2, 0, 3]]


def test_decisions_become_shares_between_0_and_1():
    binary = member(Fixed("decision_function", returned=[0.0, 2.0, -800.0]))
    e = np.exp(-4.0)
    np.testing.assert_allclose(
        binary.try_score(rows_of(0, 1, 2)), [[0.5, 0.5], [e / (1 + e), 1 / (1 + e)], [1, 0]], atol=1e-15
    )
    three = member(Fixed("decision_function", returned=[[1.0, 2.0, 3.0]]), shares=[0.2] * 3, classes=ABC[:3])
    powers = np.exp([1.0, 2.0, 3.0])
    np.testing.assert_allclose(three.try_score(rows_of(0)), [powers / powers.sum()])


def test_decisions_of_another_shape_fall_back_to_labels():
    class Both(Fixed):
        def predict(self, X):
            return np.array(["d"] * len(X))

    odd = member(Both("decision_function", returned=[[1.0, 2.0, 3.0]]))
    np.testing.assert_array_equal(odd.try_score(rows_of(0, 0)), [[0.375, 1.125]] * 2)


def test_labels_are_completed_by_half_the_shares():
    bare = member(Fixed("predict", returned=["b", "d", "x"]))
    np.testing.assert_array_equal(bare.try_score(rows_of(0, 1, 2)), [[1.375, 0.125], [0.375, 1.125], [0.375, 0.125]])


def test_columns_of_an_estimator_with_more_classes_are_picked_by_name():
    wide = [[0.1, 0.2, 0.3, 0.4]]
    for method in ("predict_proba", "decision_function"):
        every = member(Fixed(method, returned=wide, classes=["d", "a", "b", "c"]))
        picked = every.try_score(rows_of(0))
        if method == "predict_proba":
            np.testing.assert_array_equal(picked, [[0.3, 0.1]])
        else:
            powers = np.exp([0.3, 0.1])
            np.testing.assert_allclose(picked, [powers / powers.sum()])
    turned = member(Fixed(returned=[[0.6, 0.4]], classes=["d", "b"]))
    np.testing.assert_array_equal(turned.try_score(rows_of(0)), [[0.4, 0.6]])
    encoded = member(Fixed(returned=[[0.6, 0.4]], classes=[0, 1]))
    np.testing.assert_array_equal(encoded.try_score(rows_of(0)), [[0.6, 0.4]])
    same = member(Fixed(returned=[[0.6, 0.4]], classes=["b", "d"]))
    np.testing.assert_array_equal(same.try_score(rows_of(0)), [[0.6, 0.4]])


@pytest.mark.parametrize("returned", [[[0.5, 0.25, 0.25]], [0.5]])
def test_other_shapes_are_an_error(returned):
    with pytest.raises(InputError, match=re.escape("an estimator must give scores of shape (1, 2), got (1")):
        member(Fixed(returned=returned)).try_score(rows_of(0))
    two = member(Fixed(returned=[[0.5, 0.5]]), Fixed(returned=returned))
    with pytest.raises(InputError, match=re.escape("an estimator must give scores of shape (1, 2), got (1")):
        two.try_score(rows_of(0))


def test_inputs_that_fail_are_found_by_halving_and_take_the_shares():
    estimator = Fixed(returned=[[0.4, 0.6]] * 8, limit=6)
    with pytest.warns(UserWarning, match=r"^member 3 could not score 2 of 5 inputs and votes by its class shares"):
        scores = member(estimator).scores(rows_of(1, 7, 3, 4, 9), ABC)
    assert scores[:, [1, 3]].tolist() == [[0.4, 0.6], [0.75, 0.25], [0.4, 0.6], [0.4, 0.6], [0.75, 0.25]]
    assert estimator.batches_ == [[1, 7, 3, 4, 9], [1, 7], [1], [7], [3, 4, 9], [3], [4, 9], [4], [9]]
    failures = []
    found = member(estimator)._score_or_nan(rows_of(9), failures)
    assert np.isnan(found).all()
    assert (found.shape, failures) == ((1, 2), ["ValueError: too large"])


@pytest.mark.parametrize("odd", [np.nan, np.inf])
def test_scores_that_are_not_finite_are_replaced_without_a_warning(odd):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = member(Fixed(returned=[[0.4, odd], [0.4, 0.6]])).scores(rows_of(0, 1), ABC)
    assert scores[:, [1, 3]].tolist() == [[0.75, 0.25], [0.4, 0.6]]


def test_errors_of_the_machine_are_raised():
    with pytest.raises(MemberError, match=r"^member 3 could not be scored: OSError: too large$"):
        member(Fixed(returned=[[0.4, 0.6]], error=OSError, limit=0)).scores(rows_of(0, 1), ABC)


def test_a_member_is_scored_with_random_numbers_of_its_own():
    class Draws(Fixed):
        def predict_proba(self, X):
            return np.random.rand(len(X), 2)  # noqa: NPY002

    state = np.random.SeedSequence(0, spawn_key=(2, 3)).generate_state(4)
    expected = np.random.RandomState(state).rand(2, 2)
    np.testing.assert_array_equal(member(Draws()).scores(rows_of(0, 1), ABC)[:, [1, 3]], expected)


# -- training ----------------------------------------------------------------------------------------------------------


def test_the_seeds_of_an_estimator_are_the_first_numbers_of_its_source():
    source = np.random.SeedSequence(5, spawn_key=(1, 4, 0))
    state = source.generate_state(2)
    forest = members.MemberEstimator(RandomForestClassifier(7, n_jobs=3, random_state=9))
    assert forest.states == ["random_state"]
    one = forest.seeded(source)
    assert (one.random_state, one.n_jobs, one.n_estimators) == (int(source.generate_state(1)[0] % 2**31), 1, 7)
    assert one is not forest.seeded(source)
    nested = members.MemberEstimator(make_pipeline(RandomForestClassifier(), RandomForestClassifier()))
    steps = [step for _, step in nested.seeded(source).steps]
    assert [step.random_state for step in steps] == [int(n % 2**31) for n in state]
    assert [step.n_jobs for step in steps] == [None, None]  # left alone: `isolated_member` takes care of it
    assert members.MemberEstimator(RidgeClassifier()).seeded(source).random_state == int(state[0] % 2**31)
    assert members.MemberEstimator(StandardScaler()).states == []
    assert isinstance(members.MemberEstimator(StandardScaler()).seeded(source), StandardScaler)


def test_settings_that_would_change_bits_or_columns_are_fixed():
    class Threads(Fixed):
        def __init__(self, n_jobs=4, nthread=4, num_threads=4, thread_count=4, decision_function_shape="ovo"):
            self.n_jobs, self.nthread, self.num_threads = n_jobs, nthread, num_threads
            self.thread_count, self.decision_function_shape = thread_count, decision_function_shape

    params = members.MemberEstimator(Threads()).unfitted.get_params()
    assert params == {
        "n_jobs": 1, "nthread": 1, "num_threads": 1, "thread_count": 1, "decision_function_shape": "ovr",
    }  # fmt: skip


def test_a_member_is_trained_once_per_seed_on_copies_of_its_rows():
    class Writes(Fixed):
        def fit(self, X, y):
            super().fit(X.copy(), y.copy())
            X[:], y[:] = 0, "?"
            self.drawn_ = np.random.rand(), random.random(), torch.rand(1).item()  # noqa: NPY002, S311
            return self

    rows, labels = np.array([3, 0, 5]), LABELS.copy()
    seeds = isolation.seeds_of(11, 2, 2)
    trained = members.fit_member(members.MemberEstimator(Writes(returned=[[0.5, 0.5]] * 6)), X, labels, rows, 2, seeds)
    assert (trained.index, trained.classes.tolist(), trained.kinds, trained.refused) == (2, ["b", "d"], (), None)
    np.testing.assert_array_equal(trained.shares, [2 / 3, 1 / 3])
    assert len(trained.fitted) == 2
    for estimator, source in zip(trained.fitted, seeds, strict=True):
        assert estimator.seen_[0].tolist() == [[3, 5], [0, 1], [5, 0]]
        assert estimator.seen_[1].tolist() == ["d", "b", "b"]
        state = source.generate_state(4)
        torch.manual_seed(int(state[1]) << 31 | int(state[2]) >> 1)
        random.seed(int(state[0]))
        expected = np.random.RandomState(state).rand(), random.random(), torch.rand(1).item()  # noqa: S311
        assert estimator.drawn_ == expected
    assert labels.tolist() == LABELS.tolist()


@pytest.mark.parametrize(("rows", "classes", "shares"), [([], [], []), ([1], ["d"], [1]), ([0, 2], ["b"], [1])])
def test_empty_parts_and_parts_of_one_class_are_not_fitted(rows, classes, shares):
    untouched = members.MemberEstimator(Fixed(returned=[]))
    found = members.fit_member(untouched, X, LABELS, np.array(rows, int), 4, isolation.seeds_of(0, 4, 1))
    assert (found.index, found.classes.tolist(), found.shares.tolist()) == (4, classes, shares)
    assert (found.fitted, found.refused) == ((), None)


def test_an_estimator_that_fails_after_fitting_is_refused():
    trained = members.fit_member(
        members.MemberEstimator(Fixed(returned=[[0.5, 0.5]] * 6, limit=2)),
        X, LABELS, np.array([5, 0]), 1, isolation.seeds_of(0, 1, 1),
    )  # fmt: skip
    assert (trained.fitted, trained.refused) == ((), None)  # one class only
    for first, refused in ((3, "ValueError: too large"), (1, None)):
        trained = members.fit_member(
            members.MemberEstimator(Fixed(returned=[[0.5, 0.5]] * 6, limit=2)),
            X, LABELS, np.array([first, 5, 0]), 1, isolation.seeds_of(0, 1, 1),
        )  # fmt: skip
        assert trained.refused == refused  # by its first row alone
        assert len(trained.fitted) == (refused is None)
        np.testing.assert_array_equal(trained.shares, [2 / 3, 1 / 3])
        assert (trained.index, trained.classes.tolist()) == (1, ["b", "d"])
    with pytest.raises(MemberError, match=r"^member 1 could not be trained on its 2 samples: MemoryError: too large$"):
        members.fit_member(
            members.MemberEstimator(Fixed(returned=[], limit=-1, error=MemoryError)),
            X, LABELS, np.array([0, 1]), 1, isolation.seeds_of(0, 1, 1),
        )  # fmt: skip


def test_a_member_is_fitted_again_if_its_fit_loads_a_library_with_random_numbers(monkeypatch):
    class Imports(Fixed):
        def fit(self, X, y):
            fits.append(torch.rand(1).item())
            sys.modules["torch"] = torch
            return super().fit(X, y)

    fits, arguments = [], (X, LABELS, np.array([3, 0, 5]), 2, isolation.seeds_of(11, 2, 1))
    monkeypatch.delitem(sys.modules, "torch")
    with isolation.undisturbed():
        estimator = members.MemberEstimator(Imports(returned=[[0.5, 0.5]] * 6))
        trained = members.fit_member(estimator, *arguments)
        assert len(fits) == 2
        again = members.fit_member(estimator, *arguments)
    assert len(fits) == 3
    assert fits[1] == fits[2]
    assert (trained.index, trained.refused, len(trained.fitted)) == (2, None, 1)
    assert trained.fitted[0].seen_[0].tolist() == again.fitted[0].seen_[0].tolist() == [[3, 5], [0, 1], [5, 0]]
    assert trained.fitted[0].seen_[1].tolist() == ["d", "b", "b"]


# -- shared transformers -----------------------------------------------------------------------------------------------


class Centre(TransformerMixin, BaseEstimator):
    """Records the rows that it is fitted on, in order, and draws a number."""

    def __init__(self, keep=None, random_state=None):
        self.keep, self.random_state = keep, random_state

    def fit(self, X):
        self.seen_, self.drawn_ = X.copy(), np.random.rand()  # noqa: NPY002
        return self

    def transform(self, X):
        return X[: self.keep] - self.seen_.mean(axis=0) + np.random.rand()  # noqa: NPY002


DIGESTS = np.array([[5, 1], [2, 9], [5, 0], [1, 1], [9, 9], [2, 8]], np.uint64)


def test_a_shared_transformer_is_fitted_on_all_samples_by_content():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    shared = members.Shared.fit(Centre(), X, DIGESTS, 7)
    source = np.random.SeedSequence(7, spawn_key=(3,))
    state = source.generate_state(4)
    assert shared.fitted.seen_.tolist() == X.data[[3, 5, 1, 2, 0, 4]].tolist()
    assert shared.fitted.drawn_ == np.random.RandomState(state).rand()
    assert shared.fitted.random_state == int(source.generate_state(1)[0] % 2**31)
    drawn = np.random.RandomState(np.random.SeedSequence(0, spawn_key=(3,)).generate_state(4)).rand()
    found = shared.transform(rows_of(1, 2))
    np.testing.assert_allclose(found.data, [[1 - 2.5 + drawn, drawn - 11 / 6], [2 - 2.5 + drawn, drawn - 11 / 6]])
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002
    assert shared.kinds == ()
    table = samples.from_any(pd.DataFrame({"w": list("abcabc")}))

    class Codes(Centre):
        def fit(self, X):
            self.known_ = X["w"].cat.categories.tolist()
            return self

        def transform(self, X):
            return X["w"].cat.codes.to_numpy()[:, None] * 1.0

    codes = members.Shared.fit(Codes(), table, DIGESTS, 7)
    assert codes.kinds == (("a", "b", "c"),)
    assert codes.transform(samples.from_any(pd.DataFrame({"w": ["c", "x"]}))).data.tolist() == [[2.0], [3.0]]


def test_a_shared_transformer_is_compared_on_samples_from_all_over():
    n = 1000
    many = samples.from_any(np.arange(n)[:, None] * 1.0)
    seen = []

    class Looks(Centre):
        def transform(self, X):
            seen.append(X[:, 0].tolist())
            return X

    members.Shared.fit(Looks(), many, np.stack([np.arange(n)] * 2, axis=1).astype(np.uint64), 0)
    assert len(seen) == 3
    assert len(seen[0]) == 256
    assert (seen[0][:5], seen[0][-2:]) == ([0, 3, 7, 11, 15], [995, 999])
    assert np.diff(seen[0]).max() <= 4
    few = samples.from_any(np.arange(3)[:, None] * 1.0)
    members.Shared.fit(Looks(), few, np.stack([np.arange(3)] * 2, axis=1).astype(np.uint64), 0)
    assert seen[3:] == [[0, 1, 2]] * 3


@pytest.mark.parametrize(
    ("transformer", "message"),
    [
        (Centre, "shared must be a transformer with fit and transform, such as PCA(), got <class"),
        ("pca", "shared must be a transformer with fit and transform, such as PCA(), got 'pca'"),
        (LogisticRegression(), "shared must be a transformer with fit and transform, such as PCA(), got Logistic"),
        (Centre(keep=2), "shared must learn from X only, without labels, but Centre failed: InputError: shared must"),
    ],
)
def test_what_is_no_shared_transformer(transformer, message):
    with pytest.raises(InputError, match=re.escape(message)):
        members.Shared.fit(transformer, X, DIGESTS, 0)


class Twice(Centre):
    """Differs in its second fit, or in its second call."""

    calls = 0

    def transform(self, X):
        Twice.calls += 1
        return X + (Twice.calls == self.keep)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_shared_transformer_that_does_not_repeat_is_refused(at):
    Twice.calls = 0
    with pytest.raises(InputError, match="the same from the same samples every time, but Twice does not: it draws"):
        members.Shared.fit(Twice(keep=at), X, DIGESTS, 0)


def test_the_default_estimator_of_each_kind():
    def steps(kind):
        return [type(step).__name__ for _, step in members.default_estimator(kind).steps]

    assert steps("dense") == ["FunctionTransformer", "SimpleImputer", "StandardScaler", "LogisticRegression"]
    assert steps("texts") == ["TfidfVectorizer", "LogisticRegression"]
    assert steps("table") == ["ColumnTransformer", "LogisticRegression"]
    only = members.default_estimator("sparse")
    assert (type(only).__name__, only.max_iter) == ("LogisticRegression", 1000)
    assert members.default_estimator("dense").steps[-1][1].max_iter == 1000
    assert members.flat(np.arange(12).reshape(2, 3, 2)).tolist() == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11]]
    images = np.full((6, 2, 2), np.nan)
    images[:, 0, 0] = [1, 2, 3, 4, 5, np.nan]
    for kind, inputs in (("dense", images), ("table", pd.DataFrame({"n": images[:, 0, 0], "e": np.nan}))):
        fitted = members.default_estimator(kind).fit(inputs, [0, 0, 0, 1, 1, 1])
        assert fitted.predict(inputs).tolist()[:2] == [0, 0]
        assert fitted[:-1].transform(inputs).shape[1] == (4 if kind == "dense" else 2)  # columns without values stay
    words = pd.DataFrame({"n": [1.0, 2, 3, 4], "w": pd.Categorical(list("abab"))})
    fitted = members.default_estimator("table").fit(words, [0, 1, 0, 1])
    np.testing.assert_allclose(fitted[0].transform(words)[:, 0], (np.arange(4) - 1.5) / np.sqrt(1.25))
    gaps = pd.DataFrame({"n": [1.0, 2, 3, np.nan]})
    filled = members.default_estimator("table").fit(gaps, [0, 1, 0, 1])[0].transform(gaps)
    np.testing.assert_allclose(filled[:, 0], np.array([-1, 0, 1, 0]) / np.sqrt(0.5))  # filled first, then scaled
    assert fitted[0].transform(words).shape == (4, 3)
    other = pd.DataFrame({"n": [np.nan], "w": pd.Categorical(["z"])})
    np.testing.assert_allclose(fitted[0].transform(other), [[0, 0, 0]], atol=1e-12)  # the mean, and no known word
    fitted = members.default_estimator("sparse").fit(sparse.csr_matrix(np.eye(4)), [0, 1, 0, 1])
    assert fitted.predict(np.eye(4)).tolist() == [0, 1, 0, 1]


# -- the process around members ----------------------------------------------------------------------------------------


def test_seeds_come_from_random_state_member_and_number():
    for found, key in zip(isolation.seeds_of(9, 4, 3), [(1, 4, 0), (1, 4, 1), (1, 4, 2)], strict=True):
        expected = np.random.SeedSequence(9, spawn_key=key)
        assert found.generate_state(4).tolist() == expected.generate_state(4).tolist()


def states():
    return repr((np.random.get_state(), random.getstate(), torch.get_rng_state().tolist()))  # noqa: NPY002


def test_the_global_random_state_is_that_from_before():
    before = states()

    def draw():
        with isolation.undisturbed():
            np.random.rand(), random.random(), torch.rand(1)  # noqa: NPY002, S311
            assert states() != before
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        draw()
    assert states() == before


def test_numerical_libraries_use_one_thread():
    def threads():
        return {library["num_threads"] for library in threadpoolctl.threadpool_info()}

    for context in (isolation.undisturbed(), isolation.isolated_member(np.random.SeedSequence(0))):
        with isolation.undisturbed(), context:
            assert threads() == {1}


def test_a_prediction_in_another_thread_does_not_reach_a_member_that_is_being_trained():
    """A server may predict while another thread updates a classifier."""
    trained, left = threading.Event(), threading.Event()

    def predict():
        with isolation.undisturbed():
            trained.wait(10)
        left.set()

    other = threading.Thread(target=predict)
    with isolation.undisturbed():
        other.start()
        with isolation.isolated_member(np.random.SeedSequence(5)):
            expected = np.random.get_state()[1].tolist()  # noqa: NPY002
            trained.set()
            assert not left.wait(0.5)
            assert np.random.get_state()[1].tolist() == expected  # noqa: NPY002
            assert {library["num_threads"] for library in threadpoolctl.threadpool_info()} == {1}
        assert left.wait(10)
        other.join()


def test_the_limit_on_threads_lasts_until_the_last_thread_of_the_caller_is_done():
    def blas():
        return {lib["num_threads"] for lib in threadpoolctl.threadpool_info() if lib["user_api"] == "blas"}

    entered, leave = threading.Event(), threading.Event()

    def first():
        with isolation.one_thread():
            entered.set()
            leave.wait(10)

    with threadpoolctl.threadpool_limits(2):
        before = threadpoolctl.threadpool_info()
        other = threading.Thread(target=first)
        other.start()
        assert entered.wait(10)
        with isolation.one_thread():
            leave.set()
            other.join()
            assert blas() == {1}
        assert threadpoolctl.threadpool_info() == before
        for _ in range(2):
            with isolation.one_thread(), isolation.one_thread():
                assert blas() == {1}
            assert threadpoolctl.threadpool_info() == before


def test_the_limit_is_one_thread_for_all_libraries(monkeypatch):
    limits = []
    found = types.SimpleNamespace(limit=lambda **known: limits.append(known) or nullcontext())
    monkeypatch.setattr(isolation, "ThreadpoolController", lambda: found)
    isolation._libraries.cache_clear()
    with isolation.one_thread():
        assert limits == [{"limits": 1}]
    isolation._libraries.cache_clear()


class Threads:
    """A library with threads that is loaded late, as threadpoolctl sees it."""

    def __init__(self):
        self.lib_controllers, self.limited = [], False

    def limit(self, limits):
        self.limited = limits == 1 and bool(self.lib_controllers)
        return nullcontext()


class Lazy(ClassifierMixin, BaseEstimator):
    """Loads a library in `fit` or when it scores; its scores show whether the threads were limited."""

    found: Threads

    def __init__(self, when):
        self.when = when

    def used(self, where):
        if where == self.when:
            self.found.lib_controllers = ["library"]
        return 0.25 if self.found.limited or where != self.when else 0.75

    def fit(self, X, y):  # noqa: ARG002
        self.share_ = self.used("fit")
        return self

    def predict_proba(self, X):
        return np.full((len(X), 2), self.share_ * self.used("scores"))


@pytest.mark.parametrize("when", ["fit", "scores"])
def test_a_library_with_threads_that_a_member_loads_is_limited_all_the_same(monkeypatch, when):
    monkeypatch.setattr(Lazy, "found", Threads(), raising=False)
    monkeypatch.setattr(isolation, "_libraries", lambda _: Lazy.found)
    trained = members.fit_member(members.MemberEstimator(Lazy(when)), X, LABELS, ROWS, 0, isolation.seeds_of(0, 0, 1))
    assert trained.try_score(rows_of(1)).tolist() == [[0.0625, 0.0625]]
    monkeypatch.setattr(Lazy, "found", Threads())  # another process, which scores only
    assert trained.scores(rows_of(1), np.array(["b", "d"])).tolist() == [[0.0625, 0.0625]]


def test_a_member_runs_with_the_same_settings_in_any_process():
    from joblib import effective_n_jobs, parallel_config

    with np.errstate(all="raise"), parallel_config(backend="threading", n_jobs=3), isolation.undisturbed():
        assert effective_n_jobs(None) == 3
        with isolation.isolated_member(np.random.SeedSequence(0)):
            assert np.geterr() == {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}
            assert effective_n_jobs(None) == 1


def test_warnings_do_not_become_errors():
    with isolation.undisturbed(), warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        warnings.filterwarnings("ignore", "quiet", UserWarning, ".*test_members")
        warnings.filterwarnings("error", "loud", UserWarning)
        warnings.filterwarnings("always", category=DeprecationWarning, append=True)
        before = list(warnings.filters)
        with isolation.isolated_member(np.random.SeedSequence(0)):
            inside = list(warnings.filters)
            warnings.warn("loud", stacklevel=1)
            warnings.warn("quiet", stacklevel=1)
        assert warnings.filters == before

        def plain(filters):
            return [
                (action, getattr(message, "pattern", message) or "", category, getattr(module, "pattern", module) or "")
                for action, message, category, module, _ in filters
            ]

        expected = [("default" if action == "error" else action, *rest) for action, *rest in plain(before)]
        assert plain(inside) == expected
    assert [str(warning.message) for warning in caught] == ["loud"]


def test_filters_without_errors_stay_as_they_are():
    with isolation.undisturbed(), warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        before = warnings.filters
        with isolation.isolated_member(np.random.SeedSequence(0)):
            assert warnings.filters is before


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True), (OSError(), True), (ImportError(), True), (ModuleNotFoundError(), True),
        (ValueError(), False), (RuntimeError("other"), False),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("can't start new thread"), True), (ValueError("can't start new thread"), False),
        (type("OutOfMemoryError", (RuntimeError,), {})("CUDA"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), True), (ValueError("CUDA error"), False),
    ],
)  # fmt: skip
def test_which_errors_are_the_machines(error, expected):
    assert isolation.is_environment(error) is expected


@pytest.mark.parametrize(("size", "expected"), [(2**40 - 1, True), (2**40, False), (2**50, False)])
def test_arrays_that_no_machine_could_hold_are_the_samples_fault(size, expected):
    error = MemoryError()
    error._total_size = size
    assert isolation.is_environment(error) is expected


def test_libraries_with_global_random_state_or_threads_are_counted(monkeypatch):
    n_threaded = len(threadpoolctl.threadpool_info())
    assert n_threaded
    assert isolation.shared_libraries() == 3 + n_threaded
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace())  # half imported
    assert isolation.shared_libraries() == 2 + n_threaded
    monkeypatch.delitem(sys.modules, "torch")
    assert isolation.shared_libraries() == 2 + n_threaded
    with isolation.undisturbed(), isolation.isolated_member(np.random.SeedSequence(0)):
        assert np.random.rand() == np.random.RandomState(np.random.SeedSequence(0).generate_state(4)).rand()  # noqa: NPY002


class Devices:
    """PyTorch's functions for random numbers, on a machine with GPUs or without; notes what is called."""

    def __init__(self, accelerator=None, initialized=False):
        self.calls = []
        self.accelerator = types.SimpleNamespace(current_accelerator=lambda: accelerator)
        self.default_generator = types.SimpleNamespace(manual_seed=lambda seed: self.calls.append(("host", seed)))
        self.cuda = types.SimpleNamespace(
            is_initialized=lambda: initialized,
            get_rng_state_all=lambda: "state of all GPUs",
            set_rng_state_all=lambda state: self.calls.append(("set GPUs", state)),
        )

    def manual_seed(self, seed):
        self.calls.append(("everywhere", seed))

    def get_rng_state(self):
        return "state of the host"

    def set_rng_state(self, state):
        self.calls.append(("set host", state))


def test_every_device_of_pytorch_is_seeded_and_restored(monkeypatch):
    source = np.random.SeedSequence(3)
    state = source.generate_state(4)
    seed = int(state[1]) * 2**31 | int(state[2]) // 2
    for devices, seeded, restored in (
        (Devices(), "host", []),
        (Devices("cuda", initialized=True), "everywhere", [("set GPUs", "state of all GPUs")]),
        (Devices("cuda"), "everywhere", []),
    ):
        monkeypatch.setitem(sys.modules, "torch", devices)
        with isolation.undisturbed(), isolation.isolated_member(source):
            pass
        assert devices.calls == [(seeded, seed), ("set host", "state of the host"), *restored]
    older = Devices()
    del older.accelerator  # before PyTorch 2.6
    isolation._seed_torch(older, 5)
    assert older.calls == [("everywhere", 5)]
