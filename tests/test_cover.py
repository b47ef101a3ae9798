"""The covering search, compared with all subsets of buckets."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import cert_fa
from runoff._kernels import covering
from runoff.spreads import Spread, cyclic
from test_work import as_python


@st.composite
def covers(draw):
    """Draw rows for up to 14 members and 9 overlapping buckets, with gaps close to what the buckets can cover."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_members, n_buckets = draw(st.integers(1, 14)), draw(st.integers(1, 9))
    d = draw(st.integers(1, min(5, n_members)))
    if draw(st.booleans()):
        n_buckets = n_members = min(n_members, 9)
        d = min(d, n_members)
        lists = cyclic(n_members, rng.permutation(n_members)[:d]).tolist()
    else:
        sizes = rng.integers(draw(st.integers(0, d)), d + 1, n_buckets)
        lists = [rng.choice(n_members, size, replace=False).tolist() for size in sizes]
    powers = rng.integers(0, draw(st.integers(2, 4)), size=(draw(st.integers(1, 3)), n_members)).astype(np.int32)
    share = rng.uniform(draw(st.sampled_from([0.0, 0.5])), 1.1, size=len(powers))
    return lists, (powers.sum(axis=1) * share).astype(np.int32), powers


def fewest(lists, gaps, powers):
    """Return the fewest buckets that meet every row, by trying all subsets."""
    for size in range(len(lists) + 1):
        for chosen in combinations(lists, size):
            members = sorted({j for bucket in chosen for j in bucket})
            if (powers[:, members].sum(axis=1) >= gaps).all():
                return size
    return None


@settings(max_examples=600)
@given(covers())
def test_search_decides_as_trying_all_subsets_does(case):
    lists, gaps, powers = case
    spread = Spread.from_any(lists, powers.shape[1])
    truth = fewest(lists, gaps, powers)
    for size in range(len(lists) + 1):
        chosen = np.full(len(lists) + 1, -7, np.int32)
        verdict, nodes = covering.search(gaps, powers, size, spread.reach, 10**6, chosen)
        assert nodes <= 2 ** (len(lists) + 1)
        if truth is None or size < truth:
            assert verdict == (covering.PROVEN if truth is not None else verdict)
            assert verdict in (covering.PROVEN, covering.IMPOSSIBLE)
        else:
            assert verdict == covering.FOUND
            buckets = covering.taken(chosen)
            assert len(buckets) == len(set(buckets)) <= size
            assert (powers[:, spread.reached(buckets)].sum(axis=1) >= gaps).all()
    if truth is None and spread.n_unreached:
        assert verdict == covering.IMPOSSIBLE


@given(covers())
def test_a_short_search_says_so_or_says_the_same(case):
    lists, gaps, powers = case
    reach = Spread.from_any(lists, powers.shape[1]).reach
    chosen = np.empty(len(lists) + 1, np.int32)
    for size in range(1, len(lists) + 1):
        decided, nodes = covering.search(gaps, powers, size, reach, 10**6, chosen)
        for budget in (1, 2, nodes - 1, nodes):
            verdict, spent = covering.search(gaps, powers, size, reach, budget, chosen)
            assert verdict in (decided, covering.UNDECIDED)
            assert spent <= budget or verdict == covering.IMPOSSIBLE
        assert verdict == decided  # the number of nodes that it used is a sufficient budget


@given(covers())
def test_needed_is_certfa(case):
    lists, gaps, powers = case
    reach = Spread.from_any(lists, powers.shape[1]).reach
    sums = np.empty(len(lists), np.int32)
    tally = np.empty(4 * reach.largest + 1, np.int32)
    for gap, power in zip(gaps, powers, strict=True):
        expected = cert_fa([sum(power[j] for j in bucket) for bucket in lists], gap)
        for limit in (covering.UNREACHABLE, 3, 1):
            assert covering.needed(power, gap, limit, reach, sums, tally) == min(expected, limit)
            assert sums.tolist() == [sum(power[j] for j in bucket) for bucket in lists] or gap <= 0


@pytest.mark.slow
@settings(max_examples=20_000)
@given(covers())
def test_many_searches(case):
    test_search_decides_as_trying_all_subsets_does.hypothesis.inner_test(case)


def fixed_cover(number):
    """Up to 9 overlapping buckets of up to 14 members, and gaps that need most buckets, or more than exist."""
    rng = np.random.default_rng(number)
    n_members, n_buckets = int(rng.integers(2, 15)), int(rng.integers(1, 10))
    if number % 3 == 0:
        n_buckets = n_members = min(n_members, 9)
        lists = cyclic(n_members, rng.permutation(n_members)[: rng.integers(1, min(4, n_members) + 1)]).tolist()
    else:
        sizes = rng.integers(number % 2, min(5, n_members) + 1, n_buckets)
        lists = [rng.choice(n_members, size, replace=False).tolist() for size in sizes]
    powers = rng.integers(0, 4, size=(int(rng.integers(1, 4)), n_members)).astype(np.int32)
    if number % 4 == 3:
        powers = np.minimum(powers, 1)  # the last step of a search is a small one
    reached = powers[:, sorted({j for bucket in lists for j in bucket})].sum(axis=1)
    gaps = reached - (reached * rng.uniform(0, 0.8, len(powers)) * rng.random()).astype(int)
    gaps[-1] += number % 10 == 0
    return lists, gaps.astype(np.int32), powers


def fewest_of_all(lists, gaps, powers):
    """Compute `fewest` for all sets of buckets at once."""
    sets = np.arange(2 ** len(lists))[:, None] >> np.arange(len(lists)) & 1
    members = np.array([[j in bucket for j in range(powers.shape[1])] for bucket in lists])
    enough = ((sets @ members > 0) @ powers.T >= gaps).all(axis=1)
    return int(sets.sum(axis=1)[enough].min()) if enough.any() else None


def test_fixed_covers_and_the_work_that_they_take():
    """Fixed cases with a known number of nodes: the test also detects changes that search longer."""
    work, calls = {}, {}
    for number in range(400):
        lists, gaps, powers = fixed_cover(number)
        spread = Spread.from_any(lists, powers.shape[1])
        truth = fewest_of_all(lists, gaps, powers)
        chosen = np.full(len(lists) + 1, -7, np.int32)
        last = len(lists) if truth is None else truth
        for size in range(max(0, last - 2), min(last + 2, len(lists) + 1)):
            verdict, nodes = covering.search(gaps, powers, size, spread.reach, 10**6, chosen)
            work[verdict], calls[verdict] = work.get(verdict, 0) + nodes, calls.get(verdict, 0) + 1
            if truth is None or size < truth:
                assert verdict in (covering.PROVEN, covering.IMPOSSIBLE)
                assert truth is None or verdict == covering.PROVEN
            else:
                buckets = covering.taken(chosen)
                assert verdict == covering.FOUND
                assert sorted(set(buckets.tolist())) == buckets.tolist()
                assert len(buckets) <= size
                assert (powers[:, spread.reached(buckets)].sum(axis=1) >= gaps).all()
    assert len({covering.PROVEN, covering.FOUND, covering.UNDECIDED, covering.IMPOSSIBLE}) == 4
    assert covering.UNREACHABLE > 10**9
    assert calls == {covering.PROVEN: 660, covering.FOUND: 721, covering.IMPOSSIBLE: 20}
    assert work == {covering.PROVEN: 1758, covering.FOUND: 2516, covering.IMPOSSIBLE: 20}


def test_sums_of_buckets_and_the_largest_of_them():
    """The helpers of the search, one by one."""
    space = as_python(lambda *_: None)["runoff._kernels.covering"]
    for number in range(200):
        lists, _, powers = fixed_cover(number)
        power, n_buckets = powers[0], len(lists)
        reach = Spread.from_any(lists, len(power)).reach
        expected = [int(sum(power[j] for j in bucket)) for bucket in lists]
        for offsets in {len(reach.offsets): reach.offsets, 0: np.empty(0, np.int32)}.values():
            sums = np.full(n_buckets, -9, np.int32)
            space["bucket_sums"](power, reach._replace(offsets=offsets), sums)
            assert sums.tolist() == expected
        tally = np.full(3 * reach.largest + 2, 7, np.int32)
        highest = max(expected)
        assert space["_count"](sums, tally) == highest
        assert tally[: highest + 1].tolist() == np.bincount(expected).tolist()
        total = sum(expected)
        for gap in (-1, 0, 1, total // 2, total, total + 1):
            for limit in (covering.UNREACHABLE, n_buckets, 2, 1):
                assert covering.needed(power, gap, limit, reach, sums, tally) == min(cert_fa(expected, gap), limit)
        falling = sorted(expected, reverse=True)
        for count in range(n_buckets + 2):
            assert space["_best_sum"](tally, highest, count) == sum(falling[:count])
        for most in (0, 1, n_buckets - 1, n_buckets, n_buckets + 3):
            sums[:], tally[:], out = -9, 7, np.full(n_buckets + 4, -9, np.int32)
            space["largest_sums"](power, most, reach, sums, tally, out)
            filled = min(most, n_buckets) + 1
            assert out[:filled].tolist() == [sum(falling[:m]) for m in range(filled)]
            assert (out[filled:] == -9).all()


def test_buckets_chosen_are_sorted_up_to_the_mark():
    for chosen, expected in (([5, 2, 9, -1, 3, -1], [2, 5, 9]), ([-1, 4], []), ([7, -1], [7])):
        found = covering.taken(np.array(chosen, np.int32))
        assert (found.tolist(), found.dtype) == (expected, np.int64)


def test_taking_and_returning_members_changes_open_buckets_only():
    space = as_python(lambda *_: None)["runoff._kernels.covering"]
    lists = [[0, 1], [1, 2], [0, 2]]
    reach = Spread.from_any(lists, 3).reach
    left, closed = np.array([3, 4, 5], np.int32), np.array([0, 1, 0], np.int32)
    tally = np.array([0, 0, 0, 1, 0, 1, 0, 0], np.int32)
    for power, member, sums, counts in (
        (2, 1, [1, 2, 5], [0, 1, 0, 0, 0, 1, 0, 0]),  # bucket 1 is closed, and not counted
        (0, 0, [1, 2, 5], [0, 1, 0, 0, 0, 1, 0, 0]),
        (1, 0, [0, 2, 4], [1, 0, 0, 0, 1, 0, 0, 0]),
        (-1, 0, [1, 2, 5], [0, 1, 0, 0, 0, 1, 0, 0]),
        (-2, 1, [3, 4, 5], [0, 0, 0, 1, 0, 1, 0, 0]),
    ):
        space["_cover"](power, member, left, tally, closed, reach)
        assert (left.tolist(), tally.tolist(), closed.tolist()) == (sums, counts, [0, 1, 0])
    tallies = np.stack([tally, tally])
    space["_reopen"](1, np.stack([left, left + 1]), tallies, closed)
    assert closed.tolist() == [0, 0, 0]
    assert tallies.tolist() == [[0, 0, 0, 1, 1, 1, 0, 0], [0, 0, 0, 1, 0, 2, 0, 0]]
