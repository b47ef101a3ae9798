"""What each class needs to win, against brute force: radii of targets, and attacks with a target carried out.

The brute force shares no code with the package. For plurality and run-off it shares out the first choices of the taken
members in every way; a taken member that does not vote for the target's opponent in round 2 ranks the target above it.
For maximin every taken member ranks the target first, and the orders of the others are shared out in every way.
tests/test_torture.py compares it with the adversary of tests/reference.py.
"""

from itertools import permutations
from typing import Any

import numpy as np

import runoff
from tests.torture.elections import _spread
from tests.torture.oracle import MAXIMIN, NEVER, PLURALITY, RULES, compiled, compiling, ranking, two_with_most, winner
from tests.torture.pool import share_out
from tests.torture.tally import Tally

MANY = 100_000
BATCH = 100  # elections of one shape and spread
ATTACKS = 4  # replayed for each batch, election and target
MEMBERS = {2: 10, 3: 8, 4: 6, 5: 4}  # at most, by number of classes


@compiled
def elected(rule, votes, kept, orders, share, taken, t):  # type: ignore[no-untyped-def]
    """Whether class t wins when `share[s]` of the taken members have choice s: a class, or for maximin an order."""
    n_classes = votes.shape[0]
    if rule == MAXIMIN:
        worst = np.full(n_classes, 10**6)
        for a in range(n_classes):
            for b in range(n_classes):
                if a != b:
                    wins = kept[a, b]
                    for s in range(share.shape[0]):
                        wins += share[s] * orders[s, a, b]
                    worst[a] = min(worst[a], wins)
        return two_with_most(worst)[0] == t
    total = votes + share
    a, b = two_with_most(total)
    if rule == PLURALITY:
        return a == t
    if t not in (a, b):
        return False
    o = b if a == t else a
    for_t = kept[t, o] + taken - share[o]
    for_o = kept[o, t] + share[o]
    return for_t > for_o or (for_t == for_o and t < o)


@compiled
def costs_to(scores, rule, t, reach, order, sizes, orders, cost):  # type: ignore[no-untyped-def]
    """For every input: the fewest buckets whose members can elect class t, 0 where it wins."""
    n, n_members, n_classes = scores.shape
    first = np.zeros(n_members, np.int64)
    above = np.zeros((n_members, n_classes, n_classes), np.bool_)
    choices = orders.shape[0] if rule == MAXIMIN else n_classes
    for i in range(n):
        ranking(scores[i], first, above)
        cost[i] = NEVER
        if winner(rule, first, above)[0] == t:
            cost[i] = 0
            continue
        for at in range(order.shape[0]):
            members = np.int64(0)
            for b in range(reach.shape[0]):
                if (order[at] >> b) & 1:
                    members |= reach[b]
            votes = np.zeros(n_classes, np.int64)
            kept = np.zeros((n_classes, n_classes), np.int64)
            taken = 0
            for j in range(n_members):
                if (members >> j) & 1:
                    taken += 1
                else:
                    votes[first[j]] += 1
                    kept += above[j]
            share = np.zeros(choices, np.int64)
            share[0] = taken
            while True:
                if elected(rule, votes, kept, orders, share, taken, t):
                    cost[i] = sizes[at]
                    break
                s = 0  # the next way to share them out
                while s < choices - 1 and share[s] == 0:
                    s += 1
                if s == choices - 1:
                    break
                moved = share[s] - 1
                share[s] = 0
                share[0] = moved
                share[s + 1] += 1
            if cost[i] != NEVER:
                break


def truth_to(scores: Any, election: str, spread: list[list[int]] | None, target: int) -> Any:
    """The true costs of electing a target."""
    exact = np.ascontiguousarray(scores, np.float64)
    n, n_members, n_classes = exact.shape
    buckets = [[j] for j in range(n_members)] if spread is None else spread
    reach = np.array([sum(1 << int(j) for j in bucket) for bucket in buckets], np.int64)
    sets = np.arange(1 << len(buckets), dtype=np.int64)
    counts = np.array([int(s).bit_count() for s in sets], np.int64)
    by_size = np.argsort(counts, kind="stable")
    places = [
        [order.index(c) for c in range(n_classes)] for order in permutations(range(n_classes)) if order[0] == target
    ]
    ranked = np.array(places)
    orders = (ranked[:, :, None] < ranked[:, None, :]).astype(np.int64)
    cost = np.empty(n, np.int64)
    with compiling():
        costs_to(exact, RULES[election], target, reach, sets[by_size], counts[by_size], orders, cost)
    return cost


def run(scale: float, seed: int, jobs: int) -> Tally:
    """A third of them for each election."""
    batches = max(2, round(MANY * scale / (len(RULES) * BATCH)))
    return share_out(batch, [(seed, number) for number in range(batches)], jobs)


def batch(seed: int, number: int, size: int = BATCH) -> Tally:
    """One shape and one spread, for all elections and all targets."""
    rng = np.random.default_rng([seed, number, 7])
    n_classes = int(rng.integers(2, 6))
    n_members = int(rng.integers(1, MEMBERS[n_classes] + 1))
    levels = int(rng.choice([2, 3, 10, 100]))
    lift = rng.integers(0, 1 + int(rng.choice([0, 1, levels])), (size, 1, n_classes))
    scores = (rng.integers(0, levels, (size, n_members, n_classes)) + lift).astype(np.float32)
    spread = _spread(rng, n_members)
    tally = Tally()
    for election in RULES:
        certificates = runoff.certify(scores, election=election, spread=spread)
        costs = [truth_to(scores, election, spread, t) for t in range(n_classes)]
        for t, cost in enumerate(costs):
            _check(tally, scores, spread, election, certificates, t, cost, rng)
        if spread is None:
            nearest = np.min([np.where(cost == 0, NEVER, cost) for cost in costs], axis=0)
            most = np.where(nearest == NEVER, n_members, nearest - 1)
            tally.add(f"radii that are the smallest of all targets', {election}", size)
            for i in np.flatnonzero(certificates.radius != most):
                told = f"{scores[i].tolist()}: radius {certificates.radius[i]}, smallest of its targets {most[i]}"
                tally.fail(f"radii that are the smallest of all targets', {election}", told)
    return tally


def _check(
    tally: Tally, scores: Any, spread: Any, election: str, certificates: Any, t: int, cost: Any, rng: Any
) -> None:
    n_buckets = scores.shape[1] if spread is None else len(spread)
    most = np.where(cost == NEVER, n_buckets, cost - 1)  # -1 where it is predicted
    radius = certificates.radius_to(t)

    def count(what: str, bad: Any) -> None:
        tally.add(f"{what}, {election}", len(scores))
        for i in np.flatnonzero(bad):
            told = (
                f"{scores[i].tolist()}, spread {spread}, target {t}: radius {radius[i]}, largest true radius {most[i]}"
            )
            tally.fail(f"{what}, {election}", told)

    count("radii of targets not above the truth", radius > most)
    count("targets that are predicted", (radius == -1) != (cost == 0))
    if spread is None:
        count("exact radii of targets equal to the truth", radius != most)
    for i in rng.choice(len(scores), min(ATTACKS, len(scores)), replace=False):
        if cost[i] == 0:
            continue
        attack = certificates.attack(int(i), to=t)
        what, told = f"attacks on behalf of a target that work, {election}", f"{scores[i].tolist()}, spread {spread}"
        if attack is None or cost[i] == NEVER:
            tally.check(what, (attack is None) == (cost[i] == NEVER), f"{told}, target {t}: attack {attack}")
            continue
        row = scores[i].astype(np.float64)
        row[attack.members] = attack.ballots
        elects = truth_to(row[None], election, [[0]], t)[0] == 0
        good = elects and attack.prediction == t and len(attack) >= cost[i] and (spread or len(attack) == cost[i])
        tally.check(what, bool(good), f"{told}, target {t}: {attack.buckets.tolist()}, true cost {cost[i]}")
