"""Results of training: networks that are finished or cannot be used, and errors that name their member."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runoff._io.text import one_line
from runoff.errors import MemberError, RunoffError
from runoff.isolation import is_environment
from runoff.torch.building import State
from runoff.torch.training.jobs import Job


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished network, with its scores for the inputs passed to `Trainer.train`."""

    member: int
    seed: int
    state: State = field(repr=False)  # on the host
    scores: NDArray[np.float32] | None = field(default=None, repr=False)
    inputs: str | None = None  # digest of these inputs
    refused: str | None = None  # the reason why it cannot be used, if any
    seconds: float = 0.0


def checked_result(job: Job, state: State, scores: NDArray[Any] | None, seconds: float) -> Trained:
    """Return a finished network, marked as refused if its weights are NaN, as they are after any NaN loss."""
    broken = next((name for name, value in state.items() if not _is_sound(value)), None)
    refused = None if broken is None else f"its loss became infinite or NaN (seen in {broken!r} after training)"
    return Trained(job.member, job.seed, state, scores, None, refused, seconds)


def is_due_to_samples(error: Exception) -> bool:
    """Return whether an error of a network's own code may be due to samples, which an attacker may have chosen."""
    return not isinstance(error, RunoffError) and not is_environment(error)


def failed_result(job: Job, error: Exception) -> Trained:
    """Return a network whose own code raised an error, marked as refused; raise errors that samples cannot cause."""
    if not is_due_to_samples(error):
        with errors_naming(job):
            raise error
    return Trained(job.member, job.seed, {}, None, None, f"{type(error).__name__}: {one_line(error)}")


def _is_sound(value: Tensor) -> bool:
    """Return whether a tensor has no NaN and is not all infinite.

    Masks may hold infinities; weights become NaN one step after they become infinite.
    """
    return not bool(torch.isnan(value).any()) and (not value.numel() or bool(torch.isfinite(value).any()))


@contextmanager
def errors_naming(job: Job) -> Iterator[None]:
    """Raise errors as `MemberError` with the number of the member."""
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


class PendingResult:
    """A network whose last step is queued on a GPU; its slot is free for the next network."""

    def __init__(self, slot: Any, inputs: Tensor | None) -> None:
        self.job, self.started, self.unpacked = slot.job, slot.started, slot.unpacked
        self.scores = None if inputs is None else to_host(slot.score(inputs))
        self.state = slot.get_state()
        self.event = slot.stream.record_event()
        slot.job = None

    def is_ready(self) -> bool:
        """Return whether the device has finished."""
        return bool(self.event.query())

    def wait(self) -> Trained:
        """Wait for the device and return the network."""
        self.event.synchronize()
        scores = None if self.scores is None else self.scores.numpy().copy()
        return checked_result(self.job, self.unpacked(self.state), scores, time.perf_counter() - self.started)


class FailedResult:
    """A network whose own code raised an error in training; its slot is free for the next network."""

    def __init__(self, slot: Any, error: Exception) -> None:
        self.result = failed_result(slot.job, error)
        slot.job = None

    def is_ready(self) -> bool:
        """Return True."""
        return True

    def wait(self) -> Trained:
        """Return the network."""
        return self.result


def to_host(scores: Tensor) -> Tensor:
    """Return a copy in pinned memory, complete when the stream has finished its queued work."""
    return torch.empty(scores.shape, dtype=scores.dtype, pin_memory=True).copy_(scores, non_blocking=True)
