"""Carried scores: the sum over the networks of each member, in a file that is small enough to copy between machines.

A row of the paper needs up to thousands of networks, whose scores take gigabytes. Its ballots only need the mean score
of each member. The mean is stored in half precision, with the seeds that it covers: k x inputs x classes x 2 bytes,
which is 10 MB for CIFAR-10 with k = 50. On any machine with the file, training resumes with the remaining seeds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runoff._io.files import written_whole
from runoff.ballots import points
from runoff.datasets import npz
from runoff.errors import RunError, StorageError
from runoff.torch.checkpoints import decoded
from runoff.torch.pipeline import class_shares, member_scores
from runoff.torch.training.jobs import array_digest

if TYPE_CHECKING:
    from runoff.runs import Settings
    from runoff.runs.work import Work
    from runoff.torch import Job
    from runoff.torch.training.results import Trained

FORMAT = "runoff carried scores 1"
INTERVAL = 60.0  # seconds between writes, the maximum that an interruption loses
MOST = float(np.finfo(np.float16).max)


class Passing:
    """A store that passes finished networks on without keeping them."""

    weights, half, arriving = False, False, None

    def has(self, job: Job, identity: str, inputs: str | None) -> bool:  # noqa: ARG002
        """Return False, since no network is stored."""
        return False

    def get(self, job: Job, identity: str, inputs: str | None) -> Trained | None:  # noqa: ARG002
        """Return None, since no network is stored."""
        return None

    def put(self, trained: Trained, identity: str) -> Trained:  # noqa: ARG002
        """Return the network."""
        return trained

    def accept(self, job: Job, data: bytes, identity: str) -> Trained:
        """Return a network that another process trained, from the content of its file."""
        return decoded(job, data, identity)

    def keep_only(self, identities: set[str]) -> None:
        """Do nothing, since no network is stored."""


class Carried:
    """The summed scores of the networks of each member, and the seeds that they cover.

    Attributes
    ----------
    seeds : (n_members, n_seeds), whether a network was trained
    used : (n_members,), the number of networks in the sum, which excludes those that cannot be used
    sums : (n_members, n_inputs, n_classes)
    seconds : the training time on all machines
    trained_with : the device and versions of the networks, one entry per kind of machine and version

    """

    def __init__(self, path: Path, about: dict[str, Any], shape: tuple[int, int, int]) -> None:
        self.path, self.about = path, about
        self.sums = np.zeros(shape, np.float32)
        self.seeds = np.zeros((shape[0], 0), bool)
        self.used = np.zeros(shape[0], np.int64)
        self.seconds = 0.0
        self.trained_with: list[dict[str, str]] = []

    @classmethod
    def open(cls, path: Path, settings: Settings, work: Work) -> Carried:
        """Return the carried scores of a run, empty if there is no file; scores of another run are an error."""
        shape = len(work.rows), len(work.inputs), work.n_classes
        about = {"format": FORMAT, "settings": settings.to_dict(), "inputs": array_digest(work.inputs)}
        carried = cls(path, json.loads(json.dumps(about)), shape)
        if path.exists():
            carried._read()
        return carried

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the networks that are not in the sums."""
        n_seeds = self.seeds.shape[1]
        return [job for job in jobs if job.seed >= n_seeds or not self.seeds[job.key]]

    def add(self, trained: Trained) -> None:
        """Add the scores of a network to the sum of its member."""
        m, s = trained.member, trained.seed
        if s >= self.seeds.shape[1]:
            self.seeds = np.pad(self.seeds, ((0, 0), (0, s + 1 - self.seeds.shape[1])))
        if self.seeds[m, s]:
            raise RunError(f"network {s} of member {m} is already in {self.path}")
        self.seeds[m, s] = True
        if trained.refused is None and trained.scores is not None:
            self.sums[m] += trained.scores
            self.used[m] += 1

    def ballots(self, work: Work, n_seeds: int) -> NDArray[Any]:
        """Return the ballots of the members, (n_inputs, n_members, n_classes), from `n_seeds` networks per member."""
        if self.seeds[:, n_seeds:].any():
            raise RunError(
                f"{self.path} contains sums over {self.seeds.shape[1]} networks per member, from which those of "
                f"{n_seeds} cannot be extracted: give another folder with --carry"
            )
        if missing := self.missing(work.pipeline.jobs):
            member, seed = missing[0].key
            raise RunError(f"{self.path} has no network of member {member} with seed {seed}: continue training")
        ranked = []
        for m, rows in enumerate(work.rows):
            shares = class_shares(work.labels[rows], work.n_classes)
            mean = [self.sums[m] / np.float32(self.used[m])] if self.used[m] else []
            ranked.append(points(member_scores(mean, shares, len(work.inputs))))
        return np.stack(ranked, axis=1)

    def write(self) -> None:
        """Write the file atomically, with means in half precision for members that have networks."""
        some = np.flatnonzero(self.used)
        means = np.clip(self.sums[some] / self.used[some, None, None], -MOST, MOST)
        arrays: dict[str, Any] = {
            "about": np.array(
                json.dumps(self.about | {"seconds": self.seconds, "trained_with": self.trained_with}),
            ),
            "members": some,
            "means": means.astype(np.float16),
            "seeds": self.seeds,
            "used": self.used,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(self.path, binary=True) as file:
            np.savez(file, **arrays)

    def _read(self) -> None:
        n_members, n_inputs, n_classes = self.sums.shape
        try:
            arrays = npz.read(self.path, ("about", "members", "means", "seeds", "used"))
            about = json.loads(str(arrays["about"]))
            some, means, seeds, used = (arrays[name] for name in ("members", "means", "seeds", "used"))
            seconds, trained_with = float(about.pop("seconds")), list(about.pop("trained_with"))
            fits = (
                means.dtype == np.float16
                and means.shape == (len(some), n_inputs, n_classes)
                and seeds.dtype == bool
                and seeds.shape[:1] == used.shape == (n_members,)
                and np.array_equal(some, np.flatnonzero(used))
                and bool((used <= seeds.sum(axis=1)).all() and (used >= 0).all())
            )
        except Exception as error:
            reason = " ".join(str(error).split())[:200]
            raise StorageError(f"{self.path} cannot be read ({type(error).__name__}: {reason}): remove it") from None
        if about != self.about:
            differs = next((name for name in self.about if about.get(name) != self.about[name]), "its content")
            raise RunError(f"{self.path} is of another run, whose {differs} differ: give another folder with --carry")
        if not fits:
            raise StorageError(f"{self.path} was altered or damaged: remove it")
        self.seeds, self.used, self.seconds, self.trained_with = seeds, used, seconds, trained_with
        self.sums[some] = means.astype(np.float32) * used[some, None, None].astype(np.float32)


def count(path: Path) -> int:
    """Return the number of networks in a file of carried scores, or 0 if there is none."""
    if not path.exists():
        return 0
    try:
        return int(npz.read(path, ["seeds"])["seeds"].sum())
    except Exception as error:
        raise StorageError(f"{path} cannot be read ({type(error).__name__}): remove it") from None


def train(carried: Carried, work: Work) -> None:
    """Train the missing networks, and write the file periodically, at the end, and if training fails."""
    missing = carried.missing(work.pipeline.jobs)
    if not missing:
        return
    pipeline = replace(work.pipeline, store=Passing(), missing=missing)
    if pipeline.trained_with not in carried.trained_with:
        carried.trained_with.append(dict(pipeline.trained_with))
    written = time.perf_counter()
    before = written
    try:
        for trained in pipeline.train():
            carried.add(trained)
            now = time.perf_counter()
            carried.seconds, before = carried.seconds + now - before, now
            if now - written > INTERVAL:
                carried.write()
                written = time.perf_counter()
    finally:
        carried.write()
