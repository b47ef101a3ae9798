"""EfficientNet-lite as an encoder: features are the mean of the output of the last convolution, 1,280 numbers.

The family is that of Tan and Le (EfficientNet, ICML 2019) without squeeze-and-excitation and with ReLU6: inverted
bottlenecks, whose widths and depths are scaled together. Names of tensors are those of its PyTorch version, so that
published weights can be used; batch norms are folded into the convolutions, since the networks are not trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from runoff.errors import InputError

STAGES = (  # repeats, kernel, stride, expansion, output channels
    (1, 3, 1, 1, 16), (2, 3, 2, 6, 24), (2, 5, 2, 6, 40), (3, 3, 2, 6, 80), (3, 5, 1, 6, 112), (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)  # fmt: skip
SCALES = {  # width, depth, pixels of a side
    "efficientnet-lite0": (1.0, 1.0, 224),
    "efficientnet-lite1": (1.0, 1.1, 240),
    "efficientnet-lite2": (1.1, 1.2, 260),
    "efficientnet-lite3": (1.2, 1.4, 280),
    "efficientnet-lite4": (1.4, 1.8, 300),
}
STEM, HEAD = 32, 1280  # channels after the first and the last convolution, the same in all lite networks
EPSILON = 1e-3  # of batch norms
IGNORED = ("_fc.", ".num_batches_tracked")  # tensors of the classifier on top, and counters of training


@dataclass(frozen=True)
class Convolution:
    """A convolution without bias, its batch norm, and whether ReLU6 follows."""

    name: str
    norm: str
    channels: tuple[int, int]
    kernel: int = 1
    stride: int = 1
    depthwise: bool = False
    clipped: bool = True

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of its tensors."""
        fan_in, out = 1 if self.depthwise else self.channels[0], self.channels[1]
        norms = {f"{self.norm}.{part}": (out,) for part in ("weight", "bias", "running_mean", "running_var")}
        return {f"{self.name}.weight": (out, fan_in, self.kernel, self.kernel), **norms}


@dataclass(frozen=True)
class Block:
    """A sequence of convolutions; with `skip`, the input of the block is added to its output."""

    convolutions: tuple[Convolution, ...]
    skip: bool = False


def blocks_of(name: str) -> list[Block]:
    """Return the blocks of a network, from the first convolution to the last."""
    width, depth, _ = SCALES[name]
    blocks = [Block((Convolution("_conv_stem", "_bn0", (3, STEM), 3, 2),))]
    before, last = STEM, len(STAGES) - 1
    for stage, (repeats, kernel, stride, expansion, channels) in enumerate(STAGES):
        after = _rounded(channels * width)
        for i in range(repeats if stage in (0, last) else math.ceil(repeats * depth)):
            step = stride if i == 0 else 1
            blocks.append(_bottleneck(len(blocks) - 1, before, after, kernel, step, expansion))
            before = after
    return [*blocks, Block((Convolution("_conv_head", "_bn1", (before, HEAD)),))]


def _bottleneck(index: int, before: int, after: int, kernel: int, stride: int, expansion: int) -> Block:
    here, inner = f"_blocks.{index}", before * expansion
    expand = Convolution(f"{here}._expand_conv", f"{here}._bn0", (before, inner))
    depthwise = Convolution(f"{here}._depthwise_conv", f"{here}._bn1", (inner, inner), kernel, stride, depthwise=True)
    project = Convolution(f"{here}._project_conv", f"{here}._bn2", (inner, after), clipped=False)
    row = (expand, depthwise, project) if expansion > 1 else (depthwise, project)
    return Block(row, skip=stride == 1 and before == after)


def _rounded(channels: float) -> int:
    """Round to a multiple of 8, but not down by more than a tenth."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near


def shapes_of(name: str) -> dict[str, tuple[int, ...]]:
    """Return the names and shapes of all tensors that a network's features need."""
    return {
        tensor: shape
        for block in blocks_of(name)
        for convolution in block.convolutions
        for tensor, shape in convolution.shapes().items()
    }


def name_of(state: dict[str, Tensor]) -> str | None:
    """Return the name of the network with these weights, or None."""
    given = {name: tuple(value.shape) for name, value in needed(state).items()}
    return next((name for name in SCALES if shapes_of(name) == given), None)


def needed(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors that features need."""
    return {name: value for name, value in state.items() if not any(part in name for part in IGNORED)}


class EfficientNetLite:
    """A network with fixed weights on a device, from images (n, 3, size, size) with values from 0 to 1 to features."""

    def __init__(self, name: str, state: dict[str, Tensor], device: torch.device, dtype: torch.dtype) -> None:
        if name_of(state) != name:
            raise InputError(f"the weights must be those of {name}, but they have other tensors")
        self.name, self.device, self.dtype = name, device, dtype
        self.blocks = [(block, [(c, *self._folded(c, state)) for c in block.convolutions]) for block in blocks_of(name)]

    def _folded(self, convolution: Convolution, state: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the weight and the bias of a convolution with its batch norm."""
        weight, gain, bias, mean, variance = (state[name].double() for name in convolution.shapes())
        factor = gain / torch.sqrt(variance + EPSILON)
        folded = (weight * factor[:, None, None, None]).to(self.device, self.dtype)
        shift = (bias - mean * factor).to(self.device, self.dtype)
        return folded.contiguous(memory_format=torch.channels_last), shift

    def __call__(self, images: Tensor) -> Tensor:
        """Return the features, (n, 1280) in float32."""
        x = (images * (255 / 128) - 127 / 128).to(self.dtype).contiguous(memory_format=torch.channels_last)
        for block, convolutions in self.blocks:
            before = x
            for convolution, weight, bias in convolutions:
                x = _convolved(x, convolution, weight, bias)
            x = x.add_(before) if block.skip else x
        return x.float().mean((2, 3))


def _convolved(x: Tensor, convolution: Convolution, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply a convolution whose output has the size of its input divided by the stride, rounded up."""
    kernel, stride = convolution.kernel, convolution.stride
    pads = [max((math.ceil(n / stride) - 1) * stride + kernel - n, 0) for n in x.shape[:1:-1]]  # width, then height
    if any(pad % 2 for pad in pads):  # the odd pixel is at the right and at the bottom
        x = functional.pad(x, [half for pad in pads for half in (pad // 2, pad - pad // 2)])
        pads = [0, 0]
    groups = convolution.channels[0] if convolution.depthwise else 1
    x = functional.conv2d(x, weight, bias, stride, (pads[1] // 2, pads[0] // 2), 1, groups)
    return x.clamp_(0, 6) if convolution.clipped else x
