"""Run-off: of the two classes with the most first choices, the one that more members rank higher wins (ROE)."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff._kernels import runoff
from runoff.ballots import Ballots
from runoff.elections.base import Election, Members, Outcome, Round, Story, Threat, open_rows, voting_for
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
from runoff.spreads import Reach


class RunOff(Election):
    """The run-off election, Algorithm 1 of the paper; the runner-up is the other finalist."""

    name = "runoff"
    label = "run-off"
    suffix = "+ROE"
    dashes = ()
    in_paper = True
    certify_disjoint = staticmethod(runoff.disjoint)

    def certify_spread(
        self, scores: NDArray[Any], tight: bool, reach: Reach, budget: int, prediction: Any, runner_up: Any, cost: Any
    ) -> int:
        from runoff._kernels import runoff_spread

        return int(runoff_spread.spread(scores, tight, reach, budget, prediction, runner_up, cost))

    def target_disjoint(self, scores: NDArray[Any], target: int, prediction: Any, cost: Any) -> int:
        from runoff._kernels import targets

        return int(targets.runoff(scores, target, prediction, cost))

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

        The best ballot for it ranks c first and w last.
        """
        votes = count_votes(ballots)
        rows = [(gap(votes, u, c), pass_power(ballots, u, c)) for u in range(len(votes)) if u not in (c, w)]
        rows.append((_final_gap(ballots, w, c), 2 * ranks_above(ballots, w, c).astype(np.int32)))
        how = Story("class {} reaches round 2 and beats class {} there", (c, w))
        return Threat(how, *open_rows(rows), w, voting_for(c))

    @staticmethod
    def _eliminated(ballots: Ballots, w: int, c1: int, c2: int) -> Threat:
        """Return the threat that c1 and c2 beat w in round 1; its rows are each gap and their sum (Lemma 3.8)."""
        votes, first = count_votes(ballots), first_choices(ballots)
        g1, g2 = gap(votes, w, c1), gap(votes, w, c2)
        p1, p2 = pass_power(ballots, w, c1), pass_power(ballots, w, c2)

        def firsts(members: Members) -> Members:
            remaining = votes - np.bincount(first[members], minlength=len(votes))
            enough = max(0, gap(remaining, w, c1))  # c1 gets the votes that it needs, c2 the rest
            return np.where(np.arange(len(members)) < enough, c1, c2)

        return Threat(
            how=Story("classes {} and {} eliminate class {} in round 1", (c1, c2, w)),
            gaps=np.array([g1, g2, g1 + g2], np.int32),
            powers=np.array([p1, p2, p1 + p2 - 1], np.int32),
            last=w,
            firsts=firsts,
        )

    def target_spread(
        self, scores: NDArray[Any], target: int, reach: Reach, budget: int, prediction: Any, cost: Any
    ) -> int:
        from runoff._kernels import targets_spread

        return int(targets_spread.spread(scores, True, target, reach, budget, prediction, cost))

    def threats_to(self, ballots: Ballots, outcome: Outcome, target: int) -> Iterator[Threat]:
        """Yield, for each opponent, the most popular first, the threat that `target` wins against it in round 2."""
        for o in np.argsort(-count_votes(ballots), kind="stable"):
            if o != target:
                yield self._wins_against(ballots, target, int(o))

    @staticmethod
    def _wins_against(ballots: Ballots, t: int, o: int) -> Threat:
        """Return the threat that t and o are the finalists, and t wins.

        The best ballots for it vote for t or for o. With y votes for t and x for o, some y >= A and x >= B are needed,
        and exist if and only if A, B and A + B are at most x + y, which gives the rows.
        """
        votes, first = count_votes(ballots), first_choices(ballots)
        against = ranks_above(ballots, o, t)
        lead = int(against.sum()) - (len(ballots) - (t > o)) // 2  # members that must no longer rank o above t
        others = [u for u in range(len(votes)) if u not in (t, o)]
        for_t = [(gap(votes, u, t), pass_power(ballots, u, t)) for u in others] + [(lead, against.astype(np.int32))]
        for_o = [(gap(votes, v, o), pass_power(ballots, v, o)) for v in others]
        both = [(g + h, p + q - 1) for g, p in for_t for h, q in for_o]

        def firsts(members: Members) -> Members:
            left = votes - np.bincount(first[members], minlength=len(votes))
            enough = max([0, *(gap(left, v, o) for v in others)])  # o gets the votes that it needs, t the rest
            return np.where(np.arange(len(members)) < enough, o, t)

        how = Story("classes {} and {} advance to round 2, which class {} wins", (t, o, t))
        return Threat(how, *open_rows([*for_t, *for_o, *both]), None, firsts)

    def takeover_to(self, ballots: Ballots, outcome: Outcome, target: int, size: int) -> tuple[Threat, Members] | None:
        for o in np.argsort(-count_votes(ballots), kind="stable"):
            if o != target:
                members = _best_pair(ballots, target, int(o), size)
                if members is not None:
                    return self._wins_against(ballots, target, int(o)), members
        return None

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
        """Return the best `size` members for c: voters that classes ahead must lose, then supporters of w."""
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


def _best_pair(ballots: Ballots, t: int, o: int, size: int) -> Members | None:
    """Return `size` members with which t can win against o in round 2, or None (section 3 of docs/proofs.md).

    The votes of t and o change by `up` and `by`, of which the larger is at most `size`; all pairs are tried.
    """
    votes, first = count_votes(ballots), first_choices(ballots)
    against = ranks_above(ballots, o, t)
    steps = np.arange(-min(size, int(votes[o])), size + min(size, int(votes[t])) + 1)
    by, up = np.minimum(steps, size), np.minimum(size, size - steps)
    total = by + up  # voters that the other classes lose
    others = np.array([u for u in range(len(votes)) if u not in (t, o)], np.int64)
    pay_t = votes[others] - votes[t] - up[:, None] + (others < t)
    pay_o = votes[others] - votes[o] - by[:, None] + (others < o)
    pay = np.maximum(0, np.maximum(pay_t, pay_o))
    useful = np.array([int((against & (first == u)).sum()) for u in others], np.int64)
    won = np.minimum(useful.sum(), total - np.maximum(0, pay - useful).sum(axis=1))
    final = by <= (len(ballots) - (t > o)) // 2 - int(against.sum()) + won
    works = np.flatnonzero((pay.sum(axis=1) <= total) & (total <= votes[others].sum()) & final)
    if not works.size:
        return None
    at = works[0]
    by_use = np.lexsort((~against,))  # members that rank o above t first
    chosen: list[int] = []
    for u, n in zip([t, o, *others], [max(0, -up[at]), max(0, -by[at]), *pay[at]], strict=True):
        chosen += by_use[first[by_use] == u][:n].tolist()
    rest = by_use[~np.isin(by_use, chosen) & np.isin(first[by_use], others)]
    return np.sort(np.array([*chosen, *rest][:size], dtype=np.int64))


def _final_gap(ballots: Ballots, w: int, c: int) -> int:
    """Return the gap of w over c in round 2."""
    return 2 * int(ranks_above(ballots, w, c).sum()) - len(ballots) + (c > w)


ELECTION = RunOff()
