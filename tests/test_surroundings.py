"""What surrounds a member cannot change it: types and spellings of other samples, settings of the process."""

import enum
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from runoff import RunoffClassifier, hashing
from runoff.errors import InputError, MemberError
from runoff.isolation import isolated_member
from runoff.samples import Dense, from_any

pytestmark = [
    pytest.mark.filterwarnings(f"ignore:{text}")
    for text in (
        ".*members learn nothing",
        "member .* votes by its class shares",
        "overflow encountered",
        "X has feature names",
    )
]
RNG = np.random.default_rng(0)
X = RNG.integers(0, 9, (60, 4)).astype(np.float64)
Y = (X[:, 0] > 4).astype(int) + (X[:, 1] > 5)
INPUTS = RNG.integers(0, 9, (20, 4)).astype(np.float64)


def fitted(X=X, y=Y, estimator=None, **settings):
    estimator = GaussianNB() if estimator is None else estimator
    return RunoffClassifier(estimator, **{"n_partitions": 8, "classes": [0, 1, 2]} | settings).fit(X, y)


def different(a, b, inputs=INPUTS):
    """The members whose scores differ."""
    left, right = a.scores(inputs).values, b.scores(inputs).values
    return [m for m in range(left.shape[1]) if not np.array_equal(left[:, m], right[:, m])]


# -- one sample changes the type of all -------------------------------------------------------------------------------

BYTES = {  # hashes that depend on how numbers are stored
    "bytes": lambda Z: np.ascontiguousarray(Z).view(np.uint64).sum(axis=1) % 1000003,
    "sums": lambda Z: Z.sum(axis=1).astype(int),
    "type": lambda Z: np.full(len(Z), Z.dtype.itemsize) + (Z.dtype.kind == "f"),
}


@pytest.mark.parametrize("own", BYTES.values(), ids=BYTES)
@pytest.mark.parametrize("kind", [np.int64, np.uint8, np.float32])
def test_a_hash_of_ones_own_gets_samples_in_a_form_that_no_other_sample_changes(own, kind):
    before = fitted(X.astype(kind), hash=own)
    after = fitted(np.vstack([X.astype(kind), [[0.5, 1, 1, 1]]]), np.append(Y, 0), hash=own)
    np.testing.assert_array_equal(before._buckets, after._buckets[:-1])
    assert set(different(before, after)) <= {after._buckets[-1]}


def test_a_hash_of_ones_own_of_tables_texts_and_sparse_matrices():
    table = pd.DataFrame(X.astype(int), columns=list("abcd")).assign(e=["u", "v"] * 30)

    def own(part):
        assert part.columns.tolist() == list("abcde")
        return pd.util.hash_pandas_object(part, index=False).to_numpy()

    odd = pd.DataFrame([{"a": "many", "b": None, "c": 0.5, "d": 1, "e": 7}])
    inputs = table.iloc[:20]
    before = RunoffClassifier(n_partitions=8, classes=[0, 1, 2], hash=own).fit(table, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        longer = pd.concat([table, odd], ignore_index=True)
    after = RunoffClassifier(n_partitions=8, classes=[0, 1, 2], hash=own).fit(longer, np.append(Y, 0))
    np.testing.assert_array_equal(before._buckets, after._buckets[:-1])
    assert set(different(before, after, inputs)) <= {after._buckets[-1]}
    texts = [f"no{int(a)} so{int(b)}" for a, b in X[:, :2]]
    by_length = RunoffClassifier(n_partitions=2, classes=[0, 1, 2], hash=lambda Z: np.array([len(t) for t in Z]))
    assert set(by_length.fit(texts, Y)._buckets) == {len(texts[0]) % 2}


def test_a_hash_that_depends_on_other_samples_is_refused():
    for own in (
        lambda Z: np.arange(len(Z)),
        lambda Z: np.argsort(Z[:, 0]),
        lambda Z: (Z - Z.min()).sum(axis=1).astype(int),
    ):
        with pytest.raises(InputError, match="an integer that depends on the sample alone, but sample"):
            fitted(hash=own)


def test_large_numbers_and_images_for_a_hash_of_ones_own():
    rows = np.array([[2.0**63, 1], [2.0**62, 1], [-(2.0**63), 0], [0.5, 0], [1, 1]])
    kinds = {row: part.dtype.kind for found, part in Dense(rows).plain() for row in found.tolist()}
    assert kinds == {0: "f", 1: "i", 2: "f", 3: "f", 4: "i"}
    [(found, part)] = from_any(np.ones((3, 2, 2), np.uint8)).plain()
    assert (found.tolist(), part.shape, part.dtype) == ([0, 1, 2], (3, 2, 2), np.int64)


def test_a_text_among_dates_is_no_error_for_all_others():
    days = np.array(["2020-01-01", "2020-02-01", "2020-03-01", "NaT"] * 15, "datetime64[D]")
    rows = [[day, float(x)] for day, x in zip(days, X[:, 0], strict=True)]
    before = RunoffClassifier(n_partitions=8, classes=[0, 1, 2]).fit(pd.DataFrame(rows), Y)
    longer = pd.DataFrame([*rows, ["no date", 1.0]])
    assert isinstance(longer.iloc[0, 0], np.datetime64)
    after = RunoffClassifier(n_partitions=8, classes=[0, 1, 2]).fit(longer, np.append(Y, 0))
    np.testing.assert_array_equal(before._buckets, after._buckets[:-1])
    assert set(different(before, after, pd.DataFrame(rows[:20]))) <= {after._buckets[-1]}


@pytest.mark.parametrize(
    ("numpys", "pandas_"),
    [
        (np.datetime64("2020-01-02"), pd.Timestamp("2020-01-02")),
        (np.datetime64("2020-01-02T03:04:05.000000006"), pd.Timestamp("2020-01-02T03:04:05.000000006")),
        (np.timedelta64(5, "s"), pd.Timedelta(seconds=5)),
        (np.timedelta64(1, "ns"), pd.Timedelta(1)),
        (np.datetime64("NaT"), None),
        (np.timedelta64("NaT"), None),
    ],
)
def test_moments_of_numpy_and_pandas_are_the_same(numpys, pandas_):
    assert hashing.cell(numpys) == hashing.cell(pandas_)
    assert hashing.cell(np.timedelta64(5, "s")) != hashing.cell(5)


def test_moments_that_pandas_cannot_represent_are_refused_in_a_sentence():
    with pytest.raises(InputError, match="a table must hold dates that pandas can represent, got"):
        hashing.cell(np.timedelta64(5, "Y"))


class Word(str, enum.Enum):  # noqa: UP042
    """A string whose `str()` is something else."""

    ONE = "one"


def test_a_member_of_an_enumeration_is_the_string_that_it_is():
    plain = pd.DataFrame({"word": ["one", "two"] * 30, "x": X[:, 0]})
    odd = plain.assign(word=[Word.ONE if word == "one" else word for word in plain["word"]])
    a, b = (RunoffClassifier(n_partitions=4, classes=[0, 1, 2]).fit(table, Y) for table in (plain, odd))
    assert [m.kinds for m in a.members_] == [m.kinds for m in b.members_]
    assert type(from_any([Word.ONE]).take(np.array([0]))[0]) is str


def test_columns_whose_names_are_the_same_strings_are_the_same_columns():
    first = pd.DataFrame(X)
    updated = fitted(first).update(add=(pd.DataFrame(X[:9] + 1, columns=list("0123")), Y[:9]))
    again = fitted(pd.DataFrame(np.vstack([X, X[:9] + 1])), np.append(Y, Y[:9]))
    assert updated._samples.data.shape == (69, 4)
    assert different(updated, again, pd.DataFrame(INPUTS)) == []


def test_a_label_among_the_classes_is_never_refused_as_a_target_of_regression():
    before = fitted(classes=[0, 0.5, 1, 2])
    after = fitted(np.vstack([X, X[:1]]), [*map(float, Y), 0.5], classes=[0, 0.5, 1, 2])
    assert set(different(before, after)) <= {after._buckets[-1]}
    with pytest.raises(ValueError, match="continuous"):
        RunoffClassifier().fit(X, Y + 0.5)


# -- settings of the process ------------------------------------------------------------------------------------------


class Overflowing(ClassifierMixin, BaseEstimator):
    """Overflows on the way, in every member but the first."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.inner_ = GaussianNB().fit(X, y)
        np.exp(np.array([0.0 if X[0, 0] == 0 else 1e5]))
        return self

    def predict_proba(self, X):
        return self.inner_.predict_proba(X)


def first_column(Z):
    """The first column if there are columns, else everything: another result for another form."""
    return Z.iloc[:, :1] if hasattr(Z, "iloc") else Z


def test_floating_point_settings_of_the_process_do_not_reach_members():
    with np.errstate(over="raise"):
        strict = fitted(estimator=Overflowing())
        assert np.geterr()["over"] == "raise"
    assert not any(member.refused for member in strict.members_)
    assert different(strict, fitted(estimator=Overflowing(), n_jobs=2)) == []


@pytest.mark.filterwarnings("ignore::runoff.errors.FittedInFrontWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of estimators, about these numbers
@pytest.mark.parametrize("dtype", [None, "float32"])
def test_no_number_is_an_error_where_the_process_raises_floating_point_errors(dtype):
    rows = np.eye(4)[RNG.integers(0, 4, 40)]
    rows[0] = [0.36, 0.48, 0.8, 0]
    for row in ([1.0, 1e-320, 0, 0], [1e300, -1e300, 1e-320, 0], [1.7e308, 1.7e308, 0, 0]):
        longer, labels = np.vstack([[row], rows]), [0, *Y[:40]]
        usual = fitted(longer, labels, dtype=dtype)
        with np.errstate(all="raise"):
            strict = fitted(longer, labels, dtype=dtype)
            scores = strict.scores(longer).values
            assert np.geterr()["under"] == "raise"
        assert [m.refused for m in strict.members_] == [m.refused for m in usual.members_]
        np.testing.assert_array_equal(scores, usual.scores(longer).values)


def test_a_row_of_long_doubles_is_no_error_for_all_others():
    before, after = fitted(), fitted(np.vstack([X, np.ones((1, 4), np.longdouble)]), np.append(Y, 0))
    np.testing.assert_array_equal(before._buckets, after._buckets[:-1])
    assert set(different(before, after)) <= {after._buckets[-1]}


def test_filters_of_warnings_do_not_reach_members():
    estimator = LogisticRegression(max_iter=1)
    with warnings.catch_warnings():
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        lax = fitted(estimator=estimator)
        warnings.filterwarnings("error", "no such", UserWarning, "module")
        warnings.filterwarnings("error", category=ConvergenceWarning)
        before = list(warnings.filters)
        with warnings.catch_warnings(record=True):
            strict = fitted(estimator=estimator)
            with isolated_member(np.random.SeedSequence(0)):
                assert {action for action, *_ in warnings.filters} == {"default", "ignore"}
        assert warnings.filters == before
    assert not any(member.refused for member in strict.members_)
    assert different(strict, lax) == []


def test_settings_of_scikit_learn_reach_all_processes():
    estimator = make_pipeline(StandardScaler(), FunctionTransformer(first_column), GaussianNB())
    with sklearn.config_context(transform_output="pandas"):
        alone, shared_out = (fitted(estimator=estimator, n_jobs=n_jobs) for n_jobs in (1, 2))
        assert different(alone, shared_out) == []
        assert alone.members_[0].fitted[0][-1].n_features_in_ == 1
    assert fitted(estimator=estimator).members_[0].fitted[0][-1].n_features_in_ == 4


class OutOfMemory(GaussianNB):
    """Fails as PyTorch does without memory, or as Python does without threads."""

    def __init__(self, text=""):
        super().__init__()
        self.text = text

    def fit(self, *_):
        raise RuntimeError(self.text)


@pytest.mark.parametrize(
    "text", ["[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory", "can't start new thread"]
)
def test_a_machine_that_is_out_of_memory_or_threads_stops_the_work(text):
    with pytest.raises(MemberError, match="could not be trained"):
        fitted(estimator=OutOfMemory(text))
    with pytest.warns(UserWarning, match="no member could be trained"):
        fitted(estimator=OutOfMemory("a matrix that is not positive"))
