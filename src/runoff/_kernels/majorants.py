"""Quadratic functions above the indicator that an attack flips one input, for collective certificates.

The buckets are divided into at most four groups for each input, and an attack on `edits` buckets is described by its
number n_g of buckets in each group, called a cell. A cell is marked if, by these numbers, the attack may flip the
input. `fit_all` finds functions c + Σ l_g n_g + Σ q_gh n_g n_h that are at least 1 in marked cells and at least 0 in
all others. Coefficients are integers, and both conditions are met in integers: rounding can only make the functions
larger.
"""

from typing import Any

import numpy as np

from runoff._kernels.compiling import helper, kernel

UNIT = 2**32  # represents 1 in the integer coefficients
GROUPS = 4
TERMS = 10  # of a quadratic function of the first three groups: 1, n_a, n_a n_b
MOST_EDITS = 1024
# The largest coefficients; above these, the constant 1 is used. With them, nothing overflows for up to MOST_EDITS edits
# and sums over up to MOST_INPUTS inputs.
MOST_INPUTS = 2**14
LARGEST_PRODUCT, LARGEST_LINEAR, LARGEST_CONSTANT = 2.0**40, 2.0**45, 2**46
BOX = 8.0  # the largest coefficient of a standardized function
PIVOTS = 300


@helper
def _cells(sizes: Any, edits: int, cells: Any) -> int:
    """Fill `cells` with the number of taken buckets in each group, and return the number of cells."""
    n = 0
    for a in range(max(0, edits - sizes[1] - sizes[2] - sizes[3]), min(edits, sizes[0]) + 1):
        for b in range(max(0, edits - a - sizes[2] - sizes[3]), min(edits - a, sizes[1]) + 1):
            for c in range(max(0, edits - a - b - sizes[3]), min(edits - a - b, sizes[2]) + 1):
                cells[n, 0] = a
                cells[n, 1] = b
                cells[n, 2] = c
                cells[n, 3] = edits - a - b - c
                n += 1
    return n


@kernel
def mark(powers: Any, gaps: Any, rows_at: Any, group: Any, sizes: Any, edits: int, cells: Any, marks: Any) -> int:
    """Mark the cells in which some threat may be met, and return the number of cells.

    `powers` (rows, buckets) and `gaps` (rows) are those of all threats of one input, and `rows_at` lists the first row
    of each threat. A row may be met in a cell if the largest powers of as many buckets of each group reach the gap.
    """
    n = _cells(sizes, edits, cells)
    marks[:n] = 0
    rows, n_buckets = powers.shape
    tops = np.zeros((rows, GROUPS, edits + 1), np.int64)
    for r in range(rows):
        for g in range(GROUPS):
            values = np.zeros(sizes[g], np.int64)
            filled = 0
            for b in range(n_buckets):
                if group[b] == g:
                    values[filled] = powers[r, b]
                    filled += 1
            values.sort()
            for t in range(1, edits + 1):
                tops[r, g, t] = tops[r, g, t - 1]
                if t <= filled:
                    tops[r, g, t] += values[filled - t]
    for p in range(n):
        for threat in range(rows_at.shape[0] - 1):
            met = True
            for r in range(rows_at[threat], rows_at[threat + 1]):
                total = np.int64(0)
                for g in range(GROUPS):
                    total += tops[r, g, cells[p, g]]
                if total < gaps[r]:
                    met = False
                    break
            if met:
                marks[p] = 1
                break
    return n


@kernel
def fit_all(
    group: Any, sizes: Any, marks: Any, marks_at: Any, first: int, last: int, edits: int, moments: Any, total: Any
) -> float:
    """Sum the functions with the smallest average over attacks with these moments, for inputs first to last - 1.

    `moments[0, 1 + b]` is the share of attacks that take bucket b, `moments[1 + a, 1 + b]` the share that take both.
    `total` (buckets + 1, buckets + 1) receives twice the sum of the functions, as a quadratic form of (1, x) in units
    of 1 / UNIT, x the indicator of the buckets taken. Returns the average of the sum.
    """
    n_buckets = group.shape[1]
    most = 0
    for i in range(first, last):
        most = max(most, marks_at[i + 1] - marks_at[i])
    cells = np.zeros((most, GROUPS), np.int64)
    phi = np.zeros((most, TERMS))
    mean = np.zeros(GROUPS)
    square = np.zeros((GROUPS, GROUPS))
    linear = np.zeros(GROUPS, np.int64)
    products = np.zeros((GROUPS, GROUPS), np.int64)
    expected = 0.0
    for i in range(first, last):
        n = _cells(sizes[i], edits, cells)
        here = marks[marks_at[i] : marks_at[i + 1]]
        mean[:] = 0.0
        square[:] = 0.0
        for a in range(n_buckets):
            mean[group[i, a]] += moments[0, 1 + a]
            for b in range(n_buckets):
                square[group[i, a], group[i, b]] += moments[1 + a, 1 + b]
        value, constant = _fit(cells, n, here, mean, square, phi, linear, products)
        expected += value
        total[0, 0] += 2 * constant
        for a in range(n_buckets):
            total[0, 1 + a] += linear[group[i, a]]
            total[1 + a, 0] += linear[group[i, a]]
            for b in range(n_buckets):
                total[1 + a, 1 + b] += products[group[i, a], group[i, b]]
    return expected


@helper
def _fit(cells: Any, n: int, marks: Any, mean: Any, square: Any, phi: Any, linear: Any, products: Any) -> Any:
    """Fill `linear` and `products` (twice q, symmetric) for one input; return the average and the constant."""
    # Standardized monomials: a linear programme in them is well scaled.
    scale = np.ones(GROUPS)
    target = np.zeros(TERMS)
    target[0] = 1.0
    for g in range(3):
        scale[g] = max(0.3, np.sqrt(max(0.0, square[g, g] - mean[g] * mean[g])))
    at = 4
    for g in range(3):
        for h in range(g, 3):
            target[at] = (square[g, h] - mean[g] * mean[h]) / (scale[g] * scale[h])
            at += 1
    for p in range(n):
        phi[p, 0] = 1.0
        for g in range(3):
            phi[p, 1 + g] = (cells[p, g] - mean[g]) / scale[g]
        at = 4
        for g in range(3):
            for h in range(g, 3):
                phi[p, at] = phi[p, 1 + g] * phi[p, 1 + h]
                at += 1
    q = np.zeros(TERMS)
    _simplex(phi, n, marks, target, q)
    # Convert to functions of the numbers n_g, in integers.
    coefficients = np.zeros(TERMS)  # 1, n_a, n_a n_b, with q_ab for a <= b
    coefficients[0] = q[0]
    for g in range(3):
        coefficients[0] -= q[1 + g] * mean[g] / scale[g]
        coefficients[1 + g] += q[1 + g] / scale[g]
    at = 4
    for g in range(3):
        for h in range(g, 3):
            s = q[at] / (scale[g] * scale[h])
            coefficients[at] = s
            coefficients[0] += s * mean[g] * mean[h]
            coefficients[1 + g] -= s * mean[h]
            coefficients[1 + h] -= s * mean[g]
            at += 1
    linear[:] = 0
    products[:] = 0
    usable = True
    for t in range(1, TERMS):
        if not abs(coefficients[t] * UNIT) < (LARGEST_LINEAR if t < 4 else LARGEST_PRODUCT):
            usable = False
    if usable:
        for g in range(3):
            linear[g] = np.int64(np.rint(coefficients[1 + g] * UNIT))
        at = 4
        for g in range(3):
            for h in range(g, 3):
                rounded = np.int64(np.rint(coefficients[at] * UNIT))
                products[g, h] += rounded
                products[h, g] += rounded
                at += 1
        # The smallest constant for which the function is large enough in every cell.
        constant = np.int64(-(2**62))
        for p in range(n):
            twice = np.int64(0)
            for g in range(3):
                twice += 2 * linear[g] * cells[p, g]
                for h in range(3):
                    twice += products[g, h] * cells[p, g] * cells[p, h]
            constant = max(constant, (UNIT if marks[p] else 0) - twice // 2)
        value = float(constant)
        for g in range(3):
            value += linear[g] * mean[g]
            for h in range(3):
                value += 0.5 * products[g, h] * square[g, h]
        if abs(constant) < LARGEST_CONSTANT and value < UNIT:
            return value / UNIT, constant
    linear[:] = 0
    products[:] = 0
    return 1.0, np.int64(UNIT)


@helper
def _simplex(phi: Any, n: int, marks: Any, target: Any, q: Any) -> None:
    """Minimise target · q subject to phi q >= marks and |q| <= BOX, by the simplex method on the dual programme.

    The dual maximises the weight of marked cells over distributions on cells with the given moments. The caller
    corrects q, so the result need not be optimal.
    """
    inverse = np.zeros((TERMS, TERMS))
    weight = np.zeros(TERMS)  # of the basic columns
    cost = np.zeros(TERMS)
    column = np.zeros(TERMS)
    entering = np.zeros(TERMS)
    for r in range(TERMS):
        inverse[r, r] = 1.0 if target[r] >= 0 else -1.0
        weight[r] = abs(target[r]) + 1e-9 * (r + 1)  # so that no two ratios are equal
        cost[r] = -BOX
    for _ in range(PIVOTS):
        for t in range(TERMS):
            q[t] = 0.0
            for r in range(TERMS):
                q[t] += cost[r] * inverse[r, t]
        best, chosen, sign, gain = 1e-9, -1, 0.0, 0.0
        for p in range(n):
            value = 1.0 if marks[p] else 0.0
            for t in range(TERMS):
                value -= phi[p, t] * q[t]
            if value > best:
                best, chosen, sign = value, p, 0.0
        for t in range(TERMS):
            if abs(q[t]) - BOX > best:
                best, chosen, sign = abs(q[t]) - BOX, t, (-1.0 if q[t] > 0 else 1.0)
        if chosen < 0:
            return
        for t in range(TERMS):
            entering[t] = phi[chosen, t] if sign == 0.0 else 0.0
        if sign != 0.0:
            entering[chosen] = sign
            gain = -BOX
        else:
            gain = 1.0 if marks[chosen] else 0.0
        leaving, least = -1, np.inf
        for r in range(TERMS):
            column[r] = 0.0
            for t in range(TERMS):
                column[r] += inverse[r, t] * entering[t]
            if column[r] > 1e-10 and weight[r] / column[r] < least:
                leaving, least = r, weight[r] / column[r]
        if leaving < 0:
            return
        pivot = column[leaving]
        for t in range(TERMS):
            inverse[leaving, t] /= pivot
        for r in range(TERMS):
            if r != leaving and column[r] != 0.0:
                for t in range(TERMS):
                    inverse[r, t] -= column[r] * inverse[leaving, t]
                weight[r] = max(0.0, weight[r] - column[r] * least)
        weight[leaving] = least
        cost[leaving] = gain
