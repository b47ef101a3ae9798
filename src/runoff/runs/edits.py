"""Edits: the training samples of a dataset after insertions and deletions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from runoff import hashing
from runoff.datasets import Dataset
from runoff.errors import RunError
from runoff.samples import Dense, Resized, Rows, Samples, find_copies
from runoff.torch import inputs

Edit = tuple[Any, ...]  # "add" or "remove", images, labels and, if the dataset has them, groups


class Edited(NamedTuple):
    """The training samples of a run."""

    samples: Samples
    labels: NDArray[np.int64]
    groups: list[str] | None


def edited(dataset: Dataset, edits: list[Edit], unit: str = "samples") -> Edited:
    """Return a dataset's training samples after edits, in order; if labels are counted, edits can only relabel."""
    x, y = dataset.x_train, dataset.y_train
    groups = None if dataset.groups is None else _names(dataset.groups)
    if dataset.original_digests is not None and dataset.original_sums is not None:
        if edits:
            raise RunError(f"{dataset.name} was resized, so its samples cannot be edited: edit the images and retrain")
        return Edited(Resized(arranged(x), dataset.original_digests, dataset.original_sums), y, groups)
    for what, images, labels, *rest in edits:
        if images.shape[1:] != x.shape[1:] or images.dtype != x.dtype or labels.shape != (len(images),):
            raise RunError(
                f"samples to {what} must match those of {dataset.name}, {x.dtype} {x.shape[1:]} with one label each, "
                f"got {images.dtype} {images.shape[1:]} and labels of shape {labels.shape}"
            )
        if labels.dtype.kind not in "iu" or not ((labels >= 0) & (labels < len(dataset.classes))).all():
            raise RunError(f"labels to {what} must be classes 0 to {len(dataset.classes) - 1}")
        names = _edit_names(dataset, what, rest, len(images))
        if what == "add":
            x, y = np.concatenate([x, images]), np.concatenate([y, labels.astype(np.int64)])
            groups = None if groups is None else groups + names
        else:
            keep = np.ones(len(x), bool)
            keep[_training_rows(x, y, groups, images, labels, names)] = False
            x, y = x[keep], y[keep]
            groups = None if groups is None else [name for name, kept in zip(groups, keep, strict=True) if kept]
    if unit == "labels" and sorted(map(bytes, x)) != sorted(map(bytes, dataset.x_train)):
        raise RunError(
            "this run counts labels, so its samples are fixed and edits can only relabel: remove and add the same "
            "samples in one update, or train a new run"
        )
    return Edited(Dense(arranged(x)), y, groups)


def _names(groups: NDArray[Any]) -> list[str]:
    return [hashing.source_name(value) for value in groups]


def _edit_names(dataset: Dataset, what: str, rest: list[Any], n: int) -> list[str]:
    """Return the sources of samples to add or remove; empty if the dataset has none."""
    if dataset.groups is None:
        if rest:
            raise RunError(f"samples to {what} have groups, but {dataset.name} has none: leave them out")
        return []
    if not rest or rest[0].shape != (n,) or rest[0].dtype.kind not in "iuU":
        got = f"{rest[0].dtype} {rest[0].shape}" if rest else "none"
        raise RunError(
            f"samples to {what} must have groups, as {dataset.name} has, one string or integer per sample, got {got}"
        )
    return _names(rest[0])


def arranged(x: NDArray[Any]) -> NDArray[Any]:
    """Return images in the layout of TorchClassifier, so that both have the same hashes."""
    return inputs.images(x, torch.device("cpu"))


def _training_rows(x: Any, y: Any, groups: list[str] | None, images: Any, labels: Any, names: list[str]) -> Rows:
    """Return the training rows of these samples, each copy once."""

    def keys(images: Any, labels: Any, names: list[str] | None) -> Iterator[tuple[bytes, int, str]]:
        for image, label, name in zip(images, labels, names or [""] * len(images), strict=True):
            yield image.tobytes(), int(label), name

    rows = find_copies(keys(images, labels, names), keys(x, y, groups))
    if (missing := np.flatnonzero(rows < 0)).size:
        i = int(missing[0])
        raise RunError(f"sample {i} to remove (label {labels[i]}) is not a training sample, or occurs less often")
    return rows
