"""Runs: a trained ensemble as a directory that survives crashes and is never mixed up with another.

| file | |
| --- | --- |
| manifest.json | everything the run follows from, versions, device, and the SHA-256 of every file that is complete |
| key | the hash key, which follows from the seed |
| members/ | a safetensors file for each network, with its scores for the test inputs |
| ballots-SEEDS.npy | the members' ballots, (n_inputs, n_members, n_classes), from that many networks each |
| labels.npy, spread.npy | of the test inputs; which members learn from each bucket |
| edits/ | samples added and removed since, one .npz each |
| certificates/ | one row for each input, as CSV |
| timings.json | seconds for each network |

Ballots are all that certificates need, so a run can be handed on without members/.
"""

from __future__ import annotations

import io
import json
import platform
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff import hashing
from runoff._io.files import leftovers, open_array, sha256_of, write_array, written_whole
from runoff._io.manifests import Kind, check_file, checked_bytes, read_manifest, sealed, sha256
from runoff._version import __version__
from runoff.datasets import npz
from runoff.errors import DatasetError, RunError, StorageError
from runoff.partition import Partition
from runoff.runs import schema

KIND = Kind("runoff run", 1, "run", "take it from a copy")
MEMBERS, CERTIFICATES = "members", "certificates"
FOLDERS = (MEMBERS, CERTIFICATES, "edits")
KEYS = {"settings": dict, "dataset": dict, "partition": dict, "versions": dict, "edits": list, "files": dict}


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
    first_weights: dict[str, str] | None = None  # what networks start from: "given" (a name or path) and "sha256"

    def describe(self) -> str:
        """Return the settings in a few words."""
        d = f", d = {self.spread}" if self.spread > 1 else ""
        start = f" from {Path(self.first_weights['given']).name} weights" if self.first_weights else ""
        return f"{self.dataset}, k = {self.n_partitions}{d}, {self.network}{start}, hash {self.hash}"


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
            run.must_be(settings, about)
            run.manifest["dataset"]["given"] = about["given"]  # the same samples may have moved
            return run
        cls.check_place(path, settings)
        path.mkdir(parents=True, exist_ok=True)
        key = hashing.derived_key(settings.random_state)
        with written_whole(path / "key", binary=True) as file:
            file.write(key)
        partition = Partition.make(settings.n_partitions, settings.spread, settings.random_state, key, settings.hash)
        manifest = {
            "format": KIND.format,
            "version": KIND.version,
            "settings": asdict(settings),
            "dataset": about,
            "partition": {"offsets": list(partition.offsets), "fingerprint": partition.fingerprint},
            "versions": {"runoff": __version__, "numpy": np.__version__, "python": platform.python_version()},
            "n_seeds": 1,
            "election": "runoff",
            "edits": [],
            "files": {"key": sha256(bytes(key))},
        }
        run = cls(path, manifest)
        run.write_manifest()
        return run

    @staticmethod
    def check_place(path: Path, settings: Settings) -> None:
        """Refuse a directory that holds something else than a run. A kill may have left the key and temporary files."""
        if not path.exists() or (path / "manifest.json").exists():
            return
        if not path.is_dir():
            raise RunError(f"{path} is a file: give another directory")
        own = [file for file in path.iterdir() if not file.name.startswith(".")]
        key = hashing.derived_key(settings.random_state)
        if any(file.name != "key" or not file.is_file() or file.read_bytes() != bytes(key) for file in own):
            raise RunError(f"{path} holds something else than a run: give another directory")

    @classmethod
    def open(cls, path: Path) -> Run:
        """A directory that is there."""
        if not (path / "manifest.json").exists():
            raise RunError(f"{path} is not a run: it has no manifest.json; make one with `runoff train`")
        manifest = read_manifest(path, KIND)
        for name, kind in KEYS.items():
            if not isinstance(manifest.get(name), kind):
                raise StorageError(f"{path} does not describe a run: its manifest has no {name}, so it was altered")
        if link := next((name for name in FOLDERS if (path / name).is_symlink()), None):
            raise StorageError(f"{path / link} must be a folder of the run, got a symbolic link: copy what it leads to")
        if (odd := schema.odd(manifest)) is not None:
            raise StorageError(f"{path} does not describe a run: its manifest has an odd {odd}, so it was altered")
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

    def must_be(self, settings: Settings, about: dict[str, Any]) -> None:
        """Refuse to go on with other settings, classes or things to keep than those it was begun with."""
        kept = ("classes", "weights")
        ours = {**asdict(self.settings), **{name: self.manifest["dataset"].get(name) for name in kept}}
        given = {**asdict(settings), **{name: about[name] for name in kept}}
        for name, value in given.items():
            if ours[name] != value:
                told = f"{name} = {_short(ours[name])}, not {_short(value)}"
                raise RunError(f"{self.path} is a run with {told}: give another directory")

    def partition(self) -> Partition:
        """Its hash, key and spread."""
        settings, offsets = self.settings, self.manifest["partition"]["offsets"]
        key = hashing.Key(checked_bytes(self.path, "key", self.manifest["files"]["key"]))
        return Partition(settings.n_partitions, settings.spread, tuple(int(o) for o in offsets), key, settings.hash)

    def write_manifest(self) -> None:
        """Whole or not at all."""
        self.manifest = sealed(self.manifest)
        with written_whole(self.path / "manifest.json") as file:
            json.dump(self.manifest, file, indent=1)

    def record(self, *names: str) -> None:
        """Note the SHA-256 of files that are complete."""
        for name in names:
            self.manifest["files"][name] = sha256_of(self.path / name)
        self._mark_stale(set(self.manifest.get("stale", [])) - set(names))
        self.write_manifest()

    def begin(self, name: str) -> None:
        """List ballots or certificates that are about to be written: a kill leaves no file that nobody knows of."""
        if name not in self.manifest["files"]:
            self._mark_stale({*self.manifest.get("stale", []), name})
            self.write_manifest()

    def replace(self, names: Iterable[str], *stale: str) -> None:
        """Note files that are complete, and drop those that no longer hold, in one write of the manifest."""
        self._drop({name for name in self.manifest["files"] if name.startswith(stale)})
        self.record(*names)
        self.sweep()

    def _drop(self, names: set[str]) -> None:
        """List files no longer; ballots and certificates among them are to be deleted."""
        self.manifest["files"] = {name: digest for name, digest in self.manifest["files"].items() if name not in names}
        self._mark_stale({*self.manifest.get("stale", []), *filter(schema.is_made, names)})

    def _mark_stale(self, names: set[str]) -> None:
        self.manifest.pop("stale", None)
        if names:
            self.manifest["stale"] = sorted(names)

    def sweep(self) -> None:
        """Delete ballots and certificates that the manifest lists as stale, and what kills left of files.

        They are of other networks, or were never finished. Nothing else is deleted, and no link is followed. Only when
        the manifest is on disk, so that a kill leaves too much, never too little.
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
        """Note how many networks each member is to have, and by what, before they are trained: a kill loses nothing."""
        self.manifest["n_seeds"] = max(n_seeds, self.n_seeds)
        if self.manifest != read_manifest(self.path, KIND):
            self.write_manifest()

    @property
    def n_seeds(self) -> int:
        """How many networks each member has, or is to have."""
        return max(int(self.manifest.get("n_seeds", 1)), *self.seeds(), 1)

    def forget(self, seed: int, members: Iterable[str] = ()) -> None:
        """Vouch no longer for these networks, nor for what rests on networks of this seed or of later ones."""
        endings = tuple(f"-{n}.{kind}" for n in self.seeds() if n > seed for kind in ("csv", "parquet", "npy"))
        files = self.manifest["files"]
        stale = {name for name in files if name.endswith(endings)} if endings else set()
        if stale := stale | (set(members) & files.keys()):
            self._drop(stale)
            self.write_manifest()
            self.sweep()

    def write_text(self, name: str, text: str) -> None:
        """A file whose content may change: while it does, the manifest does not vouch for it."""
        files = self.manifest["files"]
        if name in files and files[name] != sha256(text.encode()):
            del files[name]
            self.write_manifest()
        with written_whole(self.path / name) as file:
            file.write(text)

    def write_array(self, name: str, array: NDArray[Any]) -> None:
        """An array file, whole or not at all."""
        write_array(self.path / name, array)

    def verify(self) -> None:
        """Every file that the manifest vouches for is there and unaltered.

        members/ may be left out as a whole, and certificates may be removed: they can be made again.
        """
        slim = next((self.path / MEMBERS).glob("member-*"), None) is None
        for name in self.manifest["files"]:
            made = name.startswith(f"{CERTIFICATES}/") and not (self.path / name).exists()
            if not made and not (slim and name.startswith(f"{MEMBERS}/")):
                self._check(name)

    def _check(self, name: str) -> None:
        try:
            check_file(self.path, name, self.manifest["files"][name])
        except StorageError as error:
            cure = "remove it, and `runoff train` with the same settings makes it anew"
            if name.startswith(f"{CERTIFICATES}/"):
                cure = "remove it and certify again"
            elif name == "key" or name.startswith("edits/"):
                cure = "take it from a copy"
            raise StorageError(f"{error}; {cure}") from None

    @property
    def election(self) -> str:
        """Which one its certificates are of, where nothing else is asked for."""
        return str(self.manifest.get("election", "runoff"))

    # -- what it holds -------------------------------------------------------------------------------------------------

    def seeds(self) -> list[int]:
        """For how many networks a member there are ballots."""
        found = [schema.BALLOTS.fullmatch(name) for name in self.manifest["files"]]
        return sorted(int(match[1]) for match in found if match)

    def ballots(self, n_seeds: int | None = None) -> NDArray[Any]:
        """The members' ballots, memory-mapped, after checking them."""
        there = self.seeds()
        if not there:
            raise RunError(f"{self.path} is not finished: run `runoff train` with the same settings to go on")
        n_seeds = there[-1] if n_seeds is None else n_seeds
        if n_seeds not in there:
            raise RunError(f"{self.path} has ballots of {', '.join(map(str, there))} networks a member, not {n_seeds}")
        return self._array(f"ballots-{n_seeds}.npy")

    def edits(self) -> list[tuple[str, NDArray[Any], NDArray[Any]]]:
        """What was added and removed since, in order, as the manifest vouches for it: "add" or "remove", x and y."""
        found = []
        for name in self.manifest["edits"]:
            data = checked_bytes(self.path, name, self.manifest["files"][name])
            try:
                arrays = npz.read(io.BytesIO(data), ["x", "y"], name=str(self.path / name))
            except DatasetError as error:
                raise StorageError(f"{error}; take it from a copy") from None
            found.append((name.removesuffix(".npz").split("-")[-1], arrays["x"], arrays["y"]))
        return found

    def unfinished(self) -> RunError:
        """What is said of an update that was killed, or failed."""
        return RunError(
            f"{self.path} has an update that is not finished: finish it first with `runoff update {self.path}`"
        )

    def n_edits(self) -> int:
        """How many samples were added or removed since."""
        return sum(len(labels) for _, _, labels in self.edits())

    def labels(self) -> NDArray[Any]:
        """The true classes of the test inputs."""
        return self._array("labels.npy")

    def spread(self) -> NDArray[Any]:
        """Return which members learn from each bucket: what the partition says, and spread.npy must say the same."""
        spread = self.partition().spread
        if not np.array_equal(spread, self._array("spread.npy")):
            raise StorageError(f"{self.path} has another spread in spread.npy than its partition: it was altered")
        return spread

    def _array(self, name: str) -> NDArray[Any]:
        if name not in self.manifest["files"]:
            raise RunError(f"{self.path} is not finished: {name} is missing; run `runoff train` again to go on")
        self._check(name)
        return open_array(self.path / name)


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
