"""Reader for CIFAR-10: six batches of the binary or the Python version, extracted or in the archive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.datasets import _pickles
from runoff.datasets._archives import read_bounded, tar_members
from runoff.datasets._candidates import Candidate, LayoutError
from runoff.datasets._dataset import Dataset
from runoff.datasets.catalogue import Archive, Entry

PLACES = ("cifar10", ".", "cifar-10", "CIFAR10")
N_TRAIN_BATCHES = 5
BATCHES = (*(f"data_batch_{i + 1}" for i in range(N_TRAIN_BATCHES)), "test_batch")
NAMES_AND_LABELS = 256  # bytes per image that the Python version may add

Rows = NDArray[np.uint8]  # (n, 1 + pixels): the label, then the red, green and blue planes


def find(root: Path, entry: Entry) -> Candidate | None:
    """Return the binary version in the first place that contains it, else the Python version."""
    for kind, suffix, rows in (("bin", ".bin", _binary_rows), ("py", "", _python_rows)):
        inside = f"cifar-10-batches-{kind}"
        for place in PLACES:
            folder = root / place / inside
            archive = root / place / f"cifar-10-{'binary' if kind == 'bin' else 'python'}.tar.gz"
            names = [f"{batch}{suffix}" for batch in BATCHES]
            if all((folder / name).is_file() for name in names):
                return Candidate(folder, partial(_read, partial(_read_folder, folder, names), rows, entry))
            if archive.is_file():
                names = [f"{inside}/{name}" for name in names]
                return Candidate(archive, partial(_read, partial(_read_archive, archive, names), rows, entry))
    return None


def absent(root: Path, entry: Entry) -> tuple[Archive, ...]:  # noqa: ARG001
    """Return the archives whose content was not found."""
    return entry.archives


def _read_folder(folder: Path, names: list[str], most: int) -> list[bytes]:
    return [read_bounded(folder / name, most) for name in names]


def _read_archive(archive: Path, names: list[str], most: int) -> list[bytes]:
    contents = tar_members(archive, dict.fromkeys(names, most))
    return [contents[name] for name in names]


def _read(batches: Callable[[int], list[bytes]], rows: Callable[[bytes, int, int], Rows], entry: Entry) -> Dataset:
    height, width, channels = entry.shape
    pixels = height * width * channels
    sizes = [entry.n_train // N_TRAIN_BATCHES] * N_TRAIN_BATCHES + [entry.n_test]
    data = batches(max(sizes) * (2 * pixels + NAMES_AND_LABELS) + 4096)  # pickles may store bytes as longer text
    parsed = [rows(batch, n, pixels) for batch, n in zip(data, sizes, strict=True)]
    del data
    parts: dict[str, Any] = {}
    for name, part in (("train", parsed[:N_TRAIN_BATCHES]), ("test", parsed[N_TRAIN_BATCHES:])):
        x = np.concatenate([batch[:, 1:].reshape(-1, channels, height, width).transpose(0, 2, 3, 1) for batch in part])
        parts |= {f"x_{name}": x, f"y_{name}": np.concatenate([batch[:, 0] for batch in part])}
    return Dataset(name=entry.name, classes=entry.classes, **parts)


def _binary_rows(data: bytes, n: int, pixels: int) -> Rows:
    if len(data) != n * (1 + pixels):
        raise LayoutError(f"a batch must have {n} images of {1 + pixels} bytes, got {len(data)} bytes")
    return np.frombuffer(data, np.uint8).reshape(n, 1 + pixels)


def _python_rows(data: bytes, n: int, pixels: int) -> Rows:
    batch = _pickles.loads(data)
    if not isinstance(batch, dict):
        raise LayoutError(f"a batch must be a dictionary, got {type(batch).__name__}")
    named = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    x, y = named.get("data"), named.get("labels")
    if not isinstance(x, np.ndarray) or x.shape != (n, pixels):
        raise LayoutError(f"a batch must have 'data' ({n}, {pixels}), got {getattr(x, 'shape', type(x).__name__)}")
    if not isinstance(y, list) or len(y) != n or not all(type(label) is int and 0 <= label < 256 for label in y):
        raise LayoutError(f"a batch must have 'labels', {n} integers from 0 to 255")
    return np.concatenate([np.array(y, np.uint8)[:, None], x], axis=1)
