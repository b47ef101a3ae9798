"""Covering problems that bound the number of buckets of an attack, shared by all elections.

An attack takes over the members that its buckets reach. It succeeds if, for one of the threats of the election, every
row (g, p) of the threat is met: the powers p_j of the taken members sum to at least the gap g. A member counts once,
even if several taken buckets reach it. So the cost of a threat is a covering problem. `needed` bounds it as in the
paper (Lemma 3.7, Algorithm 4), `search` by branch and bound. `reach` is a `spreads.Reach`.
"""

from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from runoff._kernels.compiling import helper, kernel

UNREACHABLE = cast(int, np.int64(2**30))  # the cost of an impossible threat, above every number of buckets
PROVEN, FOUND, UNDECIDED, IMPOSSIBLE = 0, 1, 2, 3  # verdicts of `search`


def taken(chosen: NDArray[np.int32]) -> NDArray[np.int64]:
    """Return the buckets that `search` chose, sorted."""
    return np.sort(chosen[: np.flatnonzero(chosen == -1)[0]]).astype(np.int64)


@helper
def bucket_sums(power: Any, reach: Any, out: Any) -> None:
    """Fill `out` with the power of each bucket, the sum over its members."""
    n = out.shape[0]
    if reach.offsets.shape[0] > 0:
        # Adding shifted copies reads a cyclic spread in memory order, which is faster than gathering.
        out[:] = 0
        for o in reach.offsets:
            shifted, wrapped = power[o:], out[n - o :]  # slices, since an index that could be negative is slow
            for b in range(n - o):
                out[b] += shifted[b]
            for b in range(o):
                wrapped[b] += power[b]
        return
    for b in range(n):
        total = np.int32(0)
        for t in range(reach.members_at[b], reach.members_at[b + 1]):
            total += power[reach.members[t]]
        out[b] = total


@kernel
def needed(power: Any, gap: int, limit: int, reach: Any, sums: Any, tally: Any) -> int:
    """Return the fewest buckets whose powers sum to at least `gap` (Lemma 3.7, Algorithm 4, CertFA), at most `limit`.

    Powers are small integers, so they are counted instead of sorted.
    """
    if gap <= 0:
        return 0
    bucket_sums(power, reach, sums)
    highest = _count(sums, tally)
    count = 0
    for value in range(highest, 0, -1):
        here = tally[value]
        if here * value >= gap:
            return min(limit, count + (gap + value - 1) // value)
        gap -= here * value
        count += here
        if count >= limit:
            return limit
    return min(limit, UNREACHABLE)


@helper
def largest_sums(power: Any, most: int, reach: Any, sums: Any, tally: Any, out: Any) -> None:
    """Fill `out[m]` with the largest sum of the powers of m buckets, for m up to `most` or the number of buckets."""
    bucket_sums(power, reach, sums)
    highest = _count(sums, tally)
    filled, total, n_buckets = 0, np.int32(0), sums.shape[0]
    out[0] = 0
    while filled < most and filled < n_buckets:
        while tally[highest] == 0:
            highest -= 1
        tally[highest] -= 1
        total += highest
        filled += 1
        out[filled] = total


@helper
def _count(sums: Any, tally: Any) -> int:
    """Fill `tally` with the number of buckets of each power, and return the highest power."""
    highest = 0
    for b in range(sums.shape[0]):
        highest = max(highest, sums[b])
    tally[: highest + 1] = 0
    for b in range(sums.shape[0]):
        tally[sums[b]] += 1
    return highest


@helper
def _best_sum(tally: Any, highest: Any, count: int) -> int:
    """Return the sum of the `count` largest values of a tally."""
    total = 0
    for value in range(highest, 0, -1):
        here = min(count, tally[value])
        total += here * value
        count -= here
        if count == 0:
            break
    return total


@kernel
def search(gaps: Any, powers: Any, size: int, reach: Any, budget: int, chosen: Any) -> tuple[int, int]:
    """Search for `size` buckets that meet every row, or prove that none exist, in at most `budget` nodes.

    The search is depth first, includes a bucket before excluding it, and branches on the bucket with the largest
    remaining power on the unmet rows. A node is pruned if, on some row, the covered power plus the largest remaining
    powers of the buckets still to choose is below the gap; remaining powers exclude members already covered. `chosen`,
    with one more entry than there are buckets, receives the buckets and -1 after the last. Returns PROVEN (no such
    buckets), FOUND, UNDECIDED (the budget is exhausted) or IMPOSSIBLE (no number of buckets suffices), and the number
    of nodes visited, which is the same on every machine, since no clock is read.
    """
    rows, n_members = powers.shape
    if reach.n_unreached > 0:
        for q in range(rows):
            total = 0
            for j in range(n_members):
                if reach.buckets_at[j + 1] > reach.buckets_at[j]:
                    total += powers[q, j]
            if total < gaps[q]:
                return IMPOSSIBLE, 1
    n_buckets = reach.members_at.shape[0] - 1
    left = np.zeros((rows, n_buckets), np.int32)
    highest = np.int64(0)
    for q in range(rows):
        bucket_sums(powers[q], reach, left[q])
        for b in range(n_buckets):
            highest = max(highest, left[q, b])
    tallies = np.zeros((rows, highest + 1), np.int32)
    for q in range(rows):
        for b in range(n_buckets):
            tallies[q, left[q, b]] += 1

    covered = np.zeros(rows, np.int32)
    taken_at = np.zeros(n_members, np.int32)  # 1 + depth at which a member was covered, 0 if it is not
    closed = np.zeros(n_buckets, np.int32)  # 1 if a bucket is included or excluded
    worth = np.zeros(n_buckets, np.int32)
    stack = np.zeros(n_buckets + 1, np.int32)
    included = np.zeros(n_buckets + 1, np.int32)
    depth, count, nodes = 0, 0, 0
    while nodes < budget:
        nodes += 1
        met, cut = True, False
        for q in range(rows):
            if covered[q] < gaps[q]:
                met = False
                if covered[q] + _best_sum(tallies[q], highest, size - count) < gaps[q]:
                    cut = True
                    break
        if met:
            filled = 0
            for level in range(depth):
                if included[level]:
                    chosen[filled] = stack[level]
                    filled += 1
            chosen[filled] = -1
            return FOUND, nodes
        if not cut:
            worth[:] = 0
            for q in range(rows):
                if covered[q] < gaps[q]:
                    for b in range(n_buckets):
                        worth[b] += left[q, b]
            pick, most = -1, np.int32(-1)
            for b in range(n_buckets):
                if worth[b] > most and not closed[b]:
                    pick, most = b, worth[b]
            stack[depth], included[depth] = pick, 1
            depth += 1
            count += 1
            closed[pick] = 1
            for q in range(rows):
                tallies[q, left[q, pick]] -= 1
            for t in range(reach.members_at[pick], reach.members_at[pick + 1]):
                j = reach.members[t]
                if taken_at[j] == 0:
                    taken_at[j] = depth
                    for q in range(rows):
                        _cover(powers[q, j], j, left[q], tallies[q], closed, reach)
                        covered[q] += powers[q, j]
            continue
        while depth > 0 and not included[depth - 1]:
            depth -= 1
            _reopen(stack[depth], left, tallies, closed)
        if depth == 0:
            return PROVEN, nodes
        pick = stack[depth - 1]
        for t in range(reach.members_at[pick], reach.members_at[pick + 1]):
            j = reach.members[t]
            if taken_at[j] == depth:
                taken_at[j] = 0
                for q in range(rows):
                    _cover(np.int32(-powers[q, j]), j, left[q], tallies[q], closed, reach)
                    covered[q] -= powers[q, j]
        count -= 1
        included[depth - 1] = 0
    return UNDECIDED, nodes


@helper
def _cover(power: Any, member: int, left: Any, tally: Any, closed: Any, reach: Any) -> None:
    """Subtract `power`, which may be negative, from every bucket that reaches `member`."""
    if power == 0:
        return
    for t in range(reach.buckets_at[member], reach.buckets_at[member + 1]):
        b = reach.buckets[t]
        if not closed[b]:
            tally[left[b]] -= 1
            tally[left[b] - power] += 1
        left[b] -= power


@helper
def _reopen(bucket: int, left: Any, tallies: Any, closed: Any) -> None:
    """Make an excluded bucket available again."""
    closed[bucket] = 0
    for q in range(tallies.shape[0]):
        tallies[q, left[q, bucket]] += 1
