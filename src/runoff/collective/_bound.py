"""Upper bound on the number of inputs that one attack flips: a sum of quadratic functions above their indicators."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from runoff._kernels import majorants
from runoff.collective import _semidefinite as semidefinite
from runoff.collective._clock import OutOfTime, check
from runoff.collective._threats import Contested, by_bucket
from runoff.scores import n_threads

MOST_CELLS = 4_000
MOST_BUCKETS = 300  # for more, the semidefinite programme takes too long
CLASSES = 8  # of inputs, each with a separate combination of functions
FORMS = 6  # kept per class
STEP = 0.5  # step length between moments
BITS = 16  # precision of the weights of a combination
AT_ONCE = 64  # inputs between two checks of the deadline


class Cells(NamedTuple):
    """Descriptions of the attacks on each input, for the kernels."""

    group: NDArray[np.int8]  # (n_inputs, n_buckets)
    sizes: NDArray[np.int64]  # (n_inputs, GROUPS)
    marks: NDArray[np.uint8]
    marks_at: NDArray[np.int64]


def most_flipped(contested: Contested, edits: int, rounds: int, deadline: float | None = None) -> int:
    """Return a proven upper bound on the number of inputs that any one attack of `edits` buckets flips.

    Each round fits functions to the moments of a random attack, then weights all functions so far for the moments that
    are worst for them. The next moments lie between both: the worst moments are nearly those of a single attack, and
    functions would overfit to them. With a deadline, every round ends with a proof, and the best one so far is returned
    when the time is up.
    """
    n_buckets, n_inputs = contested.spread.n_buckets, len(contested)
    too_large = n_buckets > MOST_BUCKETS or edits > majorants.MOST_EDITS
    if rounds == 0 or n_inputs < 2 or edits >= n_buckets or too_large:
        return n_inputs
    best = n_inputs
    with suppress(OutOfTime), ThreadPoolExecutor(n_threads()) as pool, threadpool_limits(1):
        for bound in _rounds(contested, edits, rounds, pool, deadline):
            best = min(best, bound)
    return best


def _rounds(
    contested: Contested, edits: int, rounds: int, pool: ThreadPoolExecutor, deadline: float | None
) -> Iterator[int]:
    """Yield proven upper bounds: one, or with a deadline one per round."""
    n_buckets, n_inputs = contested.spread.n_buckets, len(contested)
    moments = semidefinite.uniform(n_buckets, edits)
    cells = _sorted(describe(contested, edits, deadline), edits, moments, deadline)
    edges = np.unique(np.linspace(0, n_inputs, max(CLASSES, -(-n_inputs // majorants.MOST_INPUTS)) + 1, dtype=int))
    combinations = [[_constant(n_buckets, int(n))] for n in np.diff(edges)]  # the constant: all inputs are flipped
    least = np.inf  # no combination of functions is better than the best ones for the moments of one attack
    slowest = 0.0
    for done in range(1, rounds + 1):
        began = time.monotonic()

        def fitted(at: int, moments: NDArray[np.float64] = moments) -> tuple[NDArray[np.int64], float]:
            total, value = np.zeros((n_buckets + 1, n_buckets + 1), np.int64), 0.0
            for first in range(edges[at], edges[at + 1], AT_ONCE):
                check(deadline)
                last = min(first + AT_ONCE, edges[at + 1])
                value += majorants.fit_all(*cells, first, last, edits, moments, total)
            return total, value

        parts = list(pool.map(fitted, range(len(combinations))))
        for functions, (total, _) in zip(combinations, parts, strict=True):
            functions.append(total)
        least = min(least, sum(value for _, value in parts))
        forms = [[total / (2.0 * majorants.UNIT) for total in functions] for functions in combinations]
        last = done == rounds or (deadline is not None and began + 3 * slowest > deadline)
        relaxed = semidefinite.relax(forms, edits, 0.3 if last else max(0.3, n_inputs / 120), deadline)
        last = last or relaxed.value - least < 1
        if last or deadline is not None:
            yield _proven(combinations, relaxed, edits, n_inputs, deadline)
        if last:
            return
        moments = moments + (relaxed.moments - moments) * STEP
        for functions, weight in zip(combinations, relaxed.weights, strict=True):
            functions[:] = [functions[p] for p in np.sort(np.argsort(-weight, kind="stable")[:FORMS])]
        slowest = max(slowest, time.monotonic() - began)


def _sorted(cells: Cells, edits: int, moments: NDArray[np.float64], deadline: float | None = None) -> Cells:
    """Sort the inputs by their bounds, so that the inputs of a class are similar."""
    unused = np.zeros(moments.shape, np.int64)
    n_inputs = len(cells.group)
    ease = np.empty(n_inputs)
    for i in range(n_inputs):
        check(deadline)
        ease[i] = majorants.fit_all(*cells, i, i + 1, edits, moments, unused)
    order = np.argsort(ease, kind="stable")
    marks = [cells.marks[cells.marks_at[i] : cells.marks_at[i + 1]] for i in order]
    marks_at = np.cumsum([0, *map(len, marks)])
    return Cells(cells.group[order], cells.sizes[order], np.concatenate(marks), marks_at)


def _constant(n_buckets: int, n_inputs: int) -> NDArray[np.int64]:
    """Return the sum of functions that are 1 everywhere, in the form of `majorants.fit_all`."""
    total = np.zeros((n_buckets + 1, n_buckets + 1), np.int64)
    total[0, 0] = 2 * majorants.UNIT * n_inputs
    return total


def _proven(
    integers: list[list[NDArray[np.int64]]],
    relaxed: semidefinite.Relaxed,
    edits: int,
    n_inputs: int,
    deadline: float | None = None,
) -> int:
    """Return the bound of `relaxed`, rounded up, with a proof in integers; the number of inputs if none is found."""
    total = np.zeros_like(integers[0][0], dtype=object)
    for forms, weights in zip(integers, relaxed.weights, strict=True):
        check(deadline)
        whole = _whole(weights)
        if whole is None:
            return n_inputs
        for form, share in zip(forms, whole, strict=True):
            total += form.astype(object) * int(share)
    unit = 2 * majorants.UNIT * 2**BITS
    best = semidefinite.relax([[(total / unit).astype(float)]], edits, 0.02, deadline)
    proven = semidefinite.prove(total, edits, best.multipliers, best.value, unit, deadline)
    return n_inputs if proven is None else max(0, proven // unit)


def _whole(weights: NDArray[np.float64]) -> list[int] | None:
    """Return weights as integers from 0 that sum to 2^BITS, or None if there are none that are close."""
    weights = np.maximum(weights, 0)
    if not (np.isfinite(weights).all() and 0 < weights.sum() < np.inf):
        return None
    whole = [int(share) for share in weights / weights.sum() * 2**BITS]
    whole[int(np.argmax(weights))] += 2**BITS - sum(whole)
    return whole if min(whole) >= 0 else None


def describe(contested: Contested, edits: int, deadline: float | None = None) -> Cells:
    """Divide the buckets into groups for each input, and mark the cells in which it may be flipped."""
    n_buckets = contested.spread.n_buckets
    share = edits / n_buckets
    spread_of = share * (1 - share) * n_buckets / max(1, n_buckets - 1)  # variance, up to that of the powers
    group = np.empty((len(contested), n_buckets), np.int8)
    sizes = np.empty((len(contested), majorants.GROUPS), np.int64)
    marks: list[NDArray[np.uint8]] = []
    for i in range(len(contested)):
        check(deadline)
        first, last = contested.threats_at[i : i + 2]
        rows_at = contested.rows_at[first : last + 1]
        rows = slice(int(rows_at[0]), int(rows_at[-1]))
        # A member that several buckets reach is counted once per bucket, which gives an upper bound (Lemma 3.7).
        powers = by_bucket(contested.powers[rows], contested.spread).astype(np.int64)
        gaps = contested.gaps[rows].astype(np.int64)
        # The distance of the average attack from each row, in standard deviations.
        distance = (gaps - share * powers.sum(axis=1)) / np.sqrt(0.25 + spread_of * n_buckets * powers.var(axis=1))
        hardest = [
            a + int(distance[a:b].argmax())
            for a, b in zip(rows_at[:-1] - rows.start, rows_at[1:] - rows.start, strict=True)
        ]
        hardest.sort(key=lambda r: distance[r])
        group[i], sizes[i], most = _divide(powers[hardest], edits)
        here = np.empty(most, np.uint8)
        cells = np.empty((most, majorants.GROUPS), np.int64)
        n = majorants.mark(powers, gaps, rows_at - rows.start, group[i], sizes[i], edits, cells, here)
        marks.append(here[:n])
    return Cells(group, sizes, np.concatenate(marks), np.cumsum([0, *map(len, marks)]))


def _divide(powers: NDArray[np.int64], edits: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Group buckets by their powers on the first, most important rows; return groups, sizes and a bound on cells."""
    for n_groups in range(majorants.GROUPS, 0, -1):
        label = _levels(powers[0], n_groups)
        for row in powers[1:8]:
            finer = np.unique(label * (1 + row.max()) + row, return_inverse=True)[1]
            if finer.max() < n_groups:
                label = finer
        counts = np.bincount(label, minlength=n_groups)
        cells = int(np.prod(np.minimum(np.sort(counts)[:-1], edits) + 1))
        if cells <= MOST_CELLS or n_groups == 1:
            break
    # The largest group is last, where the kernels put the remaining buckets of each attack.
    order = np.argsort(counts, kind="stable")
    place = np.empty(len(counts), np.int64)
    place[order] = np.arange(majorants.GROUPS - len(counts), majorants.GROUPS)
    sizes = np.zeros(majorants.GROUPS, np.int64)
    sizes[place] = counts
    return place[label], sizes, cells


def _levels(row: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return at most n groups of buckets by power, of about equal size if there are more powers than groups."""
    values, label = np.unique(row, return_inverse=True)
    if len(values) <= n:
        return label
    ranks = np.argsort(np.argsort(row, kind="stable"), kind="stable")
    return ranks * n // len(row)
