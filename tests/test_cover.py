"""The covering core against all subsets of buckets."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reference import cert_fa
from runoff import _cover
from runoff.spreads import Spread, cyclic


@st.composite
def covers(draw):
    """Rows over up to 14 members and 9 buckets that overlap a good deal, with gaps near what can be covered."""
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
    """The fewest buckets that meet every row, by trying all."""
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
    spread = Spread.of(lists, powers.shape[1])
    truth = fewest(lists, gaps, powers)
    for size in range(len(lists) + 1):
        chosen = np.full(len(lists) + 1, -7, np.int32)
        verdict, nodes = _cover.search(gaps, powers, size, spread.reach, 10**6, chosen)
        assert nodes <= 2 ** (len(lists) + 1)
        if truth is None or size < truth:
            assert verdict == (_cover.PROVEN if truth is not None else verdict)
            assert verdict in (_cover.PROVEN, _cover.IMPOSSIBLE)
        else:
            assert verdict == _cover.FOUND
            buckets = _cover.taken(chosen)
            assert len(buckets) == len(set(buckets)) <= size
            assert (powers[:, spread.reached(buckets)].sum(axis=1) >= gaps).all()
    if truth is None and spread.n_unreached:
        assert verdict == _cover.IMPOSSIBLE


@given(covers())
def test_a_short_search_says_so_or_says_the_same(case):
    lists, gaps, powers = case
    reach = Spread.of(lists, powers.shape[1]).reach
    chosen = np.empty(len(lists) + 1, np.int32)
    for size in range(1, len(lists) + 1):
        decided, nodes = _cover.search(gaps, powers, size, reach, 10**6, chosen)
        for budget in (1, 2, nodes - 1, nodes):
            verdict, spent = _cover.search(gaps, powers, size, reach, budget, chosen)
            assert verdict in (decided, _cover.UNDECIDED)
            assert spent <= budget or verdict == _cover.IMPOSSIBLE
        assert verdict == decided  # the budget that it took is enough


@given(covers())
def test_needed_is_certfa(case):
    lists, gaps, powers = case
    reach = Spread.of(lists, powers.shape[1]).reach
    sums = np.empty(len(lists), np.int32)
    tally = np.empty(4 * reach.largest + 1, np.int32)
    for gap, power in zip(gaps, powers, strict=True):
        expected = cert_fa([sum(power[j] for j in bucket) for bucket in lists], gap)
        for limit in (_cover.UNREACHABLE, 3, 1):
            assert _cover.needed(power, gap, limit, reach, sums, tally) == min(expected, limit)
            assert sums.tolist() == [sum(power[j] for j in bucket) for bucket in lists] or gap <= 0


@pytest.mark.slow
@settings(max_examples=20_000)
@given(covers())
def test_many_searches(case):
    test_search_decides_as_trying_all_subsets_does.hypothesis.inner_test(case)
