"""Runs: trained ensembles as directories that survive crashes and never mix files of different runs.

| file | |
| --- | --- |
| manifest.json | all settings, versions, device, and the SHA-256 of every file that is complete |
| key | the hash key, derived from the seed |
| members/ | one safetensors file per network, with its scores for the test inputs |
| ballots-SEEDS.npy | the members' ballots, (n_inputs, n_members, n_classes), from SEEDS networks per member |
| labels.npy, spread.npy | the labels of the test inputs; the members that learn from each bucket |
| edits/ | samples that were added and removed, one .npz file per edit command |
| certificates/ | one row per input, as CSV or Parquet |
| timings.json | training seconds per network |

Certificates need only the ballots, so a run can be shared without members/.
"""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff import hashing
from runoff._io.files import leftovers, open_array, sha256_of, written_whole
from runoff._io.manifests import Kind, check_file, checked_bytes, read_manifest, sealed, sha256
from runoff._io.text import one_line
from runoff._version import __version__
from runoff.datasets import npz
from runoff.errors import DatasetError, RunError, StorageError
from runoff.partition import Partition
from runoff.runs import schema
from runoff.runs.settings import Settings

KIND = Kind("runoff run", 1, "run", "restore it from a copy")
MEMBERS, CERTIFICATES = "members", "certificates"
EDIT = ("x", "y", "groups")  # arrays of an edit's file
FOLDERS = (MEMBERS, CERTIFICATES, "edits")
KEYS = {"settings": dict, "dataset": dict, "partition": dict, "versions": dict, "edits": list, "files": dict}


class Run:
    """The directory of a run."""

    def __init__(self, path: Path, manifest: dict[str, Any]) -> None:
        self.path, self.manifest = path, manifest
        self.settings = Settings(**manifest["settings"])

    @classmethod
    def create(cls, path: Path, settings: Settings, about: dict[str, Any]) -> Run:
        """Create a run, or open the existing one if its settings are the same."""
        if (path / "manifest.json").exists():
            run = cls.open(path)
            run.require_settings(settings, about)
            run.manifest["dataset"]["given"] = about["given"]  # the dataset may have moved
            return run
        cls.check_place(path, settings)
        path.mkdir(parents=True, exist_ok=True)
        partition = settings.make_partition()
        with written_whole(path / "key", binary=True) as file:
            file.write(partition.key)
        manifest = {
            "format": KIND.format,
            "version": KIND.version,
            "settings": settings.to_dict(),
            "dataset": about,
            "partition": {"offsets": list(partition.offsets), "fingerprint": partition.fingerprint},
            "versions": {"runoff": __version__, "numpy": np.__version__, "python": platform.python_version()},
            "n_seeds": 1,
            "election": "runoff",
            "edits": [],
            "files": {"key": sha256(bytes(partition.key))},
        }
        run = cls(path, manifest)
        run.write_manifest()
        return run

    @staticmethod
    def check_place(path: Path, settings: Settings) -> None:
        """Raise an error if a directory contains other files than an interrupted `create` leaves."""
        if not path.exists() or (path / "manifest.json").exists():
            return
        if not path.is_dir():
            raise RunError(f"{path} is a file: give another directory")
        files = [file for file in path.iterdir() if not file.name.startswith(".")]
        key = hashing.derived_key(settings.random_state)
        if any(file.name != "key" or not file.is_file() or file.read_bytes() != bytes(key) for file in files):
            raise RunError(f"{path} holds files that are not a run: give another directory")

    @staticmethod
    def require(path: Path) -> None:
        """Raise an error if a directory is not that of a run."""
        if not (path / "manifest.json").exists():
            raise RunError(f"{path} is not a run: it has no manifest.json; create a run with `runoff train`")

    @classmethod
    def open(cls, path: Path) -> Run:
        """Open an existing run."""
        cls.require(path)
        manifest = read_manifest(path, KIND)
        for name, kind in KEYS.items():
            if not isinstance(manifest.get(name), kind):
                raise StorageError(f"{path} does not describe a run: its manifest has no {name}, so it was altered")
        if link := next((name for name in FOLDERS if (path / name).is_symlink()), None):
            raise StorageError(f"{path / link} must be a folder of the run, got a symbolic link: copy its target here")
        if (invalid := schema.invalid_field(manifest)) is not None:
            raise StorageError(f"{path} does not describe a run: {invalid} in its manifest is invalid; it was altered")
        try:
            run = cls(path, manifest)
            fits = run.partition().fingerprint == manifest["partition"]["fingerprint"]
        except StorageError:
            raise
        except Exception as error:
            raise StorageError(f"{path} does not describe a run: {type(error).__name__}: {one_line(error)}") from error
        if not fits:
            raise StorageError(f"{path} has a partition that does not match its fingerprint: it was altered")
        return run

    def require_settings(self, settings: Settings, about: dict[str, Any]) -> None:
        """Raise an error if settings, classes or the choice to keep weights differ from those of the run."""
        fields = ("classes", "weights")
        recorded = {**asdict(self.settings), **{name: self.manifest["dataset"].get(name) for name in fields}}
        given = {**asdict(settings), **{name: about[name] for name in fields}}
        for name, value in given.items():
            if recorded[name] != value:
                before, now = _differing(recorded[name], value)
                difference = f"{name} = {_short(before)}, not {_short(now)}"
                raise RunError(f"{self.path} is a run with {difference}: give another directory")

    def partition(self) -> Partition:
        """Return the run's partition: its hash, key and spread."""
        settings, offsets = self.settings, self.manifest["partition"]["offsets"]
        key = hashing.Key(checked_bytes(self.path, "key", self.manifest["files"]["key"]))
        offsets = tuple(int(o) for o in offsets)
        return Partition(settings.n_partitions, settings.spread, offsets, key, settings.hash, settings.unit)

    def write_manifest(self) -> None:
        """Write the manifest atomically."""
        self.manifest = sealed(self.manifest)
        with written_whole(self.path / "manifest.json") as file:
            json.dump(self.manifest, file, indent=1)

    def record(self, *names: str) -> None:
        """Record the SHA-256 of complete files in the manifest."""
        for name in names:
            self.manifest["files"][name] = sha256_of(self.path / name)
        self._mark_stale(set(self.manifest.get("stale", [])) - set(names))
        self.write_manifest()

    def begin(self, name: str) -> None:
        """List ballots or certificates that are about to be written, as an interruption may leave them incomplete."""
        if name not in self.manifest["files"]:
            self._mark_stale({*self.manifest.get("stale", []), name})
            self.write_manifest()

    def replace(self, names: Iterable[str], *stale: str) -> None:
        """Record complete files and drop those whose names start with `stale`, in one write of the manifest."""
        self._drop({name for name in self.manifest["files"] if name.startswith(stale)})
        self.record(*names)
        self.sweep()

    def _drop(self, names: set[str]) -> None:
        """Remove files from the manifest, and mark ballots and certificates among them for deletion."""
        self.manifest["files"] = {name: digest for name, digest in self.manifest["files"].items() if name not in names}
        self._mark_stale({*self.manifest.get("stale", []), *filter(schema.is_derived, names)})

    def _mark_stale(self, names: set[str]) -> None:
        self.manifest.pop("stale", None)
        if names:
            self.manifest["stale"] = sorted(names)

    def sweep(self) -> None:
        """Delete stale ballots and certificates, and temporary files of interrupted commands.

        Stale files belong to other networks or are incomplete; the manifest lists them. Nothing else is deleted, and no
        link is followed. Files are deleted after the manifest is on disk, so an interruption never loses a listed file.
        """
        for name in self.manifest.get("stale", []):
            file = self.path / name
            if name not in self.manifest["files"] and file.is_file() and not file.is_symlink():
                file.unlink(missing_ok=True)
        for folder in (self.path, *(self.path / name for name in FOLDERS if name != MEMBERS)):
            for file in leftovers(folder):
                file.unlink(missing_ok=True)
        if "stale" in self.manifest:
            self._mark_stale(set())
            self.write_manifest()

    def settle(self, n_seeds: int) -> None:
        """Record the number of networks per member and their trainer, before training starts."""
        self.manifest["n_seeds"] = max(n_seeds, self.n_seeds)
        if self.manifest != read_manifest(self.path, KIND):
            self.write_manifest()

    @property
    def n_seeds(self) -> int:
        """Number of networks that each member has, or will have once training completes."""
        return max(int(self.manifest.get("n_seeds", 1)), *self.seeds(), 1)

    def forget(self, seed: int, members: Iterable[str] = ()) -> None:
        """Remove these networks from the manifest, and everything computed from networks of this seed or later ones."""
        endings = tuple(f"-{n}.{kind}" for n in self.seeds() if n > seed for kind in ("csv", "parquet", "npy"))
        files = self.manifest["files"]
        stale = {name for name in files if name.endswith(endings)} if endings else set()
        if stale := stale | (set(members) & files.keys()):
            self._drop(stale)
            self.write_manifest()
            self.sweep()

    def write_text(self, name: str, text: str) -> None:
        """Write a file whose content may change, and remove it from the manifest meanwhile."""
        files = self.manifest["files"]
        if name in files and files[name] != sha256(text.encode()):
            del files[name]
            self.write_manifest()
        with written_whole(self.path / name) as file:
            file.write(text)

    def verify(self) -> None:
        """Check that every file in the manifest exists and is unaltered.

        The whole folder members/ may be missing, and so may certificates, which can be computed again.
        """
        slim = next((self.path / MEMBERS).glob("member-*"), None) is None
        for name in self.manifest["files"]:
            removed = name.startswith(f"{CERTIFICATES}/") and not (self.path / name).exists()
            if not removed and not (slim and name.startswith(f"{MEMBERS}/")):
                self._check(name)

    def _check(self, name: str) -> None:
        try:
            check_file(self.path, name, self.manifest["files"][name])
        except StorageError as error:
            remedy = "remove it and repeat `runoff train` with the same settings"
            if name.startswith(f"{CERTIFICATES}/"):
                remedy = "remove it and certify again"
            elif name == "key" or name.startswith("edits/"):
                remedy = "restore it from a copy"
            raise StorageError(f"{error}; {remedy}") from None

    @property
    def election(self) -> str:
        """Election that certificates of this run use by default."""
        return str(self.manifest.get("election", "runoff"))

    # -- contents ------------------------------------------------------------------------------------------------------

    def seeds(self) -> list[int]:
        """Return the numbers of networks per member for which there are ballots."""
        matches = [schema.BALLOTS.fullmatch(name) for name in self.manifest["files"]]
        return sorted(int(match[1]) for match in matches if match)

    def ballots(self, n_seeds: int | None = None) -> NDArray[Any]:
        """Return the members' ballots, checked and memory-mapped."""
        existing = self.seeds()
        if not existing:
            raise RunError(f"{self.path} is not finished: repeat `runoff train` with the same settings to continue")
        n_seeds = existing[-1] if n_seeds is None else n_seeds
        if n_seeds not in existing:
            numbers = ", ".join(map(str, existing))
            raise RunError(f"{self.path} has ballots of {numbers} networks per member, not {n_seeds}")
        return self._array(f"ballots-{n_seeds}.npy")

    def edits(self) -> list[tuple[Any, ...]]:
        """Return the edits in order, each as ("add" or "remove", x, y[, groups]), after checking their files."""
        edits = []
        for name in self.manifest["edits"]:
            data = checked_bytes(self.path, name, self.manifest["files"][name])
            try:
                arrays = npz.read(io.BytesIO(data), ["x", "y"], ["groups"], name=str(self.path / name))
            except DatasetError as error:
                raise StorageError(f"{error}; restore it from a copy") from None
            edits.append((name.removesuffix(".npz").split("-")[-1], *(arrays[a] for a in EDIT if a in arrays)))
        return edits

    def unfinished(self) -> RunError:
        """Return the error for an update that was interrupted or failed."""
        return RunError(
            f"{self.path} has an update that is not finished: finish it first with `runoff update {self.path}`"
        )

    def n_edits(self) -> int:
        """Return the number of samples that were added or removed."""
        return sum(len(edit[2]) for edit in self.edits())

    def labels(self) -> NDArray[Any]:
        """Return the true classes of the test inputs."""
        return self._array("labels.npy")

    def spread(self) -> NDArray[Any]:
        """Return the members that learn from each bucket, from the partition; spread.npy must be equal."""
        spread = self.partition().spread
        stored = self._array("spread.npy")
        if stored.dtype.kind not in "iu" or not np.array_equal(spread, stored):  # other types may not be comparable
            raise StorageError(f"{self.path} was altered: spread.npy does not match its partition")
        return spread

    def _array(self, name: str) -> NDArray[Any]:
        if name not in self.manifest["files"]:
            raise RunError(f"{self.path} is not finished: {name} is missing; repeat `runoff train` to continue")
        self._check(name)
        return open_array(self.path / name)


def _differing(recorded: Any, given: Any) -> tuple[Any, Any]:
    """Return two values, and of two dictionaries only the entries that differ."""
    if not (isinstance(recorded, dict) and isinstance(given, dict)):
        return recorded, given
    names = [name for name in {**recorded, **given} if recorded.get(name) != given.get(name)]
    return {name: recorded.get(name) for name in names}, {name: given.get(name) for name in names}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
