"""Compiled certificates of the plurality election (DPA, FA)."""

from typing import Any

import numpy as np

from runoff._kernels.compiling import helper, kernel
from runoff._kernels.counting import first_choices, gap, top_two
from runoff._kernels.covering import IMPOSSIBLE, PROVEN, UNREACHABLE, needed, search


@kernel
def disjoint(scores: Any, tight: bool, prediction: Any, runner_up: Any, cost: Any) -> int:
    """Certify with one bucket per member: half the gap to the runner-up, rounded up, which is exact for any `tight`."""
    n, n_members, n_classes = scores.shape
    first = np.zeros(n_members, np.int32)
    votes = np.zeros(n_classes, np.int32)
    for i in range(n):
        if not first_choices(scores[i], first, votes):
            return i
        w, s = top_two(votes)
        prediction[i], runner_up[i] = w, s
        cost[i] = (gap(votes, w, s) + 1) // 2
    return -1


@kernel
def spread(scores: Any, tight: bool, reach: Any, budget: int, prediction: Any, runner_up: Any, cost: Any) -> int:
    """Certify any spread: the cheapest rival by Lemma 3.7; `tight` then counts each member once, by search."""
    n, n_members, n_classes = scores.shape
    n_buckets = reach.members_at.shape[0] - 1
    first = np.zeros(n_members, np.int32)
    votes = np.zeros(n_classes, np.int32)
    power = np.zeros(n_members, np.int32)
    bound = np.zeros(n_classes, np.int32)
    sums = np.zeros(n_buckets, np.int32)
    tally = np.zeros(2 * reach.largest + 1, np.int32)
    for i in range(n):
        if not first_choices(scores[i], first, votes):
            return i
        w, s = top_two(votes)
        prediction[i], runner_up[i] = w, s
        pass_power(first, w, s, power)
        best = needed(power, gap(votes, w, s), UNREACHABLE, reach, sums, tally)
        bound[:] = 0
        bound[s] = best
        no_votes = votes[s] == 0  # of the classes without votes, only the first can be the cheapest
        for c in range(n_classes):
            if c == w or c == s:
                continue
            if votes[c] == 0:
                if no_votes:
                    bound[c] = UNREACHABLE
                    continue
                no_votes = True
            if gap(votes, w, c) > 2 * reach.largest * (best - 1):
                continue
            pass_power(first, w, c, power)
            bound[c] = needed(power, gap(votes, w, c), best, reach, sums, tally)
            best = min(best, bound[c])
        if tight and best < UNREACHABLE:
            best = _raise(first, votes, w, best, bound, reach, budget)
        cost[i] = best
    return -1


@helper
def pass_power(first: Any, a: int, b: int, out: Any) -> None:
    """Fill `out` with the amount by which each member can lower gap(a, b): 2 for votes for a, 0 for b, else 1."""
    for j in range(first.shape[0]):
        out[j] = 1 + (first[j] == a) - (first[j] == b)


@helper
def _raise(first: Any, votes: Any, w: int, best: int, bound: Any, reach: Any, budget: int) -> int:
    """Return an improved cost, raising `best` while search proves that no rival wins with `best` buckets."""
    n_buckets = reach.members_at.shape[0] - 1
    chosen = np.zeros(n_buckets + 1, np.int32)
    powers = np.zeros((1, first.shape[0]), np.int32)
    gaps = np.zeros(1, np.int32)
    while best <= n_buckets:
        for c in range(votes.shape[0]):
            gaps[0] = gap(votes, w, c)
            if c == w or bound[c] > best or gaps[0] > 2 * reach.largest * best:
                continue
            pass_power(first, w, c, powers[0])
            verdict, nodes = search(gaps, powers, best, reach, budget, chosen)
            budget -= nodes
            if verdict == PROVEN:
                bound[c] = best + 1
            elif verdict == IMPOSSIBLE:
                bound[c] = UNREACHABLE
            else:
                return best
        best += 1
    return UNREACHABLE
