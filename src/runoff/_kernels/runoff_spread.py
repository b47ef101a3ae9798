"""Compiled certificates of the run-off election with a spread (FA+ROE). Notation as in `runoff`."""

from typing import Any

import numpy as np

from runoff._kernels.compiling import helper, kernel
from runoff._kernels.counting import first_choices, gap, ranks_above
from runoff._kernels.covering import IMPOSSIBLE, PROVEN, UNREACHABLE, largest_sums, needed, search
from runoff._kernels.plurality import pass_power
from runoff._kernels.runoff import final_gap, finalists

RIVALS = 3  # classes ahead of c in a `beaten` threat; more would only take time


@kernel
def spread(scores: Any, tight: bool, reach: Any, budget: int, prediction: Any, runner_up: Any, cost: Any) -> int:
    """Certify any spread: Theorem 3.4 with Lemmas 3.7 and 3.8; `tight` then searches all rows of a threat together."""
    n, n_members, n_classes = scores.shape
    n_buckets = reach.members_at.shape[0] - 1
    first = np.zeros(n_members, np.int32)
    votes = np.zeros(n_classes, np.int32)
    above = np.zeros(n_classes, np.int32)
    power = np.zeros(n_members, np.int32)
    bound = np.zeros(n_classes, np.int32)
    sums = np.zeros(n_buckets, np.int32)
    tally = np.zeros(3 * reach.largest + 1, np.int32)
    near = np.zeros(n_classes, np.int32)
    for i in range(n):
        row = scores[i]
        if not first_choices(row, first, votes):
            return i
        w, s = finalists(row, votes, above)
        prediction[i], runner_up[i] = w, s
        best = _beaten_spread(row, first, votes, above, w, s, reach, power, bound, sums, tally)
        if n_classes > 2:
            best = _eliminated_spread(first, votes, w, best, reach, power, near, sums, tally)
        if tight and best < UNREACHABLE:
            best = _raise(row, first, votes, above, w, s, best, bound, near, reach, budget, sums, tally)
        cost[i] = best
    return -1


@helper
def final_power(row: Any, w: int, c: int, out: Any) -> None:
    """Fill `out` with 1 for members that rank w above c, each of which can lower the gap of round 2 by 2."""
    for j in range(row.shape[0]):
        out[j] = ranks_above(row[j], w, c)


@helper
def _beaten_spread(
    row: Any,
    first: Any,
    votes: Any,
    above: Any,
    w: int,
    s: int,
    reach: Any,
    power: Any,
    bound: Any,
    sums: Any,
    tally: Any,
) -> int:
    """Return Cert^R2 of Theorem 3.4, and fill `bound` with the bound of each class, 0 if it was skipped."""
    n_members, n_classes = row.shape
    final_power(row, w, s, power)
    best = needed(power, (final_gap(above, n_members, w, s) + 1) // 2, UNREACHABLE, reach, sums, tally)
    bound[:] = 0
    bound[s] = best
    no_votes = np.zeros(2, np.int32)  # 1v1(s, c) is equal for all c without votes, except for the tie
    for c in range(n_classes):
        if c == w or c == s:
            continue
        g, final = gap(votes, s, c), final_gap(above, n_members, w, c)
        if max(g, final) > 2 * reach.largest * (best - 1):
            continue
        tie = 1 if c > s else 0
        known: Any = no_votes[tie] if votes[c] == 0 else 0
        if known == 0:
            pass_power(first, s, c, power)
            known = needed(power, g, best, reach, sums, tally)
            if votes[c] == 0:
                no_votes[tie] = known
        if known < best:
            final_power(row, w, c, power)
            known = max(known, needed(power, (final + 1) // 2, best, reach, sums, tally))
            best = min(best, known)
        bound[c] = known
    return best


@helper
def closest(votes: Any, w: int, reach: Any, limit: int, near: Any) -> int:
    """Fill `near` with the classes that may pass w with fewer than `limit` buckets, by rising gap; return their number.

    Of the classes without votes, only the two with the lowest index can be part of a cheapest pair.
    """
    count, no_votes = 0, 0
    for c in range(votes.shape[0]):
        if c == w or gap(votes, w, c) > 2 * reach.largest * (limit - 1):
            continue
        if votes[c] == 0:
            no_votes += 1
            if no_votes > 2:
                continue
        at = count
        while at > 0 and gap(votes, w, near[at - 1]) > gap(votes, w, c):
            near[at] = near[at - 1]
            at -= 1
        near[at] = c
        count += 1
    return count


@helper
def pair_power(first: Any, w: int, c1: int, c2: int, out: Any) -> None:
    """Fill `out` with the amount by which each member can lower gap(w, c1) + gap(w, c2) (Lemma 3.8)."""
    for j in range(first.shape[0]):
        f = first[j]
        out[j] = 1 + 2 * (f == w) - (f == c1) - (f == c2)


@helper
def _eliminated_spread(
    first: Any, votes: Any, w: int, best: int, reach: Any, power: Any, near: Any, sums: Any, tally: Any
) -> int:
    """Return the smaller of `best` and Cert^R1 of Theorem 3.4.

    The gaps are added unclipped, as in the proof of Lemma 3.8. Its statement clips each at 0 first, which is wrong if
    one class already beats w: docs/proofs.md has a cheaper attack.

    With many classes there are too many pairs to bound each one. The power of a bucket on the sum of two gaps is at
    most its power if one class, or both, had no voters, and gaps increase along `near`: so a bound that ignores the
    voters of the second class ends the inner loop, and one that ignores those of both ends the outer loop.
    """
    count = closest(votes, w, reach, best, near)
    singles = np.zeros(count, np.int32)  # 1v1(w, c), once known
    of_any, with_x = np.zeros(sums.shape[0] + 1, np.int32), np.zeros(sums.shape[0] + 1, np.int32)
    pair_power(first, w, -1, -1, power)
    largest_sums(power, best - 1, reach, sums, tally, of_any)
    for x in range(count - 1):
        g1 = gap(votes, w, near[x])
        for y in range(x + 1, count):
            together, size = g1 + gap(votes, w, near[y]), min(best - 1, sums.shape[0])
            if together > of_any[size]:
                if y == x + 1:
                    return best
                break
            if y == x + 1:
                pair_power(first, w, near[x], -1, power)
                largest_sums(power, size, reach, sums, tally, with_x)
            if together > with_x[size]:
                break
            for z in (x, y):
                if singles[z] == 0:
                    pass_power(first, w, near[z], power)
                    singles[z] = needed(power, gap(votes, w, near[z]), best, reach, sums, tally)
            if singles[x] >= best:
                break
            if singles[y] < best:
                pair_power(first, w, near[x], near[y], power)
                pair = needed(power, together, best, reach, sums, tally)
                best = min(best, max(singles[x], singles[y], pair))
    return best


@helper
def elimination_rows(first: Any, votes: Any, w: int, c1: int, c2: int, gaps: Any, powers: Any) -> int:
    """Fill the rows of the threat `eliminated by c1 and c2`, each gap and their sum; return their number."""
    pass_power(first, w, c1, powers[0])
    pass_power(first, w, c2, powers[1])
    pair_power(first, w, c1, c2, powers[2])
    gaps[0], gaps[1] = gap(votes, w, c1), gap(votes, w, c2)
    gaps[2] = gaps[0] + gaps[1]
    return 3


@helper
def beaten_rows(row: Any, first: Any, votes: Any, above: Any, w: int, c: int, gaps: Any, powers: Any) -> int:
    """Fill the rows of the threat `beaten by c`: round 2, the rivals furthest ahead, the sum; return their number."""
    n_members, n_classes = row.shape
    final = final_gap(above, n_members, w, c)
    rows, together = 0, 0
    if final > 0:
        final_power(row, w, c, powers[0])
        gaps[0] = (final + 1) // 2
        rows, together = 1, final
    votes_before, before = n_members + 1, -1
    for _ in range(RIVALS):
        u = -1  # the next class by votes, then by index
        for v in range(n_classes):
            later = votes[v] < votes_before or (votes[v] == votes_before and v > before)
            if v != w and v != c and later and (u < 0 or votes[v] > votes[u]):
                u = v
        if u < 0 or gap(votes, u, c) <= 0:
            break
        votes_before, before = votes[u], u
        pass_power(first, u, c, powers[rows])
        gaps[rows] = gap(votes, u, c)
        together += gaps[rows]
        rows += 1
    if rows > 1:
        for j in range(n_members):
            total = powers[0, j] if final > 0 else 0  # counted twice, since the row of round 2 is halved
            for q in range(rows):
                total += powers[q, j]
            powers[rows, j] = total
        gaps[rows] = together
        rows += 1
    return rows


@helper
def _cannot_pass(first: Any, votes: Any, w: int, c: int, reach: Any) -> bool:
    """Return whether some class stays ahead of c in round 1 even if every member that a bucket reaches is taken."""
    reached = np.zeros(votes.shape[0], np.int32)
    total = 0
    for j in range(first.shape[0]):
        if reach.buckets_at[j + 1] > reach.buckets_at[j]:
            reached[first[j]] += 1
            total += 1
    for u in range(votes.shape[0]):
        if u != c and u != w and total + reached[u] - reached[c] < gap(votes, u, c):
            return True
    return False


@helper
def _raise(
    row: Any,
    first: Any,
    votes: Any,
    above: Any,
    w: int,
    s: int,
    best: int,
    bound: Any,
    near: Any,
    reach: Any,
    budget: int,
    sums: Any,
    tally: Any,
) -> int:
    """Return an improved cost, raising `best` while search proves that no threat succeeds with `best` buckets."""
    n_members, n_classes = row.shape
    n_buckets = reach.members_at.shape[0] - 1
    chosen = np.zeros(n_buckets + 1, np.int32)
    powers = np.zeros((RIVALS + 2, n_members), np.int32)
    gaps = np.zeros(RIVALS + 2, np.int32)
    of_any, with_x = np.zeros(n_buckets + 1, np.int32), np.zeros(n_buckets + 1, np.int32)
    while best <= n_buckets:
        for turn in range(n_classes):
            c = (s + turn) % n_classes  # s first, as the usual threat
            if c == w or bound[c] > best:
                continue
            g = gap(votes, s, c) if c != s else 0
            if max(g, final_gap(above, n_members, w, c)) > 2 * reach.largest * best:
                continue
            if reach.n_unreached > 0 and _cannot_pass(first, votes, w, c, reach):
                bound[c] = UNREACHABLE
                continue
            rows = beaten_rows(row, first, votes, above, w, c, gaps, powers)
            verdict, nodes = search(gaps[:rows], powers[:rows], best, reach, budget, chosen)
            budget -= nodes
            if verdict == PROVEN:
                bound[c] = best + 1
            elif verdict == IMPOSSIBLE:
                bound[c] = UNREACHABLE
            else:
                return best
        if n_classes > 2:
            count = closest(votes, w, reach, best + 1, near)
            pair_power(first, w, -1, -1, powers[0])
            largest_sums(powers[0], best, reach, sums, tally, of_any)
            for x in range(count - 1):
                g1 = gap(votes, w, near[x])
                if g1 + gap(votes, w, near[x + 1]) > of_any[best]:
                    break
                pair_power(first, w, near[x], -1, powers[0])
                largest_sums(powers[0], best, reach, sums, tally, with_x)
                for y in range(x + 1, count):
                    if g1 + gap(votes, w, near[y]) > with_x[best]:
                        break
                    rows = elimination_rows(first, votes, w, near[x], near[y], gaps, powers)
                    verdict, nodes = search(gaps[:rows], powers[:rows], best, reach, budget, chosen)
                    budget -= nodes
                    if verdict != PROVEN and verdict != IMPOSSIBLE:
                        return best
        best += 1
    return UNREACHABLE
