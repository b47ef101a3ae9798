"""The true cost of changing an election, by brute force: every set of buckets, and every outcome that matters.

Nothing here comes from the package. Votes are counted from the ballots; a set of buckets takes over the members that it
reaches; then every way to share their first choices out among the classes is tried. In round 2 a taken member that does
not vote for the prediction ranks it last: no ballot with the same first choice does more against it. For maximin all
taken members rank one and the same class first and the prediction last. tests/test_torture compares all of this with
the adversary of tests/reference.py, which tries every ballot.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from numba.core import config

PLURALITY, RUNOFF, MAXIMIN = 0, 1, 2
RULES = {"plurality": PLURALITY, "runoff": RUNOFF, "maximin": MAXIMIN}
NEVER = 10**6  # no number of buckets changes the prediction


@contextmanager
def compiling() -> Iterator[None]:
    """Compile also where the package is run uncompiled: what checks it stays fast."""
    before, config.DISABLE_JIT = config.DISABLE_JIT, 0  # type: ignore[attr-defined]
    try:
        yield
    finally:
        config.DISABLE_JIT = before  # type: ignore[attr-defined]


def compiled(function: Any) -> Any:
    """Return the function as one that numba compiles at its first call."""
    with compiling():
        return numba.njit(function, cache=True)


@compiled
def ranking(scores, first, above):  # type: ignore[no-untyped-def]
    """First choices, and above[j, a, b]: member j ranks a above b. Of equal scores the lower class is above."""
    n_members, n_classes = scores.shape
    for j in range(n_members):
        first[j] = 0
        for a in range(n_classes):
            if scores[j, a] > scores[j, first[j]]:
                first[j] = a
            for b in range(n_classes):
                above[j, a, b] = scores[j, a] > scores[j, b] or (scores[j, a] == scores[j, b] and a < b)


@compiled
def two_with_most(votes):  # type: ignore[no-untyped-def]
    """The two classes with the most votes; of equals the lower one."""
    a = 0
    for c in range(votes.shape[0]):
        if votes[c] > votes[a]:
            a = c
    b = 1 if a == 0 else 0
    for c in range(votes.shape[0]):
        if c != a and votes[c] > votes[b]:
            b = c
    return a, b


@compiled
def worst_duels(above, members):  # type: ignore[no-untyped-def]
    """For each class, the fewest of these members (as bits) that rank it above another class."""
    n_members, n_classes, _ = above.shape
    worst = np.full(n_classes, n_members)
    for a in range(n_classes):
        for b in range(n_classes):
            wins = 0
            for j in range(n_members):
                wins += above[j, a, b] and (members >> j) & 1
            if a != b:
                worst[a] = min(worst[a], wins)
    return worst


@compiled
def winner(rule, first, above):  # type: ignore[no-untyped-def]
    """Who is elected."""
    votes = np.zeros(above.shape[1], np.int64)
    for j in range(first.shape[0]):
        votes[first[j]] += 1
    if rule == MAXIMIN:
        return two_with_most(worst_duels(above, (1 << first.shape[0]) - 1))
    a, b = two_with_most(votes)
    if rule == PLURALITY:
        return a, b
    for_a = 0
    for j in range(first.shape[0]):
        for_a += above[j, a, b]
    for_b = first.shape[0] - for_a
    if for_a > for_b or (for_a == for_b and a < b):
        return a, b
    return b, a


@compiled
def another_wins(rule, w, kept, against, n_kept, taken):  # type: ignore[no-untyped-def]
    """Whether `taken` members can elect another class than w.

    kept[c]: votes of the members that are left; against[c]: how many of them rank c above w.
    """
    n_classes = kept.shape[0]
    share = np.zeros(n_classes, np.int64)  # of the taken members, the first choices
    share[0] = taken
    votes = np.empty(n_classes, np.int64)
    while True:
        for c in range(n_classes):
            votes[c] = kept[c] + share[c]
        a, b = two_with_most(votes)
        if rule == PLURALITY:
            if a != w:
                return True
        elif a != w and b != w:
            return True
        else:
            c = b if a == w else a
            for_c = against[c] + taken - share[w]
            for_w = n_kept + taken - for_c
            if for_c > for_w or (for_c == for_w and c < w):
                return True
        # the next way to share them out
        at = 0
        while at < n_classes - 1 and share[at] == 0:
            at += 1
        if at == n_classes - 1:
            return False
        moved = share[at] - 1
        share[at] = 0
        share[0] = moved
        share[at + 1] += 1


@compiled
def true_costs(scores, rule, reach, order, sizes, prediction, runner_up, cost):  # type: ignore[no-untyped-def]
    """For every input: the prediction, the runner-up, and the fewest buckets that elect another class.

    reach: the members of each bucket as bits. order, sizes: all sets of buckets as bits, the smallest first.
    """
    n, n_members, n_classes = scores.shape
    first = np.zeros(n_members, np.int64)
    above = np.zeros((n_members, n_classes, n_classes), np.bool_)
    kept, against = np.zeros(n_classes, np.int64), np.zeros(n_classes, np.int64)
    for i in range(n):
        ranking(scores[i], first, above)
        w, s = winner(rule, first, above)
        prediction[i], runner_up[i] = w, s
        cost[i] = NEVER
        for t in range(order.shape[0]):
            members = np.int64(0)
            for b in range(reach.shape[0]):
                if (order[t] >> b) & 1:
                    members |= reach[b]
            kept[:] = 0
            against[:] = 0
            taken = 0
            for j in range(n_members):
                if (members >> j) & 1:
                    taken += 1
                    continue
                kept[first[j]] += 1
                for c in range(n_classes):
                    against[c] += above[j, c, w]
            if rule == MAXIMIN:
                worst = worst_duels(above, ((1 << n_members) - 1) & ~members)
                changed = False
                for c in range(n_classes):
                    lead = worst[c] + taken - worst[w]
                    changed |= c != w and (lead > 0 or (lead == 0 and c < w))
            else:
                changed = another_wins(rule, w, kept, against, n_members - taken, taken)
            if changed:
                cost[i] = sizes[t]
                break


def truth(scores: Any, election: str, spread: list[list[int]] | None) -> tuple[Any, Any, Any]:
    """Predictions, runners-up and true costs of some inputs. Scores must be numbers that float64 holds exactly."""
    exact = np.ascontiguousarray(scores, np.float64)
    n, n_members, _ = exact.shape
    buckets = [[j] for j in range(n_members)] if spread is None else spread
    reach = np.array([sum(1 << int(j) for j in bucket) for bucket in buckets], np.int64)
    sets = np.arange(1 << len(buckets), dtype=np.int64)
    counts = np.array([int(s).bit_count() for s in sets], np.int64)
    order = np.argsort(counts, kind="stable")
    prediction, runner_up, cost = (np.empty(n, np.int64) for _ in range(3))
    with compiling():  # numba compiles here, at the first call
        true_costs(exact, RULES[election], reach, sets[order], counts[order], prediction, runner_up, cost)
    return prediction, runner_up, cost
