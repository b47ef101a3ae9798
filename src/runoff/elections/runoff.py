"""Run-off: the two classes with the most first choices meet, and the one that more members rank higher wins (ROE)."""

from collections.abc import Iterator

import numpy as np

from runoff._kernels import runoff, runoff_spread
from runoff.ballots import Ballots
from runoff.elections.base import Election, Members, Outcome, Round, Story, Threat
from runoff.elections.votes import (
    count_votes,
    describe_votes,
    first_choices,
    gap,
    pass_power,
    ranks_above,
    top_two,
    vote_bars,
)


class RunOff(Election):
    """The run-off election, Algorithm 1 of the paper. The runner-up is the other finalist."""

    name = "runoff"
    label = "run-off"
    suffix = "+ROE"
    dashes = ()
    in_paper = True
    certify_disjoint = staticmethod(runoff.disjoint)
    certify_spread = staticmethod(runoff_spread.spread)

    def hold(self, ballots: Ballots) -> Outcome:
        votes = count_votes(ballots)
        a, b = top_two(votes)
        w, s = (a, b) if _final_gap(ballots, a, b) > 0 else (b, a)
        wins = int(ranks_above(ballots, w, s).sum())
        text, classes = describe_votes(votes)
        story = (
            f"Round 1: {text}; classes {{}} and {{}} advance. "
            f"Round 2: {wins} of {len(ballots)} members rank class {{}} above class {{}}, so class {{}} wins."
        )
        return Outcome(w, s, Story(story, (*classes, a, b, w, s, w)))

    def rounds(self, ballots: Ballots, outcome: Outcome) -> tuple[Round, ...]:
        w, s = outcome.prediction, outcome.runner_up
        wins = int(ranks_above(ballots, w, s).sum())
        return (
            Round("Round 1", "first choices", vote_bars(count_votes(ballots))),
            Round("Round 2", "members that rank each finalist higher", {w: wins, s: len(ballots) - wins}, half=True),
        )

    def threats(self, ballots: Ballots, outcome: Outcome) -> Iterator[Threat]:
        """Yield defeats in round 2 by each class, the runner-up first; then eliminations in round 1 by each pair."""
        w, s = outcome.prediction, outcome.runner_up
        others = [int(c) for c in np.argsort(-count_votes(ballots), kind="stable") if c != w]
        for c in sorted(others, key=lambda c: c != s):
            yield self._beaten(ballots, w, c)
        for y, second in enumerate(others):
            for first in others[:y]:
                yield self._eliminated(ballots, w, first, second)

    @staticmethod
    def _beaten(ballots: Ballots, w: int, c: int) -> Threat:
        """Return the threat that class c beats every class but w in round 1, and w in round 2.

        No ballot serves it better than one that ranks c first and w last.
        """
        votes = count_votes(ballots)
        rows = [(gap(votes, u, c), pass_power(ballots, u, c)) for u in range(len(votes)) if u not in (c, w)]
        rows.append((_final_gap(ballots, w, c), 2 * ranks_above(ballots, w, c).astype(np.int32)))
        open_rows = [(g, p) for g, p in rows if g > 0]
        if len(open_rows) > 1:  # the sum must hold too, and shows that the rows compete for members
            open_rows.append((sum(g for g, _ in open_rows), np.sum([p for _, p in open_rows], axis=0, dtype=np.int32)))
        return Threat(
            how=Story("class {} reaches round 2 and beats class {} there", (c, w)),
            gaps=np.array([g for g, _ in open_rows], np.int32),
            powers=np.array([p for _, p in open_rows], np.int32),
            last=w,
            firsts=lambda members: np.full(len(members), c),
        )

    @staticmethod
    def _eliminated(ballots: Ballots, w: int, c1: int, c2: int) -> Threat:
        """Return the threat that classes c1 and c2 beat w in round 1: each gap and their sum (Lemma 3.8) suffice."""
        votes, first = count_votes(ballots), first_choices(ballots)
        g1, g2 = gap(votes, w, c1), gap(votes, w, c2)
        p1, p2 = pass_power(ballots, w, c1), pass_power(ballots, w, c2)

        def firsts(members: Members) -> Members:
            remaining = votes - np.bincount(first[members], minlength=len(votes))
            enough = max(0, gap(remaining, w, c1))  # c1 gets what it needs, c2 the rest
            return np.where(np.arange(len(members)) < enough, c1, c2)

        return Threat(
            how=Story("classes {} and {} eliminate class {} in round 1", (c1, c2, w)),
            gaps=np.array([g1, g2, g1 + g2], np.int32),
            powers=np.array([p1, p2, p1 + p2 - 1], np.int32),
            last=w,
            firsts=firsts,
        )

    def takeover(self, ballots: Ballots, outcome: Outcome, size: int) -> tuple[Threat, Members] | None:
        w = outcome.prediction
        others = [int(c) for c in np.argsort(-count_votes(ballots), kind="stable") if c != w]
        takeovers = [(self._beaten(ballots, w, c), self._best_for(ballots, w, c, size)) for c in others]
        if len(others) > 1:
            voters = np.flatnonzero(first_choices(ballots) == w)[:size]
            takeovers.append((self._eliminated(ballots, w, others[0], others[1]), voters))
        return next(((threat, members) for threat, members in takeovers if threat.met_by(members)), None)

    @staticmethod
    def _best_for(ballots: Ballots, w: int, c: int, size: int) -> Members:
        """Return the `size` members that serve c best: voters that classes ahead must lose, then w's supporters."""
        votes, first = count_votes(ballots), first_choices(ballots)
        supports = ranks_above(ballots, w, c)
        by_use = np.lexsort((first == c, ~supports))  # w's supporters first, c's voters last
        chosen: list[int] = []
        for u in range(len(votes)):
            if u not in (c, w):
                pay = max(0, int(votes[u] - votes[c] - size + (u < c)))
                chosen += by_use[first[by_use] == u][:pay].tolist()
        chosen += by_use[~np.isin(by_use, chosen)].tolist()
        return np.sort(np.array(chosen[:size], dtype=np.int64))


def _final_gap(ballots: Ballots, w: int, c: int) -> int:
    """Return the gap of w over c in round 2."""
    return 2 * int(ranks_above(ballots, w, c).sum()) - len(ballots) + (c > w)


ELECTION = RunOff()
