"""Contrastive pretraining on procedural images, for first weights that do not depend on the training samples.

Two views of a scene, randomly cropped, mirrored, rotated and recoloured, must be closer to each other than to the views
of all other scenes of the batch (the loss of SimCLR). The projection head is discarded; members start from the rest.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional as F

from runoff._io.files import written_whole
from runoff._version import __version__
from runoff.errors import check_whole
from runoff.recipes import Recipe
from runoff.torch import devices, networks, starting
from runoff.torch.building import State, build, seeded_generators, tensors_of
from runoff.torch.procedural import KINDS, SIZE, Draws, scenes, textures
from runoff.torch.training import optimizers

FORMAT = "runoff weights 1"
VIEW, WIDTH, OUT = 32, 1024, 128  # side of a view in pixels; hidden and output units of the projection head
NORM = 3.0  # of the weights of a convolution, in units of the expected norm of PyTorch's initial weights
WARM_STEPS = 4  # the step that is captured


@dataclass(frozen=True, kw_only=True)
class Pretraining:
    """The settings of pretraining. The same settings on the same kind of device give the same weights."""

    steps: int
    batch: int = 1024  # scenes per step
    size: int = VIEW  # side of a view in pixels
    seed: int = 0
    lr: float = 2e-3
    weight_decay: float = 1e-3
    temperature: float = 0.15
    warm_up: int = 300  # steps of linear warm-up; a cosine decay to 0 follows
    pool: int = 8  # textures per scene of a batch
    renewed: int = 100  # steps after which the textures are replaced
    stock: int = 32  # scenes to choose from, per scene of a batch
    uses: int = 4  # times that a scene is drawn from the stock, on average
    textures: tuple[str, ...] = KINDS
    strokes: float = 0.3  # share of scenes with strokes

    def __post_init__(self) -> None:
        check_whole("seed", self.seed, 0)
        check_whole("batch", self.batch, 2)
        for name in ("steps", "pool", "renewed", "stock", "uses"):
            check_whole(name, getattr(self, name), 1)

    def rate(self, step: int) -> float:
        """Return the learning rate of a step."""
        return self.lr * min(1.0, (step + 1) / self.warm_up) * 0.5 * (1 + math.cos(math.pi * step / self.steps))


class Pretrainer:
    """A network in pretraining: `run` trains it, `state` returns its weights."""

    def __init__(
        self, network: str, settings: Pretraining, device: Any = None, weights: str | Path | None = None
    ) -> None:
        self.network, self.settings, self.device = network, settings, devices.find(device)
        factory = starting.start(network, weights)
        self.first = starting.first_weights_of(factory)
        recipe = Recipe(epochs=1, optimizer="adamw", lr=settings.lr, weight_decay=settings.weight_decay)
        self.precision = devices.precision_of(recipe, self.device)
        source = np.random.SeedSequence(settings.seed)
        # The last layer of the network is the first layer of the projection head.
        module = build(factory, (VIEW, VIEW, 3), WIDTH, source)
        with seeded_generators(settings.seed):
            projection = nn.Sequential(nn.BatchNorm1d(WIDTH), nn.ReLU(), nn.Linear(WIDTH, OUT))
        self.saved_names = _saved_names(networks.get(network))
        format_ = torch.channels_last if getattr(module, "channels_last", False) else torch.contiguous_format
        self.module = module.to(device=self.device, memory_format=format_).train()  # type: ignore[call-overload]
        self.projection = projection.to(self.device).train()
        parameters = [*self.module.parameters(), *self.projection.parameters()]
        self.optimizer = optimizers.make(parameters, recipe)
        self.draws = Draws(settings.seed, self.device)
        self.learn = _Captured(self._learn) if self.device.type == "cuda" else self._learn

    def run(self) -> Iterator[Tensor]:
        """Run all steps and yield the loss of each, on the device."""
        with devices.repeatable(self.precision):
            for step in range(self.settings.steps):
                self.optimizer.lr.fill_(self.settings.rate(step))
                yield self.learn(self._views(self._images(step)))

    def _views(self, images: Tensor) -> Tensor:
        x = torch.cat([view(self.draws, images, self.settings.size) for _ in range(2)])
        if getattr(self.module, "channels_last", False):
            x = x.contiguous(memory_format=torch.channels_last)
        return x

    def _learn(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16"):
                hidden = self.module(x)
            loss = contrast(self.projection(hidden.float()), self.settings.temperature)
            self.optimizer.step(loss)
        return loss.detach()

    def _images(self, step: int) -> Tensor:
        """Return the scenes of a step: drawn from a stock, of which a part is replaced in every step."""
        settings = self.settings
        if step % settings.renewed == 0:
            self.pool = textures(self.draws, settings.pool * settings.batch, settings.textures)
        batch, size = settings.batch, settings.stock * settings.batch
        if step == 0:
            parts = [scenes(self.draws, batch, self.pool, settings.strokes) for _ in range(settings.stock)]
            self.stock = torch.cat([_as_bytes(part) for part in parts])
        else:
            fresh = max(1, batch // settings.uses)
            places = (torch.arange(fresh, device=self.device) + step * fresh) % size
            self.stock[places] = _as_bytes(scenes(self.draws, fresh, self.pool, settings.strokes))
        return self.stock[self.draws.order(size)[:batch]] / 255

    def state(self) -> State:
        """Return the weights by name, without the last layer; convolutions in half precision, with a norm of `NORM`."""
        module = copy.deepcopy(self.module).cpu()
        scale_convolutions(module)
        host = {n: value.contiguous() for n, value in tensors_of(module).items() if n in self.saved_names}
        return {name: value.half() if value.ndim == 4 else value for name, value in host.items()}

    def write(self, path: Path, command: str) -> None:
        """Write the weights to a safetensors file, with the command and the settings as metadata.

        The metadata are one entry in JSON: the library writes several entries in another order in each process.
        """
        metadata = {
            "format": FORMAT,
            "network": self.network,
            "command": command,
            "device": devices.describe(self.device) if self.device.type == "cuda" else "cpu",
            "precision": self.precision,
            "versions": f"runoff {__version__}, torch {torch.__version__}, python {platform.python_version()}",
            "settings": asdict(self.settings),
            "weights": "random" if self.first is None else self.first.sha256,
        }
        data = save(self.state(), {"runoff": json.dumps(metadata)})
        with written_whole(path, binary=True) as file:
            file.write(data)


class _Captured:
    """A step whose kernels are captured after a few calls, and replayed from then on without the host's work."""

    def __init__(self, step: Callable[[Tensor], Tensor]) -> None:
        self.step, self.called = step, 0
        self.stream, self.graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()  # type: ignore[no-untyped-call]

    def __call__(self, x: Tensor) -> Tensor:
        self.called += 1
        if self.called < WARM_STEPS:  # libraries initialise themselves in the first steps, which must not be captured
            self.stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self.stream):
                loss = self.step(x)
            torch.cuda.current_stream().wait_stream(self.stream)
            return loss
        if self.called == WARM_STEPS:
            self.x = torch.empty_like(x)
            torch.cuda.synchronize()
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.loss = self.step(self.x)
        self.x.copy_(x)
        self.graph.replay()
        return self.loss.clone()


def _as_bytes(images: Tensor) -> Tensor:
    return (255 * images).round().byte()


def scale_convolutions(module: nn.Module) -> None:
    """Scale the weights of every convolution before a batch norm to `NORM`, and the statistics of the batch norm alike.

    Batch norm makes the network's output independent of these norms, but a step of a member turns weights the less the
    larger they are, and they grow during pretraining: after 11,000 steps to between 1.3 and 5.2 times PyTorch's, after
    24,000 more to between 1.8 and 11.5 times.
    """
    layers = list(module.modules())
    with torch.no_grad():
        for layer, following in itertools.pairwise(layers):
            if isinstance(layer, nn.Conv2d) and layer.bias is None and isinstance(following, nn.BatchNorm2d):
                factor = NORM * math.sqrt(len(layer.weight) / 3) / float(layer.weight.norm())
                layer.weight *= factor
                if following.running_mean is not None and following.running_var is not None:
                    following.running_mean *= factor
                    following.running_var *= factor * factor


def _saved_names(factory: networks.Factory) -> set[str]:
    """Return the names of all tensors but those of the last layer, whose shape depends on the classes, and counters."""
    one, other = (tensors_of(factory((3, VIEW, VIEW), n)) for n in (2, 3))
    return {name for name, v in one.items() if v.shape == other[name].shape and v.is_floating_point()}


def contrast(z: Tensor, temperature: float) -> Tensor:
    """Return the loss of SimCLR: by cosine similarity, row i + n must be the closest to row i."""
    z = F.normalize(z, dim=1)
    n = len(z) // 2
    logits = (z @ z.T / temperature).masked_fill(torch.eye(2 * n, dtype=torch.bool, device=z.device), -1e9)
    return F.cross_entropy(logits, torch.arange(2 * n, device=z.device).roll(n))


def view(draws: Draws, images: Tensor, size: int = VIEW) -> Tensor:
    """Return one random view of each scene, (n, 3, size, size), normalised over the batch."""
    n = len(images)
    area, aspect = draws.uniform(n, low=0.15), torch.exp(0.28 * draws.uniform(n, low=-1))
    wide, high = (area * aspect).sqrt().clamp(max=1), (area / aspect).sqrt().clamp(max=1)
    right, down = (1 - wide) * draws.uniform(n, low=-1), (1 - high) * draws.uniform(n, low=-1)
    mirror = torch.where(draws.chance(0.5, n), -1.0, 1.0)
    turn = draws.uniform(n, low=-0.25, high=0.25)
    cos, sin = torch.cos(turn), torch.sin(turn)
    line = (torch.arange(size, device=images.device) + 0.5) * (2 / size) - 1
    x, y = (wide * mirror)[:, None, None] * line[None, None, :], high[:, None, None] * line[None, :, None]
    across = cos[:, None, None] * x - sin[:, None, None] * y + right[:, None, None]
    along = sin[:, None, None] * x + cos[:, None, None] * y + down[:, None, None]
    grid = torch.stack([across, along], dim=3)
    z = F.grid_sample(images, grid, padding_mode="reflection", align_corners=False)

    def factors(strength: float) -> Tensor:
        return 1 + strength * draws.uniform(n, 1, 1, 1, low=-1)

    z = z * factors(0.6)
    mean = z.mean((1, 2, 3), keepdim=True)
    z = mean + factors(0.6) * (z - mean)
    gray = z.mean(1, keepdim=True)
    z = gray + factors(0.8) * (z - gray)
    mix = torch.eye(3, device=z.device) + 0.25 * draws.normal(n, 3, 3) * draws.chance(0.6, n, 1, 1)
    z = torch.stack([(mix[:, i, :, None, None] * z).sum(1) for i in range(3)], dim=1)
    z = torch.where(draws.chance(0.2, n, 1, 1, 1), z.mean(1, keepdim=True), z)
    soft = F.avg_pool2d(F.pad(z, (1, 1, 1, 1), mode="reflect"), 3, stride=1)
    z = torch.where(draws.chance(0.3, n, 1, 1, 1), soft, z)
    return (z - z.mean((0, 2, 3), keepdim=True)) / (z.std((0, 2, 3), keepdim=True) + 1e-4)


def sheet(settings: Pretraining, across: int = 12, down: int = 6) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return an 8-bit image of `across` x `down` scenes, drawn on the CPU."""
    draws = Draws(settings.seed, torch.device("cpu"))
    images = scenes(draws, across * down, textures(draws, across * down, settings.textures), settings.strokes)
    rows = (255 * images).byte().view(down, across, 3, SIZE, SIZE).permute(0, 3, 1, 4, 2)
    return rows.reshape(down * SIZE, across * SIZE, 3).numpy()
