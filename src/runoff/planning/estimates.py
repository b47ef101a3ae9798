"""Out-of-part estimates of certified accuracy from training samples, without a test set.

Every training sample is held out for all members but the few that its bucket reaches. Without the ballots of these
members, the estimate is honest, and can be used to compare recipes, numbers of partitions and elections. The guarantee
does not cover a choice based on the training data: choose once, on data that you trust.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff._io.units import unit_of
from runoff.certificates import Certificates, certified_accuracy, certify
from runoff.errors import InputError
from runoff.scores import checked_scores
from runoff.spreads import Spread

if TYPE_CHECKING:
    from runoff.elections.base import Election
    from runoff.ensemble import Ensemble


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimate of certified accuracy.

    Attributes
    ----------
    budgets : numbers of edits
    certified : the estimated certified accuracy for each budget
    errors : the standard errors, due to the number of samples (`extrapolated`: also to that of members)
    members : the mean accuracy of members on samples that they were not trained on
    n_samples : the number of training samples used
    balanced : whether all values but `members` are means over the classes with equal weights
    unit : what one edit is, as in `Certificates`

    """

    budgets: NDArray[np.int64]
    certified: NDArray[np.float64]
    errors: NDArray[np.float64]
    members: float
    n_samples: int
    balanced: bool = False
    unit: str = "samples"

    def __str__(self) -> str:
        parts = [f"{100 * c:.2f} % at {b}" for b, c in zip(self.budgets.tolist(), self.certified.tolist(), strict=True)]
        mean, unit = " (mean of the classes)" if self.balanced else "", unit_of(self.unit)
        return (
            f"estimated certified accuracy{mean} {', '.join(parts)} {unit.noun}s{unit.caveat}; "
            f"member accuracy {100 * self.members:.2f} % (out of part, {self.n_samples} training samples)"
        )


def out_of_part(
    scores: Any,
    y_true: ArrayLike,
    buckets: ArrayLike,
    budgets: ArrayLike,
    *,
    election: str | Election = "runoff",
    spread: Any = None,
    bound: str = "tight",
    balanced: bool = False,
    unit: str | None = None,
) -> Estimate:
    """Estimate certified accuracy from the scores of training samples, without the members trained on them.

    A sample is certified without the members that its bucket reaches, one of k with one bucket per member, which makes
    the estimate slightly too low. Near copies of a sample in other buckets make it too high.

    Parameters
    ----------
    scores : (n_samples, n_members, n_classes) numbers, as for `certify`, for training samples
    y_true : (n_samples,) their class indices
    buckets : (n_samples,) their buckets
    budgets : numbers of edits; 0 gives the clean accuracy
    election, spread, bound : as for `certify`
    balanced : estimate the mean over the classes in `y_true`, with equal weights
    unit : what one edit is, as for `certify`; by default that of the scores

    Examples
    --------
    >>> import numpy as np, runoff
    >>> scores = np.tile([3.0, 2.0, 1.0], (4, 7, 1))  # 4 training samples, 7 members that all rank 0 > 1 > 2
    >>> runoff.out_of_part(scores, [0, 0, 0, 1], [0, 1, 2, 3], [0, 3, 4]).certified
    array([0.75, 0.75, 0.  ])

    """
    if spread is None:
        spread = getattr(scores, "spread", None)
    counted = unit_of(getattr(scores, "unit", "samples") if unit is None else unit).name
    array = checked_scores(scores)
    n, n_members, _ = array.shape
    checked = Spread.from_any(np.arange(n_members)[:, None] if spread is None else spread, n_members)
    labels, bucket_of = np.asarray(y_true), np.asarray(buckets)
    for name, values in (("y_true", labels), ("buckets", bucket_of)):
        if values.shape != (n,) or values.dtype.kind not in "iu":
            raise InputError(
                f"{name} must be one whole number for each of {n} samples, got shape {values.shape} and dtype "
                f"{values.dtype}{': pass class indices' if name == 'y_true' else ''}"
            )
    outside = np.flatnonzero((bucket_of < 0) | (bucket_of >= checked.n_buckets))
    if outside.size:
        raise InputError(
            f"buckets must be from 0 to {checked.n_buckets - 1}, got {bucket_of[outside[0]]} for sample {outside[0]}"
        )
    edits = np.atleast_1d(np.asarray(budgets))
    held_out = np.ones((checked.n_buckets, n_members), bool)
    for bucket in np.unique(bucket_of):
        held_out[bucket, checked.reached([bucket])] = False
    if not held_out[bucket_of].any(axis=1).all():
        raise InputError("every sample needs members that have not seen it, but a bucket reaches all: use more members")
    parts: list[tuple[NDArray[Any], NDArray[Any], Any]]
    if checked.one_to_one is not None:
        parts = [(np.arange(n), array[held_out[bucket_of]].reshape(n, n_members - 1, -1), None)]
    else:
        parts = [_without(array, checked, bucket_of, int(bucket), held_out[bucket]) for bucket in np.unique(bucket_of)]
    safe = np.zeros((n, len(edits)), bool)
    for rows, ballots, part_spread in parts:
        safe[rows] = _certified(
            certify(ballots, election=election, spread=part_spread, bound=bound), labels[rows], edits
        )
    certified, errors = shares_and_errors(safe, labels, balanced)
    correct = (array.argmax(axis=2) == labels[:, None])[held_out[bucket_of]]
    return Estimate(edits.astype(np.int64), certified, errors, float(correct.mean()), n, balanced, counted)


def _certified(certificates: Certificates, labels: NDArray[Any], edits: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the inputs that are predicted correctly with a sufficient radius, (n_inputs, n_budgets)."""
    certified_accuracy(certificates, labels, edits)  # checks labels and budgets
    correct = certificates.prediction == labels
    return np.asarray(correct[:, None] & (certificates.radius[:, None] >= edits))


def shares_and_errors(
    safe: NDArray[np.bool_], labels: NDArray[Any], balanced: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shares of samples that are certified, and their standard errors; if balanced, means over classes."""
    groups = [safe[labels == label] for label in np.unique(labels)] if balanced else [safe]
    shares = np.array([group.mean(axis=0) for group in groups])
    variances = [share * (1 - share) / len(group) for share, group in zip(shares, groups, strict=True)]
    return shares.mean(axis=0), np.sqrt(np.sum(variances, axis=0)) / len(groups)


def _without(
    array: NDArray[Any], spread: Spread, bucket_of: NDArray[Any], bucket: int, kept: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[Any], list[NDArray[np.int64]]]:
    """Return the samples of a bucket, their scores by the members that it does not reach, and the spread of these.

    The bucket stays in the spread without members, so that radii are capped as before.
    """
    rows, number = np.flatnonzero(bucket_of == bucket), np.cumsum(kept) - 1
    members = [spread.reached([b]) for b in range(spread.n_buckets)]
    return rows, array[rows][:, kept], [number[reached[kept[reached]]] for reached in members]


def extrapolated(
    scores: Any,
    y_true: ArrayLike,
    buckets: ArrayLike,
    budgets: ArrayLike,
    *,
    n_members: int,
    election: str | Election = "runoff",
    bound: str = "tight",
    balanced: bool = False,
    unit: str = "samples",
) -> Estimate:
    """Estimate the certified accuracy of `n_members` from the scores of the first few of them, one bucket per member.

    The ballots of these members are repeated about equally often, up to `n_members` - 1 ballots. The standard errors
    combine those of the samples and of the members, the latter estimated by omitting a fifth of the members at a time.
    """
    array, labels, bucket_of = checked_scores(scores), np.asarray(y_true), np.asarray(buckets)
    n, few, n_classes = array.shape
    edits = np.atleast_1d(np.asarray(budgets))
    allowed = np.ones((n, few), bool)
    seen = np.flatnonzero(bucket_of < few)
    allowed[seen, bucket_of[seen]] = False

    def estimated(members: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        usable = allowed & members
        counts, safe = usable.sum(axis=1), np.zeros((n, len(edits)), bool)
        for available in np.unique(counts[counts > 0]):
            rows = np.flatnonzero(counts == available)
            ballots = array[rows][usable[rows]].reshape(len(rows), available, n_classes)
            repeated = ballots[:, np.arange(n_members - 1) * available // (n_members - 1)]
            safe[rows] = _certified(certify(repeated, election=election, bound=bound), labels[rows], edits)
        return shares_and_errors(safe, labels, balanced)

    certified, by_samples = estimated(np.ones(few, bool))
    folds = min(5, few)
    parts = np.array([estimated(np.arange(few) % folds != fold)[0] for fold in range(folds)])
    by_members = (folds - 1) / folds * ((parts - parts.mean(axis=0)) ** 2).sum(axis=0)
    correct = (array.argmax(axis=2) == labels[:, None])[allowed]
    errors = np.sqrt(by_samples**2 + by_members)
    return Estimate(edits.astype(np.int64), certified, errors, float(correct.mean()), n, balanced, unit)


def of_classifier(classifier: Ensemble, X: Any, y: ArrayLike, budgets: ArrayLike, groups: Any = None) -> Estimate:
    """Estimate the certified accuracy of a fitted classifier from some of its training samples, with their labels.

    A classifier that was fitted with `groups` needs those of the samples.
    """
    scores, samples = classifier.scores(X), classifier.samples_of(X)
    buckets = classifier.buckets_of(samples, groups)
    labels, classes = np.asarray(y), classifier.classes_
    unknown = np.flatnonzero(~np.isin(labels, classes))
    if labels.shape != (len(samples),) or unknown.size:
        bad_shape = labels.shape != (len(samples),)
        got = f"shape {labels.shape}" if bad_shape else f"{labels[unknown[0]]} for sample {unknown[0]}"
        raise InputError(f"y must be one of the classifier's labels for each of {len(samples)} samples, got {got}")
    codes = np.searchsorted(classes, labels)
    return out_of_part(scores, codes, buckets, budgets, election=classifier.election, bound=classifier.bound)
