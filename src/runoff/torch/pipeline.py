"""Pipeline for the networks of an ensemble: jobs, a store of finished networks, and training of the missing ones.

`TorchClassifier` and runs train through this module. They differ in their store: memory, a folder of checkpoints, or
the members of a run.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from runoff._io.progress import with_progress
from runoff.errors import CheckpointError
from runoff.executors import Executor, Local, Watch
from runoff.executors.base import Kind
from runoff.executors.storage import Storage
from runoff.isolation import seeds_of
from runoff.samples import Rows
from runoff.torch.checkpoints import decoded
from runoff.torch.identities import Identities
from runoff.torch.training.jobs import Job, array_digest
from runoff.torch.training.results import Trained
from runoff.torch.workload import Key, Networks, TrainerSettings


class Store(Protocol):
    """Interface to a store of finished networks, from which interrupted training resumes.

    `weights` and `half` say whether files have weights, and scores in half precision. Other processes write networks to
    `arriving`.
    """

    @property
    def weights(self) -> bool: ...  # noqa: D102

    @property
    def half(self) -> bool: ...  # noqa: D102

    @property
    def arriving(self) -> str | None: ...  # noqa: D102

    def has(self, job: Job, identity: str, inputs: str | None) -> bool:
        """Return whether the network is stored; with `inputs`, whether its scores for these inputs are, too."""

    def get(self, job: Job, identity: str, inputs: str | None) -> Trained | None:
        """Return the network if it is stored, and its scores if they are for these inputs."""

    def put(self, trained: Trained, identity: str) -> Trained:
        """Store a network, and return it as `get` would."""

    def accept(self, job: Job, data: bytes, identity: str) -> Trained:
        """Store a network that another process trained, from the content of its file, and return it."""

    def keep_only(self, identities: set[str]) -> None:
        """Delete networks of other identities, unless the store is shared."""


class MemoryStore:
    """A store in memory, which keeps finished networks after an error in another member."""

    weights, half, arriving = True, False, None

    def __init__(self) -> None:
        self._networks: dict[str, Trained] = {}

    def has(self, job: Job, identity: str, inputs: str | None) -> bool:  # noqa: ARG002
        """Return whether the network is stored; with `inputs`, whether its scores for these inputs are, too."""
        kept = self._networks.get(identity)
        return kept is not None and inputs in (None, kept.inputs)

    def get(self, job: Job, identity: str, inputs: str | None) -> Trained | None:  # noqa: ARG002
        """Return the network if it is stored, and its scores if they are for these inputs."""
        kept = self._networks.get(identity)
        return kept if kept is None or kept.inputs == inputs else replace(kept, scores=None)

    def put(self, trained: Trained, identity: str) -> Trained:
        """Store a network."""
        self._networks[identity] = trained
        return trained

    def accept(self, job: Job, data: bytes, identity: str) -> Trained:
        """Store a network that another process trained, from the content of its file, and return it."""
        return self.put(decoded(job, data, identity), identity)

    def keep_only(self, identities: set[str]) -> None:
        """Delete networks of other identities."""
        self._networks = {name: kept for name, kept in self._networks.items() if name in identities}


def network_jobs(
    samples: NDArray[Any],
    codes: NDArray[np.int64],
    rows: Sequence[Rows] | Mapping[int, Rows],
    members: Iterable[int],
    seed: Any,
    n_seeds: int,
) -> list[Job]:
    """Return the jobs of these members: `n_seeds` for each whose samples have at least two classes."""
    return [
        Job(m, s, source, samples, rows[m], codes[rows[m]])
        for m in members
        if len(np.unique(codes[rows[m]])) > 1
        for s, source in enumerate(seeds_of(seed, m, n_seeds))
    ]


def class_shares(codes: NDArray[np.int64], n_classes: int) -> NDArray[np.float64]:
    """Return the share of each class among the samples of a member, its scores if it has no networks."""
    shares: NDArray[np.float64] = np.bincount(codes, minlength=n_classes) / max(1, len(codes))
    return shares


def member_scores(
    scores: Sequence[NDArray[np.float32]], shares: NDArray[np.float64], n_inputs: int
) -> NDArray[np.float32]:
    """Return the scores of a member: the mean over its networks, or its class shares where the mean is not finite."""
    if not scores:
        return np.tile(shares.astype(np.float32), (n_inputs, 1))
    with np.errstate(all="ignore"):
        mean: NDArray[np.float32] = np.mean([part.astype(np.float64) for part in scores], axis=0).astype(np.float32)
    mean[~np.isfinite(mean).all(axis=1)] = shares
    return mean


@dataclass(frozen=True, eq=False)
class Pipeline:
    """The networks that an ensemble needs, and those that are missing from its store.

    `inputs` are scored when each network finishes. `trained_with` records the facts that networks depend on besides
    samples and settings: device, precision, versions and code.
    """

    settings: TrainerSettings
    store: Store
    jobs: list[Job]
    missing: list[Job]
    identities: dict[Key, str]
    inputs: NDArray[Any] | None
    trained_with: dict[str, str]
    executor: Executor
    kinds: tuple[Kind, ...]

    @classmethod
    def plan(
        cls,
        settings: TrainerSettings,
        store: Store,
        jobs: list[Job],
        inputs: NDArray[Any] | None,
        *,
        need_scores: bool = False,
        executor: Executor | None = None,
    ) -> Pipeline:
        """Return a plan; with `need_scores`, networks stored without scores for `inputs` count as missing."""
        executor = Local() if executor is None else executor
        kinds = executor.kinds(settings.kind)
        identified = [Identities(settings, kind) for kind in kinds]
        identities = {job.key: identified[job.member % len(kinds)].identity(job) for job in jobs}
        digest = array_digest(inputs) if need_scores and inputs is not None else None
        missing = [job for job in jobs if not store.has(job, identities[job.key], digest)]
        trained_with = _joined([of_kind.trained_with for of_kind in identified])
        return cls(settings, store, jobs, missing, identities, inputs, trained_with, executor, kinds)

    def work(self, jobs: Iterable[Job] | None = None) -> Networks:
        """Return the work of training these networks, by default the missing ones, for the executor."""
        wanted = {job.key: job for job in (self.missing if jobs is None else jobs)}
        identities = {key: self.identities[key] for key in wanted}
        store, kinds = self.store, () if self.executor.here else self.kinds
        return Networks(self.settings, wanted, self.inputs, identities, store.weights, store.half, kinds)

    def train(self, show: bool | None = None) -> Generator[Trained]:
        """Train the missing networks, and yield each when it is stored."""
        done, watch = len(self.jobs) - len(self.missing), Watch(show)
        with closing(self._results(watch)) as results:
            what = f"training {self.settings.what}"
            yield from with_progress(results, what, len(self.missing), done=done, show=show, note=watch.note)

    def _results(self, watch: Watch) -> Generator[Trained]:
        """Collect the networks that other processes have finished, then train the rest."""
        work, storage = self.work(), self.executor.storage_for(self.store.arriving)
        left, finished = dict(work.jobs), [] if storage is None else storage.existing()
        inputs = None if self.inputs is None else array_digest(self.inputs)
        by_address = {work.address(key): key for key in left} if finished else {}
        for address, digest in finished:  # finished before an interruption
            key = by_address.get(address)
            if key in left and storage is not None and (data := storage.get(address, digest)) is not None:
                try:
                    network = self._accepted(left[key], data, inputs)
                except CheckpointError:  # whole, but not a network
                    storage.remove(address, digest)
                    continue
                del left[key]
                watch.nodes["earlier"] += 1
                yield network
        if left:
            with closing(self.executor.results(work, list(left), storage, watch)) as results:
                for key, result in results:
                    if isinstance(result, bytes):
                        yield self._accepted(left[key], result, inputs)
                    else:
                        yield self.store.put(result, self.identities[key])
        if storage is not None:
            self._clear(storage)

    def _accepted(self, job: Job, data: bytes, inputs: str | None) -> Trained:
        """Store a network that another process trained, if it scored these inputs."""
        network = self.store.accept(job, data, self.identities[job.key])
        if network.inputs != inputs:
            raise CheckpointError(f"the result of member {job.member} has the scores of other inputs: retrain it")
        return network

    def _clear(self, storage: Storage) -> None:
        """Remove collected results from the storage, at the end, so that an interruption loses nothing."""
        if collected := storage.existing():
            work = self.work(self.jobs)
            addresses = {work.address(key) for key in work.jobs}
            storage.remove_all((address, digest) for address, digest in collected if address in addresses)
        storage.close()

    def kept(self) -> Iterator[Trained]:
        """Yield the networks that were stored before training."""
        digest = None if self.inputs is None else array_digest(self.inputs)
        missing = {job.key for job in self.missing}
        for job in self.jobs:
            if job.key not in missing:
                network = self.store.get(job, self.identities[job.key], digest)
                if network is not None:
                    yield network


def _joined(kinds: list[dict[str, str]]) -> dict[str, str]:
    """Return a description of several kinds of machine, in the order in which members are assigned to them."""
    return {
        name: value if all(kind[name] == value for kind in kinds) else " | ".join(kind[name] for kind in kinds)
        for name, value in kinds[0].items()
    }
