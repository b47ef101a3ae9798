"""Slots, each of which trains and scores one network at a time on a device.

The tensors of a slot keep their addresses, so that on a GPU the whole step (augmentation, forward, backward, update) is
captured once and replayed for one network after another. Everything is reset between two networks: weights, batch
statistics, momentum, samples and random draws. A network does not depend on the previous one or on other slots.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runoff._io.text import count, one_line
from runoff.errors import InputError
from runoff.recipes import Recipe
from runoff.torch.building import State, build, build_once, draws_random_numbers, seed_all, tensors_of
from runoff.torch.networks import Factory
from runoff.torch.training import augment, optimizers, random_draws
from runoff.torch.training.jobs import Job, statistics
from runoff.torch.training.results import is_due_to_samples

LOG = logging.getLogger("runoff")
MEAN, STD = "runoff:mean", "runoff:std"  # a member's normalisation of inputs, stored with the network's tensors
INPUTS = {"cpu": 64, "cuda": 512}  # per block; blocks have constant size, so that their size cannot change the bits


@dataclass(frozen=True, eq=False)
class Prepared:
    """The inputs of the training of one network, on the host."""

    job: Job
    draws: random_draws.RandomDraws
    tensors: dict[str, Tensor] = field(repr=False)
    module: nn.Module = field(repr=False)  # with its initial weights


def fits(state: State, like: State, n_channels: int) -> None:
    """Raise an error if the names, shapes or types of a state are not those of the network."""
    expected = {name: (tuple(value.shape), value.dtype) for name, value in like.items()}
    expected |= dict.fromkeys((MEAN, STD), ((n_channels,), torch.float32))
    given = {name: (tuple(value.shape), value.dtype) for name, value in state.items()}
    if odd := sorted(name for name in expected.keys() | given.keys() if expected.get(name) != given.get(name)):
        raise InputError(
            f"the network has changed: {odd[0]!r:.60} should be {expected.get(odd[0], 'absent')!s:.100}, got "
            f"{given.get(odd[0], 'nothing')!s:.100}"
        )


class Slot:
    """A place on a device for one network at a time."""

    def __init__(
        self, factory: Factory, recipe: Recipe, precision: str, shape: tuple[int, ...], n_classes: int, device: Any
    ) -> None:
        self.factory, self.recipe, self.precision = factory, recipe, precision
        self.shape, self.n_classes, self.device = shape, n_classes, device
        self.install(build_once(factory, shape, n_classes, np.random.SeedSequence(0)))
        self.clock = torch.zeros(1, dtype=torch.int64, device=device)
        self.mean = torch.zeros(shape[-1], device=device)
        self.std = torch.ones(shape[-1], device=device)
        self.images = self.labels = torch.empty(0)
        self.tables: dict[str, Tensor] = {}
        self.job: Job | None = None
        self.draws: random_draws.RandomDraws | None = None
        self.done = self.steps = 0
        self.uses_rng = False  # whether layers draw from global generators
        self.started = 0.0

    def install(self, module: nn.Module) -> None:
        """Replace the network of this slot, with a new optimiser state."""
        # Only for networks that opt in: some layers of PyTorch have had wrong gradients in this format.
        self.channels_last = len(self.shape) == 3 and getattr(module, "channels_last", False)
        format_ = torch.channels_last if self.channels_last else torch.contiguous_format
        self.module = module.to(device=self.device, memory_format=format_).train()  # type: ignore[call-overload]
        self.state = tensors_of(self.module)
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        if not parameters:
            raise InputError("network must have parameters to train, got a module without any")
        self.optimizer = optimizers.make(parameters, self.recipe)
        self.averages = {name: torch.zeros_like(value) for name, value in self._averaged().items()}

    # -- one step ------------------------------------------------------------------------------------------------------

    def step(self, size: int | None = None) -> None:
        """Run the training step of the clock: augmentation, forward, backward, update.

        With `size`, the batch has that many samples, else it is full.
        """
        no_autocast = torch.autocast(self.device.type, enabled=False)  # the caller's would affect the backward pass
        with torch.inference_mode(False), torch.enable_grad(), no_autocast:
            self._step(size)

    def _step(self, size: int | None) -> None:
        x, labels, rate, share = self.batch(size)
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
        """Return the current tensors that the recipe averages: weights and batch statistics."""
        if not self.recipe.average:
            return {}
        return {name: value for name, value in tensors_of(self.module).items() if value.is_floating_point()}

    def _average(self) -> None:
        """Add the current weights to the running average."""
        if self.averages:
            averages = list(self.averages.values())
            changes = torch._foreach_sub(list(self._averaged().values()), averages)
            torch._foreach_mul_(changes, self.tables["newest"].index_select(0, self.clock)[0])
            torch._foreach_add_(averages, changes)

    def settle(self) -> None:
        """Replace the weights by their averages, after the last step."""
        if self.averages:
            with torch.no_grad():
                torch._foreach_copy_(list(self._averaged().values()), list(self.averages.values()))

    def batch(self, size: int | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Return the network inputs, labels, learning rate and mixup share of the current step."""
        draws = {name: table.index_select(0, self.clock)[0] for name, table in self.tables.items() if name != "newest"}
        if size is not None:
            draws |= {name: draws[name][:size] for name in random_draws.PER_SAMPLE if name in draws}
        x = augment.batch(self.images, draws, self.recipe, self.mean, self.std)
        return x, self.labels[draws["rows"]], draws["rates"], draws.get("shares")

    def _arranged(self, x: Tensor) -> Tensor:
        return x if self.channels_last or x.ndim != 4 else x.contiguous()

    def arithmetic(self) -> Any:
        """Return the autocast context of the forward pass."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.precision == "bf16")

    def advance(self) -> None:
        """Train the loaded network for one step."""
        if self.uses_rng and self.draws is not None:
            self.reseed(int(self.draws.seeds[self.done]))
        self.run(None if self.draws is None else self.draws.size_of(self.done))
        self.done += 1
        if self.done == self.steps:
            self.settle()

    def run(self, size: int | None) -> None:
        """Run the step; a GPU slot replays a captured graph instead, for full batches."""
        self.step(size)

    def reseed(self, seed: int) -> None:
        """Seed the generators that layers such as dropout draw from."""
        seed_all(seed)

    # -- one network after another -------------------------------------------------------------------------------------

    def warm_up(self, batch: int) -> None:
        """Run a step on zeros, so that libraries initialise themselves."""
        first_step = {name: value[:1].copy() for name, value in self._blank_draws(batch).tables().items()}
        self.images = torch.zeros((1, *self._padded_shape()), dtype=torch.uint8, device=self.device)
        self.labels = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.tables = {name: torch.from_numpy(value).to(self.device) for name, value in first_step.items()}
        self.clock.zero_()
        self.step()

    def try_out(self, batch: int) -> None:
        """Warm up and detect whether layers draw random numbers; no other code may run, since generators are global."""
        self.uses_rng = draws_random_numbers(lambda: self.warm_up(batch))
        if self.recipe.leftover:
            self._reject_networks_for_several()

    def _reject_networks_for_several(self) -> None:
        """Reject networks that cannot be trained on one sample, before it depends on samples whether one is left."""
        self.clock.zero_()
        try:
            self.step(1)
        except (ValueError, IndexError, RuntimeError) as error:
            raise InputError(
                f"network must accept a batch of one sample in training, which leftover=True can leave at the end of "
                f"an epoch, but it fails ({error}): use a recipe without leftover, or another network"
            ) from error

    def reject_random_scoring(self) -> None:
        """Reject a network that draws random numbers at inference time, whose scores would not be reproducible."""
        with self.evaluating():
            if draws_random_numbers(lambda: self._logits(torch.zeros((2, *self.shape), device=self.device))):
                raise InputError("network must not draw random numbers at inference time, only in training")

    def _blank_draws(self, batch: int) -> random_draws.RandomDraws:
        draws = random_draws.draw(self.recipe, max(2, batch), self.shape, np.random.SeedSequence(0))
        draws.rows[:] = 0
        return draws

    def _padded_shape(self) -> tuple[int, ...]:
        if len(self.shape) == 1:
            return self.shape
        return (self.shape[0] + 2 * self.recipe.crop, self.shape[1] + 2 * self.recipe.crop, self.shape[2])

    def prepare(self, job: Job) -> Prepared:
        """Prepare the training of a network on the host; this depends on no state of the slot, so it can run early."""
        images = job.images()
        draws = random_draws.draw(self.recipe, len(images), self.shape, job.source)
        module = build(self.factory, self.shape, self.n_classes, random_draws.initial_seed(job.source))
        mean, std = statistics(images)
        arrays = {"images": images, "labels": job.labels, "mean": mean, "std": std, **draws.tables()}
        tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}
        tensors["images"] = augment.padded(tensors["images"], self.recipe)
        return Prepared(job, draws, tensors, module)

    def load(self, prepared: Prepared) -> None:
        """Reset the slot to the start of a new network."""
        self.job, self.draws, self.done, self.started = prepared.job, prepared.draws, 0, time.perf_counter()
        self.steps = len(self.draws.rates)
        self._fill(dict(prepared.tensors))
        self.install(prepared.module)
        self.clock.zero_()

    def _fill(self, arrays: dict[str, Tensor]) -> None:
        self.images, self.labels = arrays.pop("images"), arrays.pop("labels")
        self.mean, self.std = arrays.pop("mean"), arrays.pop("std")
        self.tables = arrays

    def set_state(self, state: State) -> None:
        """Copy the tensors of a network into this slot, by name."""
        fits(state, self.state, self.shape[-1])
        with torch.no_grad():
            for name, value in self._named():
                value.copy_(state[name], non_blocking=True)

    def get_state(self) -> State:
        """Return a copy of the tensors of the network on the host, by name."""
        return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in self._named()}

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        yield from tensors_of(self.module).items()  # the current ones: a module may have replaced some
        yield MEAN, self.mean
        yield STD, self.std

    # -- scoring -------------------------------------------------------------------------------------------------------

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Set the network to evaluation mode in the block."""
        self.module.eval()
        try:
            with torch.no_grad(), self.arithmetic():
                yield
        finally:
            self.module.train()

    def score(self, inputs: Tensor) -> Tensor:
        """Return the logits of inputs, (n, classes), computed in blocks of constant size.

        They are NaN for inputs on which the network's own code raises an error, which its training samples may cause.
        """
        size = INPUTS[self.device.type]
        scores = torch.empty(len(inputs), self.n_classes, device=self.device)
        block = torch.zeros((size, *self.shape), dtype=inputs.dtype, device=self.device)
        for start in range(0, len(inputs), size):
            part = inputs[start : start + size]
            block[: len(part)], block[len(part) :] = part, 0
            try:
                scores[start : start + size] = self.score_block(block)[: len(part)]
            except Exception as error:
                if not is_due_to_samples(error):
                    raise
                scores[start : start + size] = self._scored_one_by_one(block, len(part))
        return scores

    def _scored_one_by_one(self, block: Tensor, n: int) -> Tensor:
        """Return the logits of the first inputs of a block, NaN for those on which the network raises an error."""
        scores, failures = torch.full((n, self.n_classes), torch.nan, device=self.device), 0
        for i in range(n):
            alone = torch.zeros_like(block)
            alone[i] = block[i]
            try:
                scores[i] = self.score_block(alone)[i]
            except Exception as error:
                if not is_due_to_samples(error):
                    raise
                failures, reason = failures + 1, error
        if failures:
            LOG.warning(
                "a network could not score %s, for which its member votes by its class shares: %s: %s",
                count(failures, "input"),
                type(reason).__name__,
                one_line(reason),
            )
        return scores

    def score_block(self, block: Tensor) -> Tensor:
        """Return the logits of one full block of inputs."""
        with self.evaluating():
            return self._logits(block)

    def _logits(self, inputs: Tensor) -> Tensor:
        """Return the mean logits over the views of each input."""
        first, *others = augment.views(inputs.float(), self.recipe, self.mean, self.std)
        logits: Tensor = self.module(self._arranged(first)).float()
        for view in others:
            logits = logits + self.module(self._arranged(view)).float()
        return logits / (1 + len(others)) if others else logits
