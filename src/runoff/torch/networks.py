"""Networks: the paper's Network-in-Network, and a small one for quick work on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runoff.torch import _ends, _fused

Shape = tuple[int, ...]  # of one input: (channels, height, width), or (features,)
Factory = Callable[[Shape, int], nn.Module]


class Block(nn.Module):
    """Convolution, batch norm, ReLU and perhaps a pool of 3 x 3 at every second place."""

    def __init__(self, n_in: int, n_out: int, size: int, pool: str | None = None) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(n_in, n_out, size, padding=size // 2, bias=False)
        self.norm = nn.BatchNorm2d(n_out)
        self.pool = pool

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        """On a GPU, everything after the convolution is one operation; `weight` is the convolution's in bf16."""
        if self.fused(x):
            weight = self.convolution.weight if weight is None else weight
            if self._as_patches() and not x.requires_grad:
                x = _ends.first_convolution(x, weight)
            else:
                x = F.conv2d(x, weight, padding=self.convolution.padding)
            return _fused.norm_act(x, self.norm, self.pool, self.norm.training)
        x = F.relu(self.norm(self.convolution(x)))
        if self.pool == "max":
            return F.max_pool2d(x, 3, stride=2, padding=1)
        return F.avg_pool2d(x, 3, stride=2, padding=1) if self.pool == "avg" else x

    def fused(self, x: Tensor) -> bool:
        """Whether kernels of our own take images of this kind: never for gradients at rest, which they do not have."""
        n_out, n_in, size, _ = self.convolution.weight.shape
        widest = max(n_in, n_out, 8 * size * size if self._as_patches() else 0)
        return (self.norm.training or not torch.is_grad_enabled()) and _fused.usable(x, widest)

    def _as_patches(self) -> bool:
        return self.convolution.in_channels < 8 and self.convolution.kernel_size[0] % 2 == 1

    def extra_repr(self) -> str:
        """Part of what a checkpoint is identified by."""
        return f"pool={self.pool}"


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
        weights: Sequence[Tensor] = [block.convolution.weight for block in blocks]
        if torch.is_autocast_enabled("cuda"):
            weights = _fused.halves(weights)
        for block, weight in zip(blocks, weights, strict=True):
            x = block(x, weight)
        return x

    def forward(self, x: Tensor) -> Tensor:
        """Logits, without bf16 from the last mean on."""
        blocks = [block for block in self.blocks if type(block) is Block]
        if len(blocks) == len(self.blocks) and all(block.fused(x) for block in blocks):
            x = self._fused(blocks, x)
            if type(self.head) is nn.Linear and self.head.bias is not None and self.head.in_features == x.shape[1]:
                return _ends.head(x, self.head.weight, self.head.bias)
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
        raise ValueError(f"network 'nin' is for images, got rows of {shape[0]} numbers: use network='small'")
    return NetworkInNetwork(shape[0], n_classes)


def small(shape: Shape, n_classes: int) -> nn.Module:
    """For images and rows of numbers."""
    return SmallNetwork(shape, n_classes)


NETWORKS: dict[str, Factory] = {"nin": network_in_network, "small": small}


def get(network: str | Factory) -> Factory:
    """A module factory, or the one of that name."""
    if isinstance(network, str):
        if network not in NETWORKS:
            raise ValueError(
                f"network must be one of {', '.join(map(repr, NETWORKS))} or a function (shape, n_classes) -> module, "
                f"got {network!r}"
            )
        return NETWORKS[network]
    if not callable(network) or isinstance(network, nn.Module):
        raise ValueError(
            f"network must be a function (shape, n_classes) -> module, got {type(network).__name__}: a network that is "
            "there already cannot be started anew for each member"
        )
    return network
