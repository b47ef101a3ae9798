"""What an election is: who wins, and what it takes to change that."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runoff._kernels.covering import FOUND, IMPOSSIBLE, PROVEN, UNREACHABLE, needed, search, taken
from runoff.ballots import Ballots, points, prefer
from runoff.spreads import Reach, disjoint

Members = NDArray[np.int64]


class Story(NamedTuple):
    """A sentence about classes, which go by their names where they have some: `text` has a {} for each."""

    text: str
    classes: tuple[int, ...]

    def told(self, names: NDArray[Any] | None = None) -> str:
        """The sentence, with indices where there are no names."""
        return self.text.format(*(c if names is None else names[c] for c in self.classes))


@dataclass(frozen=True)
class Outcome:
    """The result of an election for one input, with the votes in words."""

    prediction: int
    runner_up: int
    story: Story


@dataclass(frozen=True)
class Threat:
    """One way to change a prediction.

    An attack that takes over a set of members succeeds this way exactly when every row is met: the powers of the
    taken members sum to at least the gap. Some threat must succeed for the prediction to change.
    """

    how: Story
    gaps: NDArray[np.int32]  # (rows,)
    powers: NDArray[np.int32]  # (rows, n_members), none negative
    last: int  # the class that taken members rank last
    firsts: Callable[[Members], Members] = field(repr=False)  # the first choice of each taken member

    def new_ballots(self, ballots: Ballots, members: Members) -> Ballots:
        """The ballots that the taken members hand in."""
        return prefer(ballots[members], self.firsts(members), self.last)

    def met_by(self, members: Members) -> bool:
        """Whether taking over these members succeeds this way."""
        return bool((self.powers[:, members].sum(axis=1) >= self.gaps).all())


class Election(ABC):
    """A rule from ballots to a winner, with all that certificates need to know of it.

    A new election is one subclass: `hold` and `threats` are enough for exact attacks and sound radii. `disjoint` and
    `spread` may be replaced by compiled versions of the same.
    """

    name: ClassVar[str]
    in_paper: ClassVar[bool] = False

    def __repr__(self) -> str:
        return f"<{self.name} election>"

    @abstractmethod
    def hold(self, ballots: Ballots) -> Outcome:
        """Who wins, given one input's ballots (n_members, n_classes)."""

    @abstractmethod
    def threats(self, ballots: Ballots, outcome: Outcome) -> Iterator[Threat]:
        """Every way in which the prediction can change."""

    def takeover(self, ballots: Ballots, outcome: Outcome, size: int) -> tuple[Threat, Members] | None:
        """A threat and `size` members that meet it, where each member is its own bucket; None if not found."""
        own = disjoint(len(ballots)).reach
        chosen = np.empty(len(ballots) + 1, np.int32)
        for threat in self.threats(ballots, outcome):
            if search(threat.gaps, threat.powers, size, own, SEARCH_NODES, chosen)[0] == FOUND:
                return threat, taken(chosen)
        return None

    def disjoint(self, scores: NDArray[Any], tight: bool, prediction: Any, runner_up: Any, cost: Any) -> int:
        """Certify a block where each member is its own bucket; the first input with a score that is not finite, or -1.

        `cost` receives the proven number of buckets that any change of the prediction needs (radius + 1).
        """
        own = disjoint(scores.shape[1]).reach
        return self.spread(scores, tight, own, SEARCH_NODES, prediction, runner_up, cost)

    def spread(
        self, scores: NDArray[Any], tight: bool, reach: Reach, budget: int, prediction: Any, runner_up: Any, cost: Any
    ) -> int:
        """Certify a block for any spread, with at most `budget` nodes of search for an input."""
        for i, row in enumerate(scores):
            if row.dtype.kind == "f" and not np.isfinite(row).all():
                return i
            ballots = points(row)
            outcome = self.hold(ballots)
            prediction[i], runner_up[i] = outcome.prediction, outcome.runner_up
            cost[i] = min(
                (threat_cost(threat, reach, budget) for threat in self.threats(ballots, outcome)), default=UNREACHABLE
            )
        return -1


SEARCH_NODES = 20_000  # when one input is looked at closely


def separate_bound(threat: Threat, reach: Reach) -> int:
    """The largest of the rows' own costs (Lemma 3.7 for each): sound, and cheap."""
    sums = np.empty(len(reach.members_at) - 1, np.int32)
    tally = np.empty(int(threat.powers.max(initial=0)) * reach.largest + 1, np.int32)
    return max(
        int(needed(power, int(gap), UNREACHABLE, reach, sums, tally))
        for gap, power in zip(threat.gaps, threat.powers, strict=True)
    )


def threat_cost(threat: Threat, reach: Reach, budget: int) -> int:
    """A lower bound on the buckets that a threat needs; the cost itself where `budget` nodes decide it."""
    cost = separate_bound(threat, reach)
    chosen = np.empty(len(reach.members_at), np.int32)
    while cost < len(reach.members_at):
        verdict, nodes = search(threat.gaps, threat.powers, cost, reach, budget, chosen)
        budget -= nodes
        if verdict == IMPOSSIBLE:
            return UNREACHABLE
        if verdict != PROVEN:
            return cost
        cost += 1
    return UNREACHABLE
