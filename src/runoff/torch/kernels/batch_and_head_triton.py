"""Triton kernels for the start and end of a step: batch and patches, and the last mean with the linear layer.

As in `norm_relu_pool_triton`, the order of sums depends on the shape only: no atomics, no autotuning.
"""

# mypy: ignore-errors

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["n_batch", "height", "width", "pad"])
def batch(
    images, labels, clock, rates, rows, shifts, flips, mean, std, out, batch_labels, rate, n_batch, height, width, pad,
    n_channels, SHIFT: tl.constexpr, FLIP: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Crop, flip and normalise the images of the current step; load their labels and the learning rate."""
    b = tl.program_id(0)
    entry = tl.load(clock) * n_batch + b
    row = tl.load(rows + entry).to(tl.int64)
    p = tl.program_id(1) * BP + tl.arange(0, BP)
    c = tl.arange(0, BC)
    h = p // width
    w = p % width
    if FLIP:
        w = tl.where(tl.load(flips + entry) != 0, width - 1 - w, w)
    if SHIFT:
        h += tl.load(shifts + 2 * entry)
        w += tl.load(shifts + 2 * entry + 1)
    mask = (p < height * width)[:, None] & (c < n_channels)[None, :]
    at = (row * (height + 2 * pad) + h) * (width + 2 * pad) + w
    value = tl.load(images + at[:, None] * n_channels + c[None, :], mask=mask, other=0).to(tl.float32)
    centre = tl.load(mean + c, mask=c < n_channels, other=0.0)[None, :]
    scale = tl.load(std + c, mask=c < n_channels, other=1.0)[None, :]
    value = tl.div_rn(value - centre, tl.broadcast_to(scale, value.shape))  # rounded as in PyTorch
    to = (b.to(tl.int64) * height * width + p)[:, None] * n_channels + c[None, :]
    tl.store(out + to, value, mask=mask)
    if tl.program_id(1) == 0:
        tl.store(batch_labels + b, tl.load(labels + row))
        if b == 0:
            tl.store(rate, tl.load(rates + tl.load(clock)))


@triton.jit(do_not_specialize=["n_pixels"])
def pad_channels(x, out, n_pixels, n_in, CHANNELS: tl.constexpr, BP: tl.constexpr):
    """Pad pixels with zeros to CHANNELS channels, in the type of `out`."""
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    c = tl.arange(0, CHANNELS)
    valid = (p < n_pixels)[:, None]
    value = tl.load(x + p[:, None] * n_in + c[None, :], mask=valid & (c < n_in)[None, :], other=0.0)
    tl.store(out + p[:, None] * CHANNELS + c[None, :], value.to(out.dtype.element_ty), mask=valid)


@triton.jit(do_not_specialize=["n_rows", "height", "width"])
def patches(
    x, out, n_rows, height, width, n_columns,
    SIZE: tl.constexpr, CHANNELS: tl.constexpr, BP: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Copy the SIZE x SIZE patch around each pixel to a row of n_columns numbers, padded with zeros."""
    r = tl.program_id(0) * BP + tl.arange(0, BP)
    k = tl.arange(0, BK)
    pixel = k // CHANNELS
    h = ((r // width) % height)[:, None] + (pixel // SIZE)[None, :] - SIZE // 2
    w = (r % width)[:, None] + (pixel % SIZE)[None, :] - SIZE // 2
    valid = (h >= 0) & (h < height) & (w >= 0) & (w < width) & (pixel < SIZE * SIZE)[None, :]
    at = (((r // (width * height))[:, None] * height + h) * width + w) * CHANNELS + (k % CHANNELS)[None, :]
    v = tl.load(x + at, mask=valid & (r < n_rows)[:, None], other=0)
    mask = (r < n_rows)[:, None] & (k < n_columns)[None, :]
    tl.store(out + r[:, None] * n_columns + k[None, :], v, mask=mask)


@triton.jit(do_not_specialize=["n_pixels", "n_classes"])
def head(
    x, weight, bias, means, logits, n_pixels, n_channels, n_classes,
    BP: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Compute the mean over the pixels of an image, and apply a linear layer to it."""
    b = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BC)
    inside = c < n_channels
    total = tl.zeros([BP, BC], tl.float32)
    for start in range(0, n_pixels, BP):
        p = start + tl.arange(0, BP)
        mask = (p < n_pixels)[:, None] & inside[None, :]
        at = (b * n_pixels + p)[:, None] * n_channels + c[None, :]
        total += tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(total, 0) / n_pixels
    tl.store(means + b * n_channels + c, mean, mask=inside)
    for start in range(0, n_classes, BK):
        k = start + tl.arange(0, BK)
        mask = (k < n_classes)[:, None] & inside[None, :]
        w = tl.load(weight + k[:, None] * n_channels + c[None, :], mask=mask, other=0.0)
        logit = tl.sum(w * mean[None, :], 1) + tl.load(bias + k, mask=k < n_classes, other=0.0)
        tl.store(logits + b * n_classes + k, logit, mask=k < n_classes)


@triton.jit(do_not_specialize=["n_pixels", "n_classes"])
def head_back(grad, weight, out, n_pixels, n_channels, n_classes, BP: tl.constexpr, BC: tl.constexpr, BK: tl.constexpr):
    """Compute the gradient of an image's pixels, which is the same for all of them."""
    b = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, BC)
    inside = c < n_channels
    total = tl.zeros([BC], tl.float32)
    for start in range(0, n_classes, BK):
        k = start + tl.arange(0, BK)
        mask = (k < n_classes)[:, None] & inside[None, :]
        w = tl.load(weight + k[:, None] * n_channels + c[None, :], mask=mask, other=0.0)
        g = tl.load(grad + b * n_classes + k, mask=k < n_classes, other=0.0)
        total += tl.sum(w * g[:, None], 0)
    share = tl.broadcast_to((total / n_pixels).to(out.dtype.element_ty)[None, :], [BP, BC])
    for start in range(0, n_pixels, BP):
        p = start + tl.arange(0, BP)
        mask = (p < n_pixels)[:, None] & inside[None, :]
        tl.store(out + (b * n_pixels + p)[:, None] * n_channels + c[None, :], share, mask=mask)


@triton.jit(do_not_specialize=["n_images", "n_classes"])
def head_gradients(
    grad, means, grad_weight, grad_bias, n_images, n_channels, n_classes, BP: tl.constexpr, BC: tl.constexpr
):
    """Compute the gradients of one class's weights and bias."""
    k = tl.program_id(0)
    c = tl.arange(0, BC)
    inside = c < n_channels
    total = tl.zeros([BP, BC], tl.float32)
    bias_total = tl.zeros([BP], tl.float32)
    for start in range(0, n_images, BP):
        b = start + tl.arange(0, BP)
        g = tl.load(grad + b * n_classes + k, mask=b < n_images, other=0.0)
        mask = (b < n_images)[:, None] & inside[None, :]
        total += g[:, None] * tl.load(means + b[:, None] * n_channels + c[None, :], mask=mask, other=0.0)
        bias_total += g
    tl.store(grad_weight + k * n_channels + c, tl.sum(total, 0), mask=inside)
    tl.store(grad_bias + k, tl.sum(bias_total, 0))
