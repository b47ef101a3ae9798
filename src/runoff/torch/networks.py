"""Architectures: the paper's Network-in-Network, and a small network for CPUs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runoff._io.text import one_line
from runoff.errors import InputError
from runoff.torch.kernels import batch_and_head, matmul_norm_relu, norm_relu_pool

Shape = tuple[int, ...]  # of one input: (channels, height, width), or (features,)
Factory = Callable[[Shape, int], nn.Module]
ROWS = 2**15  # above this number of pixels, a matrix product fused with batch norm is faster than separate kernels
FEW = 256  # outputs of the last layer; with 1,024, its fused kernels were among the slowest of a step


class Block(nn.Module):
    """A convolution with batch norm, ReLU and optional 3 x 3 pooling with stride 2."""

    def __init__(self, n_in: int, n_out: int, size: int, pool: str | None = None) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(n_in, n_out, size, padding=size // 2, bias=False)
        self.norm = nn.BatchNorm2d(n_out)
        self.pool = pool

    def forward(self, x: Tensor, weight: Tensor | None = None, kernel: str | None = None) -> Tensor:
        """Apply the block; on a GPU, everything after the convolution is one operation.

        `weight` is the convolution's weight in bf16. `kernel` comes from `choose_kernels`: "product" also fuses the
        convolution; "masked" is for the block after a "product".
        """
        if kernel is not None:
            return self._as_product(x, kernel)
        if self.fused(x):
            weight = self.convolution.weight if weight is None else weight
            if self.as_patches and not x.requires_grad:
                x = batch_and_head.first_convolution(x, weight)
            else:
                x = F.conv2d(x, weight, padding=self.convolution.padding)
            return norm_relu_pool.norm_act(x, self.norm, self.pool, self.norm.training)
        x = F.relu(self.norm(self.convolution(x)))
        if self.pool == "max":
            return F.max_pool2d(x, 3, stride=2, padding=1)
        return F.avg_pool2d(x, 3, stride=2, padding=1) if self.pool == "avg" else x

    def _as_product(self, x: Tensor, kernel: str) -> Tensor:
        n, n_in, height, width = x.shape
        dtype = matmul_norm_relu.precision(x) or x.dtype
        if self.as_patches:
            rows = batch_and_head.patches(x, self.convolution.kernel_size[0], dtype)
            weight = batch_and_head.as_rows(self.convolution.weight)
        else:
            rows = x.permute(0, 2, 3, 1).reshape(-1, n_in).to(dtype)
            weight = self.convolution.weight.flatten(1)
        out = (
            matmul_norm_relu.norm_act(rows, weight, self.norm)
            if kernel == "product"
            else matmul_norm_relu.masked_product(rows, weight)
        )
        out = out.view(n, height, width, -1).permute(0, 3, 1, 2)
        return out if kernel == "product" else norm_relu_pool.norm_act(out, self.norm, self.pool, self.norm.training)

    def fused(self, x: Tensor) -> bool:
        """Return whether the Triton kernels can be used; in evaluation mode they have no gradients."""
        n_out, n_in, size, _ = self.convolution.weight.shape
        widest = max(n_in, n_out, 8 * size * size if self.as_patches else 0)
        ready = self.norm.training or not torch.is_grad_enabled()
        return ready and self._as_built and norm_relu_pool.usable(x, widest)

    @property
    def _as_built(self) -> bool:
        """Whether the convolution still has the settings of `__init__`."""
        conv, size = self.convolution, self.convolution.kernel_size[0]
        same_size = conv.kernel_size == (size, size) and conv.padding == (size // 2, size // 2)
        plain = conv.stride == conv.dilation == (1, 1) and conv.groups == 1 and conv.padding_mode == "zeros"
        return type(conv) is nn.Conv2d and same_size and plain and conv.bias is None

    @property
    def hooked(self) -> bool:
        """Whether the block has forward or backward hooks."""
        hooks = (self._forward_hooks, self._forward_pre_hooks, self._backward_hooks, self._backward_pre_hooks)
        return any(hooks)

    @property
    def as_patches(self) -> bool:
        """Whether the convolution is computed as a matrix product over patches."""
        return self.convolution.in_channels < 8 and self.convolution.kernel_size[0] % 2 == 1

    @property
    def pointwise(self) -> bool:
        """Whether the convolution is a matrix product over pixels, of a size that the kernels support."""
        n_out, n_in, size, _ = self.convolution.weight.shape
        return size == 1 and matmul_norm_relu.fits(n_in, n_out)

    def extra_repr(self) -> str:
        """Return the pooling; the repr is part of a checkpoint's identity."""
        return f"pool={self.pool}"


def choose_kernels(blocks: Sequence[Block], x: Tensor) -> list[str | None]:
    """Return the kernel of each block of a sequence on a GPU, for `Block.forward`.

    The choice depends on shapes and on what is trained, never on values. A "product" needs gradients that are zero
    where its output is zero, so the next block must be a "masked" or another "product", without hooks.
    """
    kernels: list[str | None] = []
    if matmul_norm_relu.precision(x) is None or any(block.hooked for block in blocks):
        return [None] * len(blocks)
    n, _, height, width = x.shape
    for i, block in enumerate(blocks):
        if i == 0:
            columns = batch_and_head.n_columns(block.convolution.in_channels, block.convolution.kernel_size[0])
            supported = (
                block.as_patches
                and not x.requires_grad
                and matmul_norm_relu.fits(columns, block.convolution.out_channels)
            )
        else:
            supported = block.pointwise and n * height * width > ROWS
        masked = not block.norm.training or (i + 1 < len(blocks) and blocks[i + 1].pointwise)
        if supported and masked and block.pool is None:
            kernels.append("product")
        else:
            kernels.append("masked" if block.norm.training and i > 0 and kernels[-1] == "product" else None)
        if block.pool is not None:
            height, width = (height + 1) // 2, (width + 1) // 2
    return kernels


class NetworkInNetwork(nn.Module):
    """The paper's Network-in-Network: three stages of one convolution and two of size 1 x 1, 96 to 192 channels wide.

    It uses PyTorch's default initial weights: on held-out training images, members reached an accuracy of 57 % with
    these, and of 53 % with normally distributed weights scaled by the number of outputs.
    """

    channels_last = True

    def __init__(self, n_channels: int, n_classes: int) -> None:
        super().__init__()
        self.blocks = nn.Sequential(
            Block(n_channels, 192, 5),
            Block(192, 160, 1),
            Block(160, 96, 1, pool="max"),
            Block(96, 192, 5),
            Block(192, 192, 1),
            Block(192, 192, 1, pool="avg"),
            Block(192, 192, 3),
            Block(192, 192, 1),
            Block(192, 192, 1),
        )
        self.head = nn.Linear(192, n_classes)

    def _fused(self, blocks: list[Block], x: Tensor) -> Tensor:
        """Apply the blocks on a GPU, with everything but the wider convolutions in Triton kernels."""
        kernels = choose_kernels(blocks, x)
        weights: Sequence[Tensor] = [
            block.convolution.weight for block, kernel in zip(blocks, kernels, strict=True) if kernel is None
        ]
        if weights and torch.is_autocast_enabled("cuda"):
            weights = norm_relu_pool.to_bf16(weights)
        remaining = iter(weights)
        for block, kernel in zip(blocks, kernels, strict=True):
            x = block(x, next(remaining) if kernel is None else None, kernel)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits; the last mean and the linear layer are computed in full precision."""
        blocks = [block for block in self.blocks if type(block) is Block]
        if len(blocks) == len(self.blocks) and all(block.fused(x) for block in blocks):
            x = self._fused(blocks, x)
            plain = type(self.head) is nn.Linear and self.head.bias is not None and self.head.in_features == x.shape[1]
            if plain and self.head.out_features <= FEW:
                return batch_and_head.head(x, self.head.weight, self.head.bias)
        else:
            for block in self.blocks:
                x = block(x)
        with torch.autocast(x.device.type, enabled=False):
            logits: Tensor = self.head(x.to(self.head.weight.dtype).mean((2, 3)))
        return logits


class SmallNetwork(nn.Module):
    """A network with two convolutions and a linear layer for images, or one hidden layer for rows of numbers."""

    def __init__(self, shape: Shape, n_classes: int, width: int = 32) -> None:
        super().__init__()
        if len(shape) == 1:
            self.features = nn.Sequential(nn.Linear(shape[0], 4 * width), nn.BatchNorm1d(4 * width), nn.ReLU())
            self.head = nn.Linear(4 * width, n_classes)
        else:
            self.features = nn.Sequential(
                nn.Conv2d(shape[0], width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.AvgPool2d(2),
                nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
                nn.BatchNorm2d(2 * width),
                nn.ReLU(),
                nn.AvgPool2d(2),
                nn.Flatten(),
            )
            self.head = nn.Linear(2 * width * (shape[1] // 4) * (shape[2] // 4), n_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits."""
        logits: Tensor = self.head(self.features(x))
        return logits


def network_in_network(shape: Shape, n_classes: int) -> nn.Module:
    """Return a Network-in-Network for images of at least 4 x 4 pixels."""
    if len(shape) != 3:
        raise InputError(f"network 'nin' is for images, got rows of {shape[0]} numbers: use network='small'")
    if min(shape[1:]) < 4:
        raise InputError(f"network 'nin' is for images from 4 x 4 up, got {shape[1]} x {shape[2]}: enlarge them")
    return NetworkInNetwork(shape[0], n_classes)


def small(shape: Shape, n_classes: int) -> nn.Module:
    """Return a small network for images of at least 4 x 4 pixels or rows of numbers."""
    if len(shape) == 3 and min(shape[1:]) < 4:
        raise InputError(f"network 'small' is for images from 4 x 4 up, got {shape[1]} x {shape[2]}: enlarge them")
    return SmallNetwork(shape, n_classes)


NETWORKS: dict[str, Factory] = {"nin": network_in_network, "small": small}


def get(network: str | Factory) -> Factory:
    """Return the factory with this name; a function is returned unchanged."""
    if isinstance(network, str):
        if network not in NETWORKS and ".py:" in network:
            raise InputError(
                f"the network {one_line(network)} is from a file: pass it again, as --network "
                f"{one_line(network.split('@')[0])}"
            )
        if network not in NETWORKS:
            raise InputError(
                f"network must be one of {', '.join(map(repr, NETWORKS))} or a function (shape, n_classes) -> module, "
                f"got {network!r:.100}"
            )
        return NETWORKS[network]
    if not callable(network) or isinstance(network, nn.Module):
        raise InputError(
            f"network must be a function (shape, n_classes) -> module, got {type(network).__name__}: an existing "
            "module cannot be created again for each member"
        )
    return network
