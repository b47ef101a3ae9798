"""Networks: the paper's Network-in-Network, and a small one for quick work on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runoff.errors import InputError
from runoff.torch.kernels import batch_and_head, matmul_norm_relu, norm_relu_pool

Shape = tuple[int, ...]  # of one input: (channels, height, width), or (features,)
Factory = Callable[[Shape, int], nn.Module]
ROWS = 2**15  # above which a layer is worth more as one product with batch norm than as one after the other


class Block(nn.Module):
    """Convolution, batch norm, ReLU and perhaps a pool of 3 x 3 at every second place."""

    def __init__(self, n_in: int, n_out: int, size: int, pool: str | None = None) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(n_in, n_out, size, padding=size // 2, bias=False)
        self.norm = nn.BatchNorm2d(n_out)
        self.pool = pool

    def forward(self, x: Tensor, weight: Tensor | None = None, way: str | None = None) -> Tensor:
        """On a GPU, everything after the convolution is one operation; `weight` is the convolution's in bf16.

        `way` is what `ways` says: "product" for one operation with the convolution, "mixed" for what comes behind it.
        """
        if way is not None:
            return self._multiplied(x, way)
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

    def _multiplied(self, x: Tensor, way: str) -> Tensor:
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
            if way == "product"
            else matmul_norm_relu.mixed(rows, weight)
        )
        out = out.view(n, height, width, -1).permute(0, 3, 1, 2)
        return out if way == "product" else norm_relu_pool.norm_act(out, self.norm, self.pool, self.norm.training)

    def fused(self, x: Tensor) -> bool:
        """Whether kernels of our own take images of this kind: never for gradients at rest, which they do not have."""
        n_out, n_in, size, _ = self.convolution.weight.shape
        widest = max(n_in, n_out, 8 * size * size if self.as_patches else 0)
        ready = self.norm.training or not torch.is_grad_enabled()
        return ready and self._as_built and norm_relu_pool.usable(x, widest)

    @property
    def _as_built(self) -> bool:
        """Whether the convolution is still of the kind that a block is made with."""
        own, size = self.convolution, self.convolution.kernel_size[0]
        usual = own.kernel_size == (size, size) and own.padding == (size // 2, size // 2)
        plain = own.stride == own.dilation == (1, 1) and own.groups == 1 and own.padding_mode == "zeros"
        return type(own) is nn.Conv2d and usual and plain and own.bias is None

    @property
    def hooked(self) -> bool:
        """Whether anybody looks at, or changes, what goes in and out."""
        hooks = (self._forward_hooks, self._forward_pre_hooks, self._backward_hooks, self._backward_pre_hooks)
        return any(hooks)

    @property
    def as_patches(self) -> bool:
        """Whether the convolution is one matrix product over the surroundings of each pixel."""
        return self.convolution.in_channels < 8 and self.convolution.kernel_size[0] % 2 == 1

    @property
    def pointwise(self) -> bool:
        """Whether the convolution is one matrix product of the right size over the pixels themselves."""
        n_out, n_in, size, _ = self.convolution.weight.shape
        return size == 1 and matmul_norm_relu.fits(n_in, n_out)

    def extra_repr(self) -> str:
        """Part of what a checkpoint is identified by."""
        return f"pool={self.pool}"


def ways(blocks: Sequence[Block], x: Tensor) -> list[str | None]:
    """How each of some blocks, one behind the other, is computed on a GPU: see `Block.forward`.

    By the shape and what is trained, never by the numbers. Gradients of a "product" must come masked, so what follows
    must be "mixed" or another, with nobody in between.
    """
    found: list[str | None] = []
    if matmul_norm_relu.precision(x) is None or any(block.hooked for block in blocks):
        return [None] * len(blocks)
    n, _, height, width = x.shape
    for i, block in enumerate(blocks):
        if i == 0:
            columns = batch_and_head.n_columns(block.convolution.in_channels, block.convolution.kernel_size[0])
            able = (
                block.as_patches
                and not x.requires_grad
                and matmul_norm_relu.fits(columns, block.convolution.out_channels)
            )
        else:
            able = block.pointwise and n * height * width > ROWS
        masked = not block.norm.training or (i + 1 < len(blocks) and blocks[i + 1].pointwise)
        if able and masked and block.pool is None:
            found.append("product")
        else:
            found.append("mixed" if block.norm.training and i > 0 and found[-1] == "product" else None)
        if block.pool is not None:
            height, width = (height + 1) // 2, (width + 1) // 2
    return found


class NetworkInNetwork(nn.Module):
    """The paper's: three times a convolution and two of 1 x 1, with 192, 160 and 96 or 192 channels.

    First weights are as PyTorch draws them: on training images held out, members were right on 57 % with them and on
    53 % with normal numbers scaled by the number of outputs.
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
        """The same on a GPU, with everything but the wider convolutions in kernels of our own."""
        found = ways(blocks, x)
        weights: Sequence[Tensor] = [
            block.convolution.weight for block, way in zip(blocks, found, strict=True) if way is None
        ]
        if weights and torch.is_autocast_enabled("cuda"):
            weights = norm_relu_pool.halves(weights)
        left = iter(weights)
        for block, way in zip(blocks, found, strict=True):
            x = block(x, next(left) if way is None else None, way)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Logits, without bf16 from the last mean on."""
        blocks = [block for block in self.blocks if type(block) is Block]
        if len(blocks) == len(self.blocks) and all(block.fused(x) for block in blocks):
            x = self._fused(blocks, x)
            if type(self.head) is nn.Linear and self.head.bias is not None and self.head.in_features == x.shape[1]:
                return batch_and_head.head(x, self.head.weight, self.head.bias)
        else:
            for block in self.blocks:
                x = block(x)
        with torch.autocast(x.device.type, enabled=False):
            logits: Tensor = self.head(x.to(self.head.weight.dtype).mean((2, 3)))
        return logits


class SmallNetwork(nn.Module):
    """Two convolutions and a linear layer for images, one hidden layer for rows of numbers."""

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
        """Logits."""
        logits: Tensor = self.head(self.features(x))
        return logits


def network_in_network(shape: Shape, n_classes: int) -> nn.Module:
    """For images of any size from 4 x 4 up."""
    if len(shape) != 3:
        raise InputError(f"network 'nin' is for images, got rows of {shape[0]} numbers: use network='small'")
    if min(shape[1:]) < 4:
        raise InputError(f"network 'nin' is for images from 4 x 4 up, got {shape[1]} x {shape[2]}: enlarge them")
    return NetworkInNetwork(shape[0], n_classes)


def small(shape: Shape, n_classes: int) -> nn.Module:
    """For images of any size from 4 x 4 up, and rows of numbers."""
    if len(shape) == 3 and min(shape[1:]) < 4:
        raise InputError(f"network 'small' is for images from 4 x 4 up, got {shape[1]} x {shape[2]}: enlarge them")
    return SmallNetwork(shape, n_classes)


NETWORKS: dict[str, Factory] = {"nin": network_in_network, "small": small}


def get(network: str | Factory) -> Factory:
    """A module factory, or the one of that name."""
    if isinstance(network, str):
        if network not in NETWORKS:
            raise InputError(
                f"network must be one of {', '.join(map(repr, NETWORKS))} or a function (shape, n_classes) -> module, "
                f"got {network!r}"
            )
        return NETWORKS[network]
    if not callable(network) or isinstance(network, nn.Module):
        raise InputError(
            f"network must be a function (shape, n_classes) -> module, got {type(network).__name__}: a network that is "
            "there already cannot be started anew for each member"
        )
    return network
