"""Attacks: the smallest takeover found that changes a prediction, and bounds on the cost for a given target."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff._io.text import count
from runoff.ballots import Ballots, points, readable
from runoff.elections.base import Election, Members, Outcome, Story, Threat, smallest
from runoff.scores import checked_scores, in_parts, n_threads
from runoff.spreads import Spread, disjoint


@dataclass(frozen=True, eq=False, repr=False)
class Attack:
    """A takeover of members that changes one prediction.

    `attack.apply(scores[i])` returns the ballots of input i after the attack. `ballots` are points from 0 to
    n_classes - 1, so `row = scores[i].copy(); row[attack.members] = attack.ballots` is equivalent if the type of the
    scores can hold these numbers: booleans cannot, nor int8 with more than 128 classes.
    """

    buckets: NDArray[np.int64]
    members: Members
    ballots: Ballots
    prediction: Any  # the winner after the attack
    story: Story
    classes: NDArray[Any] | None = None  # labels, if `prediction` is a label

    def __repr__(self) -> str:
        reached = f"{count(len(self.buckets), 'bucket')} reaching {count(len(self.members), 'member')}"
        return f"<Attack on {reached}: predicts {self.prediction}, since {self.how}>"

    @property
    def how(self) -> str:
        """A description of the attack."""
        return self.story.describe(self.classes)

    def named(self, classes: NDArray[Any] | None) -> "Attack":
        """Return the same attack with labels instead of class indices."""
        return self if classes is None else replace(self, prediction=classes[self.prediction], classes=classes)

    def apply(self, scores: ArrayLike) -> Ballots:
        """Return the ballots of an input after the attack, from its scores or ballots, (n_members, n_classes)."""
        after: Ballots = points(readable(checked_scores(np.asarray(scores)[None])))[0]
        after[self.members] = self.ballots
        return after

    def __len__(self) -> int:
        """Return the number of buckets taken over."""
        return len(self.buckets)


def costs_to(
    election: Election,
    blocks: Iterator[NDArray[Any]],
    spread: Spread | None,
    target: int,
    budget: int,
) -> NDArray[np.int64]:
    """Return a lower bound on the number of buckets that `target` needs to win, for all inputs.

    `budget` is the number of nodes of search per input for a spread.
    """
    results, done = [], 0
    alone = spread is None or spread.one_to_one is not None
    with ThreadPoolExecutor(n_threads()) as pool:
        for raw in blocks:
            block = readable(raw, done)
            out = np.empty((2, len(block)), np.int64)

            def part(a: int, b: int, block: NDArray[Any] = block, out: NDArray[np.int64] = out) -> int:
                if spread is None or alone:
                    return int(election.target_disjoint(block[a:b], target, out[0, a:b], out[1, a:b]))
                return int(election.target_spread(block[a:b], target, spread.reach, budget, out[0, a:b], out[1, a:b]))

            in_parts(pool, part, block, done)
            results.append(out[1])
            done += len(block)
    return np.concatenate(results)


def find(
    election: Election, ballots: Ballots, spread: Spread | None, cost: int, target: int | None = None
) -> Attack | None:
    """Return the smallest attack found on one input, given that none takes fewer than `cost` buckets, or None.

    With a `target`, which is not the prediction, the attack makes this class win.
    """
    outcome = election.hold(ballots)
    spread = disjoint(len(ballots)) if spread is None else spread
    if target is None and spread.one_to_one is not None:
        takeovers = (election.takeover(ballots, outcome, size) for size in range(cost, len(ballots) + 1))
        threat, members = next(takeover for takeover in takeovers if takeover is not None)
        return _replayed(election, ballots, outcome, threat, members, np.sort(spread.one_to_one[members]))
    if target is None:
        best = smallest(election.threats(ballots, outcome), spread, cost)
    else:
        best = election.smallest_to(ballots, outcome, target, spread, cost)
    if best is None:
        return None
    threat, buckets = best
    return _replayed(election, ballots, outcome, threat, spread.reached(buckets), buckets, target)


def carried_out(election: Election, ballots: Ballots, members: Members, buckets: NDArray[np.int64]) -> Attack:
    """Return the attack on one input by members that are known to meet one of its threats."""
    outcome = election.hold(ballots)
    threat = next(threat for threat in election.threats(ballots, outcome) if threat.met_by(members))
    return _replayed(election, ballots, outcome, threat, members, buckets)


def _replayed(
    election: Election,
    ballots: Ballots,
    outcome: Outcome,
    threat: Threat,
    members: Members,
    buckets: NDArray[np.int64],
    target: int | None = None,
) -> Attack:
    """Return the attack, after verifying it by holding the election again with its ballots."""
    new = threat.new_ballots(ballots, members)
    after = ballots.copy()
    after[members] = new
    winner = election.hold(after).prediction
    if winner == outcome.prediction or target not in (None, winner):
        raise RuntimeError(
            f"the attack '{threat.how.describe()}' does not succeed when carried out: please report this as a bug"
        )
    return Attack(buckets, members, new, winner, threat.how)
