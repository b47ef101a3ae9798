"""Tensors and scores of stored networks, read without PyTorch, and ballots computed from scores."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.verify.directory import UnfitError, parsed

SCORES = "runoff:scores"  # the scores of the network for the test inputs, stored with the weights
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
READ = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


@dataclass(frozen=True)
class Tensor:
    """A stored tensor."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes

    def numbers(self) -> NDArray[Any]:
        """Return the values of a tensor of floats."""
        if self.dtype not in READ:
            raise UnfitError(f"holds scores of type {self.dtype}")
        return np.frombuffer(self.data, READ[self.dtype]).reshape(self.shape)


def tensors(data: bytes) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Parse a safetensors file into metadata and tensors: header length, JSON header, tensors without gaps."""
    size = int.from_bytes(data[:8], "little")
    if len(data) < 8 or size > min(len(data) - 8, 10**8):
        raise UnfitError("is not a safetensors file")
    header = parsed(data[8 : 8 + size])
    body = memoryview(data)[8 + size :]
    try:
        metadata = header.pop("__metadata__", {})
        if not all(isinstance(value, str) for value in metadata.values()):
            raise UnfitError("has metadata that are not strings")
        stored, end = {}, 0
        for name, about in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
            start, stop = about["data_offsets"]
            shape = tuple(about["shape"])
            count = int(np.prod([int(n) for n in shape], dtype=object)) if shape else 1
            sizes = all(type(n) is int and n >= 0 for n in (*shape, start, stop))
            if not sizes or start != end or stop - start != count * SIZES[about["dtype"]]:
                raise UnfitError(f"does not hold the tensor {name!r:.60} that its header promises")
            stored[name], end = Tensor(about["dtype"], shape, bytes(body[start:stop])), stop
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise error if isinstance(error, UnfitError) else UnfitError("has a damaged header") from None
    if end != len(body):
        raise UnfitError("has bytes that belong to no tensor")
    return metadata, stored


def inputs_digest(images: NDArray[Any]) -> str:
    """Return the SHA-256 that identifies the inputs of a network's scores: type, shape and values."""
    head = f"{images.dtype.str} {images.shape} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(images).tobytes()).hexdigest()


def mean_scores(scores: list[NDArray[Any]], shares: NDArray[np.float64] | None, n: int) -> NDArray[np.float32] | None:
    """Return the scores of a member: the mean over its networks, or its class shares if there is no finite mean.

    Return None if class shares are needed and unknown.
    """
    if not scores:
        return None if shares is None else np.tile(shares.astype(np.float32), (n, 1))
    mean: NDArray[np.float32] = np.mean([array.astype(np.float64) for array in scores], axis=0).astype(np.float32)
    not_finite = ~np.isfinite(mean).all(axis=1)
    if not_finite.any():
        if shares is None:
            return None
        mean[not_finite] = shares
    return mean


def ranking(scores: NDArray[Any]) -> NDArray[Any]:
    """Return ballots: n_classes - 1 points for the highest score, down to 0; ties rank the lower class first."""
    n_classes = scores.shape[-1]
    points = np.empty(scores.shape, np.uint8 if n_classes <= 256 else np.uint16)
    order = np.argsort(-scores, axis=-1, kind="stable")
    np.put_along_axis(points, order, np.arange(n_classes - 1, -1, -1).astype(points.dtype), axis=-1)
    return points


def arranged(x: NDArray[Any]) -> NDArray[Any]:
    """Return images in the layout of networks, (n, height, width, channels)."""
    return np.ascontiguousarray(x[..., None] if x.ndim == 3 else x)


def dataset_fingerprint(dataset: Any) -> str:
    """Return the SHA-256 of a dataset: names, types, shapes and bytes of its arrays."""
    hashed = hashlib.sha256(b"runoff dataset 1\n")
    for name in ("x_train", "y_train", "x_test", "y_test", "original_digests", "original_sums"):
        array = getattr(dataset, name)
        if array is None:
            hashed.update(f"{name} none\n".encode())
            continue
        array = np.asarray(array)
        hashed.update(f"{name} {array.dtype.name} {','.join(str(n) for n in array.shape)}\n".encode())
        hashed.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    if (groups := getattr(dataset, "groups", None)) is not None:
        hashed.update(f"groups {groups.dtype.name} {len(groups)}\n".encode())
        hashed.update(np.ascontiguousarray(groups, groups.dtype.newbyteorder("<")).tobytes())
    return hashed.hexdigest()
