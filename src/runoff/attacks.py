"""Attacks: the smallest takeover found that changes a prediction, to compare with the proven radius."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff._kernels.covering import FOUND, UNREACHABLE, search, taken
from runoff.ballots import Ballots, points, readable
from runoff.elections.base import SEARCH_NODES, Election, Members, Outcome, Story, Threat, separate_bound
from runoff.scores import checked_scores
from runoff.spreads import Spread, disjoint

MOST_THREATS = 64  # searched for an attack, the most promising first


@dataclass(frozen=True, eq=False)
class Attack:
    """A takeover that changes one prediction.

    `attack.apply(scores[i])` returns the ballots of input i after the attack. `ballots` are points, hence scores, so
    for scores of any type but booleans `row = scores[i].copy(); row[attack.members] = attack.ballots` is equivalent.
    """

    buckets: NDArray[np.int64]
    members: Members
    ballots: Ballots
    prediction: Any  # the winner after the attack
    story: Story = field(repr=False)
    classes: NDArray[Any] | None = field(default=None, repr=False)  # labels, if `prediction` is a label

    @property
    def how(self) -> str:
        """The attack in words."""
        return self.story.describe(self.classes)

    def named(self, classes: NDArray[Any] | None) -> "Attack":
        """Return the same attack with labels in place of class indices."""
        return self if classes is None else replace(self, prediction=classes[self.prediction], classes=classes)

    def apply(self, scores: ArrayLike) -> Ballots:
        """Return an input's ballots after the attack, from its scores or ballots, (n_members, n_classes)."""
        after: Ballots = points(readable(checked_scores(np.asarray(scores)[None])))[0]
        after[self.members] = self.ballots
        return after

    def __len__(self) -> int:
        """Return the number of buckets taken over."""
        return len(self.buckets)


def find(election: Election, ballots: Ballots, spread: Spread | None, cost: int) -> Attack | None:
    """Return the smallest attack found on one input, where none takes fewer than `cost` buckets; None if none can."""
    outcome = election.hold(ballots)
    spread = disjoint(len(ballots)) if spread is None else spread
    if spread.one_to_one is not None:
        takeovers = (election.takeover(ballots, outcome, size) for size in range(cost, len(ballots) + 1))
        threat, members = next(takeover for takeover in takeovers if takeover is not None)
        return _replayed(election, ballots, outcome, threat, members, np.sort(spread.one_to_one[members]))
    best = _smallest(election, ballots, outcome, spread, cost)
    if best is None:
        return None
    threat, buckets = best
    return _replayed(election, ballots, outcome, threat, spread.reached(buckets), buckets)


def _smallest(
    election: Election, ballots: Ballots, outcome: Outcome, spread: Spread, cost: int
) -> tuple[Threat, NDArray[np.int64]] | None:
    """Search the most promising threats for an attack, each time with one bucket less than the best one so far."""
    reach = spread.reach
    bounded = [(separate_bound(threat, reach), threat) for threat in election.threats(ballots, outcome)]
    bounded.sort(key=lambda pair: pair[0])
    best: tuple[Threat, NDArray[np.int64]] | None = None
    size = spread.n_buckets
    chosen = np.empty(spread.n_buckets + 1, np.int32)
    for tried, (bound, threat) in enumerate(bounded):
        if bound >= UNREACHABLE or max(bound, cost) > size or (best is not None and tried >= MOST_THREATS):
            break
        while size >= max(bound, cost):
            # Enough nodes for one dive to the bottom, which finds an attack if all buckets together are one.
            verdict, _ = search(threat.gaps, threat.powers, size, reach, SEARCH_NODES + spread.n_buckets, chosen)
            if verdict == FOUND:
                best = threat, taken(chosen)
                size = len(best[1]) - 1
            else:
                break
    return best


def _replayed(
    election: Election, ballots: Ballots, outcome: Outcome, threat: Threat, members: Members, buckets: NDArray[np.int64]
) -> Attack:
    """Return the attack, after holding the election again with its ballots."""
    new = threat.new_ballots(ballots, members)
    after = ballots.copy()
    after[members] = new
    winner = election.hold(after).prediction
    if winner == outcome.prediction:
        raise RuntimeError(
            f"the attack '{threat.how.describe()}' does not change the prediction: please report this as a bug"
        )
    return Attack(buckets, members, new, winner, threat.how)
