"""Operations at the start and end of a step on a GPU: batch, first convolution, and last mean with linear layer."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from runoff.recipes import Recipe

# Recipe fields that `batch` supports or that do not affect the batch. It is used only if all other fields are off.
KNOWN = frozenset(
    {
        "epochs", "batch_size", "optimizer", "lr", "momentum", "nesterov", "weight_decay", "schedule", "milestones",
        "gamma", "crop", "flip", "label_smoothing", "test_flip", "precision", "average", "test_shift", "leftover",
    }
)  # fmt: skip
CONTAINERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}  # by size in bytes


def _kernels() -> Any:
    from runoff.torch.kernels import batch_and_head_triton

    return batch_and_head_triton


def supports(recipe: Recipe, images: Tensor) -> bool:
    """Return whether `batch` supports all operations of a recipe on images; the kernel is for few channels."""
    off = all(getattr(recipe, field.name) == field.default for field in fields(recipe) if field.name not in KNOWN)
    return images.ndim == 4 and images.shape[3] <= 16 and off


def batch(
    images: Tensor, labels: Tensor, clock: Tensor, tables: dict[str, Tensor], recipe: Recipe, mean: Tensor, std: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the network inputs, the labels and the learning rate of the current step.

    With crops and flips, the inputs have the same bits as those of `augment.batch`.
    """
    rows = tables["rows"]
    n, channels = rows.shape[1], images.shape[3]
    height, width = images.shape[1] - 2 * recipe.crop, images.shape[2] - 2 * recipe.crop
    x = torch.empty(n, height, width, channels, device=images.device)
    batch_labels, rate = labels.new_empty(n), torch.empty((), device=images.device)
    _kernels().batch[(n, -(-height * width // 256))](
        images, labels, clock, tables["rates"], rows, tables.get("shifts", rows),
        tables["flips"].view(torch.uint8) if "flips" in tables else rows, mean, std, x, batch_labels, rate,
        n, height, width, recipe.crop, channels,
        SHIFT="shifts" in tables, FLIP="flips" in tables, BP=256, BC=1 << (channels - 1).bit_length(),
    )  # fmt: skip
    return x.permute(0, 3, 1, 2), batch_labels, rate


def n_columns(n_in: int, size: int) -> int:
    """Return the number of columns of `patches`."""
    return -(-size * size * (1 << (n_in - 1).bit_length()) // 8) * 8


def patches(x: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Return the patch around each pixel as a row, (n * height * width, columns), with channels padded by zeros."""
    n, n_in, height, width = x.shape
    channels = 1 << (n_in - 1).bit_length()
    rows = x.permute(0, 2, 3, 1).contiguous()
    pixels = torch.empty(n, height, width, channels, dtype=dtype, device=x.device)
    n_rows = n * height * width
    _kernels().pad_channels[(-(-n_rows // 256),)](rows, pixels, n_rows, n_in, CHANNELS=channels, BP=256)
    columns = n_columns(n_in, size)
    out = torch.empty(n_rows, columns, dtype=dtype, device=x.device)
    # Channels are only copied, so as many as fit into one integer are copied at a time.
    unit = min(channels, 8 // dtype.itemsize)
    container = CONTAINERS[unit * dtype.itemsize]
    _kernels().patches[(-(-n_rows // 64),)](
        pixels.view(container), out.view(container), n_rows, height, width, columns // unit,
        SIZE=size, CHANNELS=channels // unit, BP=64, BK=1 << (columns // unit - 1).bit_length(),
    )  # fmt: skip
    return out


def as_rows(weight: Tensor) -> Tensor:
    """Return the weights of a convolution, (n_out, columns), in the column order of `patches`."""
    n_out, n_in, size, _ = weight.shape
    channels = 1 << (n_in - 1).bit_length()
    flat = F.pad(weight.permute(0, 2, 3, 1), (0, channels - n_in)).reshape(n_out, size * size * channels)
    return F.pad(flat, (0, -flat.shape[1] % 8))


def first_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """Return a convolution with few input channels, computed as one matrix product.

    Libraries are slow for such convolutions, because their tiles are for many channels.
    """
    rows = patches(x, weight.shape[2], weight.dtype)
    return F.linear(rows, as_rows(weight)).view(len(x), *x.shape[2:], -1).permute(0, 3, 1, 2)


def head(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return linear(x.mean((2, 3))) in full precision."""
    rows = x.permute(0, 2, 3, 1).contiguous()
    return _Head.apply(rows, weight.contiguous(), bias.contiguous())  # type: ignore[no-any-return,no-untyped-call]


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        n, height, width, channels = rows.shape
        means, logits = bias.new_empty(n, channels), bias.new_empty(n, len(bias))
        _kernels().head[(n,)](
            rows, weight, bias, means, logits, height * width, channels, len(bias), **_tile(channels), BK=16
        )
        ctx.save_for_backward(weight, means)
        ctx.like = rows.shape, rows.dtype
        return logits

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        weight, means = ctx.saved_tensors
        shape, dtype = ctx.like
        n, height, width, channels = shape
        grad, n_classes = grad.contiguous(), len(weight)
        grad_rows = torch.empty(shape, dtype=dtype, device=grad.device)
        grad_weight, grad_bias = torch.empty_like(weight), weight.new_empty(n_classes)
        tile = _tile(channels)
        _kernels().head_back[(n,)](grad, weight, grad_rows, height * width, channels, n_classes, **tile, BK=16)
        _kernels().head_gradients[(n_classes,)](grad, means, grad_weight, grad_bias, n, channels, n_classes, **tile)
        return grad_rows, grad_weight, grad_bias


def _tile(channels: int) -> dict[str, int]:
    return {"BP": 16, "BC": 1 << (channels - 1).bit_length()}
