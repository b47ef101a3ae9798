"""Compiled certificates of the maximin election, with one bucket per member and with spreads.

M[a, b] (`duels`) is the number of members that rank class a above class b, and m_a (`worst`) is min_b M[a, b].
`columns` contains the scores of one input by class.
"""

from typing import Any

import numpy as np

from runoff._kernels.compiling import helper, kernel
from runoff._kernels.counting import top_two
from runoff._kernels.covering import IMPOSSIBLE, PROVEN, UNREACHABLE, needed, search

ROWS = 3  # of a threat in a search with a spread; more would only take time


@kernel
def spread(scores: Any, reach: Any, budget: int, prediction: Any, runner_up: Any, cost: Any) -> int:
    """Certify a block: bound each threat by its largest row (Lemma 3.7), then search all its rows together."""
    n, n_members, n_classes = scores.shape
    n_buckets = reach.members_at.shape[0] - 1
    columns = np.empty((n_classes, n_members), scores.dtype)
    duels = np.zeros((n_classes, n_classes), np.int32)
    worst = np.zeros(n_classes, np.int32)
    known = np.zeros(n_classes, np.bool_)
    bound = np.zeros((n_classes, n_classes), np.int32)
    powers = np.zeros((n_classes, n_members), np.int32)
    gaps = np.zeros(n_classes, np.int32)
    sums = np.zeros(n_buckets + 1, np.int32)
    tally = np.zeros(2 * max(reach.largest, n_classes) + 1, np.int32)
    for i in range(n):
        if not _by_class(scores[i], columns):
            return i
        w, s = _leaders(columns, duels, worst, known)
        prediction[i], runner_up[i] = w, s
        best = _bound(columns, duels, worst, known, w, s, reach, bound, powers[0], sums[:n_buckets], tally)
        if best < UNREACHABLE:
            best = _raise(columns, duels, worst, known, w, s, best, bound, reach, budget, powers, gaps, sums, tally)
        cost[i] = best
    return -1


@helper
def _by_class(row: Any, columns: Any) -> bool:
    """Fill `columns` with the scores by class, which are faster to compare; return False if one is not finite."""
    n_members, n_classes = row.shape
    broken = False
    for j in range(n_members):
        for c in range(n_classes):
            broken |= row[j, c] - row[j, c] != 0  # true for NaN and infinities only
            columns[c, j] = row[j, c]
    return not broken


@helper
def _count_duels(columns: Any, a: int, duels: Any, worst: Any, known: Any) -> None:
    """Fill row a of M, so that `worst[a]` becomes m_a, and column a, which bounds the m of other classes."""
    n_classes, n_members = columns.shape
    one = columns[a]
    for b in range(n_classes):
        if b == a or known[b]:
            continue
        wins, other = np.int32(0), columns[b]
        if a < b:
            for j in range(n_members):
                wins += one[j] >= other[j]
        else:
            for j in range(n_members):
                wins += one[j] > other[j]
        duels[a, b], duels[b, a] = wins, n_members - wins
        worst[a], worst[b] = min(worst[a], wins), min(worst[b], n_members - wins)
    known[a] = True


@helper
def _leaders(columns: Any, duels: Any, worst: Any, known: Any) -> tuple[int, int]:
    """Return the classes with the two largest m.

    `worst` contains m for classes whose duels are known, and an upper bound for others: if the first two are known, no
    other class can be one of them. With many classes, the duels of only a few are counted.
    """
    worst[:] = columns.shape[1]
    known[:] = False
    while True:
        w, s = top_two(worst)
        if known[w] and known[s]:
            return w, s
        _count_duels(columns, s if known[w] else w, duels, worst, known)


@helper
def _add_preferences(columns: Any, a: int, b: int, out: Any) -> None:
    """Add 1 for each member that ranks class a above class b."""
    one, other = columns[a], columns[b]
    if a < b:
        for j in range(out.shape[0]):
            out[j] += one[j] >= other[j]
    else:
        for j in range(out.shape[0]):
            out[j] += one[j] > other[j]


@helper
def _bound(
    columns: Any,
    duels: Any,
    worst: Any,
    known: Any,
    w: int,
    s: int,
    reach: Any,
    bound: Any,
    power: Any,
    sums: Any,
    tally: Any,
) -> int:
    """Return the smallest bound of all threats, each by its largest row, skipping threats above an earlier bound."""
    n_classes = columns.shape[0]
    most = max(1, 2 * reach.largest)  # the largest power of a bucket on a row
    best = UNREACHABLE
    for turn in range(n_classes):
        c = (s + turn) % n_classes  # s first, as the usual threat
        if c == w:
            continue
        if not known[c]:
            if _least_bound(worst, w, c, most) >= best:
                continue
            _count_duels(columns, c, duels, worst, known)
        a = 1 if c == 0 else 0
        for other in range(n_classes):
            if other != c and duels[c, other] < duels[c, a]:
                a = other
        for b in range(n_classes):
            if b == w:
                continue
            gap = duels[w, b] - worst[c] + (c > w)
            bound[c, b] = (gap + most - 1) // most
            if bound[c, b] < best:
                power[:] = 0
                _add_preferences(columns, w, b, power)
                _add_preferences(columns, a, c, power)
                bound[c, b] = needed(power, gap, UNREACHABLE, reach, sums, tally)
                best = min(best, bound[c, b])
    return best


@helper
def _least_bound(worst: Any, w: int, c: int, most: int) -> int:
    """Return a bound on all threats by c from m only, where the power of a bucket is at most `most`."""
    least: int = (worst[w] - worst[c] + (c > w) + most - 1) // most
    return least


@helper
def _limiting_gap(duels: Any, w: int, c: int, b: int, limit: int) -> int:
    """Return the largest gap that at least `limit` rows of a threat reach, or 1 if fewer rows have a gap."""
    least = 1
    while True:
        count, next_ = 0, UNREACHABLE
        for a in range(duels.shape[0]):
            gap = duels[w, b] - duels[c, a] + (c > w)
            if a != c and gap > least:
                count += 1
                next_ = min(next_, gap)
        if count < limit:
            return least
        least = next_


@helper
def _rows(columns: Any, duels: Any, w: int, c: int, b: int, limit: int, gaps: Any, powers: Any) -> int:
    """Fill the rows of a threat, at most `limit` of those with the largest gaps, and their sum; return their number."""
    n_classes, n_members = columns.shape
    rows, total = 0, 0
    least = _limiting_gap(duels, w, c, b, limit)
    for a in range(n_classes):
        gap = duels[w, b] - duels[c, a] + (c > w)
        if a != c and gap >= least and rows < limit:
            powers[rows] = 0
            _add_preferences(columns, w, b, powers[rows])
            _add_preferences(columns, a, c, powers[rows])
            gaps[rows] = gap
            total += gap
            rows += 1
    if rows > 1:
        powers[rows] = 0
        for q in range(rows):
            for j in range(n_members):
                powers[rows, j] += powers[q, j]
        gaps[rows] = total
        rows += 1
    return rows


@helper
def _raise(
    columns: Any,
    duels: Any,
    worst: Any,
    known: Any,
    w: int,
    s: int,
    best: int,
    bound: Any,
    reach: Any,
    budget: int,
    powers: Any,
    gaps: Any,
    chosen: Any,
    tally: Any,
) -> int:
    """Return an improved cost, raising `best` while search proves that no threat succeeds with `best` buckets."""
    n_classes, n_members = columns.shape
    most = max(1, 2 * reach.largest)
    alone = reach.largest == 1 and reach.n_unreached == 0 and chosen.shape[0] == n_members + 1
    limit = n_classes if alone or reach.n_unreached > 0 else ROWS  # all are needed to show that a threat is impossible
    while best < chosen.shape[0]:
        for turn in range(n_classes):
            c = (s + turn) % n_classes
            if c == w or (not known[c] and _least_bound(worst, w, c, most) > best):
                continue
            if not known[c]:
                _count_duels(columns, c, duels, worst, known)
                for b in range(n_classes):
                    bound[c, b] = (duels[w, b] - worst[c] + (c > w) + most - 1) // most
            for b in range(n_classes):
                if b == w or bound[c, b] > best:
                    continue
                rows = _rows(columns, duels, w, c, b, limit, gaps, powers)
                if alone and _suffice(gaps[:rows], powers[:rows], best, tally):
                    return best
                verdict, nodes = search(gaps[:rows], powers[:rows], best, reach, budget, chosen)
                budget -= nodes
                if verdict == PROVEN:
                    bound[c, b] = best + 1
                elif verdict == IMPOSSIBLE:
                    bound[c, b] = UNREACHABLE
                else:
                    return best
        best += 1
    return UNREACHABLE


@helper
def _suffice(gaps: Any, powers: Any, size: int, tally: Any) -> bool:
    """Return whether the `size` members with the largest power on the last row, the sum, meet all rows."""
    rows, n_members = powers.shape
    tally[:] = 0
    for j in range(n_members):
        tally[powers[rows - 1, j]] += 1
    least, left = tally.shape[0] - 1, size
    while least > 0 and tally[least] < left:
        left -= tally[least]
        least -= 1
    for q in range(rows):
        covered, at_least = np.int32(0), np.int32(0)
        for j in range(n_members):
            if powers[rows - 1, j] > least:
                covered += powers[q, j]
            elif powers[rows - 1, j] == least and at_least < left:
                covered += powers[q, j]
                at_least += 1
        if covered < gaps[q]:
            return False
    return True
