"""Preparation of images for encoders: one layout, one size."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from runoff.errors import InputError


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def expects(scale: float) -> Callable[[Any], None]:
    """Return a check that X holds images with values up to about `scale`."""

    def check(X: Any) -> None:
        if not isinstance(X, np.ndarray) or X.ndim not in (3, 4) or (X.ndim == 4 and X.shape[3] not in (1, 3)):
            raise InputError(
                "an encoder of images needs X of shape (n, height, width), or with 1 or 3 channels at the end, got "
                f"{getattr(X, 'shape', type(X).__name__)}"
            )
        if scale > 1 and X.dtype.kind == "f" and 0 < X.max() <= 1 and bool((np.floor(X) != X).any()):
            raise InputError(
                f"this encoder expects pixels from 0 to {scale:g}, got numbers from 0 to 1: use image_encoder(..., "
                "scale=1)"
            )

    return check


def to_tensor(images: NDArray[Any], scale: float, device: torch.device) -> Tensor:
    """Return images as (n, 3, height, width) with values from 0 to 1."""
    images = images[..., None] if images.ndim == 3 else images
    x = torch.from_numpy(np.ascontiguousarray(images, np.float32)).to(device).permute(0, 3, 1, 2)
    return (x / scale).clamp(0, 1).expand(-1, 3, -1, -1)


def resized(x: Tensor, pixels: int) -> Tensor:
    """Return images resized to a square by bicubic interpolation."""
    if x.shape[2:] == (pixels, pixels):
        return x
    size = (pixels, pixels)
    return functional.interpolate(x, size, mode="bicubic", align_corners=False, antialias=True).clamp(0, 1)
