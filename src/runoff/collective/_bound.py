"""The upper bound on the inputs that one attack flips: quadratic functions above each input's indicator, added up."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from runoff._kernels import majorants
from runoff.collective import _semidefinite as semidefinite
from runoff.collective._threats import Contested, by_bucket
from runoff.scores import n_threads

MOST_CELLS = 4_000
MOST_BUCKETS = 300  # above it, the semidefinite programme takes too long
CLASSES = 8  # of inputs, of which each has its own combination of functions
FORMS = 6  # kept of each class
BITS = 16  # of the weights of a combination


class Cells(NamedTuple):
    """How each input's attacks are described, for the kernels."""

    group: NDArray[np.int8]  # (n_inputs, n_buckets)
    sizes: NDArray[np.int64]  # (n_inputs, GROUPS)
    marks: NDArray[np.uint8]
    marks_at: NDArray[np.int64]


def most_flipped(contested: Contested, edits: int, rounds: int, deadline: float | None = None) -> int:
    """Return a proven upper bound on the number of inputs that any one attack of `edits` buckets flips."""
    n_buckets, n_inputs = contested.spread.n_buckets, len(contested)
    too_large = n_buckets > MOST_BUCKETS or edits > majorants.MOST_EDITS
    if rounds == 0 or n_inputs < 2 or edits >= n_buckets or too_large:
        return n_inputs
    cells = describe(contested, edits)
    edges = np.unique(np.linspace(0, n_inputs, max(CLASSES, -(-n_inputs // majorants.MOST_INPUTS)) + 1, dtype=int))
    moments = semidefinite.uniform(n_buckets, edits)
    integers: list[list[NDArray[np.int64]]] = [[] for _ in edges[1:]]
    forms: list[list[NDArray[np.float64]]] = [[] for _ in edges[1:]]
    with ThreadPoolExecutor(n_threads()) as pool:
        for step in range(rounds):

            def fitted(at: int, moments: NDArray[np.float64] = moments) -> tuple[NDArray[np.int64], float]:
                total = np.zeros((n_buckets + 1, n_buckets + 1), np.int64)
                return total, majorants.fit_all(*cells, edges[at], edges[at + 1], edits, moments, total)

            for at, (total, _) in enumerate(pool.map(fitted, range(len(edges) - 1))):
                integers[at].append(total)
                forms[at].append(total / (2.0 * majorants.UNIT))
            relaxed = semidefinite.relax(forms, edits, accuracy=0.3 if step + 1 == rounds else 2.0)
            if deadline is not None and time.monotonic() > deadline:
                break
            if step + 1 < rounds:
                for at, weight in enumerate(relaxed.weights):
                    kept = np.sort(np.argsort(-weight, kind="stable")[:FORMS])
                    integers[at], forms[at] = [integers[at][p] for p in kept], [forms[at][p] for p in kept]
                moments = moments + (relaxed.moments - moments) * 2 / (step + 4)
    return min(n_inputs, _proven(integers, relaxed, edits, n_inputs))


def _proven(integers: list[list[NDArray[np.int64]]], relaxed: semidefinite.Relaxed, edits: int, n_inputs: int) -> int:
    """Return the bound of `relaxed`, rounded up, with a proof in integers; the number of inputs if none is found."""
    total = np.zeros_like(integers[0][0], dtype=object)
    for forms, weights in zip(integers, relaxed.weights, strict=True):
        whole = np.floor(np.maximum(weights, 0) / weights.sum() * 2**BITS).astype(int)
        whole[np.argmax(whole)] += 2**BITS - whole.sum()
        if (whole < 0).any():
            return n_inputs
        for form, share in zip(forms, whole, strict=True):
            total += form.astype(object) * int(share)
    unit = 2 * majorants.UNIT * 2**BITS
    best = semidefinite.relax([[(total / unit).astype(float)]], edits, accuracy=0.02)
    proven = semidefinite.prove(total, edits, best.multipliers, best.value, unit)
    return n_inputs if proven is None else max(0, proven // unit)


def describe(contested: Contested, edits: int) -> Cells:
    """Divide the buckets into groups for each input, and mark the cells in which it may be flipped."""
    n_buckets = contested.spread.n_buckets
    share = edits / n_buckets
    spread_of = share * (1 - share) * n_buckets / max(1, n_buckets - 1)  # variance, but for the powers' own
    group = np.empty((len(contested), n_buckets), np.int8)
    sizes = np.empty((len(contested), majorants.GROUPS), np.int64)
    marks: list[NDArray[np.uint8]] = []
    for i in range(len(contested)):
        first, last = contested.threats_at[i : i + 2]
        rows_at = contested.rows_at[first : last + 1]
        rows = slice(int(rows_at[0]), int(rows_at[-1]))
        # A member that several buckets reach counts once for each: an upper bound (Lemma 3.7).
        powers = by_bucket(contested.powers[rows], contested.spread).astype(np.int64)
        gaps = contested.gaps[rows].astype(np.int64)
        # How many standard deviations the average attack is away from each row.
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
    """Divide buckets by their powers on the most important rows, which come first; return groups, sizes, most cells."""
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
    # The largest group comes last, where the kernels expect the rest of each attack.
    order = np.argsort(counts, kind="stable")
    place = np.empty(len(counts), np.int64)
    place[order] = np.arange(majorants.GROUPS - len(counts), majorants.GROUPS)
    sizes = np.zeros(majorants.GROUPS, np.int64)
    sizes[place] = counts
    return place[label], sizes, cells


def _levels(row: NDArray[np.int64], n: int) -> NDArray[np.int64]:
    """Return at most n groups of buckets by power, of about the same size where there are more powers than groups."""
    values, label = np.unique(row, return_inverse=True)
    if len(values) <= n:
        return label
    ranks = np.argsort(np.argsort(row, kind="stable"), kind="stable")
    return ranks * n // len(row)
