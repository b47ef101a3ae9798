"""Cost for a given class t to win a maximin election, by a search over threats that are too many to list.

Class t wins if every other class u has some duel, against a class b(u), whose result is no better than all duels of t.
A threat is a choice of b for every u. Taken members rank t first and, as far as possible, b(u) above u. Not all of them
can do so for every u if b has a cycle, but each of them has to omit only one class per cycle. docs/proofs.md proves
that the rows of the threats determine exactly which takeovers succeed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff._kernels.covering import FOUND, IMPOSSIBLE, PROVEN, UNDECIDED, UNREACHABLE, needed, search, taken
from runoff.ballots import Ballots, points
from runoff.elections.base import Members, Story, Threat, open_rows, voting_for
from runoff.spreads import Reach

Choice = dict[int, int]  # b(u) for some classes u
Found = tuple[Threat, NDArray[np.int64]]  # a threat, and buckets that meet it


@dataclass(frozen=True)
class _Overtaking(Threat):
    """A threat that depends on the order of all classes on the new ballots."""

    overtaking: "Overtaking" = field(kw_only=True, repr=False)
    choice: Choice = field(kw_only=True, repr=False)

    def new_ballots(self, ballots: Ballots, members: Members) -> Ballots:
        return self.overtaking.ballots_for(self.choice, members)


class Overtaking:
    """All threats by which class t can win the election of one input."""

    def __init__(self, ballots: Ballots, t: int) -> None:
        self.ballots, self.t = ballots, t
        self.n_members, self.n_classes = ballots.shape
        self.others = [u for u in range(self.n_classes) if u != t]
        self.above = (ballots[:, :, None] > ballots[:, None, :]).astype(np.int32)
        self.duels = self.above.sum(axis=0)

    @cached_property
    def for_t(self) -> list[tuple[int, NDArray[np.int32]]]:
        """Pairs for each duel of t, the worst first: the number of members that prefer t, and a mask of the others."""
        rows = [(int(self.duels[self.t, a]), self.above[:, a, self.t]) for a in self.others]
        return sorted(rows, key=lambda row: row[0])

    def threats(self) -> Iterator[Threat]:
        """Yield all (n_classes - 1) ** (n_classes - 1) threats, which is possible for few classes only."""
        choices = [[b for b in range(self.n_classes) if b != u] for u in self.others]
        for chosen in product(*choices):
            yield self.threat(dict(zip(self.others, chosen, strict=True)))

    def threat(self, choice: Choice) -> Threat:
        """Return the threat of a choice, with only some of its rows if the choice is incomplete."""
        rows = [row for u, b in choice.items() for row in self._pass_rows(u, b)]
        for cycle in _cycles(choice):
            # Each taken member omits one class of the cycle, and serves the others.
            power = np.sum([self.above[:, u, choice[u]] for u in cycle], axis=0, dtype=np.int32) - 1
            gap = sum(int(self.duels[u, choice[u]]) + (self.t > u) for u in cycle)
            rows += [(gap - len(cycle) * wins, power + len(cycle) * joins) for wins, joins in self.for_t]
        how = Story("class {} gets the best worst duel", (self.t,))
        gaps, powers = open_rows(rows)
        return _Overtaking(how, gaps, powers, None, voting_for(self.t), overtaking=self, choice=choice)

    def _pass_rows(self, u: int, b: int) -> Iterator[tuple[int, NDArray[np.int32]]]:
        for wins, joins in self.for_t:
            gap = int(self.duels[u, b]) + (self.t > u) - wins
            if gap > 0:
                yield gap, self.above[:, u, b] + joins

    def bounds(self, reach: Reach) -> NDArray[np.int64]:
        """Return a lower bound on the buckets for each duel of u against b, from the row of the worst duel of t."""
        sums = np.empty(len(reach.members_at) - 1, np.int32)
        tally = np.empty(2 * max(1, reach.largest) + 1, np.int32)
        bound = np.full((self.n_classes, self.n_classes), UNREACHABLE, np.int64)
        for u in self.others:
            for b in range(self.n_classes):
                if b != u:
                    gap, power = next(self._pass_rows(u, b), (0, self.above[:, u, b]))
                    bound[u, b] = needed(power, gap, UNREACHABLE, reach, sums, tally)
        return bound

    def cost(self, reach: Reach, budget: int) -> int:
        """Return the number of buckets that t needs to win, exact if `budget` nodes suffice, else a lower bound."""
        bound = self.bounds(reach)
        cost = int(bound[self.others].min(axis=1).max())
        while cost < len(reach.members_at):
            verdict, budget, _ = self.search(cost, bound, reach, budget)
            if verdict != PROVEN:
                return cost
            cost += 1
        return UNREACHABLE

    def search(self, size: int, bound: Any, reach: Reach, budget: int) -> tuple[int, int, Found | None]:
        """Search for `size` buckets with which t wins; return the verdict, the remaining nodes, and any result.

        Choices grow one class at a time. If `size` buckets meet the rows of a choice but do not suffice for all
        classes, the choice is extended by a class for which they do not suffice.
        """
        return self._extend({}, size, bound, reach, budget)

    def _extend(
        self, choice: Choice, size: int, bound: Any, reach: Reach, budget: int
    ) -> tuple[int, int, Found | None]:
        buckets = np.empty(0, np.int64)
        if choice:
            threat = self.threat(choice)
            if len(threat.gaps):
                chosen = np.empty(len(reach.members_at), np.int32)
                verdict, nodes = search(threat.gaps, threat.powers, size, reach, budget, chosen)
                budget -= nodes
                if verdict in (PROVEN, IMPOSSIBLE):
                    return PROVEN, budget, None
                if verdict == UNDECIDED:
                    return UNDECIDED, budget, None
                buckets = taken(chosen)
        reached = [reach.members[reach.members_at[b] : reach.members_at[b + 1]] for b in buckets]
        complete, missing = self._complete(choice, np.unique(np.concatenate([*reached, np.empty(0, np.int64)])))
        if not missing:
            return FOUND, budget, (self.threat(complete), buckets)
        u = max(missing, key=lambda u: bound[u].min())
        for b in np.argsort(bound[u], kind="stable"):
            if bound[u, b] > size:
                break
            verdict, budget, takeover = self._extend({**choice, u: int(b)}, size, bound, reach, budget)
            if verdict != PROVEN:
                return verdict, budget, takeover
        return PROVEN, budget, None

    def _spare(self, members: Members) -> NDArray[np.int64]:
        """Return the number of taken members that may rank u above b, for all u and b; below 0 if it is impossible."""
        left = self.duels - self.above[members].sum(axis=0)
        best = min(int(left[self.t, a]) for a in self.others) + len(members)
        spare: NDArray[np.int64] = best - (self.t > np.arange(self.n_classes))[:, None] - left
        np.fill_diagonal(spare, -1)
        return spare

    def _complete(self, choice: Choice, members: Members) -> tuple[Choice, list[int]]:
        """Extend a choice whose rows `members` meet to further classes; return it and the remaining classes.

        A class is added if it has a duel that is met with any ballots, or a duel against a class added before.
        """
        spare = self._spare(members)
        complete, done = dict(choice), {self.t}
        for cycle in _cycles(choice):
            done |= set(cycle)
        for u in self.others:
            b = choice.get(u, int(spare[u].argmax()))
            if spare[u, b] >= len(members):
                complete[u] = b
                done.add(u)
        grown = True
        while grown:
            grown = False
            for u in self.others:
                if u in done:
                    continue
                near = [choice[u]] if u in choice else [b for b in done if spare[u, b] >= 0]
                if near and near[0] in done:
                    complete[u] = near[0]
                    done.add(u)
                    grown = True
        return complete, [u for u in self.others if u not in done and u not in choice]

    def ballots_for(self, choice: Choice, members: Members) -> Ballots:
        """Return ballots of taken members that meet the rows of a choice, with t first and b(u) above u if possible."""
        spare, n = self._spare(members), len(members)
        left_out = [[u for u, b in choice.items() if spare[u, b] >= n] for _ in range(n)]
        kept = {u: b for u, b in choice.items() if spare[u, b] < n}
        for cycle in _cycles(kept):
            turns = [u for u in cycle for _ in range(int(spare[u, kept[u]]))]
            for j in range(n):
                left_out[j].append(turns[j])
        scores = np.zeros((n, self.n_classes))
        for j in range(n):
            for u in range(self.n_classes):
                depth, at = 0, u
                while at in choice and at not in left_out[j]:
                    depth, at = depth + 1, choice[at]
                scores[j, u] = -depth
            scores[j, self.t] = 1
        return points(scores)


def _cycles(choice: Choice) -> list[list[int]]:
    """Return the cycles of u -> choice[u]."""
    seen: set[int] = set()
    cycles = []
    for start in choice:
        path: list[int] = []
        u = start
        while u in choice and u not in seen:
            seen.add(u)
            path.append(u)
            u = choice[u]
        if u in path:
            cycles.append(path[path.index(u) :])
    return cycles
