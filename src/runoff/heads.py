"""Ridge heads: linear members in closed form, each of which chooses its strength on its training samples.

They are intended for features of a trusted encoder. A member chooses its strength by the exact leave-one-out error on
its samples, which requires no refit. The choice is part of training, so the guarantee covers it: an edit changes it
only in the members that the sample reaches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from runoff.errors import InputError

STRENGTHS = tuple(10.0**e for e in range(-4, 4))
BLOCK = 256  # inputs per block, padded if there are fewer, so that scores do not depend on the number of inputs


@dataclass(frozen=True, eq=False)
class Ridge:
    """A fitted ridge: scores are `inputs @ coef + intercept`."""

    coef: NDArray[Any] = field(repr=False)  # (features, classes)
    intercept: NDArray[Any]  # (classes,)
    strength: float
    errors: NDArray[np.float64]  # mean squared leave-one-out error by strength


def fit_ridge(x: NDArray[Any], targets: NDArray[Any], strengths: Sequence[float] = STRENGTHS) -> Ridge:
    """Fit a ridge with an intercept, with the strength of smallest leave-one-out error; ties go to the largest.

    Minimises |x w + b - targets|^2 + s t |w|^2, where s is one of `strengths` and t the mean squared distance of the
    samples from their mean, so that strengths are independent of the scale of features. With H the matrix that maps
    targets to fitted values, the leave-one-out residual of sample i is r_i / (1 - H_ii) (Allen's PRESS), for t fixed.

    Parameters
    ----------
    x : (n_samples, n_features) numbers, with at least two different rows
    targets : (n_samples, n_targets) numbers
    strengths : positive numbers

    """
    x, y = np.asarray(x, np.float64), np.asarray(targets, np.float64)
    mean, base = x.mean(axis=0), y.mean(axis=0)
    x, y = x - mean, y - base
    n, d = x.shape
    scale = float((x**2).sum()) / n
    if not 0 < scale < float("inf"):
        raise InputError(f"x must have at least two different rows of moderate numbers, got {n} with scale {scale}")
    # Decompose the smaller matrix: fitted values are parts @ (shrink * (parts.T @ y)); columns of parts are orthogonal.
    if n <= d:
        values, vectors = np.linalg.eigh(x @ x.T)
        parts = vectors * np.sqrt(values.clip(0))
    else:
        values, vectors = np.linalg.eigh(x.T @ x)
        parts = x @ vectors
    values, projected = values.clip(0), parts.T @ y
    ordered = sorted((float(s) for s in strengths), reverse=True)
    errors = np.empty(len(ordered))
    for i, strength in enumerate(ordered):
        shrink = 1 / (values + strength * scale)
        residuals = y - parts @ (shrink[:, None] * projected)
        leverage = 1 / n + (parts**2) @ shrink
        errors[i] = np.mean((residuals / (1 - leverage)[:, None]) ** 2)
    best = int(np.argmin(errors))
    shrink = 1 / (values + ordered[best] * scale)
    inner = shrink[:, None] * (vectors.T @ y if n <= d else projected)
    coef = x.T @ (vectors @ inner) if n <= d else vectors @ inner
    return Ridge(coef, base - mean @ coef, ordered[best], errors[::-1])


@dataclass(frozen=True, eq=False)
class Heads:
    """The ridge heads of all members."""

    coefs: NDArray[np.float32] = field(repr=False)  # (members, features, classes)
    intercepts: NDArray[np.float32] = field(repr=False)  # (members, classes)
    shares: NDArray[np.float32] = field(repr=False)  # (members, classes): fraction of a member's samples
    strengths: NDArray[np.float64]  # (members,); NaN for members that vote by their class shares

    def scores(self, features: ArrayLike) -> NDArray[np.float32]:
        """Return the scores of the members, (n_inputs, n_members, n_classes).

        The scores of an input do not depend on the values of other inputs; their last bits may depend on its place
        among them. If they are not finite, class shares are used.
        """
        x = np.asarray(features, np.float32)
        d = self.coefs.shape[1]
        if x.ndim != 2 or x.shape[1] != d:
            raise InputError(f"features must have shape (n, {d}), got {x.shape}")
        with threadpool_limits(1):
            scores = linear_scores(x, self.coefs, self.intercepts)
        finite = np.isfinite(scores).all(axis=2, keepdims=True)
        return np.where(finite, scores, self.shares)


def linear_scores(
    features: NDArray[np.float32], coefs: NDArray[np.float32], intercepts: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the scores of linear members, (n_inputs, n_members, n_classes).

    The caller must limit libraries to one thread; then the scores of an input do not depend on the values of other
    inputs. Their last bits may depend on its place in its block, since libraries multiply the edges of matrices in
    another order.
    """
    k, d, n_classes = coefs.shape
    scores = np.empty((len(features), k, n_classes), np.float32)
    with np.errstate(all="ignore"):
        for start in range(0, len(features), BLOCK):
            part = features[start : start + BLOCK]
            block = np.zeros((BLOCK, d), np.float32)
            block[: len(part)] = part
            for m in range(k):
                scores[start : start + BLOCK, m] = (block @ coefs[m] + intercepts[m])[: len(part)]
    return scores


def fit_head(x: NDArray[Any], codes: NDArray[Any], n_classes: int, strengths: Sequence[float] = STRENGTHS) -> Ridge:
    """Fit the ridge head of one member in single precision; raise InputError if its samples do not determine it."""
    with np.errstate(all="ignore"):
        try:
            ridge = fit_ridge(x, one_vs_rest(codes, n_classes), strengths)
        except np.linalg.LinAlgError as error:
            raise InputError(f"x must have moderate numbers, but its ridge has no solution: {error}") from None
        coef, intercept = ridge.coef.astype(np.float32), ridge.intercept.astype(np.float32)
    if not np.isfinite(coef).all() or not np.isfinite(intercept).all():
        raise InputError("x must have moderate numbers, but its ridge overflows single precision")
    return Ridge(coef, intercept, ridge.strength, ridge.errors)


def fit_heads(
    features: ArrayLike,
    codes: ArrayLike,
    rows: Sequence[NDArray[np.int64]] | Mapping[int, NDArray[np.int64]],
    n_classes: int,
    *,
    strengths: Sequence[float] = STRENGTHS,
    n_jobs: int = 1,
) -> Heads:
    """Fit a ridge head per member; a head depends on the training rows of its member only, bit for bit.

    A member whose samples do not have two classes and two different rows votes by its class shares.

    Parameters
    ----------
    features : (n_samples, n_features) numbers, computed by a function that does not depend on the training samples
    codes : (n_samples,) class indices
    rows : the training rows of each member, in an order that depends only on their content, as from `Partition.rows`
    n_classes : the number of classes, fixed in advance
    strengths : strengths to choose from; see `fit_ridge`
    n_jobs : the number of members fitted in parallel

    """
    x, y = np.asarray(features), np.asarray(codes)
    if x.ndim != 2 or x.dtype.kind not in "biuf":
        raise InputError(f"features must be (n_samples, n_features) numbers, got shape {x.shape} and dtype {x.dtype}")
    if y.shape != (len(x),) or y.dtype.kind not in "iu" or (y.size and not 0 <= y.min() <= y.max() < n_classes):
        raise InputError(f"codes must be a whole number from 0 to {n_classes - 1} for each of {len(x)} samples")
    chosen = checked_strengths(strengths)
    members = [np.asarray(rows[m], np.int64) for m in range(len(rows))]

    counts = [np.bincount(y[part], minlength=n_classes) / max(1, len(part)) for part in members]
    shares = np.array(counts, np.float32).reshape(len(members), n_classes)
    heads = Heads(
        np.zeros((len(members), x.shape[1], n_classes), np.float32),
        shares.copy(),
        shares,
        np.full(len(members), np.nan),
    )

    def fit(m: int) -> None:
        part = members[m]
        if np.count_nonzero(shares[m]) < 2:
            return
        try:
            ridge = fit_head(x[part], y[part], n_classes, chosen)
        except InputError:  # one sample can cause this, and must not stop other members
            return
        heads.coefs[m], heads.intercepts[m], heads.strengths[m] = ridge.coef, ridge.intercept, ridge.strength

    with threadpool_limits(1), ThreadPoolExecutor(max(1, n_jobs)) as pool:
        list(pool.map(fit, range(len(members))))
    return heads


def one_vs_rest(codes: NDArray[Any], n_classes: int) -> NDArray[np.float64]:
    """Return targets of 1 for the class of each sample and -1 for the others."""
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)


def checked_strengths(strengths: Sequence[float]) -> tuple[float, ...]:
    """Return the strengths as floats, or raise InputError."""
    values = tuple(float(s) for s in strengths)
    if not values or not all(0 < s < float("inf") for s in values):
        raise InputError(f"strengths must be positive numbers, got {strengths!r}")
    return values


class RidgeHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear classifier that chooses the strength of its ridge by leave-one-out on its training samples.

    As the base estimator of a `RunoffClassifier`, it chooses inside each member, which the guarantee covers.

    Parameters
    ----------
    strengths : strengths to choose from, relative to the mean squared distance of the samples from their mean

    """

    def __init__(self, strengths: Sequence[float] = STRENGTHS) -> None:
        self.strengths = strengths

    def fit(self, X: Any, y: Any) -> RidgeHead:
        """Fit on features and labels."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(f"y must have at least two classes, got {len(self.classes_)} class")
        ridge = fit_ridge(X, one_vs_rest(codes, len(self.classes_)), checked_strengths(self.strengths))
        self.coef_, self.intercept_, self.strength_ = ridge.coef.T, ridge.intercept, ridge.strength
        return self

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return scores, (n, classes), or (n,) for two classes."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        scores: NDArray[np.float64] = X @ self.coef_.T + self.intercept_
        return scores[:, 1] if len(self.classes_) == 2 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class with the largest score."""
        scores = self.decision_function(X)
        codes = (scores > 0).astype(np.int64) if scores.ndim == 1 else scores.argmax(axis=1)
        labels: NDArray[Any] = self.classes_[codes]
        return labels
