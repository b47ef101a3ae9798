"""The hash reads a sample's value and nothing else."""

import datetime
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from runoff import hashing, samples

KEY = hashing.derived_key(0)


def digest(X):
    return hashing.digests(samples.of(X).content(), KEY).tolist()


@given(hnp.arrays(np.int64, (3, 4), elements=st.integers(-(2**52), 2**52)))
def test_integers_hash_alike_in_every_type_that_holds_them(array):
    expected = digest(array)
    assert digest(array.astype(float)) == expected
    assert digest(array.astype(">i8")) == expected
    assert digest(np.asfortranarray(array)) == expected
    assert digest(array.tolist()) == expected
    for dtype in (np.uint8, np.int16, np.float32):
        if (array.astype(dtype) == array).all():
            assert digest(array.astype(dtype)) == expected


@given(hnp.arrays(np.float64, (4, 3), elements=st.floats(width=32)))
def test_a_row_hashes_alike_in_any_company(array):
    whole = digest(array)
    assert [digest(row[None])[0] for row in array] == whole
    assert digest(array[::-1]) == whole[::-1]
    assert digest(array.astype(np.float32)) == whole
    assert digest(np.concatenate([array, [[0.5, np.nan, -1]]]))[:4] == whole


def test_integers_that_floats_cannot_hold_are_rounded_from_the_start():
    """Somebody's fraction would round them later, and move them."""
    large = np.array([[2**60 + 1, 3], [-(2**63), 0]])
    assert digest(large) == digest(large.astype(float)) == digest(np.concatenate([large, [[0.5, 0]]]))[:2]
    table = pd.DataFrame({"id": [2**60 + 1, 5], "text": ["a", "b"]})
    assert digest(table) == digest(pd.concat([table, pd.DataFrame({"id": [None], "text": ["c"]})]))[:2]
    assert digest(pd.DataFrame({"a": [10**400]})) == digest(pd.DataFrame({"a": [np.inf]}))


def test_nullable_and_strange_values():
    table = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": pd.array([True, None], "boolean")})
    assert digest(table) == digest(pd.DataFrame({"a": [1.0, np.nan], "b": [1.0, np.nan]}))
    days = pd.DataFrame({"a": [datetime.timedelta(days=1, seconds=3)]})
    assert digest(days) == digest(days.astype(object))
    assert digest(["\ud800"]) != digest(["\ud801"])


def test_zeros_and_nans_are_one_each():
    odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert digest(np.array([[0.0, np.nan]])) == digest(np.array([[-0.0, odd[0]]])) == digest(np.array([[0.0, odd[1]]]))


def test_different_samples_hash_differently():
    kinds = [
        [[1, 2]], [[2, 1]], [[1, 2, 0]], [[1.5, 2]], [[256, 2]], [[-1, 2]], [[np.inf, 2]], [[-np.inf, 2]],
        [[np.nan, 2]], [[[1], [2]]], [[[1, 2]]], ["12"], ["1 2"], [""], ["\x00"],
    ]  # fmt: skip
    found = [tuple(digest(kind)[0]) for kind in kinds]
    found += [tuple(digest(pd.DataFrame(rows))[0]) for rows in ([["a", "b"]], [["ab", ""]], [["", "ab"]], [["a", 1]])]
    assert len(set(found)) == len(found)
    assert digest([[1, 2]]) != hashing.digests(samples.of(np.array([[1, 2]])).content(), hashing.new_key()).tolist()


def test_texts_that_unicode_holds_equal_are_equal():
    assert digest(["caf\u00e9"]) == digest(["cafe\u0301"])
    assert samples.of(["cafe\u0301"]).take(np.array([0])) == ["caf\u00e9"]
    assert digest(pd.DataFrame({"a": ["caf\u00e9"]})) == digest(pd.DataFrame({"a": ["cafe\u0301"]}))


def test_sparse_rows_hash_by_their_entries():
    array = np.array([[0, 1.5, 0, -2], [0, 0, 0, 0]])
    explicit = sparse.csr_matrix((np.array([-2.0, 1.5, 0.0]), np.array([3, 1, 2]), np.array([0, 3, 3])), shape=(2, 4))
    assert digest(sparse.csr_matrix(array)) == digest(explicit) == digest(sparse.coo_array(array))
    assert digest(sparse.csr_matrix(array)) != digest(sparse.csr_matrix(array[:, ::-1]))


def test_tables_hash_by_value():
    rows = [[1, "x", 2.5, datetime.datetime(2020, 1, 2)], [3, "y", None, None]]
    table = pd.DataFrame(rows, columns=list("abcd"))
    same = table.assign(a=table["a"].astype(float), b=pd.Categorical(table["b"], categories=["z", "y", "x"]))
    assert digest(table) == digest(same) == digest(table.astype(object))
    assert digest(table.iloc[::-1].reset_index(drop=True)) == digest(table)[::-1]
    numbers = pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan]})
    assert digest(numbers) == digest(numbers.to_numpy()) == digest(numbers.astype(object))
    with pytest.raises(ValueError, match=re.escape("a table must hold numbers, texts and dates, got a list")):
        digest(pd.DataFrame({"a": [[1]], "b": ["x"]}))


def test_what_is_not_a_sample():
    with pytest.raises(ValueError, match="X must hold numbers, got dtype complex128: use a DataFrame"):
        samples.of(np.array([[1j]]))


def test_keys():
    assert hashing.derived_key(1) == hashing.derived_key(1) != hashing.derived_key(2)
    assert len({bytes(hashing.new_key()) for _ in range(20)}) == 20
    assert repr(hashing.new_key()) == str(hashing.new_key()) == "<secret key>"
