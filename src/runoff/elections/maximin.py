"""Maximin (Simpson-Kramer): the class with the best worst duel wins.

M[a, b] is the number of members that rank class a above class b, m_a = min_b M[a, b], and the winner has the largest
m. Class c beats the winner w exactly when m_c >= m_w + [c > w], that is, when for some class b and for
all classes a, M[c, a] >= M[w, b] + [c > w]. A taken member serves this best by ranking c first and w last: it raises
M[c, a] if it ranked a above c, and lowers M[w, b] if it ranked w above b.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff._kernels.compiling import helper, kernel
from runoff._kernels.counting import top_two
from runoff._kernels.covering import IMPOSSIBLE, PROVEN, UNREACHABLE, needed, search
from runoff.ballots import Ballots
from runoff.elections.base import Election, Outcome, Round, Story, Threat


class Maximin(Election):
    """The election whose winner has the best worst duel; the runner-up has the next best."""

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
        """Yield a threat for each class c that can beat w and each class b that can then be w's worst duel."""
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
                    # The sum must hold too, and shows that the rows compete for members.
                    gaps=np.append(gaps, gaps.sum()).astype(np.int32),
                    powers=np.concatenate([powers, powers.sum(axis=0, keepdims=True)]).astype(np.int32),
                    last=w,
                    firsts=lambda members, c=c: np.full(len(members), c),  # type: ignore[misc]
                )

    def certify_spread(
        self, scores: NDArray[Any], tight: bool, reach: Any, budget: int, prediction: Any, runner_up: Any, cost: Any
    ) -> int:
        return int(_certify(scores, reach, budget, prediction, runner_up, cost))


def _duels(ballots: Ballots) -> NDArray[np.int64]:
    """Return M, with the number of members on the diagonal, so that the minimum is never there."""
    duels: NDArray[np.int64] = (ballots[:, :, None] > ballots[:, None, :]).sum(axis=0)
    np.fill_diagonal(duels, len(ballots))
    return duels


@kernel
def _certify(scores: Any, reach: Any, budget: int, prediction: Any, runner_up: Any, cost: Any) -> int:
    """Certify a block: bound each threat by its largest row (Lemma 3.7), then search all its rows together."""
    n, n_members, n_classes = scores.shape
    n_buckets = reach.members_at.shape[0] - 1
    columns = np.empty((n_classes, n_members), scores.dtype)
    duels = np.zeros((n_classes, n_classes), np.int32)
    worst = np.zeros(n_classes, np.int32)
    bound = np.zeros((n_classes, n_classes), np.int32)
    powers = np.zeros((n_classes, n_members), np.int32)
    gaps = np.zeros(n_classes, np.int32)
    sums = np.zeros(n_buckets + 1, np.int32)
    tally = np.zeros(2 * max(reach.largest, n_classes) + 1, np.int32)
    for i in range(n):
        if not _count_duels(scores[i], columns, duels, worst):
            return i
        w, s = top_two(worst)
        prediction[i], runner_up[i] = w, s
        best = _bound(columns, duels, worst, w, s, reach, bound, powers[0], sums[:n_buckets], tally)
        if best < UNREACHABLE:
            best = _raise(columns, duels, w, s, best, bound, reach, budget, powers, gaps, sums, tally)
        cost[i] = best
    return -1


@helper
def _count_duels(row: Any, columns: Any, duels: Any, worst: Any) -> bool:
    """Fill M and m, by columns, which is faster; return False if a score is not finite."""
    n_members, n_classes = row.shape
    broken = False
    for j in range(n_members):
        for c in range(n_classes):
            broken |= row[j, c] - row[j, c] != 0  # true for NaN and infinities only
            columns[c, j] = row[j, c]
    worst[:] = n_members
    for a in range(n_classes):
        for b in range(a + 1, n_classes):
            wins = np.int32(0)
            one, other = columns[a], columns[b]
            for j in range(n_members):
                wins += one[j] >= other[j]
            duels[a, b], duels[b, a] = wins, n_members - wins
            worst[a], worst[b] = min(worst[a], wins), min(worst[b], n_members - wins)
    return not broken


@helper
def _add_preferences(columns: Any, a: int, b: int, out: Any) -> None:
    """Add 1 for each member that ranks class a above class b."""
    one, other = columns[a], columns[b]
    if a < b:
        for j in range(out.shape[0]):
            out[j] += one[j] >= other[j]
    else:
        for j in range(out.shape[0]):
            out[j] += one[j] > other[j]


@helper
def _bound(
    columns: Any, duels: Any, worst: Any, w: int, s: int, reach: Any, bound: Any, power: Any, sums: Any, tally: Any
) -> int:
    """Return the smallest bound of all threats, each by its largest row, skipping those above an earlier one."""
    n_classes = columns.shape[0]
    most = max(1, 2 * reach.largest)  # the largest power of a bucket on a row
    best = UNREACHABLE
    for turn in range(n_classes):
        c = (s + turn) % n_classes  # s first, since it is the usual threat
        if c == w:
            continue
        a = 1 if c == 0 else 0
        for other in range(n_classes):
            if other != c and duels[c, other] < duels[c, a]:
                a = other
        for b in range(n_classes):
            if b == w:
                continue
            gap = duels[w, b] - worst[c] + (c > w)
            bound[c, b] = (gap + most - 1) // most
            if bound[c, b] < best:
                power[:] = 0
                _add_preferences(columns, w, b, power)
                _add_preferences(columns, a, c, power)
                bound[c, b] = needed(power, gap, UNREACHABLE, reach, sums, tally)
                best = min(best, bound[c, b])
    return best


@helper
def _rows(columns: Any, duels: Any, w: int, c: int, b: int, gaps: Any, powers: Any) -> int:
    """Fill the rows of a threat and, last, their sum; return their number."""
    n_classes, n_members = columns.shape
    rows, total = 0, 0
    for a in range(n_classes):
        gap = duels[w, b] - duels[c, a] + (c > w)
        if a != c and gap > 0:
            powers[rows] = 0
            _add_preferences(columns, w, b, powers[rows])
            _add_preferences(columns, a, c, powers[rows])
            gaps[rows] = gap
            total += gap
            rows += 1
    if rows > 1:
        powers[rows] = 0
        for q in range(rows):
            for j in range(n_members):
                powers[rows, j] += powers[q, j]
        gaps[rows] = total
        rows += 1
    return rows


@helper
def _raise(
    columns: Any,
    duels: Any,
    w: int,
    s: int,
    best: int,
    bound: Any,
    reach: Any,
    budget: int,
    powers: Any,
    gaps: Any,
    chosen: Any,
    tally: Any,
) -> int:
    """Return a higher cost: raise `best` while search proves that no threat succeeds with `best` buckets."""
    n_classes, n_members = columns.shape
    alone = reach.largest == 1 and reach.n_unreached == 0 and chosen.shape[0] == n_members + 1
    while best < chosen.shape[0]:
        for turn in range(n_classes):
            c = (s + turn) % n_classes
            if c == w:
                continue
            for b in range(n_classes):
                if b == w or bound[c, b] > best:
                    continue
                rows = _rows(columns, duels, w, c, b, gaps, powers)
                if alone and _suffice(gaps[:rows], powers[:rows], best, tally):
                    return best
                verdict, nodes = search(gaps[:rows], powers[:rows], best, reach, budget, chosen)
                budget -= nodes
                if verdict == PROVEN:
                    bound[c, b] = best + 1
                elif verdict == IMPOSSIBLE:
                    bound[c, b] = UNREACHABLE
                else:
                    return best
        best += 1
    return UNREACHABLE


@helper
def _suffice(gaps: Any, powers: Any, size: int, tally: Any) -> bool:
    """Return whether the `size` members with the largest power on the last row, the sum, meet all rows."""
    rows, n_members = powers.shape
    tally[:] = 0
    for j in range(n_members):
        tally[powers[rows - 1, j]] += 1
    least, left = tally.shape[0] - 1, size
    while least > 0 and tally[least] < left:
        left -= tally[least]
        least -= 1
    for q in range(rows):
        covered, at_least = np.int32(0), np.int32(0)
        for j in range(n_members):
            if powers[rows - 1, j] > least:
                covered += powers[q, j]
            elif powers[rows - 1, j] == least and at_least < left:
                covered += powers[q, j]
                at_least += 1
        if covered < gaps[q]:
            return False
    return True


ELECTION = Maximin()
