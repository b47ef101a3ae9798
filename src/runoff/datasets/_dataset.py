"""A dataset: training and test images with labels, and a fingerprint of its content."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.errors import DatasetError
from runoff.hashing import DIGEST_BYTES

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]

MOST_CLASSES = 65536


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """8-bit images (n, h, w) or (n, h, w, c), with labels that index `classes`.

    If images were resized, `original_digests` (n_train, 16) holds the BLAKE2b-128 of each training image's original
    shape and pixels, and `original_sums` (n_train,) the sum of those pixels: these are hashed instead of the images.
    Otherwise both are None.

    `classes_fixed` is False if the classes were taken from the samples: one more sample could then add a class and
    change every member, so no certificate holds.

    `groups` (n_train,) names the source of each training image, by a string or an integer: certificates then count
    sources.
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
    groups: NDArray[Any] | None = None

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
                f"{self.name}: training and test images must have the same shape, got {self.x_train.shape[1:]} "
                f"and {self.x_test.shape[1:]}"
            )
        for field, dtype, shape in (("original_digests", np.uint8, (DIGEST_BYTES,)), ("original_sums", np.int64, ())):
            array = getattr(self, field)
            if array is None:
                continue
            if array.dtype != dtype or array.shape != (len(self.x_train), *shape):
                raise DatasetError(f"{self.name}: {field} must have one row per training image, got {_kind(array)}")
            self._set(field, np.ascontiguousarray(array))
        if self.groups is not None:
            if self.groups.dtype.kind not in "iuU" or self.groups.shape != (len(self.x_train),):
                raise DatasetError(
                    f"{self.name}: groups must name the source of each training image by a string or an integer, got "
                    f"{_kind(self.groups)}"
                )
            self._set("groups", np.ascontiguousarray(self.groups))

    def _set(self, field: str, array: NDArray[Any]) -> None:
        object.__setattr__(self, field, array)

    def _images(self, field: str) -> Pixels:
        x: Pixels = getattr(self, field)
        if x.dtype != np.uint8 or x.ndim not in (3, 4) or 0 in x.shape:
            raise DatasetError(
                f"{self.name}: {field} must be 8-bit images, uint8 (n, h, w) or (n, h, w, c), got {_kind(x)}"
            )
        self._set(field, np.ascontiguousarray(x))
        return x

    def _labels(self, field: str, n: int, images: str) -> Labels:
        y: NDArray[Any] = getattr(self, field)
        if y.dtype.kind not in "iu" or y.shape != (n,):
            raise DatasetError(
                f"{self.name}: {field} must be integers, one for each of {n} images in {images}, got {_kind(y)}"
            )
        least, most = int(y.min()), int(y.max())
        if least < 0 or most >= len(self.classes):
            raise DatasetError(
                f"{self.name}: {field} must be classes 0 to {len(self.classes) - 1}, got {least if least < 0 else most}"
            )
        return np.ascontiguousarray(y, np.int64)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one image."""
        return self.x_train.shape[1:]

    def checksums(self) -> dict[str, str]:
        """Return the SHA-256 of each kind of content, as listed in the catalogue."""
        digests = {
            "pixels": sha256(self.x_train, self.x_test),
            "labels": sha256(self.y_train.astype(np.uint8), self.y_test.astype(np.uint8)),
        }
        if self.original_digests is not None and self.original_sums is not None:
            digests["original pixels"] = sha256(self.original_digests, self.original_sums)
        return digests

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of the shapes, types and bytes of all arrays, independent of the files' format."""
        digest = hashlib.sha256(b"runoff dataset 1\n")
        for field in ("x_train", "y_train", "x_test", "y_test", "original_digests", "original_sums"):
            array = getattr(self, field)
            shape = "none" if array is None else f"{array.dtype.name} {','.join(map(str, array.shape))}"
            digest.update(f"{field} {shape}\n".encode())
            if array is not None:
                digest.update(array_bytes(array))
        if self.groups is not None:
            digest.update(f"groups {self.groups.dtype.name} {len(self.groups)}\n".encode())
            digest.update(array_bytes(self.groups))
        return digest.hexdigest()

    def __repr__(self) -> str:
        size = "x".join(map(str, self.x_train.shape[1:]))
        return (
            f"Dataset({self.name!r}, {len(self.x_train)} + {len(self.x_test)} images of {size}, "
            f"{len(self.classes)} classes)"
        )


def array_bytes(array: NDArray[Any]) -> memoryview:
    """Return the bytes of an array in C order, least significant byte first."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8).data


def sha256(*arrays: NDArray[Any]) -> str:
    """Return the SHA-256 of the concatenated bytes of these arrays, in hexadecimal."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array_bytes(array))
    return digest.hexdigest()


def _kind(array: NDArray[Any]) -> str:
    return f"{array.dtype} {array.shape}"
