"""Upper bounds on quadratic forms over all sets of a given number of buckets, with a proof in integers.

A set of buckets is represented by z = (1, x), where x is its indicator with Σ x_b = edits. Let V_b = e_b e_b' - (e_0
e_b' + e_b e_0')/2, so that z' V_b z = x_b² - x_b = 0. If c e_0 e_0' + Σ d_b V_b - A is positive semidefinite on the
plane that all z lie in, then z' A z <= c for every set. `relax` minimises c over d and over convex combinations of
several A, by a barrier method in floating point. `prove` checks the result, or a slightly larger c, in integers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runoff.collective._clock import check

Array = NDArray[np.float64]
STEPS = 60  # of Newton's method per weight of the barrier


class Relaxed(NamedTuple):
    """The result of `relax`: the bound, its multipliers, and the moments of the attacks that it cannot exclude."""

    value: float
    multipliers: Array  # d, one per bucket
    weights: list[Array]  # of the forms, per class
    moments: Array  # (n_buckets + 1, n_buckets + 1), as in `uniform`


def uniform(n_buckets: int, edits: int) -> Array:
    """Return the moments of a uniformly random attack, the mean of (1, x) (1, x)'."""
    share = edits / n_buckets
    both = share * (edits - 1) / max(1, n_buckets - 1)
    moments = np.full((n_buckets + 1, n_buckets + 1), both)
    moments[0] = moments[:, 0] = share
    np.fill_diagonal(moments, share)
    moments[0, 0] = 1
    return moments


def relax(forms: list[list[Array]], edits: int, accuracy: float, deadline: float | None = None) -> Relaxed:
    """Minimise the bound on Σ_c Σ_p weight_cp forms_cp, where the weights of each class c are positive and sum to 1.

    There must be more than `edits` buckets.
    """
    size = len(forms[0][0])
    n_buckets = size - 1
    plane = _plane(n_buckets, edits)
    corners = plane.T @ np.concatenate([np.full((1, n_buckets), -0.5), np.eye(n_buckets)])  # of V_b + e_0 e_0' / 4
    vectors = np.concatenate([plane[0][:, None], corners], axis=1)  # each multiplies one variable: c', then d
    classes = np.repeat(np.arange(len(forms)), [len(members) for members in forms])
    dense = np.array([plane.T @ form @ plane for members in forms for form in members])
    weight = np.concatenate([np.full(len(members), 1 / len(members)) for members in forms])
    total = np.tensordot(weight, dense, 1)
    ones = (classes[None] == np.arange(len(forms))[:, None]).astype(float)
    prices = np.concatenate([[1.0], np.full(n_buckets, 0.25), np.zeros(len(weight))])
    # A strictly feasible start: large multipliers, then c' above the Schur complement.
    spread_out = float(np.abs(np.linalg.eigvalsh(total)).max()) + 1.0
    variables = np.concatenate([[0.0], np.full(n_buckets, spread_out), weight])
    while not _is_positive(_slack(variables, vectors, dense)):
        variables[0] = 2 * variables[0] + spread_out
    barrier = (n_buckets + len(weight)) / max(1.0, 0.1 * float(prices @ variables))
    while True:
        for _ in range(STEPS):
            check(deadline)
            if not _newton(variables, vectors, dense, prices, ones, barrier):
                break
        if (n_buckets + len(weight)) / barrier <= accuracy:
            break
        barrier *= 8
    inverse = np.linalg.inv(_slack(variables, vectors, dense))
    moments = plane @ inverse @ plane.T
    moments /= moments[0, 0]
    ends = np.cumsum([len(members) for members in forms])[:-1]
    return Relaxed(
        value=float(prices @ variables),
        multipliers=variables[1:size].copy(),
        weights=np.split(variables[size:].copy(), ends),
        moments=moments,
    )


def _plane(n_buckets: int, edits: int) -> Array:
    """Return an orthonormal basis of the plane Σ x_b = edits z_0, in columns."""
    normal = np.concatenate([[-float(edits)], np.ones(n_buckets)])
    basis = np.linalg.qr(np.concatenate([normal[:, None], np.eye(n_buckets + 1)[:, :n_buckets]], axis=1))[0]
    return np.ascontiguousarray(basis[:, 1:])


def _slack(variables: Array, vectors: Array, dense: Array) -> Array:
    size = vectors.shape[1]
    matrix: Array = (vectors * variables[:size]) @ vectors.T - np.tensordot(variables[size:], dense, 1)
    return (matrix + matrix.T) / 2


def _is_positive(matrix: Array) -> bool:
    try:
        np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        return False
    return True


def _newton(variables: Array, vectors: Array, dense: Array, prices: Array, ones: Array, barrier: float) -> bool:
    """Take one damped step of Newton's method in place; return whether another step is worthwhile."""
    size = vectors.shape[1]
    inverse = np.linalg.inv(_slack(variables, vectors, dense))
    weight = variables[size:]
    moved = inverse @ vectors
    products = inverse @ dense
    gradient = barrier * prices
    gradient[:size] -= (vectors * moved).sum(axis=0)
    gradient[size:] += np.trace(products, axis1=1, axis2=2) - 1 / weight
    hessian = np.empty((len(variables), len(variables)))
    hessian[:size, :size] = (vectors.T @ moved) ** 2
    cross = -(moved * (dense @ moved)).sum(axis=1).T
    hessian[:size, size:], hessian[size:, :size] = cross, cross.T
    flat = products.reshape(len(dense), -1)
    hessian[size:, size:] = flat @ products.transpose(0, 2, 1).reshape(len(dense), -1).T + np.diag(1 / weight**2)
    # The sum of the weights of each class stays constant.
    n_classes = len(ones)
    system = np.zeros((len(variables) + n_classes,) * 2)
    system[: len(variables), : len(variables)] = hessian
    system[len(variables) :, size : len(variables)] = ones
    system[size : len(variables), len(variables) :] = ones.T
    diagonal = np.sqrt(np.concatenate([np.diag(hessian), np.ones(n_classes)]))
    right = np.concatenate([-gradient, np.zeros(n_classes)])
    system = system / diagonal / diagonal[:, None]
    system[np.arange(len(variables)), np.arange(len(variables))] += 1e-11  # for equivalent multipliers
    try:
        step = np.linalg.solve(system, right / diagonal) / diagonal
    except np.linalg.LinAlgError:  # no further progress in this arithmetic
        return False
    step = step[: len(variables)]
    decrement = float(-gradient @ step)
    if not decrement > 1e-3:
        if np.isfinite(step).all() and (variables[size:] + step[size:] > 0).all():
            after = variables + step
            if _is_positive(_slack(after, vectors, dense)):
                variables[:] = after
        return False
    length = 1.0 if decrement < 0.25 else 1 / (1 + np.sqrt(decrement))
    # A longer step often stays feasible.
    now = _barrier(variables, vectors, dense, prices, barrier)
    for factor in (1.0, 0.5, 0.25):
        if factor > length and _barrier(variables + factor * step, vectors, dense, prices, barrier) < now:
            length = factor
            break
    while length > 1e-12:
        after = variables + length * step
        if (after[size:] > 0).all() and _is_positive(_slack(after, vectors, dense)):
            variables[:] = after
            return True
        length /= 2
    return False


def _barrier(variables: Array, vectors: Array, dense: Array, prices: Array, barrier: float) -> float:
    """Return the value of the function that Newton's method minimises, infinite outside its domain."""
    weight = variables[vectors.shape[1] :]
    try:
        root = np.linalg.cholesky(_slack(variables, vectors, dense))
    except np.linalg.LinAlgError:
        return np.inf
    if (weight <= 0).any():
        return np.inf
    return float(barrier * prices @ variables - 2 * np.log(np.diag(root)).sum() - np.log(weight).sum())


def prove(
    form: NDArray[Any], edits: int, multipliers: Array, value: float, unit: int, deadline: float | None = None
) -> int | None:
    """Return an integer c with z' form z <= c for every set of buckets, close to `value`, or None if no proof is found.

    `form` is a symmetric matrix of Python integers in units of 1 / unit. The proof is that M, twice the slack in an
    integer basis of the plane, is positive semidefinite, by `_is_proven`.
    """
    if not (np.isfinite(multipliers * unit).all() and np.isfinite(value * unit)):
        return None
    n_buckets = len(form) - 1
    d = np.array([round(x) for x in multipliers * unit], object)
    slack = -2 * form
    slack[0, 1:] -= d
    slack[1:, 0] -= d
    slack[np.arange(1, n_buckets + 1), np.arange(1, n_buckets + 1)] += 2 * d
    # The basis: (n_buckets, edits, ..., edits), and e_b - e_last for every other bucket b.
    first = n_buckets * slack[0] + edits * slack[1:].sum(axis=0)
    matrix = np.empty((n_buckets, n_buckets), object)
    matrix[0, 0] = n_buckets * first[0] + edits * first[1:].sum()
    matrix[0, 1:] = matrix[1:, 0] = first[1:-1] - first[-1]
    matrix[1:, 1:] = slack[1:-1, 1:-1] - slack[1:-1, -1:] - slack[-1:, 1:-1] + slack[-1, -1]
    corner = matrix[0, 0]
    for margin in 4.0 ** np.arange(-12, 8):
        check(deadline)
        gamma = int(np.ceil((value + margin) * unit))
        matrix[0, 0] = corner + 2 * gamma * n_buckets**2
        if _is_proven(matrix):
            return gamma
    return None


def _is_proven(matrix: NDArray[Any]) -> bool:
    """Return whether a symmetric matrix of Python integers is proven to be positive semidefinite.

    The matrix is balanced by multiplying row and column b by the same number, which preserves definiteness. Then it is
    2^s (Q + R), where the entries of R are at least 0 and less than 1. Q - size I must equal L L' + E with an integer
    matrix L and a diagonally dominant E.
    """
    size = len(matrix)
    if (matrix != matrix.T).any():
        return False
    diagonal = [int(entry) for entry in np.diag(matrix)]
    if min(diagonal) <= 0:
        return False
    factors = np.array([2 ** (((max(diagonal) // entry).bit_length() - 1) // 2) for entry in diagonal], object)
    balanced = matrix * factors * factors[:, None]
    shift = max(abs(int(entry)).bit_length() for entry in balanced.flat) - 60
    quotient = (balanced >> shift if shift > 0 else balanced << -shift).astype(np.int64)
    quotient[np.diag_indices(size)] -= size
    slack = 2.0 * size * np.sqrt(float(np.diag(quotient).max()))
    try:
        lower = np.linalg.cholesky(quotient.astype(float) - slack * np.eye(size))
    except np.linalg.LinAlgError:
        return False
    # Neither the products nor the sums overflow: no entry of L L' exceeds the largest squared norm of a row of L.
    if not (np.square(lower).sum(axis=1) < 2.0**61).all():
        return False
    root = np.rint(lower).astype(np.int64)
    rest = quotient - root @ root.T
    if not (np.abs(rest) < 2**62 // size).all():
        return False
    return bool((2 * np.diag(rest) >= np.abs(rest).sum(axis=1)).all())
