"""Reader for MNIST: four idx files, plain or compressed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from runoff.datasets._archives import read_bounded
from runoff.datasets._candidates import Candidate, LayoutError
from runoff.datasets._dataset import Dataset
from runoff.datasets.catalogue import Archive, Entry

PLACES = ("mnist", ".", "MNIST/raw", "mnist/MNIST/raw", "MNIST")
FILES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
UNSIGNED_BYTES = 8


def find(root: Path, entry: Entry) -> Candidate | None:
    """Return the files in the first place that contains all four."""
    for place in PLACES:
        files = [_plain_or_compressed(root / place / name) for name in FILES]
        complete = [file for file in files if file is not None]
        if len(complete) == len(FILES):
            return Candidate(root / place, partial(_read, complete, entry))
    return None


def absent(root: Path, entry: Entry) -> tuple[Archive, ...]:
    """Return the archives whose content was not found."""
    places = [root / place for place in PLACES]
    return tuple(
        archive
        for archive in entry.archives
        if not any(_plain_or_compressed(place / archive.file.removesuffix(".gz")) for place in places)
    )


def _plain_or_compressed(path: Path) -> Path | None:
    return next((file for file in (path, path.with_name(f"{path.name}.gz")) if file.is_file()), None)


def _read(files: list[Path], entry: Entry) -> Dataset:
    n_train, n_test = (entry.n_train,), (entry.n_test,)
    shapes = (n_train + entry.shape, n_train, n_test + entry.shape, n_test)
    x_train, y_train, x_test, y_test = (_idx(file, shape) for file, shape in zip(files, shapes, strict=True))
    return Dataset(entry.name, x_train, y_train.astype(np.int64), x_test, y_test.astype(np.int64), entry.classes)


def _idx(path: Path, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    """Read an idx file of bytes: two zeros, the type, the number of dimensions, their sizes, the values."""
    head = bytes([0, 0, UNSIGNED_BYTES, len(shape)]) + np.array(shape, ">u4").tobytes()
    size = len(head) + int(np.prod(shape))
    data = read_bounded(path, size)
    if not data.startswith(head):
        raise LayoutError(f"{path.name} is not an idx file of {' x '.join(map(str, shape))} bytes")
    if len(data) != size:
        raise LayoutError(f"{path.name} must have {size} bytes, got {len(data)}")
    return np.frombuffer(bytearray(data), np.uint8, offset=len(head)).reshape(shape)
