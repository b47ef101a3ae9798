"""Carried scores: what a row of the paper needs of its networks, in files that are small enough to copy elsewhere.

A row needs up to thousands of networks, whose scores take gigabytes. Of DPA*, its ballots only need the mean score of
each member over its networks, which is stored in half precision: k x inputs x classes x 2 bytes, 10 MB for CIFAR-10
with k = 50. The mean is rounded after every network, and networks are added in the order of their seeds, so it is the
same wherever training was interrupted. Of FA, with one network per member, ballots are stored. Runs with many members
have several files, of at most `SIZE` bytes.
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
from runoff._io.text import one_line
from runoff.ballots import points, points_dtype
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

FORMAT = "runoff carried scores 2"
SIZE = 12 * 10**6  # bytes of scores or ballots per file, before compression
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


class Piece:
    """Consecutive members of a run, whose scores or ballots are in one file.

    Attributes
    ----------
    seeds : (n_members, n_seeds), whether a network was trained
    used : (n_members,), the number of networks in the mean, which excludes those that cannot be used
    values : (n_members, n_inputs, n_classes), means of scores, or ballots
    seconds : the training time on all machines
    trained_with : the device and versions of the networks, one entry per kind of machine and version

    """

    def __init__(self, path: Path, about: dict[str, Any], values: NDArray[Any]) -> None:
        self.path, self.about, self.values = path, about, values
        self.seeds = np.zeros((len(values), 0), bool)
        self.used = np.zeros(len(values), np.int64)
        self.seconds = 0.0
        self.trained_with: list[dict[str, str]] = []
        self.changed = False

    def has(self, m: int, seed: int) -> bool:
        """Return whether a network is included."""
        return seed < self.seeds.shape[1] and bool(self.seeds[m, seed])

    def add(self, m: int, seed: int, scores: NDArray[np.float32] | None, shares: NDArray[np.float64]) -> None:
        """Add the scores of a network, or None if it cannot be used."""
        if seed >= self.seeds.shape[1]:
            self.seeds = np.pad(self.seeds, ((0, 0), (0, seed + 1 - self.seeds.shape[1])))
        self.seeds[m, seed] = self.changed = True
        if scores is None:
            return
        n = int(self.used[m])
        if self.values.dtype != np.float16:
            if n:
                raise RunError(f"{self.path} holds ballots, to which no second network can be added")
            self.values[m] = points(member_scores([scores], shares, len(scores)))
        else:
            with np.errstate(invalid="ignore"):
                mean = (self.values[m].astype(np.float64) * n + scores) / (n + 1)
                self.values[m] = np.where(np.isfinite(mean), np.clip(mean, -MOST, MOST), np.nan)
        self.used[m] = n + 1

    def ranked(self, m: int, shares: NDArray[np.float64]) -> NDArray[Any]:
        """Return the ballots of a member, (n_inputs, n_classes)."""
        if self.values.dtype != np.float16 and self.used[m]:
            stored: NDArray[Any] = self.values[m]
            return stored
        mean = [self.values[m].astype(np.float32)] if self.used[m] else []
        return points(member_scores(mean, shares, self.values.shape[1]))

    def write(self) -> None:
        """Write the file atomically, with the values of members that have networks."""
        some = np.flatnonzero(self.used)
        about = self.about | {"seconds": self.seconds, "trained_with": self.trained_with}
        arrays: dict[str, Any] = {
            "about": np.array(json.dumps(about)),
            "members": some,
            "values": self.values[some],
            "seeds": self.seeds,
            "used": self.used,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with written_whole(self.path, binary=True) as file:
            np.savez_compressed(file, **arrays)
        self.changed = False

    def read(self) -> None:
        """Read the file."""
        try:
            arrays = npz.read(self.path, ("about", "members", "values", "seeds", "used"))
            about = json.loads(str(arrays["about"]))
            some, values, seeds, used = (arrays[name] for name in ("members", "values", "seeds", "used"))
            seconds, trained_with = float(about.pop("seconds")), list(about.pop("trained_with"))
            fits = (
                some.dtype.kind == "i"  # a mask or floats can equal the numbers of members, but select others
                and used.dtype == self.used.dtype
                and values.dtype == self.values.dtype
                and values.shape == (len(some), *self.values.shape[1:])
                and seeds.dtype == bool
                and seeds.shape[:1] == used.shape == self.used.shape
                and np.array_equal(some, np.flatnonzero(used))
                and bool((used <= seeds.sum(axis=1)).all() and (used >= 0).all())
                and self._valid(values)
                and 0 <= seconds < float("inf")
                and all(isinstance(kind["device"], str) for kind in trained_with)
            )
        except Exception as error:
            reason = f"{type(error).__name__}: {one_line(error)}"
            raise StorageError(f"{self.path} cannot be read ({reason}): remove it") from None
        if about != self.about:
            differs = next((name for name in self.about if about.get(name) != self.about[name]), "its content")
            raise RunError(f"{self.path} is of another run, whose {differs} differ: give another folder with --carry")
        if not fits:
            raise StorageError(f"{self.path} was altered or damaged: remove it")
        self.seeds, self.used, self.seconds, self.trained_with = seeds, used, seconds, trained_with
        self.values[some] = values

    def _valid(self, values: NDArray[Any]) -> bool:
        """Return whether means are not infinite (NaN stands for no mean), or ballots are permutations."""
        if values.dtype == np.float16:
            return not np.isinf(values).any()
        return all(bool((np.sort(one, axis=1) == np.arange(one.shape[1])).all()) for one in values)


class Carried:
    """The carried scores of a run, in one or more files."""

    def __init__(self, path: Path, settings: Settings, work: Work) -> None:
        n_members, n_inputs, n_classes = len(work.rows), len(work.inputs), work.n_classes
        kind = np.dtype(np.float16) if settings.spread == 1 else points_dtype(n_classes)
        self.path, self._work = path, work
        self.each = max(1, SIZE // max(1, kind.itemsize * n_inputs * n_classes))  # members per file
        self.pieces = []
        n_pieces = -(-n_members // self.each)
        about = {"format": FORMAT, "settings": settings.to_dict(), "inputs": array_digest(work.inputs)}
        about = json.loads(json.dumps(about))
        for number in range(n_pieces):
            n = min(self.each, n_members - number * self.each)
            file = path if n_pieces == 1 else path.with_name(f"{path.stem}.{number + 1}of{n_pieces}.npz")
            self.pieces.append(Piece(file, about | {"piece": number}, np.zeros((n, n_inputs, n_classes), kind)))
        self._waiting: dict[tuple[int, int], NDArray[np.float32] | None] = {}

    @classmethod
    def open(cls, path: Path, settings: Settings, work: Work) -> Carried:
        """Return the carried scores of a run, empty if there are no files; scores of another run are an error."""
        carried = cls(path, settings, work)
        for piece in carried.pieces:
            if piece.path.exists():
                piece.read()
        return carried

    @property
    def n_networks(self) -> int:
        """Number of networks that are included."""
        return sum(int(piece.seeds.sum()) for piece in self.pieces)

    @property
    def seconds(self) -> float:
        """Training time on all machines."""
        return sum(piece.seconds for piece in self.pieces)

    @property
    def trained_with(self) -> list[dict[str, str]]:
        """The device and versions of the networks, one entry per kind of machine and version."""
        every = [kind for piece in self.pieces for kind in piece.trained_with]
        return [kind for i, kind in enumerate(every) if kind not in every[:i]]

    def piece_of(self, member: int) -> tuple[Piece, int]:
        """Return the piece of a member, and the place of the member in it."""
        return self.pieces[member // self.each], member % self.each

    def missing(self, jobs: Iterable[Job]) -> list[Job]:
        """Return the networks that are not included."""
        missing = []
        for job in jobs:
            piece, m = self.piece_of(job.member)
            if not piece.has(m, job.seed):
                missing.append(job)
        return missing

    def add(self, trained: Trained) -> None:
        """Add the scores of a network; those that finish before an earlier seed of their member wait for it."""
        piece, m = self.piece_of(trained.member)
        if piece.has(m, trained.seed) or (trained.member, trained.seed) in self._waiting:
            raise RunError(f"network {trained.seed} of member {trained.member} is already in {piece.path}")
        usable = trained.refused is None and trained.scores is not None
        self._waiting[trained.member, trained.seed] = trained.scores if usable else None
        seed = 0
        while piece.has(m, seed) or (trained.member, seed) in self._waiting:
            if not piece.has(m, seed):
                scores = self._waiting.pop((trained.member, seed))
                piece.add(m, seed, scores, self._shares(trained.member))
            seed += 1

    def ballots(self, n_seeds: int) -> NDArray[Any]:
        """Return the ballots of the members, (n_inputs, n_members, n_classes), from `n_seeds` networks per member."""
        for piece in self.pieces:
            if piece.seeds[:, n_seeds:].any():
                raise RunError(
                    f"{piece.path} contains means over {piece.seeds.shape[1]} networks per member, from which those of "
                    f"{n_seeds} cannot be extracted: give another folder with --carry"
                )
        if missing := self.missing(self._work.pipeline.jobs):
            member, seed = missing[0].key
            raise RunError(f"{self.path} has no network of member {member} with seed {seed}: continue training")
        places = [self.piece_of(member) for member in range(len(self._work.rows))]
        return np.stack([piece.ranked(m, self._shares(i)) for i, (piece, m) in enumerate(places)], axis=1)

    def write(self) -> None:
        """Write the files whose members have new networks."""
        for piece in self.pieces:
            if piece.changed:
                piece.write()

    def _shares(self, member: int) -> NDArray[np.float64]:
        return class_shares(self._work.labels[self._work.rows[member]], self._work.n_classes)


def count(path: Path) -> int:
    """Return the number of networks in the files of carried scores, or 0 if there are none."""
    total = 0
    for file in [path, *sorted(path.parent.glob(f"{path.stem}.*of*.npz"))]:
        if file.exists():
            try:
                total += int(npz.read(file, ["seeds"])["seeds"].sum())
            except Exception as error:
                raise StorageError(f"{file} cannot be read ({type(error).__name__}): remove it") from None
    return total


def train(carried: Carried, work: Work) -> None:
    """Train the missing networks, and write files periodically, at the end, and if training fails."""
    missing = carried.missing(work.pipeline.jobs)
    if not missing:
        return
    pipeline = replace(work.pipeline, store=Passing(), missing=missing)
    written = time.perf_counter()
    before = written
    try:
        for trained in pipeline.train():
            carried.add(trained)
            now = time.perf_counter()
            piece, _ = carried.piece_of(trained.member)
            piece.seconds, before = piece.seconds + now - before, now
            if pipeline.trained_with not in piece.trained_with:
                piece.trained_with.append(dict(pipeline.trained_with))
            if now - written > INTERVAL:
                carried.write()
                written = time.perf_counter()
    finally:
        carried.write()
