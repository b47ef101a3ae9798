"""Compiled certificates of the run-off election with one bucket per member (DPA+ROE).

Notation of the paper: w is the prediction, s the other finalist, N the votes of round 1, M[w, c] the number of members
that rank w above c (`above[c]`), k the number of members. The threats are `eliminated`: two classes beat w in round 1;
and `beaten`: some class c beats every class but w in round 1, and w in round 2.
"""

from typing import Any

import numpy as np

from runoff._kernels.compiling import helper, kernel
from runoff._kernels.counting import count_above, first_choices, gap, ranks_above, top_two
from runoff._kernels.covering import UNREACHABLE


@helper
def finalists(row: Any, votes: Any, above: Any) -> tuple[int, int]:
    """Return the winner and the other finalist (Algorithm 1), and fill `above` for the winner."""
    a, b = top_two(votes)
    count_above(row, a, above)
    lead = 2 * above[b] - row.shape[0] + (b > a)
    if lead > 0:
        return a, b
    count_above(row, b, above)
    return b, a


@helper
def final_gap(above: Any, n_members: int, w: int, c: int) -> int:
    """Return the gap of w over c in round 2, M[w, c] - M[c, w] + [c > w]."""
    lead: int = 2 * above[c] - n_members + (c > w)
    return lead


@kernel
def elimination_cost(g1: int, g2: int) -> int:
    """Return dp[g1, g2] of Lemma 3.6 in closed form: the largest of g1/2, g2/2 and (g1 + g2)/3, each rounded up."""
    g1, g2 = max(0, g1), max(0, g2)
    return max((g1 + 1) // 2, (g2 + 1) // 2, (g1 + g2 + 2) // 3)


@kernel
def disjoint(scores: Any, tight: bool, prediction: Any, runner_up: Any, cost: Any) -> int:
    """Certify with one bucket per member: Theorem 3.4 with Lemmas 3.5 and 3.6, or the exact minimum."""
    n, n_members, n_classes = scores.shape
    first = np.zeros(n_members, np.int32)
    votes = np.zeros(n_classes, np.int32)
    above = np.zeros(n_classes, np.int32)
    voters = np.zeros(n_classes, np.int32)
    for i in range(n):
        row = scores[i]
        if not first_choices(row, first, votes):
            return i
        w, s = finalists(row, votes, above)
        prediction[i], runner_up[i] = w, s
        best = (final_gap(above, n_members, w, s) + 1) // 2
        if n_classes > 2:
            # dp increases with either gap, so the two classes closest to w are the cheapest pair.
            near, next_ = UNREACHABLE, UNREACHABLE
            for c in range(n_classes):
                if c != w:
                    g = gap(votes, w, c)
                    if g < near:
                        near, next_ = g, near
                    elif g < next_:
                        next_ = g
            best = min(best, elimination_cost(near, next_))
        for c in range(n_classes):
            if c == w or c == s:
                continue
            bound = max((gap(votes, s, c) + 1) // 2, (final_gap(above, n_members, w, c) + 1) // 2)
            if bound < best:
                if tight:
                    bound = beaten_cost(row, first, votes, above, w, c, bound, best, voters)
                best = min(best, bound)
        cost[i] = best
    return -1


@helper
def beaten_cost(
    row: Any, first: Any, votes: Any, above: Any, w: int, c: int, start: int, limit: int, voters: Any
) -> int:
    """Return the fewest members that must rank c first and w last for c to win, at most `limit`.

    With X members taken, `pay` = N_u - N_c - X + [u < c] of them must be voters of class u. Members that rank w above c
    also count in round 2, so as many of these as possible are taken. docs/proofs.md proves that this is exact.
    """
    n_members, n_classes = row.shape
    voters[:] = 0  # by class, those that rank w above c
    for j in range(n_members):
        if first[j] != c and ranks_above(row[j], w, c):
            voters[first[j]] += 1
    for size in range(start, limit):
        paid, useful = 0, 0
        for u in range(n_classes):
            if u != c and u != w:
                pay = votes[u] - votes[c] - size + (u < c)
                if pay > 0:
                    paid += pay
                    useful += min(pay, voters[u])
        if paid > size:
            continue
        useful += min(size - paid, above[c] - useful)
        if 2 * useful >= final_gap(above, n_members, w, c):
            return size
    return limit
