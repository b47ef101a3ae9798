"""Conversion of X to one form: images (n, height, width, channels), or rows of numbers (n, features)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from runoff.errors import DeviceError, InputError
from runoff.recipes import Recipe

ON_IMAGES = ("crop", "flip", "jitter", "cutout", "affine", "trivial", "cutmix", "test_flip", "test_shift")


def images(X: Any, device: torch.device) -> NDArray[Any]:
    """Return X as an array: images (n, height, width[, channels]), tensors (n, channels, height, width) or rows."""
    if isinstance(X, torch.Tensor):
        if X.device.type != "cpu" and X.device != device:
            raise DeviceError(f"X must be on {device} or on the host, got a tensor on {X.device}: move it")
        host = X.detach().cpu()
        array = (host.float() if host.dtype == torch.bfloat16 else host).numpy()  # NumPy has no bfloat16
        array = array.transpose(0, 2, 3, 1) if array.ndim == 4 else array
    else:
        array = _stacked(X)
        if array.ndim == 4 and array.shape[1] in (1, 3) and array.shape[3] > 4:
            raise InputError(
                f"X must be (n, height, width, channels), got shape {array.shape}, which looks like channels first: "
                "use X.transpose(0, 2, 3, 1), or pass a torch.Tensor"
            )
    if array.dtype.kind not in "biuf":
        raise InputError(f"X must hold numbers, got dtype {array.dtype}")
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim not in (2, 4) or 0 in array.shape[1:]:
        raise InputError(
            f"X must be images (n, height, width, channels) or rows (n, features), got shape {array.shape}"
        )
    if not len(array):
        raise InputError("X must hold at least one sample, got 0 sample(s)")
    if array.dtype.kind == "f":
        bad = np.flatnonzero(~np.isfinite(array).reshape(len(array), -1).all(axis=1))
        if bad.size:
            raise InputError(f"X must be finite, got NaN or infinity in sample {bad[0]}: remove or fill it in")
    return np.ascontiguousarray(array)


def _stacked(X: Any) -> NDArray[Any]:
    """Return a list of images of one size as an array."""
    if hasattr(X, "iloc"):  # iterating over a DataFrame would give its columns
        X = X.to_numpy()
    if isinstance(X, np.ndarray) and (X.dtype.kind != "O" or X.ndim > 1):
        return X
    shapes = [np.shape(x) for x in X]
    odd = next((i for i, shape in enumerate(shapes) if shape != shapes[0]), None)
    if odd is not None:
        raise InputError(
            f"X must hold images of one size, got {shapes[0]} for sample 0 and {shapes[odd]} for sample {odd}: resize "
            "them"
        )
    return np.stack([np.asarray(x) for x in X]) if len(shapes) else np.empty((0, 1))


def suits(recipe: Recipe, X: NDArray[Any]) -> None:
    """Raise an error if X has rows of numbers and the recipe has operations for images."""
    used = [name for name in ON_IMAGES if getattr(recipe, name)]
    if X.ndim == 2 and used:
        raise InputError(f"the recipe's {used[0]} is for images, but X has rows of {X.shape[1]} numbers: turn it off")
