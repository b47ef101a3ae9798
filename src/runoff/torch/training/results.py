"""Results of training: a finished network, one that cannot be used, or an error that names its member."""

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

from runoff.errors import MemberError
from runoff.torch.building import State
from runoff.torch.training.jobs import Job


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished network, with its scores for the inputs that `train` was given."""

    member: int
    seed: int
    state: State = field(repr=False)  # on the host
    scores: NDArray[np.float32] | None = field(default=None, repr=False)
    inputs: str | None = None  # a digest of those inputs
    refused: str | None = None  # why it cannot be used
    seconds: float = 0.0


def trained(job: Job, state: State, scores: NDArray[Any] | None, seconds: float) -> Trained:
    """Once a loss is no number, the weights are none either, and stay so."""
    broken = next((name for name, value in state.items() if not _sane(value)), None)
    refused = None if broken is None else f"its loss became infinite or no number (seen in {broken!r} after training)"
    return Trained(job.member, job.seed, state, scores, None, refused, seconds)


def _sane(value: Tensor) -> bool:
    """No NaN, and not all infinite: masks may hold infinities, weights become NaN a step after they become infinite."""
    return not bool(torch.isnan(value).any()) and (not value.numel() or bool(torch.isfinite(value).any()))


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


class Ending:
    """A network whose last step is on its way; the slot is free for the next one."""

    def __init__(self, slot: Any, inputs: Tensor | None) -> None:
        self.job, self.begun, self.unpacked = slot.job, slot.begun, slot.unpacked
        self.scores = None if inputs is None else to_host(slot.score(inputs))
        self.state = slot.get_state()
        self.event = slot.stream.record_event()
        slot.job = None

    def is_there(self) -> bool:
        """Whether the device has come so far."""
        return bool(self.event.query())

    def trained(self) -> Trained:
        """The network, waited for."""
        self.event.synchronize()
        scores = None if self.scores is None else self.scores.numpy().copy()
        return trained(self.job, self.unpacked(self.state), scores, time.perf_counter() - self.begun)


def to_host(scores: Tensor) -> Tensor:
    """A copy in pinned memory, there once the stream has come so far."""
    return torch.empty(scores.shape, dtype=scores.dtype, pin_memory=True).copy_(scores, non_blocking=True)
