"""Certified accuracy and the rate of targeted attacks, by number of edits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff.errors import InputError

if TYPE_CHECKING:
    from runoff.certificates._certificates import Certificates


def certified_accuracy(
    certificates: Certificates, y_true: ArrayLike, budgets: ArrayLike, *, by_class: bool = False
) -> NDArray[np.float64]:
    """Return the fraction of inputs that are predicted correctly with radius >= budget, for each budget.

    The overall fraction can hide a rare class without any certified input, which `by_class` shows.

    Parameters
    ----------
    certificates : Certificates
    y_true : (n_samples,) the true classes
    budgets : numbers of edits; 0 gives the clean accuracy
    by_class : return a row for each class, in the order of `classes` or of the class indices: the fraction of the
        inputs of this class, NaN if there are none

    Returns
    -------
    accuracy : (n_budgets,) floats, or (n_classes, n_budgets); NaN if there are no inputs

    Examples
    --------
    >>> import numpy as np, runoff
    >>> scores = np.array([[[3, 2, 1]] * 7, [[3, 2, 1]] * 4 + [[1, 3, 2]] * 3])  # two inputs, 7 members, 3 classes
    >>> certificates = runoff.certify(scores)
    >>> certificates.certified_accuracy([0, 1], [0, 3])
    array([0.5, 0.5])
    >>> certificates.certified_accuracy([0, 1], [0, 3], by_class=True)
    array([[ 1.,  1.],
           [ 0.,  0.],
           [nan, nan]])

    """
    labels, edits = checked_labels(certificates, y_true), checked_budgets(budgets)
    certified = (certificates.prediction == labels)[:, None] & (certificates.radius[:, None] >= edits)
    if not by_class:
        return np.array([np.mean(column) if len(column) else np.nan for column in certified.T])
    names = certificates.labels_of(np.arange(certificates.n_classes))
    each = [certified[labels == name] for name in names]
    return np.array([rows.mean(axis=0) if len(rows) else np.full(len(edits), np.nan) for rows in each])


def targeted_rate(
    certificates: Certificates,
    y_true: ArrayLike,
    source: Any,
    target: Any,
    budgets: ArrayLike,
    *,
    scores: ArrayLike | Iterator[ArrayLike] | None = None,
) -> NDArray[np.float64]:
    """Return the share of inputs of class `source` that might be predicted as `target`, for each number of edits.

    No attack with that many edits achieves a higher rate, on all inputs together or on each separately. Inputs that are
    predicted as `target` without any edit count for every budget.

    Parameters
    ----------
    certificates : Certificates
    y_true : (n_samples,) the true classes
    source : the true class of the inputs that are counted; None for all classes but `target`
    target : the class that the attacker wants the ensemble to predict
    budgets : numbers of edits; 0 gives the rate without an attack
    scores : as for `Certificates.radius_to`

    Returns
    -------
    rate : (n_budgets,) floats

    Examples
    --------
    >>> import numpy as np, runoff
    >>> spam, ham = [[0, 1]], [[1, 0]]  # one member's scores of class 0, ham, and class 1, spam
    >>> scores = np.array([spam * 9, spam * 7 + ham * 2, spam * 4 + ham * 5])  # three mails, 9 members
    >>> runoff.targeted_rate(runoff.certify(scores), [1, 1, 1], source=1, target=0, budgets=[0, 3, 5])
    array([0.33333333, 0.66666667, 1.        ])

    """
    labels, edits = checked_labels(certificates, y_true), checked_budgets(budgets)
    names = certificates.labels_of(np.arange(certificates.n_classes))
    wanted = names[certificates.index_of(target)]
    counted = labels != wanted if source is None else labels == names[certificates.index_of(source)]
    if source is not None and names[certificates.index_of(source)] == wanted:
        raise InputError(f"source and target must be two classes, got {source!r} twice")
    if not counted.any():
        which = f"class {source!r}" if source is not None else f"other classes than {target!r}"
        raise InputError(f"y_true must have inputs of {which}, which the rate is about, got none")
    radius = certificates.radius_to(target, scores)[counted]
    return np.array([np.mean(radius < edit) for edit in edits])


def checked_labels(certificates: Certificates, y_true: ArrayLike) -> NDArray[Any]:
    """Return the true classes as an array, or raise InputError."""
    labels = np.asarray(y_true)
    if labels.shape != (len(certificates),):
        raise InputError(f"y_true must have one label for each of {len(certificates)} inputs, got shape {labels.shape}")
    if certificates.classes is None:
        if labels.dtype.kind not in "biu":
            raise InputError(
                f"y_true must be class indices (integers), got dtype {labels.dtype}: these certificates have no names "
                "of classes; give them names with certificates.named(classes), in the order of the scores"
            )
        outside = np.flatnonzero((labels < 0) | (labels >= certificates.n_classes))
        known = f"classes 0 to {certificates.n_classes - 1}"
    else:
        outside = np.flatnonzero(~np.isin(labels, certificates.classes))
        known = f"labels from {certificates.classes.tolist()!r:.200}"
    if outside.size:
        raise InputError(f"y_true must be {known}, got {labels.tolist()[outside[0]]!r:.60} for input {outside[0]}")
    return labels


def checked_budgets(budgets: ArrayLike) -> NDArray[Any]:
    """Return numbers of edits as an array, or raise InputError."""
    edits = np.atleast_1d(np.asarray(budgets))
    if edits.ndim != 1 or edits.dtype.kind not in "iu" or (edits < 0).any():
        raise InputError(f"budgets must be non-negative integers, got {budgets!r}")
    return edits
