"""Runs: a trained ensemble as a directory that survives crashes and is never mixed up with another.

| file | |
| --- | --- |
| manifest.json | everything the run follows from, versions, device, and the SHA-256 of every file that is complete |
| key | the hash key, for the owner's eyes |
| members/ | a safetensors file for each network, with its scores for the test inputs |
| ballots-SEEDS.npy | the members' ballots, (n_inputs, n_members, n_classes), from that many networks each |
| labels.npy, spread.npy | of the test inputs; which members learn from each bucket |
| edits/ | samples added and removed since, one .npz each |
| certificates/ | one row for each input, as CSV |
| timings.json | seconds for each network |

Ballots are all that certificates need, so a run can be handed on without members/.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import runoff
from runoff import _files, hashing, storage
from runoff.partition import Partition
from runoff.storage import StorageError

FORMAT, VERSION = "runoff run", 1
MEMBERS = "members"


class RunError(ValueError):
    """A run that does not fit what was asked: one sentence says why."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything that the members of a run follow from, beside the samples. The number of seeds may grow."""

    dataset: str
    fingerprint: str  # of the dataset
    n_partitions: int
    spread: int = 1
    network: str = "nin"
    recipe: dict[str, Any]
    hash: str = "content"
    random_state: int = 0

    def told(self) -> str:
        """In a few words."""
        d = f", d = {self.spread}" if self.spread > 1 else ""
        return f"{self.dataset}, k = {self.n_partitions}{d}, {self.network}, hash {self.hash}"


class Run:
    """A run's directory."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest
        self.settings = Settings(**manifest["settings"])

    @classmethod
    def create(cls, path: Path, settings: Settings, about: dict[str, Any]) -> Run:
        """A new directory; or the one that is there, if it is of the same settings."""
        if (path / "manifest.json").exists():
            run = cls.open(path)
            run.must_be(settings)
            return run
        if path.exists() and any(path.iterdir()):
            raise RunError(f"{path} holds something else than a run: give another directory")
        path.mkdir(parents=True, exist_ok=True)
        key = hashing.derived_key(settings.random_state)
        storage.write_key(path, key)
        storage.sync(path / "key")
        partition = Partition.make(settings.n_partitions, settings.spread, settings.random_state, key, settings.hash)
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "settings": asdict(settings),
            "dataset": about,
            "partition": {"offsets": list(partition.offsets), "fingerprint": partition.fingerprint},
            "versions": {"runoff": runoff.__version__, "numpy": np.__version__, "python": platform.python_version()},
            "edits": [],
            "files": {"key": storage.sha256(bytes(key))},
        }
        run = cls(path, manifest)
        run.write_manifest()
        return run

    @classmethod
    def open(cls, path: Path) -> Run:
        """A directory that is there."""
        manifest = storage.read_manifest(path, FORMAT, VERSION)
        try:
            run = cls(path, manifest)
            fits = run.partition().fingerprint == manifest["partition"]["fingerprint"]
        except StorageError:
            raise
        except Exception as error:
            raise StorageError(f"{path} does not describe a run: {type(error).__name__}: {error}") from None
        if not fits:
            raise StorageError(f"{path} has a partition that does not match its fingerprint: it was altered")
        return run

    def must_be(self, settings: Settings) -> None:
        """Refuse to go on with other settings than those it was begun with."""
        ours, given = asdict(self.settings), asdict(settings)
        for name, value in given.items():
            if ours[name] != value:
                told = f"{name} = {_short(ours[name])}, not {_short(value)}"
                raise RunError(f"{self.path} is a run with {told}: give another directory")

    def partition(self) -> Partition:
        """Its hash, key and spread."""
        settings, offsets = self.settings, self.manifest["partition"]["offsets"]
        key = hashing.Key(storage.checked(self.path, "key", self.manifest["files"]["key"]))
        return Partition(settings.n_partitions, settings.spread, tuple(int(o) for o in offsets), key, settings.hash)

    def write_manifest(self) -> None:
        """Whole or not at all."""
        with _files.written_whole(self.path / "manifest.json") as file:
            json.dump(self.manifest, file, indent=1)

    def record(self, *names: str) -> None:
        """Note the SHA-256 of files that are complete."""
        for name in names:
            self.manifest["files"][name] = storage.sha256((self.path / name).read_bytes())
        self.write_manifest()

    def replace(self, names: Iterable[str], *stale: str) -> None:
        """Note files that are complete, and drop those that no longer hold, in one write of the manifest."""
        files = self.manifest["files"]
        self.manifest["files"] = {name: digest for name, digest in files.items() if not name.startswith(stale)}
        self.record(*names)

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """An array file, whole or not at all."""
        _files.write_array(self.path / name, array)

    def verify(self) -> None:
        """Every file that the manifest vouches for is there and unaltered; members/ may be left out as a whole."""
        slim = not (self.path / MEMBERS).exists()
        for name, digest in self.manifest["files"].items():
            if not (slim and name.startswith(f"{MEMBERS}/")):
                storage.checked(self.path, name, digest)

    # -- what it holds -------------------------------------------------------------------------------------------------

    def seeds(self) -> list[int]:
        """For how many networks a member there are ballots."""
        names = [name for name in self.manifest["files"] if name.startswith("ballots-")]
        return sorted(int(name.removeprefix("ballots-").removesuffix(".npy")) for name in names)

    def ballots(self, n_seeds: int | None = None) -> NDArray[Any]:
        """The members' ballots, memory-mapped, after checking them."""
        there = self.seeds()
        if not there:
            raise RunError(f"{self.path} is not finished: run `runoff train` with the same settings to go on")
        n_seeds = there[-1] if n_seeds is None else n_seeds
        if n_seeds not in there:
            raise RunError(f"{self.path} has ballots of {', '.join(map(str, there))} networks a member, not {n_seeds}")
        return self._array(f"ballots-{n_seeds}.npy")

    def labels(self) -> NDArray[Any]:
        """The true classes of the test inputs."""
        return self._array("labels.npy")

    def spread(self) -> NDArray[Any]:
        """Which members learn from each bucket."""
        return np.asarray(self._array("spread.npy"))

    def _array(self, name: str) -> NDArray[Any]:
        if name not in self.manifest["files"]:
            raise RunError(f"{self.path} is not finished: {name} is missing; run `runoff train` again to go on")
        storage.checked(self.path, name, self.manifest["files"][name])
        return _files.open_array(self.path / name)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
