"""Integer programs (HiGHS) for the fewest buckets that change a prediction.

A program models the attack itself: the number of members of each kind that it takes, the votes that each class receives
or the duels that it wins, and the conditions for success. It shares no inequality with `runoff.check`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runoff import check

SECONDS = 10.0  # limit of one integer program


def by_programming(election: str, rows: list[Any], spread: check.Spread | None, radius: int) -> tuple[int, int]:
    """Return bounds on the cost, the fewest buckets that change the prediction.

    If nothing can change it, both are one more than the number of buckets, so that the radius is that number. A program
    is solved only until its cost is proven to exceed the claimed radius.
    """
    w, _ = check.hold(election, rows)
    n_classes = len(rows[0])
    n_buckets = len(rows) if spread is None else len(spread.buckets)
    first = [list(row).index(n_classes - 1) for row in rows]
    rivals = [c for c in range(n_classes) if c != w]
    if election == "maximin":
        return _least(_duels(rows, w, spread, n_buckets, radius), n_buckets)
    none_loyal = [False] * len(rows)

    def solved(fill: Callable[[_Builder], None], loyal: list[bool] = none_loyal) -> tuple[int, int]:
        builder = _Builder(first, loyal, spread, n_classes)
        fill(builder)
        return _solved(builder.model(), n_buckets, radius)

    def overtaken(*classes: int) -> tuple[int, int]:
        def fill(builder: _Builder) -> None:
            for c in classes:
                builder.lead(c, w, strict=w < c)

        return solved(fill)

    if election == "plurality":
        costs = [overtaken(c) for c in rivals]
    else:
        loyal = {c: [row[w] > row[c] for row in rows] for c in rivals}
        costs = [solved(lambda builder, c=c: builder.beaten(w, c), loyal[c]) for c in rivals]  # type: ignore[misc]
        if spread is None and len(rivals) > 1:
            costs.append(solved(lambda builder: builder.eliminated(w)))
        elif len(rivals) > 1:  # a class that cannot overtake w within the radius cannot help to eliminate it
            alone = {c: overtaken(c) for c in rivals}
            costs += [(low, n_buckets + 1) for low, _ in alone.values() if low > radius]
            able = [c for c in rivals if alone[c][0] <= radius]
            costs += [overtaken(*pair) for pair in combinations(able, 2)]
    return _least(costs, n_buckets)


def _least(costs: Iterable[tuple[int, int]], n_buckets: int) -> tuple[int, int]:
    """Return bounds on the cost of the cheapest of several attacks, or n_buckets + 1 if there are none."""
    lows, highs = zip((n_buckets + 1, n_buckets + 1), *costs, strict=True)
    return min(lows), min(highs)


class Model(NamedTuple):
    """An integer program for the fewest buckets; columns are buckets or kinds of members, members, votes received."""

    cost: NDArray[np.float64]
    upper: NDArray[np.float64]
    integral: NDArray[np.int64]
    matrix: NDArray[np.float64]  # matrix @ columns >= least
    least: NDArray[np.float64]


class _Builder:
    """The columns of a model: members taken (t), votes received (g), pairs chosen (z); for a spread, buckets first."""

    def __init__(self, first: list[int], loyal: list[bool], spread: check.Spread | None, n_classes: int) -> None:
        self.k, self.n_classes, self.spread = len(first), n_classes, spread
        self.votes = [first.count(c) for c in range(n_classes)]
        self.n_loyal = sum(loyal)
        kinds = list(zip(first, loyal, strict=True))
        # With one bucket per member, members of a kind are interchangeable, so only their number matters.
        self.kinds = sorted(set(kinds)) if spread is None else kinds
        self.counts = [kinds.count(kind) for kind in self.kinds] if spread is None else [1] * self.k
        self.n_buckets = 0 if spread is None else len(spread.buckets)
        self.t, self.g = self.n_buckets, self.n_buckets + len(self.kinds)
        self.z = self.g + n_classes
        self.width = self.z + n_classes
        self.rows: list[tuple[NDArray[np.float64], float]] = []
        received = self._row()
        received[self.t : self.g], received[self.g : self.z] = 1, -1
        self.rows.append((received, 0))  # classes receive no more votes than members are taken
        for j in range(self.k if spread is not None else 0):
            reached = self._row()
            reached[self.t + j] = -1
            reached[spread.of_member[j]] = 1  # type: ignore[union-attr]
            self.rows.append((reached, 0))  # a member is taken only if one of its buckets is

    def _row(self) -> NDArray[np.float64]:
        return np.zeros(self.width)

    def votes_after(self, c: int) -> tuple[NDArray[np.float64], int]:
        """Return the votes of c after the attack: a linear form and a constant."""
        row = self._row()
        row[self.t : self.g] = [-1.0 if kind[0] == c else 0.0 for kind in self.kinds]
        row[self.g + c] = 1
        return row, self.votes[c]

    def lead(self, a: int, b: int, strict: bool, unless: int | None = None) -> None:
        """Require at least as many votes for a as for b, or more if `strict`, unless the choice `unless` is 0."""
        (row_a, votes_a), (row_b, votes_b) = self.votes_after(a), self.votes_after(b)
        row, least = row_a - row_b, float(votes_b - votes_a + strict)
        if unless is not None:
            slack = 2.0 * self.k + 2
            row[self.z + unless] -= slack
            least -= slack
        self.rows.append((row, least))

    def beaten(self, w: int, c: int) -> None:
        """Require that class c overtakes all classes but w in round 1, and w in round 2."""
        for u in range(self.n_classes):
            if u not in (c, w):
                self.lead(c, u, strict=u < c)
        row = self._row()
        row[self.t : self.g] = [2.0 if kind[1] else 0.0 for kind in self.kinds]
        # Of k members, n_loyal - taken rank w above c; c wins with more than half, or with half and the lower index.
        self.rows.append((row, 2.0 * self.n_loyal - self.k + (w < c)))

    def eliminated(self, w: int) -> None:
        """Require that two classes, chosen by the program, overtake w in round 1."""
        for c in range(self.n_classes):
            if c != w:
                self.lead(c, w, strict=w < c, unless=c)
        chosen = self._row()
        chosen[self.z :] = 1
        chosen[self.z + w] = 0
        self.rows.append((chosen, 2))

    def model(self) -> Model:
        """Return the program for the fewest buckets, or the fewest members with one bucket per member."""
        cost, upper, integral = self._row(), self._row(), np.zeros(self.width, np.int64)
        taken = slice(0, self.n_buckets) if self.spread is not None else slice(self.t, self.g)
        cost[taken], integral[taken] = 1, 1
        upper[: self.n_buckets], upper[self.t : self.g], upper[self.g : self.z] = 1, self.counts, self.k
        upper[self.z :], integral[self.z :] = 1, 1
        if self.spread is None:
            integral[self.g : self.z] = 1
        matrix, least = np.array([row for row, _ in self.rows]), np.array([least for _, least in self.rows])
        return Model(cost, upper, integral, matrix, least)


def _duels(
    rows: list[Any], w: int, spread: check.Spread | None, n_buckets: int, radius: int
) -> Iterator[tuple[int, int]]:
    """Yield bounds on the cost of each maximin attack: all duels of class c become better than w against b."""
    ranks = np.array([list(row) for row in rows], np.int64)
    above = ranks[:, :, None] > ranks[:, None, :]
    most = 1 if spread is None else max(1, *map(len, spread.buckets))
    others = [c for c in range(above.shape[1]) if c != w]
    for c, b in product(others, others):
        pairs = [(c, a) for a in range(above.shape[1]) if a != c] + [(w, b)]
        kinds = np.stack([above[:, a, d] for a, d in pairs], axis=1).astype(np.int64)
        duels = kinds.sum(axis=0)
        low = -(-int(duels[-1] + (c > w) - duels[:-1].min()) // (2 * most))  # a member moves a duel by at most 1
        if low > radius:
            yield low, n_buckets + 1
        else:
            yield _solved(_duel_model(kinds, pairs, c > w, spread), n_buckets, radius)


def _duel_model(
    kinds: NDArray[np.int64], pairs: list[tuple[int, int]], strict: bool, spread: check.Spread | None
) -> Model:
    """Return the program for the fewest buckets after which all duels but the last are at least as good as the last.

    `kinds` says which members rank the first class of each pair above the second. A duel after the attack is the duel
    before, minus the taken members that counted for it, plus the taken members that count for it afterwards.
    """
    duels, counts, n_buckets = kinds.sum(axis=0), np.ones(len(kinds), np.int64), 0
    if spread is None:  # members of a kind are interchangeable, so only their number matters
        kinds, counts = np.unique(kinds, axis=0, return_counts=True)
    else:
        n_buckets = len(spread.buckets)
    t = n_buckets  # columns: buckets, members taken, and for each pair those of them that count for it afterwards
    r = t + len(kinds)
    width, matrix, least = r + len(pairs), [], []

    def require(at_least: float, *terms: tuple[Any, Any]) -> None:
        row = np.zeros(width)
        for columns, factors in terms:
            row[columns] += factors
        matrix.append(row)
        least.append(at_least)

    for j in range(len(kinds) if spread is not None else 0):  # a member is taken only if one of its buckets is
        require(0, (spread.of_member[j], 1), (t + j, -1))  # type: ignore[union-attr]
    last = len(pairs) - 1
    for p, pair in enumerate(pairs):
        require(0, (slice(t, r), 1), (r + p, -1))
        if pair == pairs[last][::-1]:  # a taken member ranks either c above w or w above c
            require(0, (slice(t, r), -1), (r + p, 1), (r + last, 1))
        if p != last:
            require(
                duels[last] - duels[p] + strict, (slice(t, r), kinds[:, last] - kinds[:, p]), (r + p, 1), (r + last, -1)
            )
    cost, integral = np.zeros(width), np.zeros(width, np.int64)
    chosen = slice(0, n_buckets) if spread is not None else slice(t, r)
    cost[chosen], integral[chosen] = 1, 1
    upper = np.concatenate([np.ones(n_buckets), counts, np.full(len(pairs), float(counts.sum()))])
    return Model(cost, upper, integral, np.array(matrix), np.array(least, np.float64))


def _solved(model: Model, n_buckets: int, radius: int) -> tuple[int, int]:
    """Return bounds on the least cost of a model, solved only until it is proven to exceed the claimed radius."""
    from scipy import optimize, sparse

    constraint = optimize.LinearConstraint(sparse.csr_array(model.matrix), lb=model.least)
    bounds = optimize.Bounds(0, model.upper)
    if len(model.cost) > 300:  # the relaxation is much faster, and often suffices
        relaxed = optimize.linprog(
            model.cost,
            A_ub=-sparse.csr_array(model.matrix),
            b_ub=-model.least,
            bounds=np.stack([np.zeros_like(model.upper), model.upper], 1),
        )
        if relaxed.status == 2:
            return n_buckets + 1, n_buckets + 1
        if relaxed.status == 0 and np.ceil(relaxed.fun - 1e-6) > radius:
            return int(np.ceil(relaxed.fun - 1e-6)), n_buckets + 1
    result = optimize.milp(
        model.cost, integrality=model.integral, bounds=bounds, constraints=constraint, options={"time_limit": SECONDS}
    )
    if result.status == 2:
        return n_buckets + 1, n_buckets + 1
    low = 1 if result.mip_dual_bound is None else max(1, int(np.ceil(result.mip_dual_bound - 1e-6)))
    high = n_buckets + 1 if result.x is None else round(float(result.fun))
    return min(low, high), high
