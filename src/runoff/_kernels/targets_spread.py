"""Compiled costs for a target to win with a spread, for plurality and run-off. Notation as in `targets`.

Plurality has one threat, that t passes every other class. Run-off has one threat for each opponent o in round 2.
"""

from typing import Any

import numpy as np

from runoff._kernels.compiling import helper, kernel
from runoff._kernels.counting import first_choices, gap, ranks_above, top_two
from runoff._kernels.covering import IMPOSSIBLE, PROVEN, UNREACHABLE, needed, search
from runoff._kernels.runoff import finalists

RIVALS = 3  # classes with the most votes, other than t and o, in a threat; more would only take time
ROWS = 2 * RIVALS + 1 + RIVALS * (RIVALS + 1) + 1


@kernel
def spread(scores: Any, two_rounds: bool, target: int, reach: Any, budget: int, prediction: Any, cost: Any) -> int:
    """Fill `cost` with the proven number of buckets that the target needs to win, 0 if it already wins.

    Each threat is bounded by its largest row (Lemma 3.7); then all its rows are searched together.
    """
    n, n_members, n_classes = scores.shape
    n_buckets = reach.members_at.shape[0] - 1
    first = np.zeros(n_members, np.int32)
    votes = np.zeros(n_classes, np.int32)
    above = np.zeros(n_classes, np.int32)
    bound = np.zeros(n_classes, np.int32)
    powers = np.zeros((ROWS, n_members), np.int32)
    gaps = np.zeros(ROWS, np.int32)
    sums = np.zeros(n_buckets, np.int32)
    tally = np.zeros(ROWS * 3 * max(1, reach.largest) + 1, np.int32)
    for i in range(n):
        row = scores[i]
        if not first_choices(row, first, votes):
            return i
        w, _ = finalists(row, votes, above) if two_rounds else top_two(votes)
        prediction[i] = w
        if w == target:
            cost[i] = 0
            continue
        best = UNREACHABLE
        for turn in range(n_classes):
            o = (w + turn) % n_classes  # w first, as the usual opponent
            if o == target or (turn > 0 and not two_rounds):
                bound[o] = UNREACHABLE
                continue
            rows = _rows(row, first, votes, two_rounds, target, o, gaps, powers)
            bound[o] = 0
            for q in range(rows):
                if bound[o] < best:
                    bound[o] = max(bound[o], needed(powers[q], gaps[q], best, reach, sums, tally))
            best = min(best, bound[o])
        if best < UNREACHABLE:
            best = _raise(row, first, votes, two_rounds, target, w, best, bound, reach, budget, gaps, powers)
        cost[i] = best
    return -1


@helper
def _rows(row: Any, first: Any, votes: Any, two_rounds: bool, t: int, o: int, gaps: Any, powers: Any) -> int:
    """Fill the rows of a threat that are not met yet and, last, the sum of all; return their number.

    For run-off, the rows are the needs of t, the needs of o, and each of the former plus each of the latter. Plurality
    has no opponent, and o is one of the classes that t must pass.
    """
    n_members = first.shape[0]
    none = -1  # instead of a class: no condition
    rivals = np.full(RIVALS, none, np.int32)
    _most_votes(votes, t, o if two_rounds else none, rivals)
    count = 0
    together = 0
    lead = 0
    if two_rounds:
        for j in range(n_members):
            lead += ranks_above(row[j], o, t)
        lead -= (n_members - (t > o)) // 2
    # x is a need of t: to pass a rival, or (for x = RIVALS) to win round 2, or none. y is a need of o.
    for x in range(RIVALS + 2):
        for y in range(RIVALS + 1):
            final = x == RIVALS and two_rounds
            u = rivals[x] if x < RIVALS else none
            v = rivals[y] if y < RIVALS and two_rounds else none
            asks_t, asks_o = final or u != none, v != none
            if (x < RIVALS + 1 and not asks_t) or (y < RIVALS and not asks_o) or not (asks_t or asks_o):
                continue
            g = lead if final else gap(votes, u, t) if asks_t else 0
            if asks_o:
                g += gap(votes, v, o)
            if g <= 0:
                continue
            for j in range(n_members):
                f = first[j]
                power = 0
                if final:
                    power = 1 if ranks_above(row[j], o, t) else 0
                elif asks_t:
                    power = 1 + (f == u) - (f == t)
                if asks_o:
                    power = power + (f == v) - (f == o)  # not +=: truth values have no difference
                    if not asks_t:
                        power += 1
                powers[count, j] = power
            gaps[count] = g
            together += g
            count += 1
    if count > 1:
        for j in range(n_members):
            total = np.int32(0)
            for q in range(count):
                total += powers[q, j]
            powers[count, j] = total
        gaps[count] = together
        count += 1
    return count


@helper
def _most_votes(votes: Any, t: int, o: int, rivals: Any) -> None:
    """Fill `rivals` with the classes with the most votes other than t and o; ties go to the lower index."""
    for r in range(rivals.shape[0]):
        for c in range(votes.shape[0]):
            new = c != t and c != o
            for earlier in range(r):
                new = new and c != rivals[earlier]
            if new and (rivals[r] < 0 or votes[c] > votes[rivals[r]]):
                rivals[r] = c


@helper
def _raise(
    row: Any,
    first: Any,
    votes: Any,
    two_rounds: bool,
    t: int,
    w: int,
    best: int,
    bound: Any,
    reach: Any,
    budget: int,
    gaps: Any,
    powers: Any,
) -> int:
    """Return an improved cost, raising `best` while search proves that no threat succeeds with `best` buckets."""
    n_classes = votes.shape[0]
    n_buckets = reach.members_at.shape[0] - 1
    chosen = np.zeros(n_buckets + 1, np.int32)
    while best <= n_buckets:
        for turn in range(n_classes):
            o = (w + turn) % n_classes
            if bound[o] > best:
                continue
            rows = _rows(row, first, votes, two_rounds, t, o, gaps, powers)
            verdict, nodes = search(gaps[:rows], powers[:rows], best, reach, budget, chosen)
            budget -= nodes
            if verdict == PROVEN:
                bound[o] = best + 1
            elif verdict == IMPOSSIBLE:
                bound[o] = UNREACHABLE
            else:
                return best
        best += 1
    return UNREACHABLE
