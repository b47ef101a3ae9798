"""Batch norm, ReLU and pooling as one operation with a gradient, on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

POOLS = {None: 0, "max": 1, "avg": 2}
NUMBERS = 4096  # that a program of `apply` holds at a time: whole rows
SETTLE = {"BP": 256, "BC": 8}
SUM_PLACES, SUM_BLOCKS = 64, 256


def usable(x: Tensor) -> bool:
    """Whether the kernels can take this activation."""
    return x.is_cuda and _kernels() is not None


def _kernels() -> Any:
    try:
        from runoff.torch import _kernels
    except ImportError:
        return None
    return _kernels


def patches(x: Tensor, size: int, dtype: torch.dtype) -> Tensor:
    """Each pixel's surroundings as a row, (n * height * width, columns): pixels in order, channels filled up."""
    n, n_in, height, width = x.shape
    channels = 1 << (n_in - 1).bit_length()
    rows = F.pad(x.permute(0, 2, 3, 1), (0, channels - n_in)).to(dtype).contiguous()
    n_columns = -(-size * size * channels // 8) * 8
    out = torch.empty(n * height * width, n_columns, dtype=dtype, device=x.device)
    _kernels().patches[(-(-len(out) // 32),)](
        rows, out, len(out), height, width, n_columns,
        SIZE=size, CHANNELS=channels, BP=32, BK=max(16, 1 << (n_columns - 1).bit_length()),
    )  # fmt: skip
    return out


def as_rows(weight: Tensor) -> Tensor:
    """A convolution's weights, (n_out, columns), as `patches` arranges the pixels."""
    n_out, n_in, size, _ = weight.shape
    channels = 1 << (n_in - 1).bit_length()
    flat = F.pad(weight.permute(0, 2, 3, 1), (0, channels - n_in)).reshape(n_out, size * size * channels)
    return F.pad(flat, (0, -flat.shape[1] % 8))


def first_convolution(x: Tensor, weight: Tensor) -> Tensor:
    """A convolution of few channels, such as colours, as one matrix product.

    Libraries are slow at it: their tiles want many channels.
    """
    rows = patches(x, weight.shape[2], weight.dtype)
    return F.linear(rows, as_rows(weight)).view(len(x), *x.shape[2:], -1).permute(0, 3, 1, 2)


class _Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004
        halves = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in weights]
        torch._foreach_copy_(halves, weights)
        return tuple(halves)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004
        wide = [torch.empty_like(grad, dtype=torch.float32) for grad in grads]
        torch._foreach_copy_(wide, grads)
        return tuple(wide)


def halves(weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Weights in bf16, all in one go, and their gradients back."""
    return _Halves.apply(*weights)  # type: ignore[no-any-return,no-untyped-call]


def norm_act(x: Tensor, norm: torch.nn.BatchNorm2d, pool: str | None, training: bool) -> Tensor:
    """relu(norm(x)), then pooled 3 x 3 at every second place: the same as the plain modules one after the other."""
    rows = x.permute(0, 2, 3, 1).contiguous()
    if training:
        out = _NormAct.apply(  # type: ignore[no-untyped-call]
            rows, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.momentum, norm.eps, POOLS[pool]
        )
    else:
        mean, var = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
        scale = norm.weight * torch.rsqrt(var + norm.eps)
        coefficients = torch.stack([mean, scale, scale, norm.bias - mean * scale])
        out = _applied(rows, coefficients, POOLS[pool], keep=False)[0]
    return out.permute(0, 3, 1, 2)  # type: ignore[no-any-return]


def _wide(n_channels: int) -> int:
    return 64 if n_channels % 64 == 0 or n_channels < 64 else 32


def _grid(n_rows: int, n_channels: int, places: int, wide: int) -> tuple[tuple[int, int], dict[str, int]]:
    return (-(-n_rows // places), -(-n_channels // wide)), {"BP": places, "BC": wide}


def _sum_grid(n_channels: int) -> tuple[int, dict[str, int]]:
    return -(-n_channels // _wide(n_channels)), {"BP": SUM_PLACES, "BC": _wide(n_channels)}


def _blocks(n_rows: int) -> tuple[int, int]:
    """Rows for each program of a sum, and how many such programs: a function of the number of rows alone."""
    each = SUM_PLACES * max(1, n_rows // (SUM_PLACES * SUM_BLOCKS))
    return each, -(-n_rows // each)


def _applied(rows: Tensor, norm: Tensor, pool: int, keep: bool) -> tuple[Tensor, Tensor, Tensor]:
    n, height, width, channels = rows.shape
    kernels = _kernels()
    if pool == 0:
        out = torch.empty_like(rows)
        wide = min(256, 1 << (channels - 1).bit_length())
        grid, block = _grid(n * height * width, channels, NUMBERS // wide, wide)
        kernels.apply[grid](rows, norm, out, n * height * width, channels, **block)
        return out, rows, rows
    shape = (n, (height + 1) // 2, (width + 1) // 2, channels)
    out = rows.new_empty(shape)
    noted = keep and pool == 1
    best = rows.new_empty(shape) if noted else rows
    taps = rows.new_empty(shape, dtype=torch.uint8) if noted else rows
    grid, block = _grid(out.numel() // channels, channels, 32, _wide(channels))
    kernels.apply_pool[grid](
        rows,
        norm,
        out,
        best,
        taps,
        out.numel() // channels,
        height,
        width,
        channels,
        MAX=pool == 1,
        KEEP=noted,
        **block,
    )
    return out, best, taps


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        gamma: Tensor,
        beta: Tensor,
        mean: Tensor,
        var: Tensor,
        momentum: float,
        eps: float,
        pool: int,
    ) -> Tensor:
        n_rows, channels = rows.numel() // rows.shape[3], rows.shape[3]
        kernels = _kernels()
        each, n_blocks = _blocks(n_rows)
        across, block = _sum_grid(channels)
        sums = torch.empty(n_blocks, 2, channels, device=rows.device)
        norm = torch.empty(4, channels, device=rows.device)
        kernels.moments[(n_blocks, across)](rows, sums, n_rows, channels, each, **block)
        kernels.settle[(-(-channels // SETTLE["BC"]),)](
            sums, gamma, beta, mean, var, norm, n_blocks, n_rows, channels, momentum, eps, **SETTLE
        )
        out, best, taps = _applied(rows, norm, pool, keep=True)
        ctx.save_for_backward(rows, norm, best, taps)
        ctx.pool = pool
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        rows, norm, best, taps = ctx.saved_tensors
        grad = grad.contiguous()
        _, height, width, channels = rows.shape
        n_rows = rows.numel() // channels
        kernels = _kernels()
        # For the largest of a window, the sums run over windows: the x that won stands for all nine.
        summed, pool = (best, 0) if ctx.pool == 1 else (rows, ctx.pool)
        n_summed = summed.numel() // channels
        each, n_blocks = _blocks(n_summed)
        sums = torch.empty(n_blocks, 2, channels, device=rows.device)
        slopes = torch.empty(2, channels, device=rows.device)
        across, sum_block = _sum_grid(channels)
        kernels.back_moments[(n_blocks, across)](
            grad, summed, norm, sums, n_summed, height, width, channels, each, POOL=pool, **sum_block
        )
        kernels.back_settle[(-(-channels // SETTLE["BC"]),)](sums, slopes, n_blocks, channels, **SETTLE)
        out = torch.empty_like(rows)
        wide = _wide(channels)
        n_out = n_rows if ctx.pool == 0 else grad.numel() // channels  # behind a pool, 2 x 2 places for each window
        places = 16 if ctx.pool else 128 if wide == 64 else 32
        grid, block = _grid(n_out, channels, places, wide)
        kernels.back_apply[grid](
            grad, taps, rows, norm, slopes, out, n_out, n_rows, height, width, channels, POOL=ctx.pool, **block
        )
        return out, slopes[1], slopes[0], None, None, None, None, None
