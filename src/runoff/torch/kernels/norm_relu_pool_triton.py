"""Triton kernels for batch norm, ReLU and pooling in one go, over activations as rows of channels.

Batch norm, ReLU and pooling only read and write memory, so each kernel here reads an activation once. Sums are made in
two stages, first over blocks of rows and then over the blocks, in an order that depends on the shape alone: no atomics,
nothing tuned by time, so the bits are the same in whatever company they run. Numbers that only bound loops and masks
are not specialised on: one compilation serves all sizes.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n_rows", "rows_each"])
def moments(x, sums, n_rows, n_channels, rows_each, BP: tl.constexpr, BC: tl.constexpr):
    """Sums and sums of squares over a block of rows, (blocks, 2, channels)."""
    block = tl.num_programs(0) - 1 - tl.program_id(0)  # the end is what was written last, and still in the cache
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < n_channels
    total = tl.zeros([BP, BC], tl.float32)
    square = tl.zeros([BP, BC], tl.float32)
    for start in tl.range(0, rows_each, BP, num_stages=3):  # the next rows are loaded meanwhile
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
    sums, gamma, beta, mean_so_far, var_so_far, norm, n_blocks, n_rows, n_channels, momentum, eps,
    BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean, 1 / deviation, scale and shift of each channel, (4, channels), and the running statistics."""
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
    before = tl.load(mean_so_far + c, mask=inside, other=0.0)
    tl.store(mean_so_far + c, before + momentum * (mean - before), mask=inside)
    before = tl.load(var_so_far + c, mask=inside, other=0.0)
    tl.store(var_so_far + c, before + momentum * (var * (n / (n - 1.0)) - before), mask=inside)


@triton.jit(do_not_specialize=["n_rows"])
def apply(x, norm, out, n_rows, n_channels, BP: tl.constexpr, BC: tl.constexpr):
    """relu(x * scale + shift)."""
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
    """relu(x * scale + shift), pooled over 3 x 3 windows at every second place, with one row of padding.

    For the largest, KEEP notes which of the nine places won and the x there: all that going back needs.
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
        there = (r < n_out) & (h >= 0) & (h < height) & (w >= 0) & (w < width)
        mask = there[:, None] & inside[None, :]
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
    """Sums over a block of rows of the gradient behind ReLU, and of it times the normalised x."""
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
    """The same behind a mean over windows: blocks of 2 x 2 places, which share four windows."""
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
        there = valid[:, None] & inside[None, :]
        right = there & (2 * j + 1 < width)[:, None]
        below = there & (2 * i + 1 < height)[:, None]
        total, along = _behind(x, at, there, g00, mean, scale, shift, total, along)
        total, along = _behind(x, at + n_channels, right, g00 + g01, mean, scale, shift, total, along)
        total, along = _behind(x, at + width * n_channels, below, g00 + g10, mean, scale, shift, total, along)
        g = g00 + g01 + g10 + g11
        total, along = _behind(x, at + (width + 1) * n_channels, right & below, g, mean, scale, shift, total, along)
    tl.store(sums + block * 2 * n_channels + c, tl.sum(total, 0) / 9.0, mask=inside)
    tl.store(sums + (block * 2 + 1) * n_channels + c, tl.sum(along, 0) * rstd / 9.0, mask=inside)


@triton.jit
def _behind(x, at, there, g, mean, scale, shift, total, along):
    """Add what places give to the sums."""
    v = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    g = tl.where(there & (v * scale + shift > 0.0), g, 0.0)
    return total + g, along + g * (v - mean)


@triton.jit(do_not_specialize=["n_blocks"])
def back_settle(sums, slopes, n_blocks, n_channels, BP: tl.constexpr, BC: tl.constexpr):
    """The gradients of beta and gamma, (2, channels)."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = c < n_channels
    tl.store(slopes + c, _total(sums, 0, n_blocks, n_channels, c, inside, BP, BC), mask=inside)
    tl.store(slopes + n_channels + c, _total(sums, 1, n_blocks, n_channels, c, inside, BP, BC), mask=inside)


@triton.jit
def _arrived(g, won, tap: tl.constexpr, POOL: tl.constexpr):
    """What a window gives to its place `tap`."""
    if POOL == 1:
        return tl.where(won == tap, g, 0.0)
    return g


@triton.jit
def _back(x, at, there, g, mean, rstd, scale, shift, part, along, out):
    """Through ReLU and the norm, at the places `at`."""
    v = tl.load(x + at, mask=there, other=0.0).to(tl.float32)
    g = tl.where(v * scale + shift > 0.0, g, 0.0)
    tl.store(out + at, (scale * (g - part - (v - mean) * rstd * along)).to(out.dtype.element_ty), mask=there)


@triton.jit
def _window(grad, taps, image, ho, wo, out_height, out_width, valid, c, inside, n_channels, POOL: tl.constexpr):
    """A window's gradient and, for the largest, which of its places won."""
    there = (valid & (ho < out_height) & (wo < out_width))[:, None] & inside[None, :]
    at = ((image * out_height + ho) * out_width + wo)[:, None] * n_channels + c[None, :]
    g = tl.load(grad + at, mask=there, other=0.0).to(tl.float32)
    won = g
    if POOL == 1:
        won = tl.load(taps + at, mask=there, other=255).to(tl.int32)
    return g, won


@triton.jit(do_not_specialize=["n_out", "n_rows", "height", "width"])
def back_apply(
    grad, taps, x, norm, slopes, out, n_out, n_rows, height, width, n_channels,
    POOL: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradient of x; behind a pool for 2 x 2 places at a time, which share four windows."""
    r = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    inside = c < n_channels
    mean = tl.load(norm + c, mask=inside, other=0.0)[None, :]
    rstd = tl.load(norm + n_channels + c, mask=inside, other=0.0)[None, :]
    scale = tl.load(norm + 2 * n_channels + c, mask=inside, other=0.0)[None, :]
    shift = tl.load(norm + 3 * n_channels + c, mask=inside, other=0.0)[None, :]
    n = n_rows.to(tl.float32)
    part = tl.load(slopes + c, mask=inside, other=0.0)[None, :] / n
    along = tl.load(slopes + n_channels + c, mask=inside, other=0.0)[None, :] / n
    valid = r < n_out
    if POOL == 0:
        there = valid[:, None] & inside[None, :]
        at = r[:, None] * n_channels + c[None, :]
        g = tl.load(grad + at, mask=there, other=0.0).to(tl.float32)
        _back(x, at, there, g, mean, rstd, scale, shift, part, along, out)
    else:
        out_width = (width + 1) // 2
        out_height = (height + 1) // 2
        j = r % out_width
        i = (r // out_width) % out_height
        image = r // (out_width * out_height)
        share = 1.0 if POOL == 1 else 9.0
        g00, won00 = _window(grad, taps, image, i, j, out_height, out_width, valid, c, inside, n_channels, POOL)
        g01, won01 = _window(grad, taps, image, i, j + 1, out_height, out_width, valid, c, inside, n_channels, POOL)
        g10, won10 = _window(grad, taps, image, i + 1, j, out_height, out_width, valid, c, inside, n_channels, POOL)
        g11, won11 = _window(grad, taps, image, i + 1, j + 1, out_height, out_width, valid, c, inside, n_channels, POOL)
        at = ((image * height + 2 * i) * width + 2 * j)[:, None] * n_channels + c[None, :]
        there = valid[:, None] & inside[None, :]
        right = there & (2 * j + 1 < width)[:, None]
        below = there & (2 * i + 1 < height)[:, None]
        g = _arrived(g00, won00, 4, POOL) / share
        _back(x, at, there, g, mean, rstd, scale, shift, part, along, out)
        g = (_arrived(g00, won00, 5, POOL) + _arrived(g01, won01, 3, POOL)) / share
        _back(x, at + n_channels, right, g, mean, rstd, scale, shift, part, along, out)
        g = (_arrived(g00, won00, 7, POOL) + _arrived(g10, won10, 1, POOL)) / share
        _back(x, at + width * n_channels, below, g, mean, rstd, scale, shift, part, along, out)
        g = (_arrived(g00, won00, 8, POOL) + _arrived(g01, won01, 6, POOL)) + _arrived(g10, won10, 2, POOL)
        g = (g + _arrived(g11, won11, 0, POOL)) / share
        _back(x, at + (width + 1) * n_channels, right & below, g, mean, rstd, scale, shift, part, along, out)
