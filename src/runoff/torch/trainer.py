"""Train many networks on one device, each bit for bit as if it were alone."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runoff.members import MemberError, undisturbed
from runoff.torch import devices
from runoff.torch.networks import Factory
from runoff.torch.recipes import Recipe
from runoff.torch.slots import Job, Slot, State, array_digest

IN_FLIGHT = 4  # networks at a time on a GPU, if memory allows: more gained nothing
LITTLE = 16  # samples in a step that only sets things up
SPARE = 0.9  # of the free memory of a GPU may be used


@dataclass(frozen=True, eq=False)
class Trained:
    """A network that is done. `scores` are for the inputs that `train` was given."""

    member: int
    seed: int
    state: State = field(repr=False)  # on the host
    scores: NDArray[np.float32] | None = field(default=None, repr=False)
    asked: str | None = None  # a digest of those inputs
    refused: str | None = None  # why it is of no use
    seconds: float = 0.0


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
    in_flight : networks at a time. Default: as many as fit on a GPU, up to 4; as many as cores on a CPU

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
        self.in_flight = in_flight

    def train(self, jobs: Sequence[Job], inputs: NDArray[Any] | None = None) -> Iterator[Trained]:
        """Train these networks and give each as soon as it is done, with its scores for inputs if there are any."""
        asked = None if inputs is None else array_digest(inputs)
        with undisturbed(), devices.repeatable(self.precision, self.device):
            on_device = self._on_cpu if self.device.type == "cpu" else self._on_gpu
            for done in on_device([_Training(job) for job in jobs], inputs):
                yield replace(done, asked=asked)

    def score(self, states: Iterable[tuple[Any, State]], inputs: NDArray[Any]) -> Iterator[tuple[Any, NDArray[Any]]]:
        """The scores of trained networks, (n_inputs, n_classes) each, under the names they came with."""
        with undisturbed(), devices.repeatable(self.precision, self.device):
            if self.device.type == "cpu":
                yield from self._on_cpu((_Scoring(name, state) for name, state in states), inputs)
            else:
                yield from self._scored_on_gpu(states, inputs)

    def workers(self) -> int:
        """Networks at a time on a CPU."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return self.in_flight or cores

    def try_steps(self, job: Job) -> float:
        """Seconds that a step of a network takes on the CPU, from a few."""
        with undisturbed(), devices.repeatable(self.precision, self.device):
            slot = self._slot()
            slot.load(slot.prepare(job))
            slot.advance()
            started, n = time.perf_counter(), min(3, slot.steps - 1)
            for _ in range(n):
                slot.advance()
            return (time.perf_counter() - started) / max(1, n)

    def _slot(self) -> Slot:
        return Slot(self.network, self.recipe, self.precision, self.shape, self.n_classes, self.device)

    # -- CPU: a thread for each network in flight ----------------------------------------------------------------------

    def _on_cpu(self, tasks: Iterable[Any], inputs: NDArray[Any] | None) -> Iterator[Any]:
        asked = None if inputs is None else torch.from_numpy(np.ascontiguousarray(inputs))
        n_workers = self.workers()
        first = self._slot()
        first.try_out(LITTLE)
        if first.draws_numbers:  # from one global generator
            n_workers = 1
        own = threading.local()
        spare, stop = [first], threading.Event()

        def work(task: Any) -> Any:
            if stop.is_set():
                return None
            torch.set_num_threads(1)
            if not hasattr(own, "slot"):
                try:
                    own.slot = spare.pop()
                except IndexError:
                    own.slot = self._slot()
                    own.slot.warm_up(LITTLE)
            return task(own.slot, asked)

        with ThreadPoolExecutor(n_workers) as pool:
            try:
                yield from _as_done(pool, work, tasks, 2 * n_workers)
            finally:
                stop.set()

    # -- GPU: graphs on streams ----------------------------------------------------------------------------------------

    def _on_gpu(self, tasks: Sequence[_Training], inputs: NDArray[Any] | None) -> Iterator[Trained]:
        asked = None if inputs is None else torch.from_numpy(np.ascontiguousarray(inputs)).to(self.device)
        torch.cuda.synchronize(self.device)
        groups: dict[tuple[int, torch.dtype], list[Job]] = {}
        for job in (task.job for task in tasks):
            bytes_ = job.samples.dtype == np.uint8 or job.images().dtype == np.uint8
            key = (self.recipe.batch_of(len(job.rows)), torch.uint8 if bytes_ else torch.float32)
            groups.setdefault(key, []).append(job)
        for (batch, dtype), group in groups.items():
            yield from self._group(batch, dtype, group, asked)

    def _group(self, batch: int, dtype: torch.dtype, jobs: list[Job], inputs: Tensor | None) -> Iterator[Trained]:
        slots = self._captured(batch, max(len(job.rows) for job in jobs), dtype, jobs, inputs)
        ending = deque[_Ending]()
        with ThreadPoolExecutor(1) as pool, closing(_ahead(pool, slots[0].prepare, jobs, len(slots))) as waiting:
            active = list(slots)
            while active:
                for slot in list(active):
                    with torch.cuda.stream(slot.stream):
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
                                ending.append(_Ending(slot, inputs))
                while ending and ending[0].is_there():
                    yield ending.popleft().trained()
        while ending:
            yield ending.popleft().trained()

    def _captured(
        self, batch: int, n_samples: int, dtype: torch.dtype, jobs: list[Job], inputs: Tensor | None
    ) -> list[Any]:
        """As many slots as are asked for and fit; what a network computes does not depend on how many there are."""
        from runoff.torch._graphs import GraphSlot

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
                    raise devices.DeviceError(
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
        from runoff.torch._graphs import GraphSlot

        asked = torch.from_numpy(np.ascontiguousarray(inputs)).to(self.device)
        torch.cuda.synchronize(self.device)
        settings = (self.network, self.recipe, self.precision, self.shape, self.n_classes, self.device)
        slots = [GraphSlot(*settings) for _ in range(self.in_flight or 2)]
        for slot in slots:
            slot.capture_answer(asked)
        ending = deque[Any]()
        for i, (name, state) in enumerate(states):
            slot = slots[i % len(slots)]
            with torch.cuda.device(self.device), torch.cuda.stream(slot.stream):
                slot.set_state(state)
                scores = _to_host(slot.score(asked))
                ending.append((name, scores, slot.stream.record_event()))
            if len(ending) > 2 * len(slots):
                name, scores, event = ending.popleft()
                event.synchronize()
                yield name, scores.numpy()
        for name, scores, event in ending:
            event.synchronize()
            yield name, scores.numpy()


class _Training:
    """A network to train on the CPU."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, slot: Slot, inputs: Tensor | None) -> Trained:
        with naming(self.job):
            slot.load(slot.prepare(self.job))
            while slot.done < slot.steps:
                slot.advance()
            scores = None if inputs is None else slot.score(inputs).numpy()
        return trained(self.job, slot.get_state(), scores, time.perf_counter() - slot.begun)


class _Scoring:
    """A trained network to ask on the CPU."""

    def __init__(self, name: Any, state: State) -> None:
        self.name, self.state = name, state

    def __call__(self, slot: Slot, inputs: Tensor) -> tuple[Any, NDArray[Any]]:
        slot.set_state(self.state)
        return self.name, slot.score(inputs).numpy()


class _Ending:
    """A network whose last step is on its way; the slot is free for the next one."""

    def __init__(self, slot: Any, inputs: Tensor | None) -> None:
        self.job, self.begun, self.unpacked = slot.job, slot.begun, slot.unpacked
        self.scores = None if inputs is None else _to_host(slot.score(inputs))
        self.state = slot.get_state()
        self.event = slot.stream.record_event()
        slot.job = None

    def is_there(self) -> bool:
        return bool(self.event.query())

    def trained(self) -> Trained:
        self.event.synchronize()
        scores = None if self.scores is None else self.scores.numpy().copy()
        return trained(self.job, self.unpacked(self.state), scores, time.perf_counter() - self.begun)


@contextmanager
def naming(job: Job) -> Iterator[None]:
    """Errors that say whose they are."""
    try:
        yield
    except (torch.cuda.OutOfMemoryError, MemoryError):
        raise MemberError(
            f"member {job.member} ran out of memory with {len(job.rows)} samples: use a smaller network or batch_size, "
            "or fewer in_flight"
        ) from None
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise MemberError(
            f"member {job.member} could not be trained on its {len(job.rows)} samples: {reason}"
        ) from error


def _to_host(scores: Tensor) -> Tensor:
    return torch.empty(scores.shape, dtype=scores.dtype, pin_memory=True).copy_(scores, non_blocking=True)


def trained(job: Job, state: State, scores: NDArray[Any] | None, seconds: float) -> Trained:
    """Once a loss is no number, the weights are none either, and stay so."""
    broken = next((name for name, value in state.items() if not torch.isfinite(value).all()), None)
    refused = None if broken is None else f"its loss became infinite or no number (seen in {broken!r} after training)"
    return Trained(job.member, job.seed, state, scores, None, refused, seconds)


def _ahead(pool: ThreadPoolExecutor, work: Any, tasks: Iterable[Any], ahead: int) -> Generator[Any]:
    """Results in order, with a few made in the background before they are asked for."""
    pending = deque[Future[Any]]()
    try:
        for task in tasks:
            pending.append(pool.submit(work, task))
            if len(pending) > ahead:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def _as_done(pool: ThreadPoolExecutor, work: Any, tasks: Iterable[Any], ahead: int) -> Iterator[Any]:
    """Results as they come, with a bounded number of tasks waiting. What is done is given before an error is raised."""
    pending: set[Future[Any]] = set()
    waiting = iter(tasks)
    while True:
        for task in waiting:
            pending.add(pool.submit(work, task))
            if len(pending) >= ahead:
                break
        if not pending:
            return
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        failed = [future for future in done if future.exception() is not None]
        yield from (future.result() for future in done if future not in failed)
        for future in failed:
            future.result()
