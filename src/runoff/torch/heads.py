"""Heads on the features of an encoder, as networks of one layer that are trained in closed form."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from runoff import heads
from runoff._io.sources import code_digest
from runoff.encoders import Encoder
from runoff.errors import InputError
from runoff.isolation import one_thread
from runoff.torch import devices
from runoff.torch.building import State
from runoff.torch.networks import Shape
from runoff.torch.training.jobs import Job, array_digest
from runoff.torch.training.results import Trained
from runoff.torch.training.trainer import Trainer

NETWORK = "ridge"  # in settings and manifests
PACKAGE = Path(__file__).parent.parent
COMPUTING = tuple(PACKAGE / name for name in ("encoders.py", "heads.py", "torch/heads.py"))


class HeadTrainer(Trainer):
    """A trainer of ridge heads on the features of an encoder, with the interface of `Trainer`.

    A head depends only on its samples and on the encoder, bit for bit. Its ridge penalty is also chosen on its samples,
    so the choice is covered by the guarantee.

    Parameters
    ----------
    encoder : the encoder, which must not depend on any training sample
    shape : the shape of one sample
    n_classes : the number of scores per input
    device : the device of the encoder. Heads are trained on the CPU
    in_flight : heads at a time. Default: the number of cores
    progress : show progress on stderr. Default: if warnings are enabled

    """

    def __init__(
        self,
        encoder: Encoder,
        shape: tuple[int, ...],
        n_classes: int,
        *,
        device: str | torch.device | None = None,
        in_flight: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.encoder, self.shape, self.n_classes, self.progress = encoder, shape, n_classes, progress
        self.device = devices.find(device)
        self.precision = str(encoder.settings.get("precision", "fp32"))
        self.network, self.in_flight = linear, in_flight
        self._last: tuple[str, NDArray[np.float32]] | None = None

    def identity(self) -> list[Any]:
        """Return all that heads depend on besides their samples."""
        return [NETWORK, self.encoder.identity, list(self.shape), self.n_classes, list(heads.STRENGTHS), _code()]

    def guess(self, n_samples: int, inputs: NDArray[Any]) -> float:
        """Return the estimated seconds to encode training samples and inputs, if nothing is cached."""
        encoder, block = self.encoder, inputs[: self.encoder.batch]
        encoder.uncached(block)  # warms up
        started = time.perf_counter()
        encoder.uncached(block)
        return (time.perf_counter() - started) * (n_samples + len(inputs)) / encoder.batch / encoder.workers

    def train(self, jobs: Sequence[Job], inputs: NDArray[Any] | None = None) -> Iterator[Trained]:
        """Train heads and yield each when it is finished, with its scores for `inputs` if given."""
        if not jobs:
            return
        digest = None if inputs is None else array_digest(inputs)
        needed = np.unique(np.concatenate([job.rows for job in jobs]))
        features = self.encoder.features(jobs[0].samples[needed], show=self.progress)
        encoded = None if inputs is None else self._encoded(inputs)

        def trained(job: Job) -> Trained:
            started = time.perf_counter()
            try:
                ridge = heads.fit_head(features[np.searchsorted(needed, job.rows)], job.labels, self.n_classes)
            except InputError as error:  # depends on the samples of the member only
                return Trained(job.member, job.seed, {}, None, digest, str(error), time.perf_counter() - started)
            state = {
                "weight": torch.from_numpy(np.ascontiguousarray(ridge.coef.T)),
                "bias": torch.from_numpy(ridge.intercept),
                "strength": torch.tensor(ridge.strength, dtype=torch.float64),
            }
            scores = None if encoded is None else _scores(state, encoded)
            return Trained(job.member, job.seed, state, scores, digest, None, time.perf_counter() - started)

        with one_thread(), ThreadPoolExecutor(self.workers()) as pool:
            yield from pool.map(trained, jobs)

    def score(self, states: Iterable[tuple[Any, State]], inputs: NDArray[Any]) -> Iterator[tuple[Any, NDArray[Any]]]:
        """Yield the name and the scores, (n_inputs, n_classes), of each trained head."""
        encoded = self._encoded(inputs)
        with one_thread(), ThreadPoolExecutor(self.workers()) as pool:
            yield from pool.map(lambda named: (named[0], _scores(named[1], encoded)), states)

    def _encoded(self, inputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the features of inputs, and keep those of the last call, since many heads score the same inputs."""
        digest = array_digest(inputs)
        if self._last is None or self._last[0] != digest:
            self._last = digest, self.encoder.features(inputs, show=self.progress)
        return self._last[1]


def linear(shape: Shape, n_classes: int) -> nn.Module:
    """Return a head as a module."""
    return nn.Linear(shape[0], n_classes)


def _scores(state: State, features: NDArray[np.float32]) -> NDArray[np.float32]:
    coef, intercept = np.ascontiguousarray(state["weight"].numpy().T), state["bias"].numpy()
    if features.shape[1] != len(coef):
        raise InputError(f"the encoder must return {len(coef)} features as in training, got {features.shape[1]}")
    return heads.linear_scores(features, coef[None], intercept[None])[:, 0]


@cache
def _code() -> str:
    return code_digest([*COMPUTING])
