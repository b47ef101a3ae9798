"""Baselines for certified accuracy: one undefended model, and a constant prediction."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.planning.estimates import shares_and_errors

FOLDS = 5  # folds, one of which is held out


def undefended(fitted: Any, kind: type, settings: dict[str, Any], balanced: bool, most: int) -> tuple[float, float]:
    """Return the accuracy of one model trained on four fifths of the samples, on the others, and its standard error.

    Samples are held out by bucket, so that copies of a sample, and all samples of a source, are on one side. The
    result is NaN if one side has no samples, or if the model cannot be trained.

    Parameters
    ----------
    fitted : the fitted ensemble whose samples and buckets are used
    kind, settings : the class and the settings of the model, an ensemble with a single member
    balanced : return the mean over the classes, with equal weights
    most : score at most this many samples

    """
    data = fitted.training_samples()
    fold = np.unique(data.buckets, return_inverse=True)[1].reshape(-1) % FOLDS
    train, test = np.flatnonzero(fold > 0), np.flatnonzero(fold == 0)
    if not len(train) or not len(test):
        return np.nan, np.nan
    test = np.sort(np.random.default_rng(0).permutation(test)[:most])
    single = {"n_partitions": 1, "spread": 1, "n_seeds": 1, "classes": fitted.classes_}
    single |= {"checkpoints": None} if "checkpoints" in settings else {}
    samples, y = data.samples, data.labels
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about members that cannot be trained, and steps in front
        model = kind(**settings | single).fit(samples.select(train).data, y[train])
        predicted = model.predict(samples.select(test).data)
    if not any(member.fitted for member in model.members_):
        return np.nan, np.nan
    shares, errors = shares_and_errors((predicted == y[test])[:, None], y[test], balanced)
    return float(shares[0]), float(errors[0])


def sentence(accuracy: float, error: float) -> str:
    """Return the result of `undefended` as a sentence without a full stop."""
    return (
        f"One undefended model: {100 * accuracy:.1f} % ± {100 * error:.1f} without attack (trained on four fifths of "
        "the samples, scored on the rest)"
    )


def constant(labels: NDArray[Any], balanced: bool) -> float:
    """Return the accuracy of always predicting the most frequent class."""
    _, counts = np.unique(labels, return_counts=True)
    return 1 / len(counts) if balanced else float(counts.max() / counts.sum())
