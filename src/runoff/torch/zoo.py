"""Encoders from torchvision and timm: pretrained models, by name, without the last layer.

These packages download the weights when a model is first used, in their own formats and to their own caches. Manifests
record the SHA-256 of the tensors that they return.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from runoff._io.sources import code_digest
from runoff._io.text import one_line
from runoff.encoders import Encoder, cache_directory
from runoff.errors import InputError, MissingExtraError
from runoff.torch import devices
from runoff.torch.building import tensors_of
from runoff.torch.checkpoints import digest
from runoff.torch.pictures import cores, expects, resized, to_tensor

LIBRARIES = ("torchvision", "timm")
NAME = r"[A-Za-z0-9_.-]+"
BATCH = 64  # images per call on a GPU
FILES = ("zoo.py", "pictures.py", "devices.py")  # code that determines the bits of features


def encoder(library: str, name: str, *, device: Any = None, flip: bool | None = None) -> Encoder:
    """Return an encoder of images from a pretrained model.

    A name comes from a manifest, too, which may be another person's. Names with colons would make timm load the weights
    of any repository or directory, so only those of the package's own models are accepted.
    """
    if not re.fullmatch(NAME, name):
        raise InputError(
            f"encoder {library}/{one_line(name, 60)} must be named like a model of {library}, in letters, digits, "
            "dots, hyphens and underscores: for other weights, use your own function with runoff.Encoder"
        )
    package = _imported(library)
    make = _of_torchvision if library == "torchvision" else _of_timm
    try:
        module, pixels, mean, std = make(package, name)
    except MissingExtraError:
        raise
    except Exception as error:  # an unknown name, or no network
        reason = " ".join(str(error).split())[:200]
        raise InputError(f"encoder {library}/{name} cannot be loaded: {type(error).__name__}: {reason}") from error
    flip = True if flip is None else flip
    return of_module(module, f"{library}/{name}", pixels, mean, std, package.__version__, device=device, flip=flip)


def of_module(
    module: nn.Module, name: str, pixels: int, mean: Sequence[float], std: Sequence[float], version: str, *,
    device: Any, flip: bool,
) -> Encoder:  # fmt: skip
    """Return an encoder that resizes images to a square, normalises them and applies a module."""
    chosen = devices.find(device)
    module = module.eval().to(chosen)
    shift, factor = (torch.tensor(v, device=chosen)[:, None, None] for v in (mean, std))

    def features(images: NDArray[Any]) -> NDArray[np.float32]:
        with devices.repeatable("fp32"), devices.this_thread_alone(), torch.inference_mode():
            x = (resized(to_tensor(images, 255, chosen), pixels) - shift) / factor
            encoded = module(x)
            if flip:
                encoded = (encoded + module(x.flip(3))) / 2
            values: NDArray[np.float32] = encoded.flatten(1).cpu().numpy()
            return values

    settings = {
        "pixels": pixels, "flip": flip, "mean": list(mean), "std": list(std), "device": devices.describe(chosen),
        "precision": "fp32", "torch": torch.__version__, "package": version, "code": _code(),
    }  # fmt: skip
    on_gpu = chosen.type == "cuda"
    cached = cache_directory() / "features"
    batch, workers = (BATCH, 1) if on_gpu else (1, cores())
    return Encoder(features, name, digest(tensors_of(module)), batch, workers, settings, expects(255), cached)


@cache
def _code() -> str:
    return code_digest([Path(__file__).parent / name for name in FILES])


def _imported(library: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError:
        raise MissingExtraError(
            f"encoders of {library} need the package. Install it with: pip install {library}"
        ) from None


def _of_torchvision(package: Any, name: str) -> tuple[nn.Module, int, Sequence[float], Sequence[float]]:
    weights = package.models.get_model_weights(name).DEFAULT
    module = package.models.get_model(name, weights=weights)
    preset = weights.transforms()
    return without_last_layer(module), preset.crop_size[0], preset.mean, preset.std


def _of_timm(package: Any, name: str) -> tuple[nn.Module, int, Sequence[float], Sequence[float]]:
    module = package.create_model(name, pretrained=True, num_classes=0)
    config = package.data.resolve_model_data_config(module)
    return module, config["input_size"][1], config["mean"], config["std"]


def without_last_layer(module: nn.Module) -> nn.Module:
    """Replace the last linear layer of a classifier with the identity."""
    name = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)][-1]
    parent, _, last = name.rpartition(".")
    setattr(module.get_submodule(parent), last, nn.Identity())
    return module
