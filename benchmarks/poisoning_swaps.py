"""The smallest number of members to swap for poisoned twins so that an election changes: exact, for each input.

A twin is a member that was retrained on a poisoned bucket. Members are independent, so one ensemble of twins gives an
attacker every mixture of clean and poisoned members. The prediction w of a run-off changes if and only if

- some class c is above every class except perhaps w in round 1, and above w in round 2, or
- two classes are above w in round 1;

that of a plurality if and only if some class is above w. Each is a goal: sums over members must reach given numbers.
This shares no code with the certificates.
"""

from dataclasses import dataclass
from itertools import combinations

import numpy as np

SECONDS = 20  # for one integer programme


@dataclass(frozen=True)
class Swap:
    """The smallest successful choice of members and of the twin that replaces each; `exact` if no smaller exists."""

    members: np.ndarray
    twins: np.ndarray
    exact: bool = True

    def __len__(self):
        return len(self.members)

    def apply(self, ballots, twins, size=None):
        """Return the ballots of the input after the first `size` swaps, or all of them."""
        after = ballots.copy()
        after[self.members[:size]] = twins[self.members[:size], self.twins[:size]]
        return after


def winner(ballots, election):
    """Return the winner, by the definition of the election; ties go to the lower class index."""
    votes = np.bincount(ballots.argmax(1), minlength=ballots.shape[1])
    order = np.lexsort((np.arange(len(votes)), -votes))
    if election == "plurality":
        return int(order[0])
    a, b = sorted(int(c) for c in order[:2])
    prefer_a = np.count_nonzero(ballots[:, a] > ballots[:, b])
    return a if 2 * prefer_a >= len(ballots) else b


class Goals:
    """Every way to change the prediction of one input, as rows (needed, gains) where gains is (members, twins)."""

    def __init__(self, ballots, twins, election):
        self.w = winner(ballots, election)
        classes = range(ballots.shape[1])
        self.others = [c for c in classes if c != self.w]
        self.election = election
        eye = np.eye(len(classes), dtype=np.int16)
        before, after = eye[ballots.argmax(1)], eye[twins.argmax(2)]
        self.votes, self.moved = before.sum(0), np.moveaxis(after - before[:, None], 2, 0)
        above = np.where(ballots > ballots[:, [self.w]], 1, -1).astype(np.int16)
        above_after = np.where(twins > twins[:, :, [self.w]], 1, -1).astype(np.int16)
        self.margin, self.turned = above.sum(0), np.moveaxis(above_after - above[:, None], 2, 0)

    def passes(self, c, u):
        """Return the row for class c to be above class u in round 1."""
        return int(u < c) - int(self.votes[c] - self.votes[u]), self.moved[c] - self.moved[u]

    def beats(self, c):
        """Return the row for class c to be above the prediction in round 2."""
        return int(self.w < c) - int(self.margin[c]), self.turned[c]

    def __iter__(self):
        if self.election == "plurality":
            yield from ([self.passes(c, self.w)] for c in self.others)
            return
        for c in self.others:
            yield [self.beats(c), *(self.passes(c, u) for u in self.others if u != c)]
        out = {c: self.passes(c, self.w) for c in self.others}
        yield from ([out[a], out[b]] for a, b in combinations(self.others, 2))


def smallest(ballots, twins, election):
    """Return the smallest `Swap` that changes the prediction, or None if none does.

    `ballots` is (members, classes), `twins` (members, twins, classes): a higher number is a better rank.
    """
    goals = [(at_least(rows), rows) for rows in Goals(ballots, twins, election)]
    goals = sorted(((bound, rows) for bound, rows in goals if bound is not None), key=lambda goal: goal[0])
    best, size = None, len(ballots) + 1
    for bound, rows in goals:
        if bound >= size:
            break
        choice = greedy(rows, size - 1)
        if choice is not None:
            best, size = choice, len(choice[0])
    exact = True
    for bound, rows in goals:
        if bound >= size:
            break
        choice, proven = programme(rows, size - 1)
        exact &= proven
        if choice is not None:
            best, size = choice, len(choice[0])
    return None if best is None else Swap(np.array(best[0]), np.array(best[1]), exact)


def at_least(rows):
    """Return a lower bound on the swaps that a goal needs, from its rows and their sums; None if it is unreachable."""
    unmet = [row for row in rows if row[0] > 0]
    sums = [(a[0] + b[0], a[1] + b[1]) for a, b in combinations(unmet, 2)]
    if len(unmet) > 2:
        sums.append((sum(r[0] for r in unmet), np.sum([r[1] for r in unmet], axis=0)))
    most = 1
    for needed, gains in unmet + sums:
        reach = np.cumsum(-np.sort(-np.maximum(gains.max(1), 0), kind="stable"))
        if reach[-1] < needed:
            return None
        most = max(most, int(np.searchsorted(reach, needed)) + 1)
    return most


def greedy(rows, limit):
    """Return the swaps that reduce the shortfall most, until it is 0, or None if `limit` swaps do not suffice."""
    short = np.array([row[0] for row in rows])
    gains = np.stack([row[1] for row in rows]).astype(np.int64)
    n_twins, members, twins = gains.shape[2], [], []
    while (short > 0).any():
        if len(members) == limit:
            return None
        left = np.maximum(short[:, None, None] - gains, 0).sum(0)
        left[members] = np.iinfo(np.int64).max
        m, t = divmod(int(left.argmin()), n_twins)
        if left[m, t] >= np.maximum(short, 0).sum():
            return None
        short = short - gains[:, m, t]
        members.append(m)
        twins.append(t)
    return members, twins


def programme(rows, limit):
    """Return at most `limit` swaps by integer programming, and whether the result is proven."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import csr_array

    gains = np.stack([row[1] for row in rows]).astype(np.float64)  # (rows, members, twins)
    picks = []
    for m in range(gains.shape[1]):
        _, kept = np.unique(gains[:, m], axis=1, return_index=True)
        picks += [(m, t) for t in kept.tolist() if (gains[:, m, t] > 0).any()]
    member, twin = np.array(picks).T
    each = csr_array((np.ones(len(picks)), (member, np.arange(len(picks)))), shape=(gains.shape[1], len(picks)))
    solved = milp(
        np.ones(len(picks)),
        integrality=np.ones(len(picks)),
        bounds=Bounds(0, 1),
        constraints=[
            LinearConstraint(gains[:, member, twin], np.array([row[0] for row in rows]), np.inf),
            LinearConstraint(each, -np.inf, 1),
            LinearConstraint(np.ones((1, len(picks))), -np.inf, limit),
        ],
        options={"time_limit": SECONDS},
    )
    if solved.status == 2:
        return None, True
    if solved.x is None:
        return None, False
    chosen = np.flatnonzero(solved.x > 0.5)
    return (member[chosen].tolist(), twin[chosen].tolist()), solved.status == 0
