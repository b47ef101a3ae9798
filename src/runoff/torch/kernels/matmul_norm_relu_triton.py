"""Triton kernels for layers that are a matrix product with batch norm and ReLU, over rows of channels.

The statistics of a product are known before it is computed: see `matmul_norm_relu`. As in `norm_relu_pool_triton`, the
order of sums depends on the shape only: no atomics, no autotuning.

Tiles of rows are copied asynchronously, by tensor descriptors. With Triton 3.6, bf16 tiles that are loaded by pointers
in a loop must not be operands of a `dot`: a fence is missing, and next to kernels with descriptors one sum in a few
hundred was wrong. `matmul_norm_relu.TESTED_VERSIONS` lists the versions that were examined. Even with them,
`product_sums` relies on the assembler: its tiles are read by products and by sums, for which Triton allocates one
buffer too few if a product is still running when the next tile arrives; the assembler waits for each product.
"""

# mypy: ignore-errors

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


def box(x, *shape):
    """Return a descriptor of tiles of a matrix."""
    return TensorDescriptor.from_tensor(x, list(shape))


@triton.jit(do_not_specialize=["rows_each"])
def product_sums(
    x1, x2, y1, y2, parts, rows_each, N_X: tl.constexpr, N_Y: tl.constexpr, SAME: tl.constexpr,
    X1: tl.constexpr, X2: tl.constexpr, Y1: tl.constexpr, Y2: tl.constexpr, BP: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Sum x' y over a block of rows, with the sums of y as last row: (blocks, N_X + 1, N_Y). SAME: y is x.

    `x1` to `y2` are descriptors of (BP, X1) to (BP, Y2).
    """
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the last rows, written most recently, are still in the cache
    p11 = tl.zeros([X1, Y1], tl.float32)
    p12 = tl.zeros([X1, Y2], tl.float32)
    p21 = tl.zeros([X2, Y1], tl.float32)
    p22 = tl.zeros([X2, Y2], tl.float32)
    s1 = tl.zeros([BP, Y1], tl.float32)
    s2 = tl.zeros([BP, Y2], tl.float32)
    for start in tl.range(0, rows_each, BP, num_stages=STAGES):
        r = block * rows_each + start
        a1 = x1.load([r, 0])
        a2 = x2.load([r, X1])
        if SAME:
            b1 = a1
            b2 = a2
        else:
            b1 = y1.load([r, 0])
            b2 = y2.load([r, Y1])
        p11 = tl.dot(tl.trans(a1), b1, p11, input_precision="ieee")
        p12 = tl.dot(tl.trans(a1), b2, p12, input_precision="ieee")
        if not SAME:
            p21 = tl.dot(tl.trans(a2), b1, p21, input_precision="ieee")
        p22 = tl.dot(tl.trans(a2), b2, p22, input_precision="ieee")
        s1 += b1.to(tl.float32)
        s2 += b2.to(tl.float32)
    if SAME:
        p21 = tl.trans(p12)
    out = parts + block * (N_X + 1) * N_Y
    i1 = tl.arange(0, X1)
    i2 = X1 + tl.arange(0, X2)
    j1 = tl.arange(0, Y1)
    j2 = Y1 + tl.arange(0, Y2)
    upper = (i1 < N_X)[:, None]
    lower = (i2 < N_X)[:, None]
    left = (j1 < N_Y)[None, :]
    right = (j2 < N_Y)[None, :]
    tl.store(out + i1[:, None] * N_Y + j1[None, :], p11, mask=upper & left)
    tl.store(out + i1[:, None] * N_Y + j2[None, :], p12, mask=upper & right)
    tl.store(out + i2[:, None] * N_Y + j1[None, :], p21, mask=lower & left)
    tl.store(out + i2[:, None] * N_Y + j2[None, :], p22, mask=lower & right)
    tl.store(out + N_X * N_Y + j1, tl.sum(s1, 0), mask=j1 < N_Y)
    tl.store(out + N_X * N_Y + j2, tl.sum(s2, 0), mask=j2 < N_Y)


@triton.jit(do_not_specialize=["n_blocks", "n_numbers"])
def product_total(parts, out, n_blocks, n_numbers, BP: tl.constexpr, BC: tl.constexpr):
    """Sum (blocks, numbers) over the blocks."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = c < n_numbers
    acc = tl.zeros([BP, BC], tl.float32)
    for start in range(0, n_blocks, BP):
        b = start + tl.arange(0, BP)
        mask = (b < n_blocks)[:, None] & inside[None, :]
        acc += tl.load(parts + b[:, None] * n_numbers + c[None, :], mask=mask, other=0.0)
    tl.store(out + c, tl.sum(acc, 0), mask=inside)


@triton.jit(do_not_specialize=["n_rows"])
def product_fold(
    squares, weight, gamma, beta, running_mean, running_var, norm, cov_weight, folded, n_rows, momentum, eps,
    N_IN: tl.constexpr, N_OUT: tl.constexpr, BI: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute batch norm's coefficients from the sums of x' x, (N_IN + 1, N_IN), and fold its scale into the weights.

    `norm` is mean, 1 / deviation, scale and shift, (4, N_OUT); `cov_weight` is cov(x) w, for the backward pass.
    """
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    i = tl.arange(0, BI)
    inside = c < N_OUT
    n = n_rows.to(tl.float32)
    middle = tl.load(squares + N_IN * N_IN + i, mask=i < N_IN, other=0.0) / n
    both = (i < N_IN)[:, None] & inside[None, :]
    at = c[None, :] * N_IN + i[:, None]
    w = tl.load(weight + at, mask=both, other=0.0)
    cov_w = tl.zeros([BI, BC], tl.float32)
    for start in range(0, N_IN, BK):
        k = start + tl.arange(0, BK)
        mask = (i < N_IN)[:, None] & (k < N_IN)[None, :]
        square = tl.load(squares + i[:, None] * N_IN + k[None, :], mask=mask, other=0.0) / n
        other = tl.load(squares + N_IN * N_IN + k, mask=k < N_IN, other=0.0) / n
        part = tl.load(weight + c[None, :] * N_IN + k[:, None], mask=(k < N_IN)[:, None] & inside[None, :], other=0.0)
        cov_w = tl.dot(square - middle[:, None] * other[None, :], part, cov_w, input_precision="tf32x3")
    mean = tl.sum(middle[:, None] * w, 0)
    var = tl.maximum(tl.sum(cov_w * w, 0), 0.0)
    rstd = 1.0 / tl.sqrt(var + eps)
    scale = rstd * tl.load(gamma + c, mask=inside, other=0.0)
    tl.store(norm + c, mean, mask=inside)
    tl.store(norm + N_OUT + c, rstd, mask=inside)
    tl.store(norm + 2 * N_OUT + c, scale, mask=inside)
    tl.store(norm + 3 * N_OUT + c, tl.load(beta + c, mask=inside, other=0.0) - mean * scale, mask=inside)
    tl.store(cov_weight + at, cov_w, mask=both)
    tl.store(folded + at, (w * scale[None, :]).to(folded.dtype.element_ty), mask=both)
    before = tl.load(running_mean + c, mask=inside, other=0.0)
    tl.store(running_mean + c, before + momentum * (mean - before), mask=inside)
    before = tl.load(running_var + c, mask=inside, other=0.0)
    tl.store(running_var + c, before + momentum * (var * (n / (n - 1.0)) - before), mask=inside)


@triton.jit(do_not_specialize=["n_rows"])
def product(
    x, folded, shift, out1, out2, n_rows, N_IN: tl.constexpr, N_OUT: tl.constexpr,
    N1: tl.constexpr, N2: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute relu(x folded' + shift), with the weights loaded once, in up to three chunks of BK rows.

    `x`, `out1` and `out2` are descriptors of (BM, BK), (BM, N1) and (BM, N2).
    """
    n1 = tl.arange(0, N1)
    n2 = N1 + tl.arange(0, N2)
    k = tl.arange(0, BK)
    at1 = folded + n1[None, :] * N_IN + k[:, None]
    at2 = folded + n2[None, :] * N_IN + k[:, None]
    in2 = (n2 < N_OUT)[None, :]
    u1 = tl.load(at1, mask=(k < N_IN)[:, None], other=0.0)
    u2 = tl.load(at2, mask=(k < N_IN)[:, None] & in2, other=0.0)
    if N_IN > BK:
        v1 = tl.load(at1 + BK, mask=(BK + k < N_IN)[:, None], other=0.0)
        v2 = tl.load(at2 + BK, mask=(BK + k < N_IN)[:, None] & in2, other=0.0)
    if N_IN > 2 * BK:
        w1 = tl.load(at1 + 2 * BK, mask=(2 * BK + k < N_IN)[:, None], other=0.0)
        w2 = tl.load(at2 + 2 * BK, mask=(2 * BK + k < N_IN)[:, None] & in2, other=0.0)
    shift1 = tl.load(shift + n1)[None, :]
    shift2 = tl.load(shift + n2, mask=n2 < N_OUT, other=0.0)[None, :]
    for tile in tl.range(tl.program_id(0), tl.cdiv(n_rows, BM), tl.num_programs(0), num_stages=STAGES):
        r = tile * BM
        a = x.load([r, 0])
        y1 = tl.dot(a, u1, input_precision="ieee")
        y2 = tl.dot(a, u2, input_precision="ieee")
        if N_IN > BK:
            a = x.load([r, BK])
            y1 = tl.dot(a, v1, y1, input_precision="ieee")
            y2 = tl.dot(a, v2, y2, input_precision="ieee")
        if N_IN > 2 * BK:
            a = x.load([r, 2 * BK])
            y1 = tl.dot(a, w1, y1, input_precision="ieee")
            y2 = tl.dot(a, w2, y2, input_precision="ieee")
        out1.store([r, 0], tl.maximum(y1 + shift1, 0.0).to(folded.dtype.element_ty))
        out2.store([r, N1], tl.maximum(y2 + shift2, 0.0).to(folded.dtype.element_ty))


@triton.jit(do_not_specialize=["n_rows"])
def product_gradients(
    crossed, squares, cov_weight, weight, norm, grad_weight, grad_norm, n_rows,
    N_IN: tl.constexpr, N_OUT: tl.constexpr, BI: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Compute the gradients of the weights and, in `grad_norm`, of beta and gamma and y's factor in its gradient.

    `crossed` are the sums of x' g, (N_IN + 1, N_OUT), for a gradient g that is zero where the ReLU's output is zero.
    `grad_norm` is (3, N_OUT).
    """
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    i = tl.arange(0, BI)
    inside = c < N_OUT
    n = n_rows.to(tl.float32)
    both = (i < N_IN)[:, None] & inside[None, :]
    at = c[None, :] * N_IN + i[:, None]
    m = tl.load(crossed + i[:, None] * N_OUT + c[None, :], mask=both, other=0.0)
    sums = tl.load(crossed + N_IN * N_OUT + c, mask=inside, other=0.0)
    middle = tl.load(squares + N_IN * N_IN + i, mask=i < N_IN, other=0.0) / n
    w = tl.load(weight + at, mask=both, other=0.0)
    rstd = tl.load(norm + N_OUT + c, mask=inside, other=0.0)
    scale = tl.load(norm + 2 * N_OUT + c, mask=inside, other=0.0)
    m -= middle[:, None] * sums[None, :]
    along = rstd * tl.sum(w * m, 0)
    cov_w = tl.load(cov_weight + at, mask=both, other=0.0)
    tl.store(grad_weight + at, scale[None, :] * (m - (rstd * along)[None, :] * cov_w), mask=both)
    tl.store(grad_norm + c, sums, mask=inside)
    tl.store(grad_norm + N_OUT + c, along, mask=inside)
    tl.store(grad_norm + 2 * N_OUT + c, scale * rstd * along / n, mask=inside)


@triton.jit(do_not_specialize=["n_rows"])
def product_spread(
    weight, folded, grad_norm, squares, back, shift, n_rows,
    N_IN: tl.constexpr, N_OUT: tl.constexpr, BI: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr, BO: tl.constexpr,
):  # fmt: skip
    """Compute x's factor in its gradient through batch norm, (N_IN, N_IN), and the shift that makes the mean zero."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    i = tl.arange(0, BI)
    inside = c < N_IN
    n = n_rows.to(tl.float32)
    acc = tl.zeros([BI, BC], tl.float32)
    for start in range(0, N_OUT, BK):
        j = start + tl.arange(0, BK)
        share = tl.load(grad_norm + 2 * N_OUT + j, mask=j < N_OUT, other=0.0)
        mask = (i < N_IN)[:, None] & (j < N_OUT)[None, :]
        left = tl.load(weight + j[None, :] * N_IN + i[:, None], mask=mask, other=0.0)
        right = tl.load(weight + j[:, None] * N_IN + c[None, :], mask=(j < N_OUT)[:, None] & inside[None, :], other=0.0)
        acc = tl.dot(left, right * share[:, None], acc, input_precision="tf32x3")
    rounded = (-acc).to(back.dtype.element_ty)
    tl.store(back + i[:, None] * N_IN + c[None, :], rounded, mask=(i < N_IN)[:, None] & inside[None, :])
    middle = tl.load(squares + N_IN * N_IN + i, mask=i < N_IN, other=0.0) / n
    mean_of_x = tl.sum(middle[:, None] * rounded.to(tl.float32), 0)
    o = tl.arange(0, BO)
    mask = (o < N_OUT)[:, None] & inside[None, :]
    w = tl.load(folded + o[:, None] * N_IN + c[None, :], mask=mask, other=0.0).to(tl.float32)
    sums = tl.load(grad_norm + o, mask=o < N_OUT, other=0.0) / n
    tl.store(shift + c, -mean_of_x - tl.sum(sums[:, None] * w, 0), mask=inside)


@triton.jit
def product_back(
    grad, x, weight1, weight2, back1, back2, x1, x2, shift, out1, out2,
    N_IN: tl.constexpr, N_OUT: tl.constexpr, NORM: tl.constexpr,
    N1: tl.constexpr, N2: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of x: grad weight and, with NORM, + x back + shift; zero where x, from a ReLU, is zero.

    All but `shift` are descriptors: `grad` and `x` of (BM, BK), `x1`, `x2` and `out` of (BM, N), the others of (BK, N).
    """
    r = tl.program_id(0) * BM
    g1 = tl.zeros([BM, N1], tl.float32)
    g2 = tl.zeros([BM, N2], tl.float32)
    for k in tl.range(0, N_OUT, BK, num_stages=STAGES):
        a = grad.load([r, k])
        g1 = tl.dot(a, weight1.load([k, 0]), g1, input_precision="ieee")
        g2 = tl.dot(a, weight2.load([k, N1]), g2, input_precision="ieee")
    if NORM:
        for k in tl.range(0, N_IN, BK, num_stages=STAGES):
            a = x.load([r, k])
            g1 = tl.dot(a, back1.load([k, 0]), g1, input_precision="ieee")
            g2 = tl.dot(a, back2.load([k, N1]), g2, input_precision="ieee")
        n2 = N1 + tl.arange(0, N2)
        g1 += tl.load(shift + tl.arange(0, N1))[None, :]
        g2 += tl.load(shift + n2, mask=n2 < N_IN, other=0.0)[None, :]
    activation = x1.load([r, 0])
    out1.store([r, 0], tl.where(activation > 0.0, g1, 0.0).to(activation.dtype))
    activation = x2.load([r, N1])
    out2.store([r, N1], tl.where(activation > 0.0, g2, 0.0).to(activation.dtype))
