"""Compiled costs for a target to win with one bucket per member, exact for plurality and run-off.

t is the target, o its opponent in round 2, and N are the votes of round 1. docs/proofs.md proves that the conditions
are exact.
"""

from typing import Any

import numpy as np

from runoff._kernels.compiling import helper, kernel
from runoff._kernels.counting import first_choices, gap, ranks_above, top_two
from runoff._kernels.runoff import finalists


@kernel
def plurality(scores: Any, target: int, prediction: Any, cost: Any) -> int:
    """Fill `cost` with the fewest members that must vote for the target, 0 if it wins already.

    With X members taken, N_u - N_t - X + [u < t] of them must be voters of each class u for which this is positive.
    """
    n, n_members, n_classes = scores.shape
    first = np.zeros(n_members, np.int32)
    votes = np.zeros(n_classes, np.int32)
    for i in range(n):
        if not first_choices(scores[i], first, votes):
            return i
        w, _ = top_two(votes)
        prediction[i] = w
        size, paid = 0, 0
        if w != target:
            size = (gap(votes, w, target) + 1) // 2
            paid = size + 1
        while paid > size:
            paid = 0
            for u in range(n_classes):
                if u != target:
                    paid += max(0, votes[u] - votes[target] - size + (u < target))
            if paid > size:
                size += 1
        cost[i] = size
    return -1


@kernel
def runoff(scores: Any, target: int, prediction: Any, cost: Any) -> int:
    """Fill `cost` with the fewest members with which the target can win the run-off, 0 if it wins already."""
    n, n_members, n_classes = scores.shape
    first = np.zeros(n_members, np.int32)
    votes = np.zeros(n_classes, np.int32)
    above = np.zeros(n_classes, np.int32)
    against = np.zeros((n_classes, n_classes), np.int32)  # [o, u]: voters of u that rank o above the target
    for i in range(n):
        row = scores[i]
        if not first_choices(row, first, votes):
            return i
        w, _ = finalists(row, votes, above)
        prediction[i] = w
        if w == target:
            cost[i] = 0
            continue
        against[:] = 0
        for j in range(n_members):
            for o in range(n_classes):
                against[o, first[j]] += ranks_above(row[j], o, target)
        best = n_members - votes[target]  # it wins if all members vote for it
        for turn in range(n_classes):
            o = (w + turn) % n_classes  # w first, as the usual opponent
            if o != target:
                best = _cost_against(votes, against[o], n_members, target, o, best)
        cost[i] = best
    return -1


@helper
def _cost_against(votes: Any, against: Any, n_members: int, t: int, o: int, limit: int) -> int:
    """Return the fewest members with which t can win against o in round 2, at most `limit`."""
    n_classes = votes.shape[0]
    total = 0
    for u in range(n_classes):
        total += against[u]
    lead = total - (n_members - (t > o)) // 2  # members that must no longer rank o above t
    size = max(1, lead)
    for u in range(n_classes):
        if u != t and u != o:
            to_t, to_o = gap(votes, u, t), gap(votes, u, o)
            size = max(size, (to_t + 1) // 2, (to_o + 1) // 2, (to_t + to_o + 2) // 3, (lead + to_o + 1) // 2)
    while size < limit and not _suffices(votes, against, lead, t, o, size):
        size += 1
    return min(size, limit)


@helper
def _suffices(votes: Any, against: Any, lead: int, t: int, o: int, size: int) -> bool:
    """Return whether t can win against o in round 2 with `size` members, all of which change their vote.

    Either all of them vote for t, some of them voters of o; or some vote for t and some for o; or all vote for o, some
    of them voters of t. In each case, `_missing` is convex in the number of votes for o.
    """
    room = 0
    for u in range(votes.shape[0]):
        if u != t and u != o:
            room += votes[u]
    for case in range(3):
        if case == 0:
            low, high = -min(size, votes[o]), min(0, room - size)
        elif case == 1:
            low, high = 0, size if size <= room else -1
        else:
            low, high = max(0, size - room), min(size, votes[t])
        while low <= high:
            at = (low + high) // 2
            here = _missing(votes, against, lead, t, o, size, case, at)
            if here <= 0:
                return True
            if low == high:
                break
            if here <= _missing(votes, against, lead, t, o, size, case, at + 1):
                high = at
            else:
                low = at + 1
    return False


@helper
def _missing(votes: Any, against: Any, lead: int, t: int, o: int, size: int, case: int, at: int) -> int:
    """Return the number of members missing for t to win against o with `size` members, at most 0 if they suffice."""
    by_t, by_o = size, at  # changes of the votes of t and o
    if case == 1:
        by_t = size - at
    elif case == 2:
        by_t, by_o = -at, size
    lost = by_t + by_o  # voters that the other classes lose
    paid, useful, useless = 0, 0, 0
    for u in range(votes.shape[0]):
        if u != t and u != o:
            useful += against[u]
            pay = max(votes[u] - votes[t] - by_t + (u < t), votes[u] - votes[o] - by_o + (u < o))
            if pay > 0:
                paid += pay
                useless += max(0, pay - against[u])
    return max(paid - lost, by_o + lead - min(useful, lost - useless))
