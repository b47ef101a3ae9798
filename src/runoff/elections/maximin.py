"""Maximin (Simpson-Kramer): the class with the best worst duel wins.

M[a, b] is the number of members that rank class a above class b, m_a = min_b M[a, b], and the winner has the largest
m. Class c beats the winner w exactly when m_c >= m_w + [c > w], that is, when for some class b and for
all classes a, M[c, a] >= M[w, b] + [c > w]. The best ballot of a taken member ranks c first and w last: it raises
M[c, a] if the member ranked a above c, and lowers M[w, b] if it ranked w above b.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff._kernels import maximin as kernels
from runoff.ballots import Ballots
from runoff.elections.base import Election, Outcome, Round, Story, Threat, voting_for
from runoff.elections.overtaking import Overtaking
from runoff.spreads import Reach, Spread, disjoint

TARGET_NODES = 2_000  # of search per input for a target; only part of that search is compiled


class Maximin(Election):
    """The maximin election; the runner-up has the second best worst duel."""

    name = "maximin"
    label = "maximin"
    suffix = "+maximin"
    dashes = (1, 2)

    def hold(self, ballots: Ballots) -> Outcome:
        duels = _duels(ballots)
        worst = duels.min(axis=1)
        w, s = (int(c) for c in np.argsort(-worst, kind="stable")[:2])
        story = (
            f"Against every other class, at least {worst[w]} of {len(ballots)} members rank class {{}} higher; "
            f"for the next best, class {{}}, it is {worst[s]} (against class {{}})."
        )
        return Outcome(w, s, Story(story, (w, s, int(duels[s].argmin()))))

    def rounds(self, ballots: Ballots, outcome: Outcome) -> tuple[Round, ...]:
        worst = _duels(ballots).min(axis=1)
        bars = {c: int(n) for c, n in enumerate(worst)}
        return (Round("Worst duels", "members that prefer a class to its strongest opponent", bars),)

    def threats(self, ballots: Ballots, outcome: Outcome) -> Iterator[Threat]:
        """Yield a threat for each class c that can beat w and each class b that can then be the worst duel of w."""
        w, duels = outcome.prediction, _duels(ballots)
        above = ballots[:, :, None] > ballots[:, None, :]
        by_worst = np.argsort(-duels.min(axis=1), kind="stable")
        opponents = np.argsort(duels[w], kind="stable")
        for c in (int(c) for c in by_worst if c != w):
            for b in (int(b) for b in opponents if b != w):
                gaps = duels[w, b] - np.delete(duels[c], c) + (c > w)
                powers = above[:, w, b, None] + np.delete(above[:, :, c], c, axis=1).astype(np.int32)
                gaps, powers = gaps[gaps > 0], powers[:, gaps > 0].T
                yield Threat(
                    how=Story("class {} gets a better worst duel than class {} has with class {}", (c, w, b)),
                    # The sum must also be met, and accounts for rows that compete for members.
                    gaps=np.append(gaps, gaps.sum()).astype(np.int32),
                    powers=np.concatenate([powers, powers.sum(axis=0, keepdims=True)]).astype(np.int32),
                    last=w,
                    firsts=voting_for(c),
                )

    def threats_to(self, ballots: Ballots, outcome: Outcome, target: int) -> Iterator[Threat]:
        """Yield (n_classes - 1) ** (n_classes - 1) threats. `target_cost` and `takeover_to` need only some of them."""
        return Overtaking(ballots, target).threats()

    def target_disjoint(self, scores: NDArray[Any], target: int, prediction: Any, cost: Any) -> int:
        return self.target_spread(scores, target, disjoint(scores.shape[1]).reach, TARGET_NODES, prediction, cost)

    def target_cost(self, ballots: Ballots, outcome: Outcome, target: int, reach: Reach, budget: int) -> int:
        return Overtaking(ballots, target).cost(reach, budget)

    def smallest_to(
        self, ballots: Ballots, outcome: Outcome, target: int, spread: Spread, cost: int
    ) -> tuple[Threat, NDArray[np.int64]] | None:
        overtaking = Overtaking(ballots, target)
        bound = overtaking.bounds(spread.reach)
        for size in range(cost, spread.n_buckets + 1):
            takeover = overtaking.search(size, bound, spread.reach, TARGET_NODES + spread.n_buckets)[2]
            if takeover is not None:
                return takeover
        return None

    def certify_spread(
        self, scores: NDArray[Any], tight: bool, reach: Any, budget: int, prediction: Any, runner_up: Any, cost: Any
    ) -> int:
        return int(kernels.spread(scores, reach, budget, prediction, runner_up, cost))


def _duels(ballots: Ballots) -> NDArray[np.int64]:
    """Return M, with the number of members on the diagonal, so that it never contains the minimum."""
    duels: NDArray[np.int64] = (ballots[:, :, None] > ballots[:, None, :]).sum(axis=0)
    np.fill_diagonal(duels, len(ballots))
    return duels


ELECTION = Maximin()
