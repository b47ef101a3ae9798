"""Slots: the place on a device where one network at a time is trained.

All tensors of a slot stay where they are, so that on a GPU the whole step (augmentation, forward, backward, update) is
captured once and replayed for one network after another. Between two networks everything is set anew: weights, batch
statistics, momentum, samples, draws. Nothing of the one before is left, and nothing beside it is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runoff.errors import InputError
from runoff.recipes import Recipe
from runoff.torch.building import State, build, built, draws_numbers, seed_all, tensors_of
from runoff.torch.networks import Factory
from runoff.torch.training import augment, optimizers, random_draws
from runoff.torch.training.jobs import Job, statistics

MEAN, STD = "runoff:mean", "runoff:std"  # beside the network's own tensors: how a member sees an input
INPUTS = {"cpu": 64, "cuda": 512}  # scored at a time, always that many: the bits must not depend on how many are asked


@dataclass(frozen=True, eq=False)
class Prepared:
    """What a network starts from."""

    job: Job
    course: random_draws.RandomDraws
    tensors: dict[str, Tensor] = field(repr=False)
    module: nn.Module = field(repr=False)  # new, with its first weights


def fits(state: State, like: State, n_channels: int) -> None:
    """Whether a state is one of such networks: names, shapes and types."""
    expected = {name: (tuple(value.shape), value.dtype) for name, value in like.items()}
    expected |= dict.fromkeys((MEAN, STD), ((n_channels,), torch.float32))
    given = {name: (tuple(value.shape), value.dtype) for name, value in state.items()}
    if odd := sorted(name for name in expected.keys() | given.keys() if expected.get(name) != given.get(name)):
        raise InputError(
            f"the network has changed: {odd[0]!r} should be {expected.get(odd[0], 'absent')}, got "
            f"{given.get(odd[0], 'nothing')}"
        )


class Slot:
    """One network at a time, on one device."""

    def __init__(
        self, factory: Factory, recipe: Recipe, precision: str, shape: tuple[int, ...], n_classes: int, device: Any
    ) -> None:
        self.factory, self.recipe, self.precision = factory, recipe, precision
        self.shape, self.n_classes, self.device = shape, n_classes, device
        self.install(built(factory, shape, n_classes, np.random.SeedSequence(0)))
        self.clock = torch.zeros(1, dtype=torch.int64, device=device)
        self.mean = torch.zeros(shape[-1], device=device)
        self.std = torch.ones(shape[-1], device=device)
        self.images = self.labels = torch.empty(0)
        self.tables: dict[str, Tensor] = {}
        self.job: Job | None = None
        self.course: random_draws.RandomDraws | None = None
        self.done = self.steps = 0
        self.draws_numbers = False  # whether layers draw from the global generator
        self.begun = 0.0

    def install(self, module: nn.Module) -> None:
        """Take a network in, with nothing of the one before."""
        # Only for networks that ask for it: some layers of PyTorch have had wrong gradients in this format.
        self.channels_last = len(self.shape) == 3 and getattr(module, "channels_last", False)
        format_ = torch.channels_last if self.channels_last else torch.contiguous_format
        self.module = module.to(device=self.device, memory_format=format_).train()  # type: ignore[call-overload]
        self.state = tensors_of(self.module)
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        if not parameters:
            raise InputError("network must have something to learn, got a module without parameters to train")
        self.optimizer = optimizers.make(parameters, self.recipe)
        self.averages = {name: torch.zeros_like(value) for name, value in self._averaged().items()}

    # -- one step ------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Augmentation, forward, backward, update, for the batch that the clock points at."""
        plain = torch.autocast(self.device.type, enabled=False)  # going back, too, would be subject to the caller's
        with torch.inference_mode(False), torch.enable_grad(), plain:
            self._step()

    def _step(self) -> None:
        x, labels, rate, share = self.batch()
        with self.arithmetic():
            logits = self.module(self._arranged(x))
        smoothing = self.recipe.label_smoothing
        loss = F.cross_entropy(logits.float(), labels, label_smoothing=smoothing)
        if share is not None:
            other = F.cross_entropy(logits.float(), labels.flip(0), label_smoothing=smoothing)
            loss = share * loss + (1 - share) * other
        self.optimizer.lr.copy_(rate)
        self.optimizer.step(loss)
        self._average()
        self.clock += 1

    def _averaged(self) -> State:
        """What the recipe averages: weights and batch statistics, as they are now."""
        if not self.recipe.average:
            return {}
        return {name: value for name, value in tensors_of(self.module).items() if value.is_floating_point()}

    def _average(self) -> None:
        """Take this step's weights into their average."""
        if self.averages:
            averages = list(self.averages.values())
            changes = torch._foreach_sub(list(self._averaged().values()), averages)
            torch._foreach_mul_(changes, self.tables["newest"].index_select(0, self.clock)[0])
            torch._foreach_add_(averages, changes)

    def settle(self) -> None:
        """After the last step, put the averages in the place of the weights."""
        if self.averages:
            with torch.no_grad():
                torch._foreach_copy_(list(self._averaged().values()), list(self.averages.values()))

    def batch(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """At the clock's step: images as the network gets them, labels, learning rate, and the share in mixup."""
        draws = {name: table.index_select(0, self.clock)[0] for name, table in self.tables.items() if name != "newest"}
        x = augment.batch(self.images, draws, self.recipe, self.mean, self.std)
        return x, self.labels[draws["rows"]], draws["rates"], draws.get("shares")

    def _arranged(self, x: Tensor) -> Tensor:
        return x if self.channels_last or x.ndim != 4 else x.contiguous()

    def arithmetic(self) -> Any:
        """The precision of the network's own operations."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def advance(self) -> None:
        """The next step of the network that is loaded."""
        if self.draws_numbers and self.course is not None:
            self.reseed(int(self.course.seeds[self.done]))
        self.run()
        self.done += 1
        if self.done == self.steps:
            self.settle()

    def run(self) -> None:
        """Take the step: here as it is, on a GPU as a captured graph."""
        self.step()

    def reseed(self, seed: int) -> None:
        """Start the random numbers that layers such as dropout draw from."""
        seed_all(seed)

    # -- one network after another -------------------------------------------------------------------------------------

    def warm_up(self, batch: int) -> None:
        """A step on nothing, so that libraries set themselves up."""
        size = {name: value[:1].copy() for name, value in self._blank(batch).tables().items()}
        self.images = torch.zeros((1, *self._padded_shape()), dtype=torch.uint8, device=self.device)
        self.labels = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.tables = {name: torch.from_numpy(value).to(self.device) for name, value in size.items()}
        self.clock.zero_()
        self.step()

    def try_out(self, batch: int) -> None:
        """Warm up, and see whether layers draw numbers. Only while nothing else runs: the generator is global."""
        self.draws_numbers = draws_numbers(lambda: self.warm_up(batch))

    def try_asking(self) -> None:
        """Refuse a network that draws random numbers when it is asked: its scores would be of no fixed value."""
        with self.evaluating():
            if draws_numbers(lambda: self._logits(torch.zeros((2, *self.shape), device=self.device))):
                raise InputError("network must not draw random numbers when it is asked, only while it is trained")

    def _blank(self, batch: int) -> random_draws.RandomDraws:
        course = random_draws.draw(self.recipe, max(2, batch), self.shape, np.random.SeedSequence(0))
        course.rows[:] = 0
        return course

    def _padded_shape(self) -> tuple[int, ...]:
        if len(self.shape) == 1:
            return self.shape
        return (self.shape[0] + 2 * self.recipe.crop, self.shape[1] + 2 * self.recipe.crop, self.shape[2])

    def prepare(self, job: Job) -> Prepared:
        """Everything a new network starts from, on the host. It reads nothing that changes, so it may be done ahead."""
        images = job.images()
        course = random_draws.draw(self.recipe, len(images), self.shape, job.source)
        fresh = build(self.factory, self.shape, self.n_classes, random_draws.initial_seed(job.source))
        mean, std = statistics(images)
        arrays = {"images": images, "labels": job.labels, "mean": mean, "std": std, **course.tables()}
        tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}
        tensors["images"] = augment.padded(tensors["images"], self.recipe)
        return Prepared(job, course, tensors, fresh)

    def load(self, prepared: Prepared) -> None:
        """Set everything for a new network."""
        self.job, self.course, self.done, self.begun = prepared.job, prepared.course, 0, time.perf_counter()
        self.steps = len(self.course.rates)
        self._fill(dict(prepared.tensors))
        self.install(prepared.module)
        self.clock.zero_()

    def _fill(self, arrays: dict[str, Tensor]) -> None:
        self.images, self.labels = arrays.pop("images"), arrays.pop("labels")
        self.mean, self.std = arrays.pop("mean"), arrays.pop("std")
        self.tables = arrays

    def set_state(self, state: State) -> None:
        """Weights and statistics of a network, by name."""
        fits(state, self.state, self.shape[-1])
        with torch.no_grad():
            for name, value in self._named():
                value.copy_(state[name], non_blocking=True)

    def get_state(self) -> State:
        """A copy on the host."""
        return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in self._named()}

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield from tensors_of(self.module).items()  # as they are now: a module may have replaced some
        yield MEAN, self.mean
        yield STD, self.std

    # -- scoring -------------------------------------------------------------------------------------------------------

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Batch statistics at rest."""
        self.module.eval()
        try:
            with torch.no_grad(), self.arithmetic():
                yield
        finally:
            self.module.train()

    def score(self, inputs: Tensor) -> Tensor:
        """Logits for inputs on the device, (n, classes), in blocks that are always full."""
        block = INPUTS[self.device.type]
        scores = torch.empty(len(inputs), self.n_classes, device=self.device)
        question = torch.zeros((block, *self.shape), dtype=inputs.dtype, device=self.device)
        for start in range(0, len(inputs), block):
            part = inputs[start : start + block]
            question[: len(part)], question[len(part) :] = part, 0
            scores[start : start + block] = self.answer(question)[: len(part)]
        return scores

    def answer(self, question: Tensor) -> Tensor:
        """Logits for one full block."""
        with self.evaluating():
            return self._logits(question)

    def _logits(self, question: Tensor) -> Tensor:
        """The mean over the views of each input."""
        first, *others = augment.views(question.float(), self.recipe, self.mean, self.std)
        logits: Tensor = self.module(self._arranged(first)).float()
        for view in others:
            logits = logits + self.module(self._arranged(view)).float()
        return logits / (1 + len(others)) if others else logits
