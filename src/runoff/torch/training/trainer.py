"""Train many networks on one device, each bit for bit as if it were alone."""

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
from runoff.torch.building import State, build, own_numbers
from runoff.torch.networks import Factory
from runoff.torch.training.jobs import Job, array_digest
from runoff.torch.training.pools import ahead, as_done
from runoff.torch.training.results import Ending, Trained, naming, to_host, trained
from runoff.torch.training.slots import INPUTS, Prepared, Slot

IN_FLIGHT = 6  # networks at a time on a GPU, if memory allows: more gain nothing
LITTLE = 16  # samples in a step that only sets things up
SPARE = 0.9  # of the free memory of a GPU may be used


class Trainer:
    """Networks of one kind, trained by one recipe on one device.

    What a network computes follows from its own samples, its seeds and the recipe. How many are in flight, in which
    order they come and what runs beside them changes nothing, not even the last bit.

    Parameters
    ----------
    network : a function (shape, n_classes) -> nn.Module; shape is (channels, height, width) or (features,)
    recipe : how to train
    shape : of one sample, (height, width, channels) or (features,)
    n_classes : how many scores a network gives
    device : "cpu", "cuda", "cuda:N". Default: a GPU if there is one
    in_flight : networks at a time. Default: as many as fit on a GPU, up to 6; as many as cores on a CPU

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
        """Train these networks and give each as soon as it is done, with its scores for inputs if there are any."""
        digest = None if inputs is None else array_digest(inputs)
        suited: list[Job] = []
        unsuited: list[Job] = []
        for job in jobs:
            (unsuited if self.recipe.on_bytes and job.images().dtype != np.uint8 else suited).append(job)
        for job in unsuited:  # judged by its own samples, so that nobody else's can bring it about
            reason = f"its images are not of 8 bits, as {self.recipe.on_bytes} needs them"
            yield Trained(job.member, job.seed, {}, None, digest, reason)
        with devices.repeatable(self.precision, self.device):
            if self.device.type == "cuda":
                for done in self._on_gpu(suited, inputs):
                    yield replace(done, inputs=digest)
            elif suited:
                draws = self._try_out(asking=inputs is not None)
                for done in self._on_cpu((_Training(self, job) for job in suited), inputs, draws):
                    yield replace(done, inputs=digest)

    def score(self, states: Iterable[tuple[Any, State]], inputs: NDArray[Any]) -> Iterator[tuple[Any, NDArray[Any]]]:
        """The scores of trained networks, (n_inputs, n_classes) each, under the names they came with."""
        with devices.repeatable(self.precision, self.device):
            if self.device.type == "cuda":
                yield from self._scored_on_gpu(states, inputs)
            else:
                self._slot().try_asking()
                tasks = (_Scoring(self, name, state) for name, state in states)
                yield from self._on_cpu(tasks, inputs, draws=False)

    def workers(self) -> int:
        """Networks at a time on a CPU."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.in_flight or cores

    def try_out(self, job: Job, inputs: NDArray[Any]) -> tuple[float, float]:
        """Seconds for a step of a network on the CPU, and for a block of inputs, beside as many others as usual."""
        block = torch.from_numpy(np.ascontiguousarray(inputs[: INPUTS["cpu"]]))

        def tried(slot: Slot, prepared: Prepared) -> tuple[float, float]:
            torch.set_num_threads(1)
            slot.load(prepared)
            slot.advance()  # libraries set themselves up
            slot.load(prepared)
            started, n = time.perf_counter(), min(3, slot.steps)
            for _ in range(n):
                slot.advance()
            trained = time.perf_counter()
            slot.score(block)
            return (trained - started) / n, time.perf_counter() - trained

        with devices.repeatable(self.precision, self.device), own_numbers(0):
            slots = [self._slot() for _ in range(self.workers())]
            prepared = [slot.prepare(job) for slot in slots]
            with ThreadPoolExecutor(len(slots)) as pool:
                found = list(pool.map(tried, slots, prepared))
        steps, blocks = zip(*found, strict=True)
        return sum(steps) / len(steps), sum(blocks) / len(blocks)

    @torch.inference_mode(False)
    def _slot(self) -> Slot:
        return Slot(self.network, self.recipe, self.precision, self.shape, self.n_classes, self.device)

    # -- CPU: a thread for each network in flight ----------------------------------------------------------------------

    @torch.inference_mode(False)
    def _try_out(self, asking: bool) -> bool:
        """Whether layers draw random numbers while training; networks that cannot be trained or asked are refused."""
        build(self.network, self.shape, self.n_classes, np.random.SeedSequence(0))
        slot = self._slot()
        slot.try_out(LITTLE)
        if asking:
            slot.try_asking()
        return slot.draws_numbers

    def _on_cpu(self, tasks: Iterable[Any], inputs: NDArray[Any] | None, draws: bool) -> Iterator[Any]:
        asked = None if inputs is None else torch.from_numpy(np.ascontiguousarray(inputs))
        if draws:  # from global random numbers: here, where whoever takes our results cannot draw in between
            for task in tasks:
                with own_numbers(0):
                    done = task(asked, True, threading.Event())
                yield done
            return
        stop = threading.Event()

        def work(task: Any) -> Any:
            torch.set_num_threads(1)
            return None if stop.is_set() else task(asked, False, stop)

        with ThreadPoolExecutor(self.workers()) as pool:
            try:
                yield from as_done(pool, work, tasks, 2 * self.workers())
            finally:
                stop.set()

    # -- GPU: graphs on streams ----------------------------------------------------------------------------------------

    def _on_gpu(self, jobs: Sequence[Job], inputs: NDArray[Any] | None) -> Iterator[Trained]:
        asked = None if inputs is None else torch.from_numpy(np.ascontiguousarray(inputs)).to(self.device)
        torch.cuda.synchronize(self.device)
        groups: dict[tuple[int, torch.dtype], list[Job]] = {}
        for job in jobs:
            bytes_ = job.samples.dtype == np.uint8 or job.images().dtype == np.uint8
            key = (self.recipe.batch_of(len(job.rows)), torch.uint8 if bytes_ else torch.float32)
            groups.setdefault(key, []).append(job)
        for (batch, dtype), group in groups.items():
            yield from self._group(batch, dtype, group, asked)

    def _group(self, batch: int, dtype: torch.dtype, jobs: list[Job], inputs: Tensor | None) -> Iterator[Trained]:
        slots = self._captured(batch, max(len(job.rows) for job in jobs), dtype, jobs, inputs)
        ending = deque[Ending]()
        with ThreadPoolExecutor(1) as pool, closing(ahead(pool, slots[0].prepare, jobs, len(slots))) as waiting:
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
                            with naming(slot.job):
                                slot.load(prepared)
                        with naming(slot.job):
                            slot.advance()
                            if slot.done == slot.steps:
                                ending.append(Ending(slot, inputs))
                while ending and ending[0].is_there():
                    yield ending.popleft().trained()
        while ending:
            yield ending.popleft().trained()

    @torch.inference_mode(False)
    def _captured(
        self, batch: int, n_samples: int, dtype: torch.dtype, jobs: list[Job], inputs: Tensor | None
    ) -> list[Any]:
        """As many slots as are asked for and fit; what a network computes does not depend on how many there are."""
        from runoff.torch.training.graphs import GraphSlot

        slots: list[Any] = []
        most = min(self.in_flight or IN_FLIGHT, len(jobs))
        while len(slots) < most:
            free = torch.cuda.mem_get_info(self.device)[0]
            try:
                slot = GraphSlot(self.network, self.recipe, self.precision, self.shape, self.n_classes, self.device)
                slot.capture(batch, n_samples, dtype)
                if inputs is not None:
                    slot.capture_answer(inputs)
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
                        f"the network cannot be trained bit for bit the same on {self.device}: {reason}; use another "
                        "layer instead (nn.AvgPool2d or strides for nn.MaxPool2d), or device='cpu'"
                    ) from None
                raise
            slots.append(slot)
            if slot.draws_numbers:  # from one global generator
                break
            left = torch.cuda.mem_get_info(self.device)[0]
            if left < (free - left) / SPARE:
                break
        return slots

    def _scored_on_gpu(self, states: Iterable[tuple[Any, State]], inputs: NDArray[Any]) -> Iterator[Any]:
        from runoff.torch.training.graphs import GraphSlot

        asked = torch.from_numpy(np.ascontiguousarray(inputs)).to(self.device)
        torch.cuda.synchronize(self.device)
        settings = (self.network, self.recipe, self.precision, self.shape, self.n_classes, self.device)
        with torch.inference_mode(False):
            slots = [GraphSlot(*settings) for _ in range(self.in_flight or 2)]
            for slot in slots:
                slot.capture_answer(asked)
        ending = deque[Any]()
        for i, (name, state) in enumerate(states):
            slot = slots[i % len(slots)]
            with torch.cuda.device(self.device), torch.cuda.stream(slot.stream), torch.inference_mode(False):
                slot.set_state(state)
                scores = to_host(slot.score(asked))
                ending.append((name, scores, slot.stream.record_event()))
            if len(ending) > 2 * len(slots):
                name, scores, event = ending.popleft()
                event.synchronize()
                yield name, scores.numpy()
        for name, scores, event in ending:
            event.synchronize()
            yield name, scores.numpy()


class _Training:
    """A network to train on the CPU: made when it is its turn, in the thread of whoever takes the results."""

    def __init__(self, trainer: Trainer, job: Job) -> None:
        self.job = job
        with naming(job), torch.inference_mode(False):
            self.slot, self.asked = trainer._slot(), trainer._slot()
            self.prepared = self.slot.prepare(job)

    def __call__(self, inputs: Tensor | None, draws: bool, stop: threading.Event) -> Trained | None:
        slot = self.slot
        with naming(self.job), torch.inference_mode(False):
            slot.draws_numbers = draws
            slot.load(self.prepared)
            while slot.done < slot.steps:
                slot.advance()
                if stop.is_set():
                    return None
            state = slot.get_state()
            scores = None
            if inputs is not None:  # asked as it will be later: a new module with this state
                self.asked.set_state(state)
                scores = self.asked.score(inputs).numpy()
        return trained(self.job, state, scores, time.perf_counter() - slot.begun)


class _Scoring:
    """A trained network to ask on the CPU."""

    def __init__(self, trainer: Trainer, name: Any, state: State) -> None:
        self.slot, self.name, self.state = trainer._slot(), name, state

    def __call__(self, inputs: Tensor | None, draws: bool, stop: threading.Event) -> tuple[Any, Any]:  # noqa: ARG002
        self.slot.set_state(self.state)
        return self.name, None if inputs is None else self.slot.score(inputs).numpy()
