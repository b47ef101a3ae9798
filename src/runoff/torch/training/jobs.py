"""Jobs, each the training of one network on the samples of one member."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.hashing import plain_floats


@dataclass(frozen=True, eq=False)
class Job:
    """One network to train: the samples of its member, sorted by content, and the source of its random numbers."""

    member: int
    seed: int
    source: np.random.SeedSequence
    samples: NDArray[Any] = field(repr=False)  # of all members
    rows: NDArray[np.int64] = field(repr=False)  # of this member
    labels: NDArray[np.int64] = field(repr=False)  # of these rows

    @property
    def key(self) -> tuple[int, int]:
        """The member and the seed."""
        return self.member, self.seed

    def images(self) -> NDArray[Any]:
        """Return the samples of the member as bytes if all are integers from 0 to 255, else as floats."""
        return compact(self.samples[self.rows])


def array_digest(array: Any) -> str:
    """Return a SHA-256 of the type, shape and values of an array."""
    head = f"{array.dtype.str} {array.shape} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()


def compact(values: NDArray[Any]) -> NDArray[Any]:
    """Return bytes if all values are integers from 0 to 255, else float32 with one zero and one NaN."""
    if values.dtype == np.uint8:
        return values
    floats = plain_floats(values)
    if ((floats >= 0) & (floats <= 255) & (floats == np.floor(floats))).all():
        return floats.astype(np.uint8)
    with np.errstate(over="ignore"):
        return floats.astype(np.float32)


def statistics(images: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean and the standard deviation of each channel, with a deviation of 1 for constant channels."""
    flat = images.reshape(-1, images.shape[-1])
    if flat.dtype == np.uint8:  # integer sums are exact, in any order
        counts = np.stack([np.bincount(channel, minlength=256) for channel in flat.T])
        values = np.arange(256)
        total, square = (counts * values).sum(1), (counts * values**2).sum(1)
        n, mean = len(flat), total / len(flat)
        # In Python's integers: from 12 million pixels, such as 250 images of 224 x 224, they may exceed 64 bits.
        var = np.array([float(int(s) * n - int(t) ** 2) / n**2 for s, t in zip(square, total, strict=True)])
    else:
        with np.errstate(all="ignore"):
            mean, var = flat.mean(axis=0, dtype=np.float64), flat.var(axis=0, dtype=np.float64)
    std = np.sqrt(var)
    return mean.astype(np.float32), np.where(std > 0, std, 1.0).astype(np.float32)
