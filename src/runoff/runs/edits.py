"""Edits: the training samples of a dataset after insertions and deletions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from runoff.datasets import Dataset
from runoff.errors import RunError
from runoff.samples import Dense, Resized, Rows, Samples, find_copies
from runoff.torch import inputs


def edited(dataset: Dataset, edits: list[tuple[str, NDArray[Any], NDArray[Any]]]) -> tuple[Samples, NDArray[np.int64]]:
    """Return a dataset's training samples after edits, each ("add" or "remove", images, labels), in order."""
    x, y = dataset.x_train, dataset.y_train
    if dataset.original_digests is not None and dataset.original_sums is not None:
        if edits:
            raise RunError(f"{dataset.name} was resized, so its samples cannot be edited: edit the images and retrain")
        return Resized(arranged(x), dataset.original_digests, dataset.original_sums), y
    for what, images, labels in edits:
        if images.shape[1:] != x.shape[1:] or images.dtype != x.dtype or labels.shape != (len(images),):
            raise RunError(
                f"samples to {what} must match those of {dataset.name}, {x.dtype} {x.shape[1:]} with one label each, "
                f"got {images.dtype} {images.shape[1:]} and labels of shape {labels.shape}"
            )
        if labels.dtype.kind not in "iu" or not ((labels >= 0) & (labels < len(dataset.classes))).all():
            raise RunError(f"labels to {what} must be classes 0 to {len(dataset.classes) - 1}")
        if what == "add":
            x, y = np.concatenate([x, images]), np.concatenate([y, labels.astype(np.int64)])
        else:
            keep = np.ones(len(x), bool)
            keep[_training_rows(x, y, images, labels)] = False
            x, y = x[keep], y[keep]
    return Dense(arranged(x)), y


def arranged(x: NDArray[Any]) -> NDArray[Any]:
    """Return images in the layout of TorchClassifier, so that both have the same hashes."""
    return inputs.images(x, torch.device("cpu"))


def _training_rows(x: NDArray[Any], y: NDArray[Any], images: NDArray[Any], labels: NDArray[Any]) -> Rows:
    """Return the training rows of these samples, each copy once."""
    wanted = ((image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True))
    rows = find_copies(wanted, ((image.tobytes(), int(label)) for image, label in zip(x, y, strict=True)))
    if (missing := np.flatnonzero(rows < 0)).size:
        i = int(missing[0])
        raise RunError(f"sample {i} to remove (label {labels[i]}) is not a training sample, or occurs less often")
    return rows
