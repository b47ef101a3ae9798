"""Interface of elections: the winner, the threats to it, and its display in reports."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runoff._kernels.covering import FOUND, IMPOSSIBLE, PROVEN, UNREACHABLE, needed, search, taken
from runoff.ballots import Ballots, points, prefer
from runoff.elections.votes import count_votes, vote_bars
from runoff.errors import InputError
from runoff.spreads import Reach, Spread, disjoint

Members = NDArray[np.int64]


class Story(NamedTuple):
    """A sentence about classes: `text` has a {} for each of `classes`."""

    text: str
    classes: tuple[int, ...]

    def describe(self, names: NDArray[Any] | None = None) -> str:
        """Return the sentence with the names of the classes, or their indices without `names`."""
        return self.text.format(*(c if names is None else names[c] for c in self.classes))


@dataclass(frozen=True)
class Outcome:
    """The result of an election for one input, with the votes in words."""

    prediction: int
    runner_up: int
    story: Story


class Round(NamedTuple):
    """One round of an election, as a report displays it: a bar for each class in the round."""

    title: str
    caption: str  # the meaning of the counts
    bars: dict[int, int]  # class: count
    half: bool = False  # whether half of the members decide the round, which the chart marks


@dataclass(frozen=True)
class Threat:
    """One way to change a prediction, or to make a given class win.

    An attack that takes over a set of members succeeds in this way if and only if it meets every row: the powers of the
    taken members sum to at least the gap. The prediction changes only if some threat succeeds.
    """

    how: Story
    gaps: NDArray[np.int32]  # (rows,)
    powers: NDArray[np.int32]  # (rows, n_members), none negative
    last: int | None  # the class that taken members rank last; None if it does not matter
    firsts: Callable[[Members], Members] = field(repr=False)  # the first choice of each taken member

    def new_ballots(self, ballots: Ballots, members: Members) -> Ballots:
        """Return the ballots of the taken members after the attack."""
        return prefer(ballots[members], self.firsts(members), self.last)

    def met_by(self, members: Members) -> bool:
        """Return whether taking over these members succeeds in this way."""
        return bool((self.powers[:, members].sum(axis=1) >= self.gaps).all())


class Election(ABC):
    """A rule that determines a winner from ballots, with the methods that certificates and reports use.

    A new election is one subclass in a new module: `hold` and `threats` suffice for exact attacks and sound radii, and
    `rounds` for the report. `threats_to` adds `radius_to` and attacks with a target. `certify_disjoint`,
    `certify_spread`, `target_disjoint` and `target_spread` may be replaced by compiled versions.

    Attributes
    ----------
    name : the name of the module, which is the value of `election=`
    label : the name in sentences
    suffix : the end of the name of a method, as in DPA+ROE
    dashes : lengths of dash and space in points for its curves; empty for a solid line
    in_paper : whether `bound="paper"` is defined for it
    reads_rankings : whether it uses more than first choices

    """

    name: ClassVar[str]
    label: ClassVar[str]
    suffix: ClassVar[str]
    dashes: ClassVar[tuple[int, ...]] = (2, 3)
    in_paper: ClassVar[bool] = False
    reads_rankings: ClassVar[bool] = True

    def __repr__(self) -> str:
        return f"<{self.name} election>"

    @abstractmethod
    def hold(self, ballots: Ballots) -> Outcome:
        """Return the winner for the ballots of one input, (n_members, n_classes)."""

    @abstractmethod
    def threats(self, ballots: Ballots, outcome: Outcome) -> Iterator[Threat]:
        """Yield every way in which the prediction can change."""

    def threats_to(self, ballots: Ballots, outcome: Outcome, target: int) -> Iterator[Threat]:
        """Yield every way in which class `target`, which is not the prediction, can win."""
        raise InputError(
            f"a target needs an election that defines threats_to, got {self.name!r}: use another election, or define it"
        )

    @property
    def has_targets(self) -> bool:
        """Whether `radius_to` and attacks with a target are defined."""
        return type(self).threats_to is not Election.threats_to

    def rounds(self, ballots: Ballots, outcome: Outcome) -> tuple[Round, ...]:
        """Return the rounds of the election in order; the last one decides between prediction and runner-up."""
        return (Round("The vote", "first choices", vote_bars(count_votes(ballots))),)

    def takeover(self, ballots: Ballots, outcome: Outcome, size: int) -> tuple[Threat, Members] | None:
        """Return a threat and `size` members that meet it, with one bucket per member, or None if none is found."""
        return _takeover(self.threats(ballots, outcome), size, len(ballots))

    def takeover_to(self, ballots: Ballots, outcome: Outcome, target: int, size: int) -> tuple[Threat, Members] | None:
        """Return a threat to elect `target` and at most `size` members that meet it, as `takeover` does."""
        return _takeover(self.threats_to(ballots, outcome, target), size, len(ballots))

    def smallest_to(
        self, ballots: Ballots, outcome: Outcome, target: int, spread: Spread, cost: int
    ) -> tuple[Threat, NDArray[np.int64]] | None:
        """Return a threat to elect `target` and the fewest buckets found that meet it, not below `cost`, or None."""
        if spread.one_to_one is None:
            return smallest(self.threats_to(ballots, outcome, target), spread, cost)
        for size in range(cost, len(ballots) + 1):
            takeover = self.takeover_to(ballots, outcome, target, size)
            if takeover is not None:
                return takeover[0], np.sort(spread.one_to_one[takeover[1]])
        return None

    def certify_disjoint(self, scores: NDArray[Any], tight: bool, prediction: Any, runner_up: Any, cost: Any) -> int:
        """Certify a block with one bucket per member; return the first input with a non-finite score, or -1.

        `cost` receives the proven number of buckets that any change of the prediction needs (radius + 1).
        """
        reach = disjoint(scores.shape[1]).reach
        return self.certify_spread(scores, tight, reach, SEARCH_NODES, prediction, runner_up, cost)

    def certify_spread(
        self, scores: NDArray[Any], tight: bool, reach: Reach, budget: int, prediction: Any, runner_up: Any, cost: Any
    ) -> int:
        """Certify a block for any spread, with at most `budget` nodes of search per input."""
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

    def target_disjoint(self, scores: NDArray[Any], target: int, prediction: Any, cost: Any) -> int:
        """Bound the cost for class `target` to win, with one bucket per member; return the same as `certify_disjoint`.

        `cost` receives the proven number of buckets that any attack with this target needs, 0 if it is the prediction.
        """
        return self.target_spread(scores, target, disjoint(scores.shape[1]).reach, SEARCH_NODES, prediction, cost)

    def target_spread(
        self, scores: NDArray[Any], target: int, reach: Reach, budget: int, prediction: Any, cost: Any
    ) -> int:
        """Bound the cost for class `target` to win, for any spread, with at most `budget` nodes of search per input."""
        for i, row in enumerate(scores):
            if row.dtype.kind == "f" and not np.isfinite(row).all():
                return i
            ballots = points(row)
            outcome = self.hold(ballots)
            prediction[i] = outcome.prediction
            cost[i] = 0 if outcome.prediction == target else self.target_cost(ballots, outcome, target, reach, budget)
        return -1

    def target_cost(self, ballots: Ballots, outcome: Outcome, target: int, reach: Reach, budget: int) -> int:
        """Return a lower bound on the buckets that `target`, which is not the prediction, needs to win."""
        threats = self.threats_to(ballots, outcome, target)
        return min((threat_cost(threat, reach, budget) for threat in threats), default=UNREACHABLE)


SEARCH_NODES = 20_000  # per input; `certify` uses fewer
MOST_THREATS = 64  # threats searched for an attack, the most promising first


def open_rows(rows: list[tuple[int, NDArray[np.int32]]]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return gaps and powers of the rows that are not met yet, and of their sum.

    The sum must also be met, and accounts for rows that compete for members.
    """
    unmet = [(gap, power) for gap, power in rows if gap > 0]
    if len(unmet) > 1:
        unmet.append((sum(gap for gap, _ in unmet), np.sum([power for _, power in unmet], axis=0, dtype=np.int32)))
    return np.array([gap for gap, _ in unmet], np.int32), np.array([power for _, power in unmet], np.int32)


def voting_for(c: int) -> Callable[[Members], Members]:
    """Return a rule by which all taken members vote for class c."""
    return lambda members: np.full(len(members), c)


def _takeover(threats: Iterator[Threat], size: int, n_members: int) -> tuple[Threat, Members] | None:
    reach = disjoint(n_members).reach
    chosen = np.empty(n_members + 1, np.int32)
    for threat in threats:
        if search(threat.gaps, threat.powers, size, reach, SEARCH_NODES, chosen)[0] == FOUND:
            return threat, taken(chosen)
    return None


def separate_bound(threat: Threat, reach: Reach) -> int:
    """Return the largest cost of a single row (Lemma 3.7), which is a sound and cheap bound."""
    sums = np.empty(len(reach.members_at) - 1, np.int32)
    tally = np.empty(int(threat.powers.max(initial=0)) * reach.largest + 1, np.int32)
    costs = (
        int(needed(power, int(gap), UNREACHABLE, reach, sums, tally))
        for gap, power in zip(threat.gaps, threat.powers, strict=True)
    )
    return max(costs, default=0)


def threat_cost(threat: Threat, reach: Reach, budget: int) -> int:
    """Return a lower bound on the buckets that a threat needs, exact if `budget` nodes suffice."""
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


def smallest(threats: Iterator[Threat], spread: Spread, cost: int) -> tuple[Threat, NDArray[np.int64]] | None:
    """Return the attack with the fewest buckets found, by searching the most promising threats with ever fewer."""
    reach = spread.reach
    bounded = [(separate_bound(threat, reach), threat) for threat in threats]
    bounded.sort(key=lambda pair: pair[0])
    best: tuple[Threat, NDArray[np.int64]] | None = None
    size = spread.n_buckets
    chosen = np.empty(spread.n_buckets + 1, np.int32)
    for tried, (bound, threat) in enumerate(bounded):
        if bound >= UNREACHABLE or max(bound, cost) > size or (best is not None and tried >= MOST_THREATS):
            break
        while size >= max(bound, cost):
            # Enough nodes to reach the bottom once, which finds an attack if taking all buckets is one.
            verdict, _ = search(threat.gaps, threat.powers, size, reach, SEARCH_NODES + spread.n_buckets, chosen)
            if verdict == FOUND:
                best = threat, taken(chosen)
                size = len(best[1]) - 1
            else:
                break
    return best
