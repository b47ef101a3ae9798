"""Predictions of an undefended model: one model trained on all samples, the first row of a report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff._io.files import open_array
from runoff.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runoff.report.source import Source


def class_indices(given: ArrayLike | str | Path, classes: Sequence[str], n_inputs: int) -> NDArray[np.int64]:
    """Return predictions as class indices, from indices, names of classes, scores (n_inputs, n_classes) or a file."""
    from_file = isinstance(given, (str, Path))
    what = str(given) if from_file else "undefended"
    values = np.asarray(open_array(given) if isinstance(given, (str, Path)) else given)
    if values.shape == (n_inputs, len(classes)) and values.dtype.kind in "fiu":
        if not np.isfinite(values).all():
            raise InputError(f"{what} must hold finite scores, got NaN or infinity")
        return np.asarray(values.argmax(axis=1), dtype=np.int64)
    if values.shape != (n_inputs,):
        raise InputError(
            f"{what} must have one prediction for each of the {n_inputs:,} test inputs, as class indices or names "
            f"({n_inputs},) or as scores ({n_inputs}, {len(classes)}), got shape {values.shape}"
        )
    if values.dtype.kind in "iu":
        return _within(values, len(classes), what)
    if values.dtype.kind in "U":
        return named(values, np.array(classes), what)
    raise InputError(f"{what} must hold class indices (integers) or names of classes, got dtype {values.dtype}")


def named(predictions: NDArray[Any], classes: NDArray[Any], what: str = "undefended") -> NDArray[np.int64]:
    """Return labels as class indices, or raise an error for a label that is not a class."""
    known = {label: c for c, label in enumerate(classes.tolist())}
    for i, label in enumerate(predictions.tolist()):
        if label not in known:
            raise InputError(f"{what} must hold predictions among the classes, got {label!r:.60} for input {i}")
    return np.array([known[label] for label in predictions.tolist()], np.int64)


def _within(values: NDArray[Any], n_classes: int, what: str) -> NDArray[np.int64]:
    outside = np.flatnonzero((values < 0) | (values >= n_classes))
    if len(outside):
        i = int(outside[0])
        raise InputError(f"{what} must hold class indices from 0 to {n_classes - 1}, got {values[i]} for input {i}")
    return values.astype(np.int64)


def rows(sources: Sequence[Source]) -> tuple[list[dict[str, Any]], list[int | None]]:
    """Return one row per undefended model, and the index of the row of each source; equal predictions share a row."""
    rows_by_model: dict[tuple[bytes, bytes], int] = {}
    models: list[dict[str, Any]] = []
    places: list[int | None] = []
    for source in sources:
        if source.undefended is None:
            places.append(None)
            continue
        key = source.undefended.tobytes(), source.labels.tobytes()
        if key not in rows_by_model:
            rows_by_model[key] = len(models)
            right = source.labels[source.undefended == source.labels]
            models.append(
                {
                    "label": source.name,
                    "n_inputs": len(source.labels),
                    "correct": len(right),
                    "per_class": np.bincount(right, minlength=len(source.classes)).tolist(),
                }
            )
        places.append(rows_by_model[key])
    for model in models:
        model["label"] = f"undefended, {model['label']}" if len(models) > 1 else "undefended"
    return models, places
