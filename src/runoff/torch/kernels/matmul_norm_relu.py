"""Matrix products fused with batch norm and ReLU, so that the product itself is never written to memory.

Such layers are 1 x 1 convolutions, and the first convolution over patches. For rows x and y = x w', the mean of y is
mean(x) w' and its variance the diagonal of w cov(x) w', so batch norm can be folded into the weights. With

    g      the gradient of the layer's output, zero where the output is zero,
    along  the sum of g times the normalised y,

the gradient of w is scale (g' (x - mean(x)) - along / deviation w cov(x)), and that of x is, up to a shift that makes
its mean zero, g diag(scale) w - x w' diag(scale along / (n deviation)) w. Neither y nor its gradient is needed.
"""

from __future__ import annotations

import functools
import logging
import math
import os
from typing import Any

import torch
from torch import Tensor

from runoff.torch.kernels import norm_relu_pool

LOG = logging.getLogger("runoff")
MAX_CHANNELS = 192
TESTED_VERSIONS = ("3.6.0",)  # of Triton; the code that these generate for the kernels was inspected and tested
SHARED_MEMORY = 227 * 1024  # bytes that a program needs for these tiles
MAX_BLOCKS = 32  # blocks of rows in sums; more are faster for one network, fewer for several at a time
MANY_ROWS, MANY_BLOCKS = 1 << 19, 128  # with more rows than a member's batches have, one network fills the GPU
BACK = {"BM": 64, "BK": 32, "STAGES": 4, "num_warps": 4}


def _kernels() -> Any:
    from runoff.torch.kernels import matmul_norm_relu_triton

    return matmul_norm_relu_triton


def precision(x: Tensor) -> torch.dtype | None:
    """Return the type to compute in, or None if these kernels do not support the device or the precision."""
    return torch.bfloat16 if torch.is_autocast_enabled("cuda") and _supported(x.device.index) else None


@functools.cache
def _supported(device: int) -> bool:
    """Return whether these kernels can be used on a GPU. If not, log the reason once per process."""
    reason = _obstacle(device)
    if reason is not None:
        LOG.warning(
            "networks train without kernels that fuse products with batch norm, so steps on cuda:%d take longer: %s",
            device,
            reason,
        )
    return reason is None


def _obstacle(device: int) -> str | None:
    """Return why these kernels cannot be used on a GPU, or None."""
    tested = " or ".join(TESTED_VERSIONS)
    try:
        version: str = _kernels().triton.__version__
    except ImportError as error:  # no Triton, or a version without tensor descriptors
        return f"Triton {tested} cannot be imported ({error})"
    properties: Any = torch.cuda.get_device_properties(device)
    if properties.major != 9:
        return f"they are for GPUs of compute capability 9, such as the H100, and this one has {properties.major}"
    if properties.shared_memory_per_block_optin < SHARED_MEMORY:
        return f"they need {SHARED_MEMORY // 1024} KiB of shared memory, and this GPU has less"
    if version.split("+")[0] not in TESTED_VERSIONS:
        return f"they have been tested with Triton {tested} only, and {version} is installed"
    if os.environ.get("TRITON_PTXAS_PATH") is not None:
        return "they have been tested with Triton's own assembler only, and TRITON_PTXAS_PATH names another"
    return None


def fits(n_in: int, n_out: int) -> bool:
    """Return whether the kernels have tiles for these numbers of channels."""
    return all(n % 8 == 0 and 32 <= n <= MAX_CHANNELS for n in (n_in, n_out))


def _parts(n: int, least: int = 16) -> tuple[int, int]:
    """Return two powers of two that together cover n channels."""
    first = max(least, min(128, 1 << (n.bit_length() - 1)))
    return first, max(least, _power_of_two(n - first))


def _power_of_two(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def _sums(x: Tensor, y: Tensor) -> Tensor:
    """Return the product x' y with the column sums of y as its last row: (n_x + 1, n_y)."""
    n_rows, (n_x, n_y) = len(x), (x.shape[1], y.shape[1])
    most = MAX_BLOCKS if n_rows < MANY_ROWS else MANY_BLOCKS
    each = 64 * -(-n_rows // (64 * min(most, max(1, math.isqrt(n_rows // 32)))))
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
    """Return relu(x folded' + shift)."""
    n_out, n_in = folded.shape
    out = x.new_empty(len(x), n_out)
    n1, n2 = _parts(n_out)
    kernels, box = _kernels(), _kernels().box
    chunk = min(64, _power_of_two(n_in))
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
    from_x = x if back is None else back
    kernels.product_back[(-(-len(x) // rows),)](
        box(grad, rows, chunk), box(x, rows, chunk), box(weight, chunk, n1), box(weight, chunk, n2),
        box(from_x, chunk, n1), box(from_x, chunk, n2), box(x, rows, n1), box(x, rows, n2), shift, box(out, rows, n1),
        box(out, rows, n2), N_IN=x.shape[1], N_OUT=grad.shape[1], NORM=back is not None,
        N1=n1, N2=n2, **BACK,
    )  # fmt: skip
    return out


def norm_act(x: Tensor, weight: Tensor, norm: torch.nn.BatchNorm2d) -> Tensor:
    """Return relu(norm(x weight')) for rows x in any precision, with weights in full precision.

    In training, the gradient of the result must be zero where the result is zero, as it is from another `norm_act` and
    from `masked_product`.
    """
    weight = weight.contiguous()
    if norm.training:
        return _NormAct.apply(  # type: ignore[no-any-return,no-untyped-call]
            x, weight, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.momentum, norm.eps
        )
    scale, shift = norm_relu_pool.evaluation_coefficients(norm)
    return _product(x, (weight * scale[:, None]).to(x.dtype), shift)


def masked_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return x weight' for rows x from a ReLU; the gradient of x is zero where x is zero."""
    return _MaskedProduct.apply(x, weight)  # type: ignore[no-any-return,no-untyped-call]


class _MaskedProduct(torch.autograd.Function):
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
        norm, cov_weight = x.new_empty(4, n_out, dtype=torch.float32), torch.empty_like(weight)
        folded = torch.empty_like(weight, dtype=x.dtype)
        _kernels().product_fold[(-(-n_out // 16),)](
            squares, weight, gamma, beta, mean, var, norm, cov_weight, folded, len(x), momentum, eps,
            N_IN=n_in, N_OUT=n_out, BI=_power_of_two(n_in), BC=16, BK=32,
        )  # fmt: skip
        ctx.save_for_backward(x, weight, squares, norm, cov_weight, folded)
        return _product(x, folded, norm[3])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, squares, norm, cov_weight, folded = ctx.saved_tensors
        n_out, n_in = weight.shape
        grad = grad.contiguous()
        grad_weight, grad_norm = torch.empty_like(weight), torch.empty(3, n_out, device=x.device)
        _kernels().product_gradients[(-(-n_out // 8),)](
            _sums(x, grad), squares, cov_weight, weight, norm, grad_weight, grad_norm, len(x),
            N_IN=n_in, N_OUT=n_out, BI=_power_of_two(n_in), BC=8,
        )  # fmt: skip
        grad_x = None
        if ctx.needs_input_grad[0]:
            back, shift = x.new_empty(n_in, n_in), torch.empty(n_in, device=x.device)
            _kernels().product_spread[(-(-n_in // 16),)](
                weight, folded, grad_norm, squares, back, shift, len(x),
                N_IN=n_in, N_OUT=n_out, BI=_power_of_two(n_in), BC=16, BK=32, BO=_power_of_two(n_out),
            )  # fmt: skip
            grad_x = _back(grad, x, folded, back, shift)
        return grad_x, grad_weight, grad_norm[1], grad_norm[0], None, None, None, None
