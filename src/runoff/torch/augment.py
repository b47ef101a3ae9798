"""Augmentation of whole batches on the device, from numbers drawn beforehand."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from runoff.torch.recipes import Recipe

GRAY = (0.299, 0.587, 0.114)


def padded(images: Tensor, recipe: Recipe) -> Tensor:
    """Images with the black frame that crops are taken from; rows of numbers as they are."""
    p = recipe.crop
    return F.pad(images, (0, 0, p, p, p, p)) if p else images


def batch(images: Tensor, draws: dict[str, Tensor], recipe: Recipe, mean: Tensor, std: Tensor) -> Tensor:
    """A batch as the network gets it, normalised: (batch, channels, height, width) or (batch, features).

    `images` are a member's own, padded, (n, height, width, channels); `draws` are this step's.
    """
    rows = draws["rows"]
    if images.ndim == 2:
        return (images[rows].float() - mean) / std
    height, width = images.shape[1] - 2 * recipe.crop, images.shape[2] - 2 * recipe.crop
    ys = torch.arange(height, device=images.device).expand(len(rows), -1)
    xs = torch.arange(width, device=images.device).expand(len(rows), -1)
    if "flips" in draws:
        xs = torch.where(draws["flips"][:, None], width - 1 - xs, xs)
    if "shifts" in draws:
        ys, xs = ys + draws["shifts"][:, :1], xs + draws["shifts"][:, 1:]
    x = images[rows[:, None, None], ys[:, :, None], xs[:, None, :]]
    if "jitter" in draws:
        x = jittered(x.float() / 255, draws["jitter"]) * 255
    x = (x.float() - mean) / std
    if "holes" in draws:
        x = torch.where(hole(draws["holes"], recipe.cutout, height, width)[..., None], 0.0, x)
    if "shares" in draws:
        x = draws["shares"] * x + (1 - draws["shares"]) * x.flip(0)
    return x.permute(0, 3, 1, 2)


def jittered(x: Tensor, factors: Tensor) -> Tensor:
    """Brightness, contrast and saturation of images with values from 0 to 1, (batch, height, width, channels)."""
    brightness, contrast, saturation = (factors[:, i, None, None, None] for i in range(3))
    x = x * brightness
    gray = luma(x)
    mean = gray.mean((1, 2), keepdim=True)
    x = mean + contrast * (x - mean)
    if x.shape[-1] == 3:
        gray = luma(x)
        x = gray + saturation * (x - gray)
    return x.clamp(0, 1)


def luma(x: Tensor) -> Tensor:
    """How bright each pixel looks."""
    if x.shape[-1] != 3:
        return x.mean(-1, keepdim=True)
    red, green, blue = (x[..., i : i + 1] * weight for i, weight in enumerate(GRAY))
    return red + green + blue


def hole(centres: Tensor, side: int, height: int, width: int) -> Tensor:
    """Which pixels a square around each centre covers."""
    ys = torch.arange(height, device=centres.device)[None, :] - centres[:, :1] + side // 2
    xs = torch.arange(width, device=centres.device)[None, :] - centres[:, 1:] + side // 2
    return ((ys >= 0) & (ys < side))[:, :, None] & ((xs >= 0) & (xs < side))[:, None, :]
