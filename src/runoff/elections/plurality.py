"""Plurality: the class that most members rank first wins (DPA with one bucket per member, FA with a spread)."""

from collections.abc import Iterator

import numpy as np

from runoff._kernels import plurality as kernels
from runoff.ballots import Ballots
from runoff.elections.base import Election, Members, Outcome, Story, Threat
from runoff.elections.votes import count_votes, describe_votes, first_choices, gap, pass_power, top_two


class Plurality(Election):
    """The election whose winner has the most first choices; the runner-up has the next most."""

    name = "plurality"
    label = "plurality"
    suffix = ""
    dashes = (4, 2)
    in_paper = True
    reads_rankings = False
    certify_disjoint = staticmethod(kernels.disjoint)
    certify_spread = staticmethod(kernels.spread)

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
                    firsts=lambda members, c=c: np.full(len(members), c),  # type: ignore[misc]
                )

    def takeover(self, ballots: Ballots, outcome: Outcome, size: int) -> tuple[Threat, Members] | None:
        # Each of the winner's voters closes the gap by two, and there are always enough of them.
        voters = np.flatnonzero(first_choices(ballots) == outcome.prediction)[:size]
        cheapest = next(self.threats(ballots, outcome))
        return (cheapest, voters) if cheapest.met_by(voters) else None


ELECTION = Plurality()
