"""Augmentation of whole batches on the device, from random numbers drawn in advance."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from runoff.recipes import Recipe
from runoff.torch.training.random_draws import N_OPERATIONS

GRAY = (0.299, 0.587, 0.114)


def padded(images: Tensor, recipe: Recipe) -> Tensor:
    """Return images padded with black for random crops; rows of numbers are returned unchanged."""
    p = recipe.crop
    return F.pad(images, (0, 0, p, p, p, p)) if p else images


def batch(images: Tensor, draws: dict[str, Tensor], recipe: Recipe, mean: Tensor, std: Tensor) -> Tensor:
    """Return an augmented, normalised batch, (batch, channels, height, width) or (batch, features).

    `images` are the member's padded images, (n, height, width, channels); `draws` are the random numbers of this step.
    """
    rows = draws["rows"]
    if images.ndim == 2:
        return mixup((images[rows].float() - mean) / std, draws)
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
    if "warps" in draws:
        x = warped(x.float(), *affine(draws["warps"], recipe.affine))
    if "operations" in draws:
        x = trivial(x.float() / 255, draws["operations"], draws["strengths"]) * 255
    x = (x.float() - mean) / std
    if "holes" in draws:
        x = torch.where(hole(draws["holes"], recipe.cutout, height, width)[..., None], 0.0, x)
    if "boxes" in draws:
        x = torch.where(box(draws["boxes"], height, width)[..., None], x.flip(0), x)
    return mixup(x, draws).permute(0, 3, 1, 2)


def mixup(x: Tensor, draws: dict[str, Tensor]) -> Tensor:
    """Apply mixup with the batch in reverse order. In steps that use CutMix, the share is 1."""
    share = draws.get("blends") if "boxes" in draws else draws.get("shares")
    return x if share is None else share * x + (1 - share) * x.flip(0)


def jittered(x: Tensor, factors: Tensor) -> Tensor:
    """Scale brightness, contrast and saturation of images with values from 0 to 1, (batch, height, width, channels)."""
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
    """Return the luma of each pixel."""
    if x.shape[-1] != 3:
        return x.mean(-1, keepdim=True)
    red, green, blue = (x[..., i : i + 1] * weight for i, weight in enumerate(GRAY))
    return red + green + blue


def hole(centres: Tensor, side: int, height: int, width: int) -> Tensor:
    """Return a mask of the pixels in a square around each centre."""
    ys = torch.arange(height, device=centres.device)[None, :] - centres[:, :1] + side // 2
    xs = torch.arange(width, device=centres.device)[None, :] - centres[:, 1:] + side // 2
    return ((ys >= 0) & (ys < side))[:, :, None] & ((xs >= 0) & (xs < side))[:, None, :]


def box(edges: Tensor, height: int, width: int) -> Tensor:
    """Return a mask of the pixels in a rectangle, (height, width)."""
    ys, xs = torch.arange(height, device=edges.device), torch.arange(width, device=edges.device)
    return ((ys >= edges[0]) & (ys < edges[1]))[:, None] & ((xs >= edges[2]) & (xs < edges[3]))


def views(inputs: Tensor, recipe: Recipe, mean: Tensor, std: Tensor) -> list[Tensor]:
    """Return the normalised views of inputs over which scores are averaged, starting with the inputs themselves.

    The other views are four diagonal shifts, padded with black, and the mirror images of all five.
    """
    if inputs.ndim == 2:
        return [(inputs - mean) / std]
    p, (height, width) = recipe.test_shift, inputs.shape[1:3]
    framed = F.pad(inputs, (0, 0, p, p, p, p)) if p else inputs
    x = ((framed - mean) / std).permute(0, 3, 1, 2)
    corners = [(p, p), (0, 0), (0, 2 * p), (2 * p, 0), (2 * p, 2 * p)] if p else [(0, 0)]
    shifted = [x[:, :, top : top + height, left : left + width] for top, left in corners]
    return [*shifted, *(view.flip(3) for view in shifted)] if recipe.test_flip else shifted


# -- geometry ----------------------------------------------------------------------------------------------------------


def affine(warps: Tensor, strength: float) -> tuple[Tensor, Tensor]:
    """Return the matrices (batch, 2, 2) and shifts (batch, 2) of random rotations, scalings and shears."""
    turn, scale = warps[:, 0] * (math.radians(15) * strength), torch.exp(warps[:, 1] * (0.25 * strength))
    cos, sin = torch.cos(turn) * scale, torch.sin(turn) * scale
    shear_x, shear_y = warps[:, 2] * (0.1 * strength), warps[:, 3] * (0.1 * strength)
    matrices = torch.stack([cos, shear_x - sin, shear_y + sin, cos], dim=1).view(-1, 2, 2)
    return matrices, torch.zeros_like(matrices[:, 0])


def warped(x: Tensor, matrices: Tensor, shifts: Tensor) -> Tensor:
    """Apply affine maps to images (batch, height, width, channels), with bilinear interpolation and black outside.

    The pixel at (x, y) from the centre is taken from `matrix @ (x, y) + shift * (width, height)`, in the order x, y.
    """
    height, width = x.shape[1:3]
    ys = torch.arange(height, device=x.device)[:, None] - (height - 1) / 2
    xs = torch.arange(width, device=x.device)[None, :] - (width - 1) / 2
    m, t = matrices[:, :, :, None, None], shifts[:, :, None, None]
    # For grid_sample, the image spans -1 to 1.
    across = (m[:, 0, 0] * xs + m[:, 0, 1] * ys) * (2 / width) + 2 * t[:, 0]
    down = (m[:, 1, 0] * xs + m[:, 1, 1] * ys) * (2 / height) + 2 * t[:, 1]
    grid = torch.stack([across, down], dim=3)
    moved = F.grid_sample(x.permute(0, 3, 1, 2), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    return moved.permute(0, 2, 3, 1)


# -- TrivialAugment ----------------------------------------------------------------------------------------------------

IDENTITY, SHEAR_X, SHEAR_Y, MOVE_X, MOVE_Y, ROTATE = range(6)
BRIGHTNESS, SATURATION, CONTRAST, SHARPNESS, POSTERIZE, SOLARIZE, AUTOCONTRAST = range(6, N_OPERATIONS)


def trivial(x: Tensor, operations: Tensor, strengths: Tensor) -> Tensor:
    """Apply TrivialAugment: one operation per image, values from 0 to 1, (batch, height, width, channels).

    These are all operations of TrivialAugment except equalisation, with strengths from -1 to 1: shears up to 0.3,
    shifts up to 0.3 of the image, rotations up to 30 degrees, brightness, saturation, contrast and sharpness times 0.1
    to 1.9, 4 to 8 bits per channel, solarisation from any threshold, and autocontrast per channel.
    """

    def on(operation: int) -> Tensor:
        return (operations == operation)[:, None, None, None]

    def only(operation: int, values: Tensor) -> Tensor:
        return torch.where(operations == operation, values, torch.zeros_like(values))

    turn = only(ROTATE, strengths * math.radians(30))
    cos, sin = torch.cos(turn), torch.sin(turn)
    shear_x, shear_y = only(SHEAR_X, strengths * 0.3), only(SHEAR_Y, strengths * 0.3)
    matrices = torch.stack([cos, shear_x - sin, shear_y + sin, cos], dim=1).view(-1, 2, 2)
    shifts = torch.stack([only(MOVE_X, strengths * 0.3), only(MOVE_Y, strengths * 0.3)], dim=1)
    moves = ((operations >= SHEAR_X) & (operations <= ROTATE))[:, None, None, None]
    x = torch.where(moves, warped(x, matrices, shifts), x)

    factor, size = (1 + 0.9 * strengths)[:, None, None, None], strengths.abs()[:, None, None, None]
    gray = luma(x)
    x = torch.where(on(BRIGHTNESS), x * factor, x)
    x = torch.where(on(SATURATION), gray + factor * (x - gray), x)
    mean = gray.mean((1, 2), keepdim=True)
    x = torch.where(on(CONTRAST), mean + factor * (x - mean), x)
    soft = blurred(x)
    x = torch.where(on(SHARPNESS), soft + factor * (x - soft), x)
    levels = 2 ** (8 - torch.round(4 * size))
    x = torch.where(on(POSTERIZE), torch.floor((x * 255 + 0.5) * (levels / 256)) * (256 / levels) / 255, x)
    x = torch.where(on(SOLARIZE) & (x >= 1 - size), 1 - x, x)
    low, high = x.amin((1, 2), keepdim=True), x.amax((1, 2), keepdim=True)
    x = torch.where(on(AUTOCONTRAST), (x - low) / (high - low + 1e-3), x)
    return x.clamp(0, 1)


def blurred(x: Tensor) -> Tensor:
    """Return the mean over 3 x 3 pixels, with reflection padding."""
    framed = F.pad(x.permute(0, 3, 1, 2), (1, 1, 1, 1), mode="reflect")
    return F.avg_pool2d(framed, 3, stride=1).permute(0, 2, 3, 1)
