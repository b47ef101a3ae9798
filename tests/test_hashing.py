"""The hash reads a sample's value and nothing else."""

import datetime
import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from runoff import errors, hashing, samples
from runoff.partition import Hashed, Partition

KEY = hashing.derived_key(0)


def digest(X):
    return hashing.digests(samples.from_any(X).content(), KEY).tolist()


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
def test_a_row_hashes_alike_whatever_the_other_rows(array):
    whole = digest(array)
    assert [digest(row[None])[0] for row in array] == whole
    assert digest(array[::-1]) == whole[::-1]
    assert digest(array.astype(np.float32)) == whole
    assert digest(np.concatenate([array, [[0.5, np.nan, -1]]]))[:4] == whole


def test_integers_that_floats_cannot_hold_are_rounded_from_the_start():
    """Otherwise an inserted fraction would round them later, and move them to other buckets."""
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
    absent = [digest(pd.DataFrame({"a": ["x"], "b": [none]}, dtype=object)) for none in (None, pd.NaT, pd.NA, np.nan)]
    assert absent == [absent[0]] * 4
    zeros = [digest(pd.DataFrame({"a": ["x"], "b": [zero]}, dtype=object)) for zero in (0, 0.0, -0.0, False)]
    assert zeros == [zeros[0]] * 4


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
    assert (
        digest([[1, 2]]) != hashing.digests(samples.from_any(np.array([[1, 2]])).content(), hashing.new_key()).tolist()
    )


def test_texts_that_unicode_holds_equal_are_equal():
    assert digest(["caf\u00e9"]) == digest(["cafe\u0301"])
    assert samples.from_any(["cafe\u0301"]).take(np.array([0])) == ["caf\u00e9"]
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
    with pytest.raises(ValueError, match=re.escape("a table must hold numbers, strings and dates, got a list")):
        digest(pd.DataFrame({"a": [[1]], "b": ["x"]}))


def test_what_is_not_a_sample():
    with pytest.raises(ValueError, match="X must hold numbers, got dtype complex128: use a DataFrame"):
        samples.from_any(np.array([[1j]]))


def test_keys():
    assert hashing.derived_key(1) == hashing.derived_key(1) != hashing.derived_key(2)
    assert len({bytes(hashing.new_key()) for _ in range(20)}) == 20
    assert repr(hashing.new_key()) == str(hashing.new_key()) == "<secret key>"


def literal(content):
    return np.frombuffer(hashlib.blake2b(content, key=bytes(KEY), digest_size=16).digest(), "<u8").tolist()


def packed(kind, shape, dtype, *values):
    return bytes([kind]) + np.array(shape, "<i8").tobytes() + np.array(values, dtype).tobytes()


LITERAL = [
    (np.array([[0, 255]]), packed(0, [2], "u1", 0, 255)),
    (np.array([[0, 255]], np.uint8), packed(0, [2], "u1", 0, 255)),
    (np.array([[[1], [2]]]), packed(0, [2, 1], "u1", 1, 2)),
    (np.array([[0, 256]]), packed(1, [2], "<i8", 0, 256)),
    (np.array([[-1.0, 255]]), packed(1, [2], "<i8", -1, 255)),
    (np.array([[2.0**62, -(2.0**62)]]), packed(1, [2], "<i8", 2**62, -(2**62))),
    (np.array([[2.0**63, 0]]), packed(2, [2], "<f8", 2.0**63, 0)),
    (np.array([[-(2.0**63), 0]]), packed(2, [2], "<f8", -(2.0**63), 0)),
    (np.array([[0.5, -0.0]]), packed(2, [2], "<f8", 0.5, 0.0)),
    (np.array([[np.nan, np.inf]]), packed(2, [2], "<f8", np.nan, np.inf)),
    (np.array([[True, False]]), packed(0, [2], "u1", 1, 0)),
    (["n\u00e9"], b"s" + (3).to_bytes(8, "little") + b"n\xc3\xa9"),
    (
        sparse.csr_matrix([[0, 1.5, 0, -2]]),
        (4).to_bytes(8, "little") + np.array([1, 3], "<i8").tobytes() + np.array([1.5, -2], "<f8").tobytes(),
    ),
    (
        pd.DataFrame({"a": [None], "b": [True], "c": ["x"], "d": [b"yz"]}),
        b"\xff-f" + np.float64(1).tobytes() + b"s\1\0\0\0\0\0\0\0x" + b"b\2\0\0\0\0\0\0\0yz",
    ),
    (
        pd.DataFrame({"a": [datetime.date(2020, 1, 2)], "b": [pd.Timestamp("2020-01-02 03:04")]}).astype(object),
        b"\xff" + b"t\x13\0\0\0\0\0\0\x002020-01-02T00:00:00" + b"t\x13\0\0\0\0\0\0\x002020-01-02T03:04:00",
    ),
    (
        pd.DataFrame({"a": ["x"], "b": [datetime.timedelta(1, 2, 3)], "c": [pd.Timedelta(5, "ns")]}).astype(object),
        b"\xffs\1\0\0\0\0\0\0\0x" + b"t\x11\0\0\0\0\0\0\x0086402000003000 ns" + b"t\4\0\0\0\0\0\0\x005 ns",
    ),
    (pd.DataFrame({"a": [10**400], "b": [-(10**400)]}, dtype=object), packed(2, [2], "<f8", np.inf, -np.inf)),
]  # fmt: skip


@pytest.mark.parametrize(("sample", "content"), LITERAL)
def test_what_is_hashed_byte_by_byte(sample, content):
    """Any other form would change the buckets of ensembles that were saved before."""
    assert [bytes(row) for row in samples.from_any(sample).content()] == [content]
    assert digest(sample) == [literal(content)]


def test_many_rows_of_every_form_are_hashed_as_each_alone():
    rng = np.random.default_rng(0)
    array = rng.integers(0, 256, (4100, 2)).astype(float)
    array[::3] *= -3
    array[::7] += 0.5
    whole = digest(array)
    for i in [0, 1, 2, 3, 6, 7, 8, 4094, 4095, 4096, 4097, 4099]:
        assert whole[i] == digest(array[i : i + 1])[0]


def test_keys_and_partitions_follow_from_their_seeds_as_they_always_did():
    assert bytes(hashing.derived_key(0)) == hashlib.blake2b(b"runoff hash key 0", digest_size=32).digest()
    assert len(hashing.new_key()) == 32
    partition = Partition.make(4, 3, 7, KEY)
    drawn = np.random.default_rng(np.random.SeedSequence(7, spawn_key=(0,))).permutation(12)[:3]
    assert partition.offsets == tuple(sorted(drawn.tolist()))
    assert Partition.make(4, 1, 7, KEY).offsets == (0,)
    assert partition.n_members == 12
    assert partition.spread.tolist() == [[(b + o) % 12 for o in partition.offsets] for b in range(12)]
    told = [4, 3, list(partition.offsets), "content", hashlib.sha256(b"runoff fingerprint" + KEY).hexdigest()]
    assert partition.fingerprint == hashlib.sha256(json.dumps(told).encode()).hexdigest()


@pytest.mark.parametrize("d", [1, 3])
def test_buckets_and_training_sets_by_hand(d):
    rng = np.random.default_rng(d)
    data = rng.integers(0, 4, (40, 2))  # with copies
    codes = rng.integers(0, 3, 40)
    partition, content = Partition.make(4, d, 0, KEY), samples.from_any(data)
    digests = partition.digests(content)
    buckets = partition.buckets(content, digests)
    assert buckets.tolist() == [int(a) % (4 * d) for a, _ in digests.tolist()]
    rows = partition.rows(buckets, digests, codes)
    for member, own in enumerate(rows):
        expected = [i for i in range(40) if member in partition.spread[buckets[i]]]
        keys = [(*digests[i].tolist(), int(codes[i])) for i in own]
        assert keys == sorted((*digests[i].tolist(), int(codes[i])) for i in expected)
        assert sorted(own.tolist()) == expected
        told = b"".join(digests[i].astype("<u8").tobytes() + int(codes[i]).to_bytes(8, "little") for i in own)
        assert partition.training_sets(rows, digests, codes)[member] == hashlib.sha256(told).hexdigest()
    sums = Partition.make(4, d, 0, KEY, hash="pixel-sum").buckets(content, digests)
    assert sums.tolist() == (data.sum(axis=1) % (4 * d)).tolist()
    own_hash = Partition.make(4, d, 0, KEY, hash=lambda X: X[:, 0] + 5).buckets(content, digests)
    assert own_hash.tolist() == ((data[:, 0] + 5) % (4 * d)).tolist()


def test_a_members_samples_are_sorted_by_the_whole_digest():
    """Half of a digest can be equal for two samples: their order must not depend on the order of the input."""
    digests = np.array([[7, 2], [7, 1], [7, 3]], np.uint64)
    rows = Partition.make(1, 1, 0, KEY).rows(np.zeros(3, np.int64), digests, np.zeros(3, np.int64))
    assert [member.tolist() for member in rows] == [[1, 0, 2]]


def test_a_hash_that_is_negative_anywhere_is_rejected():
    partition, content = Partition.make(4, 1, 0, KEY, hash=lambda X: X[:, 0]), samples.from_any(np.array([[1], [-1]]))
    with pytest.raises(errors.InputError, match="non-negative integer for each of 2 samples"):
        partition.buckets(content, partition.digests(content))


def test_the_balance_of_a_partition_is_described():
    told = Partition.make(2, 2, 0, KEY).balance(np.array([3, 0, 2, 1]))
    assert told == "4 members, each bucket in 2: 0 to 3 samples per member, 1.5 on average, 1 without any"


def test_sums_of_pixels_are_of_whole_numbers():
    assert hashing.pixel_sums(np.array([[[1, 255], [2, 3]]], np.uint8)).tolist() == [[261, 0]]
    assert hashing.pixel_sums(np.array([[True, True]])).tolist() == [[2, 0]]
    assert hashing.pixel_sums(np.array([[2**40, 1]])).tolist() == [[2**40 + 1, 0]]
    with pytest.raises(ValueError, match="the pixel-sum hash needs the original integer pixels, got dtype float64"):
        hashing.pixel_sums(np.array([[0.5, 1]]))


def test_rows_of_a_sparse_matrix_have_indices_of_their_own_type():
    """A matrix with 2**31 entries has wider indices due to other samples; a member's rows must not depend on them."""
    from scipy import sparse

    wide = sparse.csr_matrix(np.arange(200.0).reshape(2, 100))
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    taken = samples.from_any(wide).take(np.array([1, 0]))
    assert taken.indices.dtype == taken.indptr.dtype == np.int32
    np.testing.assert_array_equal(taken.toarray(), np.arange(200.0).reshape(2, 100)[::-1])


def test_members_of_one_class_are_counted():
    codes = np.array([5, 5, 6])
    rows = [np.array(part, np.int64) for part in ([0], [0, 1], [], [1, 2], [2, 1, 0])]
    assert Partition.single_class(rows, codes) == 2


def test_samples_are_joined_with_all_that_is_known_of_them():
    def hashed(start, with_sources):
        rows = np.arange(start, start + 4)
        digests = np.stack([rows, rows + 100], axis=1).astype(np.uint64)
        sources = digests + np.uint64(7) if with_sources else None
        return Hashed(samples.from_any(rows[:, None] * 1.0), rows % 3, digests, sources, rows % 5)

    for with_sources in (True, False):
        found = hashed(0, with_sources).joined(hashed(4, with_sources)).select(np.array([6, 1, 5]))
        assert found.samples.data.ravel().tolist() == [6, 1, 5]
        assert found.labels.tolist() == [0, 1, 2]
        assert found.buckets.tolist() == [1, 1, 0]
        assert found.digests.tolist() == [[6, 106], [1, 101], [5, 105]]
        assert (found.sources.tolist() if with_sources else found.sources) == (
            [[13, 113], [8, 108], [12, 112]] if with_sources else None
        )
    assert hashed(0, True).joined(hashed(4, False)).sources is None


def test_signalling_nans_are_missing_values_like_any_other():
    signalling = np.full((1, 2), 0x7FF0000000000001, np.uint64).view(np.float64)
    with np.errstate(all="raise"):
        [row] = hashing.number_rows(signalling)
    [quiet] = hashing.number_rows(np.full((1, 2), np.nan))
    assert bytes(row) == bytes(quiet)
