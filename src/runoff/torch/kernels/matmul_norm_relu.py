"""Layers that are one matrix product: with batch norm and ReLU as one operation that never writes the product itself.

Convolutions of 1 x 1 are such, and the first convolution over its patches. For rows x and y = x w', the mean of y is
mean(x) w' and its variance the diagonal of w cov(x) w', so the product can be made with batch norm in its weights. And
with

    g      the gradient of the layer's result, nothing where ReLU gave nothing,
    along  the sum of g times the normalised y,

the gradient of w is scale (g' (x - mean(x)) - along / deviation w cov(x)), and that of x is, less its mean,
g diag(scale) w - x w' diag(scale along / (n deviation)) w: neither y nor its gradient is needed.
"""

from __future__ import annotations

import functools
import math
import os
from typing import Any

import torch
from torch import Tensor

from runoff.torch.kernels import norm_relu_pool

MOST = 192  # channels
SEEN = ("3.6.0",)  # versions of Triton whose code for these kernels, with its own assembler, has been read and tried
MEMORY = 227 * 1024  # bytes that a program may hold at hand, as the tiles here want it
BLOCKS = 32  # of rows, at most, in sums: more are faster for one network, fewer for several at a time
BACK = {"BM": 64, "BK": 32, "STAGES": 4, "num_warps": 4}


def _kernels() -> Any:
    from runoff.torch.kernels import matmul_norm_relu_triton

    return matmul_norm_relu_triton


def precision(x: Tensor) -> torch.dtype | None:
    """What to compute in, or None where this is not for the device or what is asked of it."""
    return torch.bfloat16 if torch.is_autocast_enabled("cuda") and _suited(x.device.index) else None


@functools.cache
def _suited(device: int) -> bool:
    try:
        version: str = _kernels().triton.__version__
    except ImportError:  # no Triton, or one without descriptors
        return False
    properties: Any = torch.cuda.get_device_properties(device)
    able = properties.major == 9 and properties.shared_memory_per_block_optin >= MEMORY
    own_assembler = os.environ.get("TRITON_PTXAS_PATH") is not None
    return version.split("+")[0] in SEEN and not own_assembler and bool(able)


def fits(n_in: int, n_out: int) -> bool:
    """Whether there are tiles for so many channels."""
    return all(n % 8 == 0 and 32 <= n <= MOST for n in (n_in, n_out))


def _parts(n: int, least: int = 16) -> tuple[int, int]:
    """A number of channels as two powers of two, the second filled up."""
    first = max(least, min(128, 1 << (n.bit_length() - 1)))
    return first, max(least, _wide(n - first))


def _wide(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _sums(x: Tensor, y: Tensor) -> Tensor:
    """The product x' y and, as its last row, the sums of y: (n_x + 1, n_y)."""
    n_rows, (n_x, n_y) = len(x), (x.shape[1], y.shape[1])
    each = 64 * -(-n_rows // (64 * min(BLOCKS, max(1, math.isqrt(n_rows // 32)))))
    n_blocks = -(-n_rows // each)
    parts = torch.empty(n_blocks, n_x + 1, n_y, device=x.device)
    x1, x2 = _parts(n_x, 64)
    y1, y2 = (x1, x2) if x is y else _parts(n_y)
    kernels, box = _kernels(), _kernels().box
    kernels.product_sums[(n_blocks,)](
        box(x, 64, x1), box(x, 64, x2), box(y, 64, y1), box(y, 64, y2), parts, each,
        N_X=n_x, N_Y=n_y, SAME=x is y, X1=x1, X2=x2, Y1=y1, Y2=y2, BP=64, STAGES=4, num_warps=8,
    )  # fmt: skip
    out = torch.empty(n_x + 1, n_y, device=x.device)
    kernels.product_total[(-(-out.numel() // 256),)](parts, out, n_blocks, out.numel(), BP=16, BC=256)
    return out


def _product(x: Tensor, folded: Tensor, shift: Tensor) -> Tensor:
    """relu(x folded' + shift)."""
    n_out, n_in = folded.shape
    out = x.new_empty(len(x), n_out)
    n1, n2 = _parts(n_out)
    kernels, box = _kernels(), _kernels().box
    chunk = min(64, _wide(n_in))
    rows, warps = (128, 8) if n_in <= 128 else (64, 4)
    programs = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    kernels.product[(min(programs, -(-len(x) // rows)),)](
        box(x, rows, chunk), folded, shift, box(out, rows, n1), box(out, rows, n2), len(x),
        N_IN=n_in, N_OUT=n_out, N1=n1, N2=n2, BM=rows, BK=chunk, STAGES=3, num_warps=warps,
    )  # fmt: skip
    return out


def _back(grad: Tensor, x: Tensor, weight: Tensor, back: Tensor | None = None, shift: Tensor | None = None) -> Tensor:
    out = torch.empty_like(x)
    n1, n2 = _parts(x.shape[1])
    kernels, box = _kernels(), _kernels().box
    rows, chunk = BACK["BM"], BACK["BK"]
    own = x if back is None else back
    kernels.product_back[(-(-len(x) // rows),)](
        box(grad, rows, chunk), box(x, rows, chunk), box(weight, chunk, n1), box(weight, chunk, n2),
        box(own, chunk, n1), box(own, chunk, n2), box(x, rows, n1), box(x, rows, n2), shift, box(out, rows, n1),
        box(out, rows, n2), N_IN=x.shape[1], N_OUT=grad.shape[1], NORM=back is not None,
        N1=n1, N2=n2, **BACK,
    )  # fmt: skip
    return out


def norm_act(x: Tensor, weight: Tensor, norm: torch.nn.BatchNorm2d) -> Tensor:
    """relu(norm(x weight')) for rows x, with weights in full precision whatever x is.

    In training, whoever takes the result must give gradients back that are nothing where it is nothing, as `norm_act`
    itself and `mixed` do.
    """
    weight = weight.contiguous()
    if norm.training:
        return _NormAct.apply(  # type: ignore[no-any-return,no-untyped-call]
            x, weight, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.momentum, norm.eps
        )
    scale, shift = norm_relu_pool.at_rest(norm)
    return _product(x, (weight * scale[:, None]).to(x.dtype), shift)


def mixed(x: Tensor, weight: Tensor) -> Tensor:
    """The product x weight' for rows x from a ReLU: their gradient is nothing where they are nothing."""
    return _Mixed.apply(x, weight)  # type: ignore[no-any-return,no-untyped-call]


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        weight = weight.to(x.dtype).contiguous()
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        grad = grad.contiguous()
        return _back(grad, x, weight), _sums(grad, x)[:-1]


class _NormAct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        gamma: Tensor,
        beta: Tensor,
        mean: Tensor,
        var: Tensor,
        momentum: float,
        eps: float,
    ) -> Tensor:
        n_out, n_in = weight.shape
        squares = _sums(x, x)
        norm, tilt = x.new_empty(4, n_out, dtype=torch.float32), torch.empty_like(weight)
        folded = torch.empty_like(weight, dtype=x.dtype)
        _kernels().product_fold[(-(-n_out // 16),)](
            squares, weight, gamma, beta, mean, var, norm, tilt, folded, len(x), momentum, eps,
            N_IN=n_in, N_OUT=n_out, BI=_wide(n_in), BC=16, BK=32,
        )  # fmt: skip
        ctx.save_for_backward(x, weight, squares, norm, tilt, folded)
        return _product(x, folded, norm[3])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, squares, norm, tilt, folded = ctx.saved_tensors
        n_out, n_in = weight.shape
        grad = grad.contiguous()
        steep, ends = torch.empty_like(weight), torch.empty(3, n_out, device=x.device)
        _kernels().product_slopes[(-(-n_out // 8),)](
            _sums(x, grad), squares, tilt, weight, norm, steep, ends, len(x),
            N_IN=n_in, N_OUT=n_out, BI=_wide(n_in), BC=8,
        )  # fmt: skip
        out = None
        if ctx.needs_input_grad[0]:
            back, shift = x.new_empty(n_in, n_in), torch.empty(n_in, device=x.device)
            _kernels().product_spread[(-(-n_in // 16),)](
                weight, folded, ends, squares, back, shift, len(x),
                N_IN=n_in, N_OUT=n_out, BI=_wide(n_in), BC=16, BK=32, BO=_wide(n_out),
            )  # fmt: skip
            out = _back(grad, x, folded, back, shift)
        return out, steep, ends[1], ends[0], None, None, None, None
