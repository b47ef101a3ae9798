"""Training of many networks on one device, each with the same bits as if trained by itself."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runoff.errors import DeviceError, InputError, MemberError
from runoff.recipes import Recipe
from runoff.torch import devices
from runoff.torch.building import State, build, seeded_generators
from runoff.torch.networks import Factory
from runoff.torch.training.jobs import Job, array_digest
from runoff.torch.training.pools import as_completed, prefetch
from runoff.torch.training.results import (
    FailedResult,
    PendingResult,
    Trained,
    checked_result,
    errors_naming,
    failed_result,
    to_host,
)
from runoff.torch.training.slots import INPUTS, Prepared, Slot

IN_FLIGHT = 6  # networks at a time on a GPU, if memory allows; more are not faster
WARM_UP_BATCH = 16
SPARE = 0.9  # the share of a GPU's free memory that may be used


class Trainer:
    """A trainer of networks of one architecture, with one recipe, on one device.

    The bits of a network depend only on its samples, its seed and the recipe, not on the number of networks in flight,
    their order, or anything else that runs at the same time.

    Parameters
    ----------
    network : a function (shape, n_classes) -> nn.Module; shape is (channels, height, width) or (features,)
    recipe : the training settings
    shape : the shape of one sample, (height, width, channels) or (features,)
    n_classes : the number of scores per input
    device : "cpu", "cuda", "cuda:N". Default: a GPU if one is available
    in_flight : networks at a time. Default: on a GPU as many as fit, up to 6; on a CPU the number of cores

    """

    def __init__(
        self,
        network: Factory,
        recipe: Recipe,
        shape: tuple[int, ...],
        n_classes: int,
        *,
        device: str | torch.device | None = None,
        in_flight: int | None = None,
    ) -> None:
        self.network, self.recipe, self.shape, self.n_classes = network, recipe, shape, n_classes
        self.device = devices.find(device)
        self.precision = devices.precision_of(recipe, self.device)
        if in_flight is not None and (not isinstance(in_flight, int) or isinstance(in_flight, bool) or in_flight < 1):
            raise InputError(f"in_flight must be a whole number of at least 1, got {in_flight!r}")
        self.in_flight = in_flight

    def train(self, jobs: Sequence[Job], inputs: NDArray[Any] | None = None) -> Iterator[Trained]:
        """Train networks and yield each when it is finished, with its scores for `inputs` if given."""
        digest = None if inputs is None else array_digest(inputs)
        trainable: list[Job] = []
        refused: list[Job] = []
        for job in jobs:
            (refused if self.recipe.on_bytes and job.images().dtype != np.uint8 else trainable).append(job)
        for job in refused:  # depends on the samples of the member only
            reason = f"its images do not have 8 bits, which {self.recipe.on_bytes} requires"
            yield Trained(job.member, job.seed, {}, None, digest, reason)
        with devices.repeatable(self.precision):
            if self.device.type == "cuda":
                for done in self._on_gpu(trainable, inputs):
                    yield replace(done, inputs=digest)
            elif trainable:
                uses_rng = self._try_out(scoring=inputs is not None)
                for done in self._on_cpu((_Training(self, job) for job in trainable), inputs, uses_rng):
                    yield replace(done, inputs=digest)

    def score(self, states: Iterable[tuple[Any, State]], inputs: NDArray[Any]) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Yield the name and the scores, (n_inputs, n_classes), of each trained network."""
        with devices.repeatable(self.precision):
            if self.device.type == "cuda":
                yield from self._scored_on_gpu(states, inputs)
            else:
                self._slot().reject_random_scoring()
                tasks = (_Scoring(self, name, state) for name, state in states)
                yield from self._on_cpu(tasks, inputs, uses_rng=False)

    def workers(self) -> int:
        """Return the number of networks at a time on a CPU."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.in_flight or cores

    def try_out(self, job: Job, inputs: NDArray[Any]) -> tuple[float, float]:
        """Return the seconds per step and per block of inputs on the CPU, with all workers busy."""
        block = torch.from_numpy(np.ascontiguousarray(inputs[: INPUTS["cpu"]]))

        def measure(slot: Slot, prepared: Prepared) -> tuple[float, float]:
            torch.set_num_threads(1)
            slot.load(prepared)
            slot.advance()  # warms up
            slot.load(prepared)
            started, n = time.perf_counter(), min(3, slot.steps)
            for _ in range(n):
                slot.advance()
            trained = time.perf_counter()
            slot.score(block)
            return (trained - started) / n, time.perf_counter() - trained

        with devices.repeatable(self.precision), seeded_generators(0):
            slots = [self._slot() for _ in range(self.workers())]
            prepared = [slot.prepare(job) for slot in slots]
            with ThreadPoolExecutor(len(slots)) as pool:
                seconds = list(pool.map(measure, slots, prepared))
        steps, blocks = zip(*seconds, strict=True)
        return sum(steps) / len(steps), sum(blocks) / len(blocks)

    @torch.inference_mode(False)
    def _slot(self) -> Slot:
        return Slot(self.network, self.recipe, self.precision, self.shape, self.n_classes, self.device)

    # -- CPU: one thread per network in flight -------------------------------------------------------------------------

    @torch.inference_mode(False)
    def _try_out(self, scoring: bool) -> bool:
        """Return whether layers draw random numbers in training; reject networks that cannot be trained or scored."""
        build(self.network, self.shape, self.n_classes, np.random.SeedSequence(0))
        slot = self._slot()
        slot.try_out(WARM_UP_BATCH)
        if scoring:
            slot.reject_random_scoring()
        return slot.uses_rng

    def _on_cpu(self, tasks: Iterable[Any], inputs: NDArray[Any] | None, uses_rng: bool) -> Iterator[Any]:
        tensor = None if inputs is None else torch.from_numpy(np.ascontiguousarray(inputs))
        if uses_rng:  # one at a time, since the generators are global; yield outside the block, as the caller may draw
            for task in tasks:
                with seeded_generators(0):
                    done = task(tensor, True, threading.Event())
                yield done
            return
        stop = threading.Event()

        def work(task: Any) -> Any:
            torch.set_num_threads(1)
            return None if stop.is_set() else task(tensor, False, stop)

        with ThreadPoolExecutor(self.workers()) as pool:
            try:
                yield from as_completed(pool, work, tasks, 2 * self.workers())
            finally:
                stop.set()

    # -- GPU: graphs on streams ----------------------------------------------------------------------------------------

    def _on_gpu(self, jobs: Sequence[Job], inputs: NDArray[Any] | None) -> Iterator[Trained]:
        tensor = None if inputs is None else torch.from_numpy(np.ascontiguousarray(inputs)).to(self.device)
        torch.cuda.synchronize(self.device)
        groups: dict[tuple[int, torch.dtype], list[Job]] = {}
        for job in jobs:
            bytes_ = job.samples.dtype == np.uint8 or job.images().dtype == np.uint8
            key = (self.recipe.batch_of(len(job.rows)), torch.uint8 if bytes_ else torch.float32)
            groups.setdefault(key, []).append(job)
        for (batch, dtype), group in groups.items():
            yield from self._group(batch, dtype, group, tensor)

    def _group(self, batch: int, dtype: torch.dtype, jobs: list[Job], inputs: Tensor | None) -> Iterator[Trained]:
        slots = self._captured(batch, max(len(job.rows) for job in jobs), dtype, jobs, inputs)
        results = deque[PendingResult | FailedResult]()
        with ThreadPoolExecutor(1) as pool, closing(prefetch(pool, slots[0].prepare, jobs, len(slots))) as waiting:
            active = list(slots)
            while active:
                for slot in list(active):
                    with torch.cuda.stream(slot.stream), torch.inference_mode(False):
                        if slot.job is None:
                            prepared = next(waiting, None)
                            if prepared is None:
                                active.remove(slot)
                                continue
                            slot.job = prepared.job
                            with errors_naming(slot.job):
                                slot.load(prepared)
                        try:
                            slot.advance()
                        except Exception as error:  # in a step that is not captured
                            results.append(FailedResult(slot, error))
                            continue
                        with errors_naming(slot.job):
                            if slot.done == slot.steps:
                                results.append(PendingResult(slot, inputs))
                while results and results[0].is_ready():
                    yield results.popleft().wait()
        while results:
            yield results.popleft().wait()

    @torch.inference_mode(False)
    def _captured(
        self, batch: int, n_samples: int, dtype: torch.dtype, jobs: list[Job], inputs: Tensor | None
    ) -> list[Any]:
        """Return `in_flight` slots with captured steps, or fewer if memory is short."""
        from runoff.torch.training.graphs import GraphSlot

        slots: list[Any] = []
        most = min(self.in_flight or IN_FLIGHT, len(jobs))
        while len(slots) < most:
            free = torch.cuda.mem_get_info(self.device)[0]
            try:
                slot = GraphSlot(self.network, self.recipe, self.precision, self.shape, self.n_classes, self.device)
                slot.capture(batch, n_samples, dtype)
                if inputs is not None:
                    slot.capture_scoring(inputs)
            except torch.cuda.OutOfMemoryError:
                if not slots:
                    raise MemberError(
                        f"member {jobs[0].member} does not fit into the memory of {self.device} with batches of "
                        f"{batch}: use a smaller network or batch_size, or device='cpu'"
                    ) from None
                break
            except RuntimeError as error:
                if "deterministic" in str(error):
                    reason = str(error).split(". ")[0]
                    raise DeviceError(
                        f"training the network on {self.device} is not reproducible: {reason}; use another layer "
                        "(nn.AvgPool2d or strides instead of nn.MaxPool2d), or device='cpu'"
                    ) from None
                raise
            slots.append(slot)
            if slot.uses_rng:  # all slots would share one global generator
                break
            still_free = torch.cuda.mem_get_info(self.device)[0]
            if still_free < (free - still_free) / SPARE:
                break
        return slots

    def _scored_on_gpu(self, states: Iterable[tuple[Any, State]], inputs: NDArray[Any]) -> Iterator[Any]:
        from runoff.torch.training.graphs import GraphSlot

        tensor = torch.from_numpy(np.ascontiguousarray(inputs)).to(self.device)
        torch.cuda.synchronize(self.device)
        settings = (self.network, self.recipe, self.precision, self.shape, self.n_classes, self.device)
        with torch.inference_mode(False):
            slots = [GraphSlot(*settings) for _ in range(self.in_flight or 2)]
            for slot in slots:
                slot.capture_scoring(tensor)
        results = deque[Any]()
        for i, (name, state) in enumerate(states):
            slot = slots[i % len(slots)]
            with torch.cuda.device(self.device), torch.cuda.stream(slot.stream), torch.inference_mode(False):
                slot.set_state(state)
                scores = to_host(slot.score(tensor))
                results.append((name, scores, slot.stream.record_event()))
            if len(results) > 2 * len(slots):
                name, scores, event = results.popleft()
                event.synchronize()
                yield name, scores.numpy()
        for name, scores, event in results:
            event.synchronize()
            yield name, scores.numpy()


class _Training:
    """A network to train on the CPU, built in the calling thread when it is submitted."""

    def __init__(self, trainer: Trainer, job: Job) -> None:
        self.job = job
        with errors_naming(job), torch.inference_mode(False):
            self.slot, self.scoring_slot = trainer._slot(), trainer._slot()
            self.prepared = self.slot.prepare(job)

    def __call__(self, inputs: Tensor | None, uses_rng: bool, stop: threading.Event) -> Trained | None:
        slot = self.slot
        with torch.inference_mode(False):
            slot.uses_rng = uses_rng
            try:
                slot.load(self.prepared)
                while slot.done < slot.steps:
                    slot.advance()
                    if stop.is_set():
                        return None
            except Exception as error:
                return failed_result(self.job, error)
            with errors_naming(self.job):
                state = slot.get_state()
                scores = None
                if inputs is not None:  # by a new module with this state, as at inference time
                    self.scoring_slot.set_state(state)
                    scores = self.scoring_slot.score(inputs).numpy()
        return checked_result(self.job, state, scores, time.perf_counter() - slot.started)


class _Scoring:
    """A trained network that scores inputs on the CPU."""

    def __init__(self, trainer: Trainer, name: Any, state: State) -> None:
        self.slot, self.name, self.state = trainer._slot(), name, state

    def __call__(self, inputs: Tensor | None, uses_rng: bool, stop: threading.Event) -> tuple[Any, Any]:  # noqa: ARG002
        self.slot.set_state(self.state)
        return self.name, None if inputs is None else self.slot.score(inputs).numpy()
