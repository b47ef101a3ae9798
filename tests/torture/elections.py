"""Elections against brute force: no radius above the truth, none below it where it is exact, and every attack works."""

from typing import Any

import numpy as np

import runoff
from tests.torture.oracle import NEVER, RULES, truth
from tests.torture.pool import share_out
from tests.torture.tally import Tally

MANY = 1_000_000
BATCH = 250  # elections of one shape and spread
ATTACKS = 12  # replayed for each batch and election
DTYPES = ("f4", "f8", "f2", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "g", ">f4", ">f8", ">i2", ">u4", "b1", "f4")


def run(scale: float, seed: int, jobs: int) -> Tally:
    """A third of them for each election, certified by both bounds where there are two."""
    batches = max(2, round(MANY * scale / (len(RULES) * BATCH)))
    return share_out(batch, [(seed, number) for number in range(batches)], jobs)


def batch(seed: int, number: int, size: int = BATCH) -> Tally:
    """One shape, one spread, one type, for all elections."""
    rng = np.random.default_rng([seed, number])
    scores, spread = cases(rng, size)
    tally = Tally()
    for election in RULES:
        _check(tally, scores, spread, election, rng)
    return tally


def cases(rng: np.random.Generator, size: int = BATCH) -> tuple[Any, list[list[int]] | None]:
    """Scores with more or less agreement and more or fewer ties, in any type; and any spread."""
    n_classes = int(rng.integers(2, 8))
    n_members = int(rng.integers(1, {2: 14, 3: 13, 4: 12, 5: 11, 6: 10, 7: 9}[n_classes]))
    dtype = np.dtype(str(rng.choice(DTYPES)))
    levels = 2 if dtype.kind == "b" else int(rng.choice([2, 3, 10, 100]))
    noise = rng.integers(0, levels, (size, n_members, n_classes))
    lift = rng.integers(0, 1 + int(rng.choice([0, 1, levels])), (size, 1, n_classes))
    scores = (noise + lift) % 127
    if dtype.kind in "if":
        scores = scores - int(rng.choice([0, 50]))
    scores = (scores > 0).astype(bool) if dtype.kind == "b" else scores.astype(dtype)
    return scores, _spread(rng, n_members)


def _spread(rng: np.random.Generator, n_members: int) -> list[list[int]] | None:
    kind = rng.choice(["none", "none", "one each", "cycle", "random", "ragged"])
    if kind == "none":
        return None
    if kind == "one each":
        return [[int(j)] for j in rng.permutation(n_members)]
    d = int(rng.integers(1, min(4, n_members) + 1))
    if kind == "cycle":
        offsets = rng.permutation(n_members)[:d]
        return [[int((b + o) % n_members) for o in offsets] for b in range(n_members)]
    sizes = np.full(int(rng.integers(1, 11)), d)
    if kind == "ragged":
        sizes = rng.integers(0, d + 1, len(sizes))
    return [rng.choice(n_members, size, replace=False).tolist() for size in sizes]


def _check(tally: Tally, scores: Any, spread: Any, election: str, rng: np.random.Generator) -> None:
    prediction, runner_up, cost = truth(scores, election, spread)
    n_buckets = scores.shape[1] if spread is None else len(spread)
    most = np.where(cost == NEVER, n_buckets, cost - 1)  # the largest radius that is true
    exact = spread is None or sorted(map(tuple, spread)) == [(j,) for j in range(scores.shape[1])]
    bounds = ("tight", "paper" if election in ("plurality", "runoff") else "tight")
    tight, paper = (runoff.certify(scores, election=election, spread=spread, bound=bound) for bound in bounds)

    def count(what: str, bad: Any) -> None:
        tally.add(f"{what}, {election}", len(scores))
        for i in np.flatnonzero(bad):
            told = f"{scores[i].tolist()} as {scores.dtype}, spread {spread}: radius {tight.radius[i]} (tight), "
            told += f"{paper.radius[i]} (paper), largest true radius {most[i]}, prediction {tight.prediction[i]}"
            tally.fail(f"{what}, {election}", told)

    wrong = (tight.prediction != prediction) | (tight.runner_up != runner_up)
    count("elections won by the right class", wrong | (paper.prediction != prediction) | (paper.runner_up != runner_up))
    count("radii not above the truth", (tight.radius > most) | (paper.radius > most))
    count("tight radii not below the paper's", tight.radius < paper.radius)
    if exact:
        count("exact radii equal to the truth", tight.radius != most)
    _replay(tally, scores, spread, election, tight, prediction, cost, exact, rng)


def _replay(
    tally: Tally, scores: Any, spread: Any, election: str, tight: Any, prediction: Any, cost: Any, exact: bool, rng: Any
) -> None:
    """Attacks from the certificates, carried out on the scores: another class must win."""
    for i in rng.choice(len(scores), min(ATTACKS, len(scores)), replace=False):
        attack = tight.attack(int(i))
        what = f"attacks that work, {election}"
        told = f"{scores[i].tolist()} as {scores.dtype}, spread {spread}"
        if attack is None or cost[i] == NEVER:
            tally.check(what, (attack is None) == (cost[i] == NEVER), f"{told}: attack {attack}, true cost {cost[i]}")
            continue
        row = scores[i].astype(np.float64)
        row[attack.members] = attack.ballots
        after = truth(row[None], election, [[0]])[0][0]
        buckets = [[j] for j in range(scores.shape[1])] if spread is None else spread
        reached = sorted({j for b in attack.buckets for j in buckets[b]})
        good = after == attack.prediction != prediction[i] and reached == sorted(attack.members.tolist())
        good = good and len(attack) >= cost[i] and (not exact or len(attack) == cost[i])
        tally.check(what, good, f"{told}: {attack.buckets.tolist()} elects {after}, true cost {cost[i]}")
