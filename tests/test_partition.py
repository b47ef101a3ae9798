"""The partition: fingerprints, sentences, buckets by unit, and hash functions of users."""

import hashlib
import json
import re

import numpy as np
import pytest

from runoff import hashing, samples
from runoff.errors import InputError
from runoff.partition import PROBES, Partition, distinct

KEY = hashing.derived_key(0)


def first_column(X):
    return X[:, 0].astype(int)


def fingerprint(*settings):
    return hashlib.sha256(json.dumps([*settings]).encode()).hexdigest()


def test_a_fingerprint_names_the_hash_and_the_unit():
    key = hashlib.sha256(b"runoff fingerprint" + KEY).hexdigest()
    own = Partition.make(4, 1, 0, KEY, hash=first_column)
    assert own.fingerprint == fingerprint(4, 1, [0], f"{__name__}.first_column", key)
    sums = Partition.make(4, 1, 0, KEY, hash="pixel-sum")
    assert sums.fingerprint == fingerprint(4, 1, [0], "pixel-sum", key)
    for unit in ("labels", "sources"):
        assert Partition.make(4, 1, 0, KEY, unit=unit).fingerprint == fingerprint(4, 1, [0], "content", key, unit)
    assert Partition.make(4, 1, 0, KEY).fingerprint == fingerprint(4, 1, [0], "content", key)
    for unit in ("labels", "sources"):
        told = f"hash must be 'content' if {unit} are counted, got 'pixel-sum': leave it out"
        with pytest.raises(InputError, match=re.escape(told)):
            Partition.make(4, 1, 0, KEY, hash="pixel-sum", unit=unit)
    assert str(bytes(KEY)) not in repr(own)


def test_the_sentence_on_balance():
    partition, sizes = Partition.make(3, 1, 0, KEY), np.array([3, 0, 1000])
    about = "3 members, each bucket in 1: 0 to 1,000 samples per member, 334.3 on average, 1 without any"
    assert partition.balance(sizes) == about
    assert partition.balance(sizes, single=1) == f"{about}, 1 with one class only"
    assert partition.balance(sizes, (1200, 0.256), 2000) == (
        f"{about}, 2,000 with one class only; 1,200 sources, the largest with 25.6% of the samples"
    )
    assert Partition.make(1, 1, 0, KEY).balance(sizes[:1]).startswith("1 member, each bucket in 1: 3 to 3")


def test_distinct_contents_are_ranked_by_both_halves():
    digests = np.array([[5, 1], [2, 9], [5, 0], [2, 9], [5, 1]], np.uint64)
    rows, ranks = distinct(digests)
    assert (rows.tolist(), ranks.tolist()) == ([1, 2, 0], [2, 0, 1, 0, 2])
    assert rows.dtype == ranks.dtype == np.int64


def test_the_bucket_of_a_sample_by_unit():
    some = samples.from_any(np.arange(14).reshape(7, 2))
    digests = np.array([[n % 3 + 2**63, 7 - n] for n in range(7)], np.uint64)
    sources = np.array([[10 + n % 2, 0] for n in range(7)], np.uint64)

    def buckets(**settings):
        found = Partition.make(2, 2, 0, KEY, **settings).buckets(some, digests, sources)
        assert found.dtype == np.int64
        return found.tolist()

    assert buckets() == [(n % 3 + 2**63) % 4 for n in range(7)]
    assert buckets(unit="sources") == [(10 + n % 2) % 4 for n in range(7)]
    order = sorted(digests.tolist())
    assert buckets(unit="labels") == [order.index(digest) % 4 for digest in digests.tolist()]
    assert buckets(hash="pixel-sum") == [(4 * n + 1) % 4 for n in range(7)]
    assert buckets(hash=first_column) == [2 * n % 4 for n in range(7)]
    assert buckets(hash=lambda X: X[:, 0].astype(np.uint64) + np.uint64(2**64 - 2)) == [
        (2 * n - 2) % 2**64 % 4 for n in range(7)
    ]
    with pytest.raises(InputError, match="buckets need the source of each sample here: pass groups, as in fit"):
        Partition.make(2, 1, 0, KEY, unit="sources").buckets(some, digests)
    for unknown in ("md5", 5):
        with pytest.raises(
            InputError, match=f"hash must be one of 'content', 'pixel-sum' or a function, got {unknown!r}"
        ):
            Partition.make(2, 1, 0, KEY, hash=unknown).buckets(some, digests)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda X: X[:-1, 0].astype(int), "for each of 20 samples, got shape (19,) and dtype int64"),
        (lambda X: X[:, :1].astype(int), "for each of 20 samples, got shape (20, 1) and dtype int64"),
        (lambda X: X[:, 0] / 2, "for each of 20 samples, got shape (20,) and dtype float64"),
        (lambda X: X[:, 0].astype(int) - 3, "for each of 20 samples, got shape (20,) and dtype int64"),
        (lambda X: X[:, 0] > 3, "for each of 20 samples, got shape (20,) and dtype bool"),
        (lambda X: np.arange(len(X)), "depends on the sample alone, but sample 2 has 2 among others, and [0] alone"),
        (lambda X: X[:, 0].astype(int) + (len(X) == 1), "but sample 0 has 0 among others, and [1] alone"),
        (lambda X: X[: len(X) if len(X) > 1 else 0, 0].astype(int), "but sample 0 has 0 among others, and [] alone"),
    ],
)
def test_hash_functions_that_are_refused(function, told):
    some = samples.from_any(np.arange(20)[:, None])
    with pytest.raises(InputError, match=re.escape(told)):
        Partition.make(2, 1, 0, KEY, hash=function).buckets(some, np.zeros((20, 2), np.uint64))


@pytest.mark.parametrize("n", [1, 5, 20, hashing.ROWS + 5])
def test_a_hash_function_is_tried_on_single_samples_of_each_block(n):
    seen = []

    def function(X):
        seen.append(X[:, 0].tolist())
        return X[:, 0].astype(int)

    some = samples.from_any(np.arange(n)[:, None])
    found = Partition.make(2, 3, 0, KEY, hash=function).buckets(some, np.zeros((n, 2), np.uint64))
    assert found.tolist() == [i % 6 for i in range(n)]
    expected = []
    for start in range(0, n, hashing.ROWS):
        block = list(range(start, min(start + hashing.ROWS, n)))
        expected += [block, *([i] for i in block[:: max(1, len(block) // PROBES)])]
    assert seen == expected
    assert PROBES == 8


@pytest.mark.parametrize("d", [1, 2, 5])
def test_offsets_are_drawn_from_the_seed(d):
    drawn = np.random.default_rng(np.random.SeedSequence(7, spawn_key=(0,))).permutation(3 * d)[:d]
    assert Partition.make(3, d, 7, KEY).offsets == ((0,) if d == 1 else tuple(sorted(drawn.tolist())))


def test_sources_are_hashed_with_the_key_of_the_partition():
    found = Partition.make(3, 1, 7, KEY, unit="sources").sources(["a", "b", "a"], 3)
    np.testing.assert_array_equal(found, hashing.sources(["a", "b", "a"], 3, KEY))


def test_integers_of_numpy_give_the_partition_of_python_s():
    small = Partition.make(np.int64(3), np.uint8(2), np.int16(7), KEY)
    assert (small, small.fingerprint) == (Partition.make(3, 2, 7, KEY), Partition.make(3, 2, 7, KEY).fingerprint)
    np.testing.assert_array_equal(small.spread, Partition.make(3, 2, 7, KEY).spread)
