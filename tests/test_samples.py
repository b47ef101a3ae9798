"""The kinds of X: what a member and a user's hash get of each, by value and by type."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.naive_bayes import GaussianNB

from runoff import RunoffClassifier, hashing, samples
from runoff.errors import InputError

SINGLE = np.dtype(np.float32)


class Word(str):
    """A string that says something else when it is printed."""

    def __str__(self):
        return "printed"


def plain(some):
    """Return what a user's hash gets: rows, type and values of each group."""
    return [(rows.tolist(), str(form.dtype), form.tolist()) for rows, form in some.plain()]


# -- arrays ------------------------------------------------------------------------------------------------------------


def test_rows_of_an_array_are_floats_with_one_zero_and_one_nan():
    given = samples.from_any(np.array([[3, -0.0], [np.nan, 2], [5, 6]]))
    taken = given.take(np.array([1, 0]))
    assert (taken.dtype, taken.shape, given.kind, len(given), given.width()) == (float, (2, 2), "dense", 3, (2,))
    assert repr(taken.tolist()) == "[[nan, 2.0], [3.0, 0.0]]"
    assert given.kinds(taken) == ()
    assert samples.from_any(np.ones((2, 4, 5, 3), np.uint8)).width() == (4, 5, 3)


def test_numbers_of_another_type_change_what_members_get_and_no_hash():
    given = samples.from_any(np.array([[0.1, 1e300], [-1e300, 7]]))
    first = given.as_inputs(())
    small = given.with_numbers(SINGLE)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        taken = small.take(np.arange(2))
    assert taken.dtype == small.as_inputs(()).dtype == SINGLE
    assert taken.tolist() == [[float(np.float32(0.1)), np.inf], [-np.inf, 7.0]]
    assert first.dtype == given.as_inputs(()).dtype == np.float64
    assert given.with_numbers(np.dtype(float)) is given
    assert small.with_numbers(SINGLE) is small
    assert [bytes(row) for row in small.content()] == [bytes(row) for row in given.content()]
    rows = np.array([0])
    assert small.select(rows).numbers == small.joined(given).numbers == SINGLE
    assert small.joined(given).data.tolist() == [*given.data.tolist(), *given.data.tolist()]


def test_inputs_are_converted_once_and_each_member_gets_a_copy():
    given = samples.from_any(np.array([[1, 2], [3, 4]]))
    first = given.as_inputs(())
    first[:] = 0
    again = given.as_inputs(())
    assert again.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert list(given._inputs) == [()]
    assert given.as_inputs(("another",)).tolist() == again.tolist()
    assert list(given._inputs) == [("another",)]  # of the last member only
    assert pickle.loads(pickle.dumps(given))._inputs == {}  # noqa: S301
    texts = samples.from_any(["a", "b"])
    texts.as_inputs(()).append("c")
    assert texts.as_inputs(()) == ["a", "b"]


def test_a_users_hash_gets_whole_numbers_as_integers_and_others_as_floats():
    given = samples.from_any(np.array([[1.0, -2.0], [0.5, 1.0], [2.0**63, 1.0], [-(2.0**63), 0.0], [2.0**62, 7.0]]))
    assert plain(given) == [
        ([0, 4], "int64", [[1, -2], [2**62, 7]]),
        ([1, 2, 3], "float64", [[0.5, 1.0], [2.0**63, 1.0], [-(2.0**63), 0.0]]),
    ]
    assert plain(samples.from_any(np.array([[1, 2]]))) == [([0], "int64", [[1, 2]])]
    assert plain(samples.from_any(np.array([[0.5]]))) == [([0], "float64", [[0.5]])]
    images = np.arange(8).reshape(2, 2, 2)
    assert plain(samples.from_any(images / 2)) == [
        ([0, 1], "float64", (images / 2).tolist())
    ]  # every image has odd numbers
    assert plain(samples.from_any(["x", "y"])) == [([0, 1], "object", ["x", "y"])]


def test_a_users_hash_gets_blocks():
    n = hashing.ROWS + 2
    found = plain(samples.from_any(np.arange(n)[:, None]))
    assert [len(rows) for rows, _, _ in found] == [hashing.ROWS, 2]
    assert [row for rows, _, _ in found for row in rows] == list(range(n))
    assert [value for _, _, values in found for [value] in values] == list(range(n))


def test_resized_images_are_hashed_by_the_originals():
    digests, sums = np.arange(12, dtype=np.uint8).reshape(3, 4), np.array([7, 8, 9])
    given = samples.Resized(np.arange(12.0).reshape(3, 2, 2), digests, sums)
    assert [bytes(row) for row in given.content()] == [b"\xfe" + bytes(row) for row in digests]
    assert given.pixel_sums().tolist() == [[7, 0], [8, 0], [9, 0]]
    both = given.select(np.array([2, 0])).joined(given.select(np.array([1])))
    assert both.data[:, 0, 0].tolist() == [8.0, 0.0, 4.0]
    assert both.original_digests.tolist() == [[8, 9, 10, 11], [0, 1, 2, 3], [4, 5, 6, 7]]
    assert both.original_sums.tolist() == [9, 7, 8]
    with pytest.raises(InputError, match="resized samples can only be joined with resized samples"):
        given.joined(samples.from_any(np.zeros((1, 2, 2))))
    assert samples.from_any(np.array([[1, 2], [3, 4]], np.uint8)).pixel_sums().tolist() == [[3, 0], [7, 0]]


# -- sparse matrices and texts -----------------------------------------------------------------------------------------


def test_sparse_rows_have_sums_without_zeros_in_order():
    entries = ([5.0, 2.0, -2.0, 1.0, 4.0, -0.0], ([1, 0, 0, 0, 1, 1], [2, 1, 1, 2, 0, 1]))
    given = samples.from_any(sparse.coo_matrix(entries, shape=(2, 3)))
    assert (given.kind, given.width(), len(given)) == ("sparse", (3,), 2)
    width = (3).to_bytes(8, "little")
    assert list(given.content()) == [
        width + np.array([2], "<i8").tobytes() + np.array([1.0]).tobytes(),
        width + np.array([0, 2], "<i8").tobytes() + np.array([4.0, 5.0]).tobytes(),
    ]
    narrow = sparse.coo_matrix((np.array([200, 100], np.uint8), ([0, 0], [1, 1])), shape=(1, 3))
    assert samples.from_any(narrow).data.toarray().tolist() == [[0, 300, 0]]
    taken = given.with_numbers(SINGLE).take(np.array([1, 0]))
    assert taken.dtype == SINGLE
    assert taken.indices.dtype == taken.indptr.dtype == np.int32
    assert taken.toarray().tolist() == [[4.0, 0.0, 5.0], [0.0, 0.0, 1.0]]
    both = given.with_numbers(SINGLE).joined(given.select(np.array([0])))
    assert both.numbers == both.select(np.array([0])).numbers == SINGLE
    assert both.data.toarray().tolist() == [[0, 0, 1], [4, 0, 5], [0, 0, 1]]
    assert samples.from_any(sparse.csr_matrix(np.array([[1, 0]]))).data.dtype == np.float64
    odd = samples.from_any(sparse.csr_matrix(np.array([[np.nan, 1.0]])))
    assert (
        next(iter(odd.content()))
        == (2).to_bytes(8, "little") + np.array([0, 1], "<i8").tobytes() + np.array([np.nan, 1.0]).tobytes()
    )


def test_a_matrix_too_wide_for_short_indices_keeps_long_ones():
    for width, expected in ((5, np.int32), (2**31 - 1, np.int32), (2**31, np.int64)):
        long = np.array([0, 1], np.int64), np.array([width - 1], np.int64)
        given = samples.from_any(sparse.csr_array(([1.0], long[1], long[0]), shape=(1, width)))
        given.data.indptr, given.data.indices = long
        taken = given.take(np.array([0]))
        assert taken.indices.dtype == taken.indptr.dtype == expected
        assert taken.indices.tolist() == [width - 1]


def test_entries_that_are_stored_twice_are_added():
    twice = sparse.csr_matrix((np.array([1.0, 2.0, 4.0]), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 2))
    assert [bytes(row) for row in samples.from_any(twice).content()] == [
        bytes(row) for row in samples.from_any(sparse.csr_matrix(np.array([[4.0, 3.0]]))).content()
    ]


def test_members_get_matrices_even_if_a_row_of_a_sparse_array_was_joined():
    matrix = sparse.csr_matrix(np.eye(3))
    joined = sparse.vstack([matrix, sparse.csr_array(np.ones((1, 3)))], format="csr")
    assert isinstance(joined, sparse.sparray)
    assert isinstance(samples.from_any(joined).take(np.arange(3)), sparse.spmatrix)


@pytest.mark.filterwarnings("ignore:member . votes by its class shares")
def test_integers_that_no_float_can_hold_are_infinite_as_in_a_table():
    rows = [[10**400, 1], [-(10**400), True], [None, 0.5]]
    assert samples.from_any(rows).data.tolist()[:2] == [[np.inf, 1], [-np.inf, 1]]
    assert np.isnan(samples.from_any(rows).data[2, 0])
    with pytest.raises(ValueError, match="could not convert"):
        samples.from_any(np.array([[10**400, "many"]], object))
    X, y = [[n, n % 3] for n in range(20)], [0, 1] * 10
    before, after = (
        RunoffClassifier(GaussianNB(), n_partitions=3, classes=[0, 1]).fit(rows, labels)
        for rows, labels in ((X, y), ([*X, [10**400, 0]], [*y, 0]))
    )
    np.testing.assert_array_equal(before._buckets, after._buckets[:-1])


def test_texts_are_strings_in_composed_form():
    given = samples.from_any(["e\u0301", "b", "c"])
    assert (given.kind, given.width(), given.take(np.array([2, 0]))) == ("texts", (), ["c", "\u00e9"])
    assert list(given.content()) == [hashing.cell(text) for text in ("\u00e9", "b", "c")]
    both = given.select(np.array([1])).joined(given.select(np.array([0, 2])))
    assert both.data.tolist() == ["b", "\u00e9", "c"]
    for form in (("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], object), pd.Series(["a", "b"])):
        assert samples.from_any(form).kind == "texts"


@pytest.mark.parametrize(
    ("X", "kind"),
    [
        ([[1, 2]], "dense"),
        (np.array([[1, 2.5]], object), "dense"),
        (np.array([[True]]), "dense"),
        (pd.DataFrame({"a": [1]}), "table"),
        (sparse.csr_array(np.eye(2)), "sparse"),
        (np.zeros(0), "dense"),
        ([], "dense"),
        ((), "dense"),
    ],
)
def test_the_kind_of_x(X, kind):
    given = samples.from_any(X)
    assert given.kind == kind
    assert kind != "dense" or given.data.dtype.kind in "bif"


@pytest.mark.parametrize("X", [np.array([["a"]]), np.array([["1", 2]]), np.array([b"a"]), [np.datetime64(1, "D")]])
def test_arrays_of_anything_else_are_refused(X):
    with pytest.raises(InputError, match=r"X must hold numbers, got dtype .*: use a DataFrame for columns of mixed"):
        samples.from_any(X)
    with pytest.raises(ValueError, match="could not convert string to float"):
        samples.from_any(np.array([["a", 1]], object))
    with pytest.raises(ValueError, match="could not convert string to float"):
        samples.from_any(np.array(["a", 1], object))


# -- tables ------------------------------------------------------------------------------------------------------------

TABLE = pd.DataFrame(
    {
        "n": [1, 2, 3, 4],
        "w": ["b", "a", None, "b"],
        "m": [0.5, "x", 2.0, None],
        "t": pd.to_datetime(["2020-01-02", "2020-01-03", None, "2020-01-02"]),
        "k": [True, False, 7, 10**20],
    }
)


def test_columns_of_a_members_part_are_numbers_or_categories():
    given = samples.from_any(TABLE)
    assert (given.kind, given.width()) == ("table", ("n", "w", "m", "t", "k"))
    part = given.take(np.array([3, 0]))
    assert list(part.columns) == list(TABLE.columns)
    assert part.index.tolist() == [0, 1]
    assert [str(dtype) for dtype in part.dtypes] == ["float64", "category", "float64", "category", "float64"]
    assert part["n"].tolist() == [4.0, 1.0]
    assert repr(part["m"].tolist()) == "[nan, 0.5]"
    assert part["k"].tolist() == [1e20, 1.0]
    assert part["w"].tolist() == ["b", "b"]
    assert given.kinds(part) == (None, ("b",), None, ("2020-01-02T00:00:00",), None)
    mixed = given.take(np.array([0, 1, 2]))
    kinds = given.kinds(mixed)
    assert kinds == (None, ("a", "b"), ("0.5", "2", "x"), ("2020-01-02T00:00:00", "2020-01-03T00:00:00"), None)
    assert mixed["m"].tolist() == ["0.5", "x", "2"]
    assert mixed["w"].isna().tolist() == mixed["t"].isna().tolist() == [False, False, True]
    inputs = given.as_inputs((None, ("c",), None, ("2020-01-03T00:00:00",), ("1",)))
    assert inputs["w"].cat.categories.tolist() == ["c", "a", "b"]  # those that the member has not seen come last
    assert repr(inputs["m"].tolist()) == "[0.5, nan, 2.0, nan]"
    assert inputs["k"].tolist() == ["1", "0", "7", "100000000000000000000"]
    assert inputs["t"].cat.categories.tolist() == ["2020-01-03T00:00:00", "2020-01-02T00:00:00"]
    inputs.loc[0, "n"] = 99.0  # a member may write to its inputs
    assert given.as_inputs((None, ("c",), None, ("2020-01-03T00:00:00",), ("1",)))["n"].tolist() == [1, 2, 3, 4]
    small = given.with_numbers(SINGLE)
    assert small.take(np.array([0]))["n"].dtype == SINGLE
    assert small.kinds(small.take(np.array([0]))) == (None, ("b",), None, ("2020-01-02T00:00:00",), None)


def test_rows_of_tables_hash_as_numbers_only_where_all_cells_are():
    rows = [bytes(row) for row in samples.from_any(TABLE[["n", "m", "k"]]).content()]
    numbers = hashing.number_rows(np.array([[1.0, 0.5, 1.0]]))
    assert rows[0] == bytes(next(iter(numbers)))
    assert rows[1] == b"\xff" + b"".join(hashing.cell(value) for value in (2, "x", False))
    assert rows[2] == bytes(next(iter(hashing.number_rows(np.array([[3.0, 2.0, 7.0]])))))
    assert rows[3] == bytes(next(iter(hashing.number_rows(np.array([[4.0, np.nan, 1e20]])))))
    plain_table = pd.DataFrame({"a": [1, 2], "b": [0.5, 3.0], "c": [True, False]})
    given = [bytes(row) for row in samples.from_any(plain_table).content()]
    assert given == [bytes(row) for row in hashing.number_rows(np.array([[1, 0.5, 1], [2, 3, 0]]))]


def test_a_users_hash_gets_rows_of_a_table_in_groups_of_equal_kinds():
    rows = [[1, "a", 0.5], [2, 3, "x"], [4, "b", None], [True, "c", 7]]
    table = pd.DataFrame(rows, columns=["p", "p", 7], dtype=object)
    found = [
        (rows.tolist(), [str(dtype) for dtype in form.dtypes], form.to_numpy().tolist(), list(form.columns))
        for rows, form in samples.from_any(table).plain()
    ]
    assert repr(found) == repr(
        [
            (
                [0, 2, 3],
                ["float64", "object", "float64"],
                [[1.0, "a", 0.5], [4.0, "b", float("nan")], [1.0, "c", 7.0]],
                ["p", "p", 7],
            ),
            ([1], ["float64", "float64", "object"], [[2.0, 3.0, "x"]], ["p", "p", 7]),
        ]
    )


def test_a_users_hash_gets_columns_that_are_plain_in_pandas():
    words = pd.Series(["x", Word("y")], dtype=object)
    [(rows, form)] = samples.from_any(pd.DataFrame({"a": [1, 2], "b": words, "c": [True, False]})).plain()
    assert (rows.tolist(), [str(dtype) for dtype in form.dtypes]) == ([0, 1], ["float64", "object", "float64"])
    assert form.to_numpy().tolist() == [[1.0, "x", 1.0], [2.0, "y", 0.0]]
    assert type(form.iloc[1, 1]) is str


def test_tables_are_joined_by_the_place_of_their_columns():
    other = TABLE.set_axis([0, 1, 2, 3, 4], axis=1)
    given = samples.from_any(TABLE.set_axis(list("01234"), axis=1)).with_numbers(SINGLE)
    both = given.joined(samples.from_any(other))
    assert both.numbers == both.select(np.array([0])).numbers == SINGLE
    assert list(both.data.columns) == list("01234")
    assert both.data.index.tolist() == list(range(8))
    assert both.data["0"].tolist() == [1, 2, 3, 4] * 2
    assert {str(dtype) for dtype in both.data.dtypes} == {"object"}
    assert both.select(np.array([7, 0])).data["0"].tolist() == [4, 1]


def test_copies_are_found_once_each():
    assert samples.find_copies("abca", "xabaac").tolist() == [4, 2, 5, 3]
    assert samples.find_copies("aab", "a").tolist() == [0, -1, -1]
    assert samples.find_copies("", "a").dtype == np.int64
