"""Fused Triton kernels for batch norm, ReLU and pooling, over activations as rows of channels.

These operations are limited by memory bandwidth, so each kernel reads an activation once. Sums are computed in two
stages, first over blocks of rows and then over the blocks, in an order that depends on the shape only: no atomics, no
autotuning. So the bits do not depend on other work on the device. Arguments that only bound loops and masks are not
specialised on: one compilation serves all sizes.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n_rows", "rows_each"])
def moments(x, sums, n_rows, n_channels, rows_each, BP: tl.constexpr, BC: tl.constexpr):
    """Compute the sums and the sums of squares over a block of rows, (blocks, 2, channels)."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the last rows, written most recently, are still in the cache
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < n_channels
    total = tl.zeros([BP, BC], tl.float32)
    square = tl.zeros([BP, BC], tl.float32)
    for start in tl.range(0, rows_each, BP, num_stages=3):  # prefetches the next rows
        r = block * rows_each + start + tl.arange(0, BP)
        mask = (r < n_rows)[:, None] & inside[None, :]
        v = tl.load(x + r[:, None] * n_channels + c[None, :], mask=mask, other=0.0).to(tl.float32)
        total += v
        square += v * v
    tl.store(sums + block * 2 * n_channels + c, tl.sum(total, 0), mask=inside)
    tl.store(sums + (block * 2 + 1) * n_channels + c, tl.sum(square, 0), mask=inside)


@triton.jit
def _total(sums, which, n_blocks, n_channels, c, inside, BP: tl.constexpr, BC: tl.constexpr):
    total = tl.zeros([BP, BC], tl.float32)
    for start in range(0, n_blocks, BP):
        b = start + tl.arange(0, BP)
        mask = (b < n_blocks)[:, None] & inside[None, :]
        total += tl.load(sums + (b[:, None] * 2 + which) * n_channels + c[None, :], mask=mask, other=0.0)
    return tl.sum(total, 0)


@triton.jit(do_not_specialize=["n_blocks", "n_rows"])
def settle(
    sums, gamma, beta, running_mean, running_var, norm, n_blocks, n_rows, n_channels, momentum, eps,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Compute mean, 1 / deviation, scale and shift of each channel, (4, channels); update the running statistics."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = c < n_channels
    n = n_rows.to(tl.float32)
    mean = _total(sums, 0, n_blocks, n_channels, c, inside, BP, BC) / n
    var = tl.maximum(_total(sums, 1, n_blocks, n_channels, c, inside, BP, BC) / n - mean * mean, 0.0)
    rstd = 1.0 / tl.sqrt(var + eps)
    scale = rstd * tl.load(gamma + c, mask=inside, other=0.0)
    shift = tl.load(beta + c, mask=inside, other=0.0) - mean * scale
    tl.store(norm + c, mean, mask=inside)
    tl.store(norm + n_channels + c, rstd, mask=inside)
    tl.store(norm + 2 * n_channels + c, scale, mask=inside)
    tl.store(norm + 3 * n_channels + c, shift, mask=inside)
    before = tl.load(running_mean + c, mask=inside, other=0.0)
    tl.store(running_mean + c, before + momentum * (mean - before), mask=inside)
    before = tl.load(running_var + c, mask=inside, other=0.0)
    tl.store(running_var + c, before + momentum * (var * (n / (n - 1.0)) - before), mask=inside)


@triton.jit(do_not_specialize=["n_rows"])
def apply(x, norm, out, n_rows, n_channels, BP: tl.constexpr, BC: tl.constexpr):
    """Compute relu(x * scale + shift)."""
    r = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < n_channels
    mask = (r < n_rows)[:, None] & inside[None, :]
    scale = tl.load(norm + 2 * n_channels + c, mask=inside, other=0.0)
    shift = tl.load(norm + 3 * n_channels + c, mask=inside, other=0.0)
    at = r[:, None] * n_channels + c[None, :]
    v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    tl.store(out + at, tl.maximum(v, 0.0).to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n_out", "height", "width"])
def apply_pool(
    x, norm, out, best, taps, n_out, height, width, n_channels,
    MAX: tl.constexpr, KEEP: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Compute relu(x * scale + shift), pooled over 3 x 3 windows with stride 2 and padding 1.

    With max pooling, KEEP stores which of the nine pixels is the largest, and its x, for the backward pass.
    """
    r = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < n_channels
    out_width = (width + 1) // 2
    out_height = (height + 1) // 2
    wo = r % out_width
    ho = (r // out_width) % out_height
    image = r // (out_width * out_height)
    scale = tl.load(norm + 2 * n_channels + c, mask=inside, other=0.0)
    shift = tl.load(norm + 3 * n_channels + c, mask=inside, other=0.0)
    top = tl.full([BP, BC], float("-inf"), tl.float32)
    raw = tl.zeros([BP, BC], tl.float32)
    tap = tl.zeros([BP, BC], tl.int32)
    total = tl.zeros([BP, BC], tl.float32)
    for i in tl.static_range(9):
        h = 2 * ho - 1 + i // 3
        w = 2 * wo - 1 + i % 3
        valid = (r < n_out) & (h >= 0) & (h < height) & (w >= 0) & (w < width)
        mask = valid[:, None] & inside[None, :]
        at = ((image * height + h) * width + w)[:, None] * n_channels + c[None, :]
        u = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        v = u * scale[None, :] + shift[None, :]
        if MAX:
            better = mask & (v > top)
            top = tl.where(better, v, top)
            raw = tl.where(better, u, raw)
            tap = tl.where(better, i, tap)
        else:
            total += tl.where(mask, tl.maximum(v, 0.0), 0.0)
    mask = (r < n_out)[:, None] & inside[None, :]
    at = r[:, None] * n_channels + c[None, :]
    if MAX:
        tl.store(out + at, tl.maximum(top, 0.0).to(out.dtype.element_ty), mask=mask)
        if KEEP:
            tl.store(best + at, raw.to(best.dtype.element_ty), mask=mask)
            tl.store(taps + at, tap.to(tl.uint8), mask=mask)
    else:
        tl.store(out + at, (total / 9.0).to(out.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["n_rows", "rows_each"])
def back_moments(grad, x, norm, sums, n_rows, n_channels, rows_each, BP: tl.constexpr, BC: tl.constexpr):
    """Sum the gradient before ReLU, and that gradient times the normalised x, over a block of rows."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < n_channels
    mean = tl.load(norm + c, mask=inside, other=0.0)[None, :]
    rstd = tl.load(norm + n_channels + c, mask=inside, other=0.0)
    scale = tl.load(norm + 2 * n_channels + c, mask=inside, other=0.0)[None, :]
    shift = tl.load(norm + 3 * n_channels + c, mask=inside, other=0.0)[None, :]
    total = tl.zeros([BP, BC], tl.float32)
    along = tl.zeros([BP, BC], tl.float32)
    for start in tl.range(0, rows_each, BP, num_stages=3):
        r = block * rows_each + start + tl.arange(0, BP)
        mask = (r < n_rows)[:, None] & inside[None, :]
        at = r[:, None] * n_channels + c[None, :]
        v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        g = tl.where(mask & (v * scale + shift > 0.0), g, 0.0)
        total += g
        along += g * (v - mean)
    tl.store(sums + block * 2 * n_channels + c, tl.sum(total, 0), mask=inside)
    tl.store(sums + (block * 2 + 1) * n_channels + c, tl.sum(along, 0) * rstd, mask=inside)


@triton.jit(do_not_specialize=["n_out", "height", "width", "rows_each"])
def back_moments_avg(
    grad, x, norm, sums, n_out, height, width, n_channels, rows_each, BP: tl.constexpr, BC: tl.constexpr
):
    """Compute the sums of `back_moments` with average pooling: for blocks of 2 x 2 pixels, which share four windows."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < n_channels
    mean = tl.load(norm + c, mask=inside, other=0.0)[None, :]
    rstd = tl.load(norm + n_channels + c, mask=inside, other=0.0)
    scale = tl.load(norm + 2 * n_channels + c, mask=inside, other=0.0)[None, :]
    shift = tl.load(norm + 3 * n_channels + c, mask=inside, other=0.0)[None, :]
    out_width = (width + 1) // 2
    out_height = (height + 1) // 2
    total = tl.zeros([BP, BC], tl.float32)
    along = tl.zeros([BP, BC], tl.float32)
    for start in range(0, rows_each, BP):
        r = block * rows_each + start + tl.arange(0, BP)
        valid = r < n_out
        j = r % out_width
        i = (r // out_width) % out_height
        image = r // (out_width * out_height)
        g00, _ = _window(grad, grad, image, i, j, out_height, out_width, valid, c, inside, n_channels, 2)
        g01, _ = _window(grad, grad, image, i, j + 1, out_height, out_width, valid, c, inside, n_channels, 2)
        g10, _ = _window(grad, grad, image, i + 1, j, out_height, out_width, valid, c, inside, n_channels, 2)
        g11, _ = _window(grad, grad, image, i + 1, j + 1, out_height, out_width, valid, c, inside, n_channels, 2)
        at = ((image * height + 2 * i) * width + 2 * j)[:, None] * n_channels + c[None, :]
        mask = valid[:, None] & inside[None, :]
        right = mask & (2 * j + 1 < width)[:, None]
        below = mask & (2 * i + 1 < height)[:, None]
        total, along = _add(x, at, mask, g00, mean, scale, shift, total, along)
        total, along = _add(x, at + n_channels, right, g00 + g01, mean, scale, shift, total, along)
        total, along = _add(x, at + width * n_channels, below, g00 + g10, mean, scale, shift, total, along)
        g = g00 + g01 + g10 + g11
        total, along = _add(x, at + (width + 1) * n_channels, right & below, g, mean, scale, shift, total, along)
    tl.store(sums + block * 2 * n_channels + c, tl.sum(total, 0) / 9.0, mask=inside)
    tl.store(sums + (block * 2 + 1) * n_channels + c, tl.sum(along, 0) * rstd / 9.0, mask=inside)


@triton.jit
def _add(x, at, mask, g, mean, scale, shift, total, along):
    """Add the terms of the pixels `at` to the sums."""
    v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    g = tl.where(mask & (v * scale + shift > 0.0), g, 0.0)
    return total + g, along + g * (v - mean)


@triton.jit(do_not_specialize=["n_blocks"])
def back_settle(sums, grad_norm, n_blocks, n_channels, BP: tl.constexpr, BC: tl.constexpr):
    """Compute the gradients of beta and gamma, (2, channels)."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = c < n_channels
    tl.store(grad_norm + c, _total(sums, 0, n_blocks, n_channels, c, inside, BP, BC), mask=inside)
    tl.store(grad_norm + n_channels + c, _total(sums, 1, n_blocks, n_channels, c, inside, BP, BC), mask=inside)


@triton.jit
def _share(g, won, tap: tl.constexpr, POOL: tl.constexpr):
    """Return the part of a window's gradient that goes to its pixel `tap`."""
    if POOL == 1:
        return tl.where(won == tap, g, 0.0)
    return g


@triton.jit
def _back(x, at, mask, g, mean, rstd, scale, shift, part, along, out):
    """Compute the gradient through ReLU and batch norm of the pixels `at`."""
    v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    g = tl.where(v * scale + shift > 0.0, g, 0.0)
    tl.store(out + at, (scale * (g - part - (v - mean) * rstd * along)).to(out.dtype.element_ty), mask=mask)


@triton.jit
def _window(grad, taps, image, ho, wo, out_height, out_width, valid, c, inside, n_channels, POOL: tl.constexpr):
    """Return a window's gradient and, with max pooling, which of its pixels is the largest."""
    mask = (valid & (ho < out_height) & (wo < out_width))[:, None] & inside[None, :]
    at = ((image * out_height + ho) * out_width + wo)[:, None] * n_channels + c[None, :]
    g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
    won = g
    if POOL == 1:
        won = tl.load(taps + at, mask=mask, other=255).to(tl.int32)
    return g, won


@triton.jit(do_not_specialize=["n_out", "n_rows", "height", "width"])
def back_apply(
    grad, taps, x, norm, grad_norm, out, n_out, n_rows, height, width, n_channels,
    POOL: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of x; with a pool, for 2 x 2 pixels at a time, which share four windows."""
    r = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < n_channels
    mean = tl.load(norm + c, mask=inside, other=0.0)[None, :]
    rstd = tl.load(norm + n_channels + c, mask=inside, other=0.0)[None, :]
    scale = tl.load(norm + 2 * n_channels + c, mask=inside, other=0.0)[None, :]
    shift = tl.load(norm + 3 * n_channels + c, mask=inside, other=0.0)[None, :]
    n = n_rows.to(tl.float32)
    part = tl.load(grad_norm + c, mask=inside, other=0.0)[None, :] / n
    along = tl.load(grad_norm + n_channels + c, mask=inside, other=0.0)[None, :] / n
    valid = r < n_out
    if POOL == 0:
        mask = valid[:, None] & inside[None, :]
        at = r[:, None] * n_channels + c[None, :]
        g = tl.load(grad + at, mask=mask, other=0.0).to(tl.float32)
        _back(x, at, mask, g, mean, rstd, scale, shift, part, along, out)
    else:
        out_width = (width + 1) // 2
        out_height = (height + 1) // 2
        j = r % out_width
        i = (r // out_width) % out_height
        image = r // (out_width * out_height)
        divisor = 1.0 if POOL == 1 else 9.0
        g00, won00 = _window(grad, taps, image, i, j, out_height, out_width, valid, c, inside, n_channels, POOL)
        g01, won01 = _window(grad, taps, image, i, j + 1, out_height, out_width, valid, c, inside, n_channels, POOL)
        g10, won10 = _window(grad, taps, image, i + 1, j, out_height, out_width, valid, c, inside, n_channels, POOL)
        g11, won11 = _window(grad, taps, image, i + 1, j + 1, out_height, out_width, valid, c, inside, n_channels, POOL)
        at = ((image * height + 2 * i) * width + 2 * j)[:, None] * n_channels + c[None, :]
        mask = valid[:, None] & inside[None, :]
        right = mask & (2 * j + 1 < width)[:, None]
        below = mask & (2 * i + 1 < height)[:, None]
        g = _share(g00, won00, 4, POOL) / divisor
        _back(x, at, mask, g, mean, rstd, scale, shift, part, along, out)
        g = (_share(g00, won00, 5, POOL) + _share(g01, won01, 3, POOL)) / divisor
        _back(x, at + n_channels, right, g, mean, rstd, scale, shift, part, along, out)
        g = (_share(g00, won00, 7, POOL) + _share(g10, won10, 1, POOL)) / divisor
        _back(x, at + width * n_channels, below, g, mean, rstd, scale, shift, part, along, out)
        g = (_share(g00, won00, 8, POOL) + _share(g01, won01, 6, POOL)) + _share(g10, won10, 2, POOL)
        g = (g + _share(g11, won11, 0, POOL)) / divisor
        _back(x, at + (width + 1) * n_channels, right & below, g, mean, rstd, scale, shift, part, along, out)
