"""Batch norm, ReLU and pooling as one differentiable operation on a GPU."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

LOG = logging.getLogger("runoff")
POOLS = {None: 0, "max": 1, "avg": 2}
LARGEST = 2**31
NUMBERS = 4096  # per program of `apply`, in whole rows
SETTLE = {"BP": 128, "BC": 8}


def usable(x: Tensor, n_channels: int) -> bool:
    """Return whether the kernels support these images with up to `n_channels` channels: their indices have 32 bits."""
    return available(x) and x.numel() // x.shape[1] * n_channels < LARGEST


def available(x: Tensor) -> bool:
    """Return whether the kernels can run on the device of x."""
    return x.is_cuda and _imported()


@functools.cache
def _imported() -> bool:
    """Return whether Triton is installed. If not, log that once per process."""
    if _kernels() is None:
        LOG.warning("networks on GPUs train without fused kernels, so steps take longer: Triton cannot be imported")
    return _kernels() is not None


def version() -> str | None:
    """Return the version of Triton and its rounding mode, or None if it is not installed."""
    if _kernels() is None:
        return None
    return f"{_kernels().triton.__version__} {os.environ.get('TRITON_DEFAULT_FP_FUSION')}"


def _kernels() -> Any:
    try:
        from runoff.torch.kernels import norm_relu_pool_triton
    except ImportError:
        return None
    return norm_relu_pool_triton


class _ToBf16(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *weights: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004
        bf16 = [torch.empty_like(weight, dtype=torch.bfloat16) for weight in weights]
        torch._foreach_copy_(bf16, weights)
        return tuple(bf16)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:  # noqa: ARG004
        wide = [torch.empty_like(grad, dtype=torch.float32) for grad in grads]
        torch._foreach_copy_(wide, grads)
        return tuple(wide)


def to_bf16(weights: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return weights in bf16, converted by one kernel, as are their gradients."""
    return _ToBf16.apply(*weights)  # type: ignore[no-any-return,no-untyped-call]


def norm_act(x: Tensor, norm: torch.nn.BatchNorm2d, pool: str | None, training: bool) -> Tensor:
    """Return relu(norm(x)), pooled 3 x 3 with stride 2 if `pool` is given, as the separate modules would."""
    rows = x.permute(0, 2, 3, 1).contiguous()
    if training:
        out = _NormAct.apply(  # type: ignore[no-untyped-call]
            rows, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.momentum, norm.eps, POOLS[pool]
        )
    else:
        scale, shift = evaluation_coefficients(norm)
        coefficients = torch.stack([norm.get_buffer("running_mean"), scale, scale, shift])
        out = _applied(rows, coefficients, POOLS[pool], keep=False)[0]
    return out.permute(0, 3, 1, 2)  # type: ignore[no-any-return]


def evaluation_coefficients(norm: torch.nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Return the scale and shift of each channel in evaluation mode."""
    mean, var = norm.get_buffer("running_mean"), norm.get_buffer("running_var")
    scale = norm.weight * torch.rsqrt(var + norm.eps)
    return scale, norm.bias - mean * scale


def _tile_width(n_channels: int) -> int:
    return 64 if n_channels % 64 == 0 or n_channels < 64 else 32


def _grid(n_rows: int, n_channels: int, places: int, wide: int) -> tuple[tuple[int, int], dict[str, int]]:
    return (-(-n_rows // places), -(-n_channels // wide)), {"BP": places, "BC": wide}


def _sum_grid(n_rows: int, n_channels: int, windows: bool = False) -> tuple[tuple[int, int], int, dict[str, int]]:
    """Return the grid, the rows per program and the tile of a sum, which depend on the shape only."""
    wide = _tile_width(n_channels)
    places, blocks, warps = (128, 256, 4) if wide == 32 and n_rows >= 65536 else (32, 128, 2)
    if windows:
        places, warps = 16, 4
    each = places * max(1, n_rows // (places * blocks))
    tile = {"BP": places, "BC": wide, "num_warps": warps}
    return (-(-n_rows // each), -(-n_channels // wide)), each, tile


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
    keep_best = keep and pool == 1
    best = rows.new_empty(shape) if keep_best else rows
    taps = rows.new_empty(shape, dtype=torch.uint8) if keep_best else rows
    grid, block = _grid(out.numel() // channels, channels, 32, _tile_width(channels))
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
        KEEP=keep_best,
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
        grid, each, tile = _sum_grid(n_rows, channels)
        sums = torch.empty(grid[0], 2, channels, device=rows.device)
        norm = torch.empty(4, channels, device=rows.device)
        kernels.moments[grid](rows, sums, n_rows, channels, each, **tile)
        kernels.settle[(-(-channels // SETTLE["BC"]),)](
            sums, gamma, beta, mean, var, norm, grid[0], n_rows, channels, momentum, eps, **SETTLE
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
        n_out = n_rows if ctx.pool == 0 else grad.numel() // channels  # with a pool, one for each 2 x 2 pixels
        grid, each, tile = _sum_grid(n_out, channels, windows=ctx.pool == 2)
        sums = torch.empty(grid[0], 2, channels, device=rows.device)
        grad_norm = torch.empty(2, channels, device=rows.device)
        if ctx.pool == 2:
            kernels.back_moments_avg[grid](grad, rows, norm, sums, n_out, height, width, channels, each, **tile)
        else:  # with max pooling, only the largest of a window has a gradient
            kernels.back_moments[grid](grad, best if ctx.pool else rows, norm, sums, n_out, channels, each, **tile)
        kernels.back_settle[(-(-channels // SETTLE["BC"]),)](sums, grad_norm, grid[0], channels, **SETTLE)
        grad_rows = torch.empty_like(rows)
        if ctx.pool:
            grid, tile = _grid(n_out, channels, 32 if _tile_width(channels) == 64 else 16, _tile_width(channels))
        elif _tile_width(channels) == 64:
            grid, tile = _grid(n_out, channels, 128, 64)
        else:  # whole rows, since tiles of half a row would be short
            grid, tile = _grid(n_out, channels, 32, 1 << (channels - 1).bit_length())
            tile["num_warps"] = 8
        kernels.back_apply[grid](
            grad, taps, rows, norm, grad_norm, grad_rows, n_out, n_rows, height, width, channels, POOL=ctx.pool, **tile
        )
        return grad_rows, grad_norm[1], grad_norm[0], None, None, None, None, None
