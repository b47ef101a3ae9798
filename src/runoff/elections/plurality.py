"""Plurality: the class with the most first choices wins (DPA with one bucket per member, FA with a spread)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff._kernels import plurality as kernels
from runoff.ballots import Ballots
from runoff.elections.base import Election, Members, Outcome, Story, Threat, open_rows, voting_for
from runoff.elections.votes import count_votes, describe_votes, first_choices, gap, pass_power, top_two
from runoff.spreads import Reach


class Plurality(Election):
    """The plurality election; the runner-up has the second most first choices."""

    name = "plurality"
    label = "plurality"
    suffix = ""
    dashes = (4, 2)
    in_paper = True
    reads_rankings = False
    certify_disjoint = staticmethod(kernels.disjoint)
    certify_spread = staticmethod(kernels.spread)

    def target_disjoint(self, scores: NDArray[Any], target: int, prediction: Any, cost: Any) -> int:
        from runoff._kernels import targets

        return int(targets.plurality(scores, target, prediction, cost))

    def hold(self, ballots: Ballots) -> Outcome:
        votes = count_votes(ballots)
        w, s = top_two(votes)
        text, classes = describe_votes(votes)
        return Outcome(w, s, Story(f"Class {{}} has the most votes: {text}.", (w, *classes)))

    def threats(self, ballots: Ballots, outcome: Outcome) -> Iterator[Threat]:
        w, votes = outcome.prediction, count_votes(ballots)
        for c in np.argsort(-votes, kind="stable"):
            if c != w:
                yield Threat(
                    how=Story("class {} passes class {}", (int(c), w)),
                    gaps=np.array([gap(votes, w, c)], np.int32),
                    powers=pass_power(ballots, w, int(c))[None],
                    last=w,
                    firsts=voting_for(int(c)),
                )

    def target_spread(
        self, scores: NDArray[Any], target: int, reach: Reach, budget: int, prediction: Any, cost: Any
    ) -> int:
        from runoff._kernels import targets_spread

        return int(targets_spread.spread(scores, False, target, reach, budget, prediction, cost))

    def threats_to(self, ballots: Ballots, outcome: Outcome, target: int) -> Iterator[Threat]:
        """Yield the only threat, that `target` passes every other class; the best ballots for it vote for `target`."""
        votes = count_votes(ballots)
        rows = [(gap(votes, u, target), pass_power(ballots, u, target)) for u in range(len(votes)) if u != target]
        yield Threat(Story("class {} passes every other class", (target,)), *open_rows(rows), None, voting_for(target))

    def takeover_to(self, ballots: Ballots, outcome: Outcome, target: int, size: int) -> tuple[Threat, Members] | None:
        # Take the voters that each class ahead must lose, then any others.
        votes, first = count_votes(ballots), first_choices(ballots)
        by_class = [np.flatnonzero(first == u) for u in range(len(votes)) if u != target]
        pay = [max(0, int(votes[u] - votes[target] - size + (u < target))) for u in range(len(votes)) if u != target]
        parts = [voters[:n] for voters, n in zip(by_class, pay, strict=True)]
        parts += [voters[n:] for voters, n in zip(by_class, pay, strict=True)]
        members = np.sort(np.concatenate(parts)[:size])
        threat = next(self.threats_to(ballots, outcome, target))
        return (threat, members) if threat.met_by(members) else None

    def takeover(self, ballots: Ballots, outcome: Outcome, size: int) -> tuple[Threat, Members] | None:
        # Each voter of the winner closes the gap by two, and there are always enough of them.
        voters = np.flatnonzero(first_choices(ballots) == outcome.prediction)[:size]
        cheapest = next(self.threats(ballots, outcome))
        return (cheapest, voters) if cheapest.met_by(voters) else None


ELECTION = Plurality()
