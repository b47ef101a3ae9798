"""A dataset: images and labels to train and to test on, with a fingerprint of its content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.errors import DatasetError

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]

DIGEST_BYTES = 16
MOST_CLASSES = 65536


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images (n, h, w) or (n, h, w, c) of 8 bits, labels that index `classes`, and what the hash may read instead.

    Where images were resized, `original_digests` (n_train, 16) holds the BLAKE2b-128 of each training image's shape
    and pixels as they came, and `original_sums` (n_train,) the sum of those pixels; otherwise both are None.

    `classes_fixed` is False where the classes were taken from the samples: one more sample could then add a class and
    change every member, so no certificate holds.
    """

    name: str
    x_train: Pixels
    y_train: Labels
    x_test: Pixels
    y_test: Labels
    classes: tuple[str, ...]
    original_digests: Pixels | None = None
    original_sums: Labels | None = None
    classes_fixed: bool = True

    def __post_init__(self) -> None:
        if not 1 <= len(self.classes) <= MOST_CLASSES or len(set(self.classes)) != len(self.classes):
            raise DatasetError(
                f"{self.name} must have from 1 to {MOST_CLASSES} classes with different names, got {len(self.classes)}"
            )
        for part in ("train", "test"):
            x = self._images(f"x_{part}")
            self._set(f"y_{part}", self._labels(f"y_{part}", len(x), f"x_{part}"))
        if self.x_train.shape[1:] != self.x_test.shape[1:]:
            raise DatasetError(
                f"{self.name}: images to train and to test on must be alike, got {self.x_train.shape[1:]} "
                f"and {self.x_test.shape[1:]}"
            )
        for field, dtype, shape in (("original_digests", np.uint8, (DIGEST_BYTES,)), ("original_sums", np.int64, ())):
            array = getattr(self, field)
            if array is None:
                continue
            if array.dtype != dtype or array.shape != (len(self.x_train), *shape):
                raise DatasetError(
                    f"{self.name}: {field} must have one row for each training image, got {_kind(array)}"
                )
            self._set(field, np.ascontiguousarray(array))

    def _set(self, field: str, array: NDArray[Any]) -> None:
        object.__setattr__(self, field, array)

    def _images(self, field: str) -> Pixels:
        x: Pixels = getattr(self, field)
        if x.dtype != np.uint8 or x.ndim not in (3, 4) or 0 in x.shape:
            raise DatasetError(
                f"{self.name}: {field} must be images of 8 bits, uint8 (n, h, w) or (n, h, w, c), got {_kind(x)}"
            )
        self._set(field, np.ascontiguousarray(x))
        return x

    def _labels(self, field: str, n: int, images: str) -> Labels:
        y: NDArray[Any] = getattr(self, field)
        if y.dtype.kind not in "iu" or y.shape != (n,):
            raise DatasetError(
                f"{self.name}: {field} must be whole numbers, one for each of {n} images in {images}, got {_kind(y)}"
            )
        least, most = int(y.min()), int(y.max())
        if least < 0 or most >= len(self.classes):
            raise DatasetError(
                f"{self.name}: {field} must be classes 0 to {len(self.classes) - 1}, got {least if least < 0 else most}"
            )
        return np.ascontiguousarray(y, np.int64)

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the shapes, types and bytes of all arrays; not of where they were read from."""
        found = hashlib.sha256(b"runoff dataset 1\n")
        for field in ("x_train", "y_train", "x_test", "y_test", "original_digests", "original_sums"):
            array = getattr(self, field)
            shape = "none" if array is None else f"{array.dtype.name} {','.join(map(str, array.shape))}"
            found.update(f"{field} {shape}\n".encode())
            if array is not None:
                found.update(array_bytes(array))
        return found.hexdigest()

    def __repr__(self) -> str:
        size = "x".join(map(str, self.x_train.shape[1:]))
        return (
            f"Dataset({self.name!r}, {len(self.x_train)} + {len(self.x_test)} images of {size}, "
            f"{len(self.classes)} classes)"
        )


def array_bytes(array: NDArray[Any]) -> memoryview:
    """The bytes of an array in C order, least significant byte first."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def sha256(*arrays: NDArray[Any]) -> str:
    """Over the bytes of these arrays, one after the other."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(array_bytes(array))
    return found.hexdigest()


def _kind(array: NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape}"
