"""Every reader against files that are damaged on purpose.

A case fails unless it ends with a correct read or with the documented error, within 2 s and 500 MB. If digests
protect the files, a read must return what was saved.
"""

import gzip
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runoff import datasets
from tests.torture import bases, damage, heavy
from tests.torture.damage import Random, pick
from tests.torture.pool import share_out
from tests.torture.reading import (
    BallotFiles,
    Files,
    Models,
    NetworkModels,
    NotHereError,
    Reader,
    RunFiles,
    RunManifest,
    Scores,
    Spreads,
)
from tests.torture.tally import Tally

MANY = 100_000  # cases for each reader
CHUNK = 500


class Npz(Reader):
    """A user's .npz dataset."""

    allowed = (datasets.DatasetError,)
    about = ("own.npz",)

    def make(self) -> None:
        self.files = {"own.npz": bases.npz()}
        self.put(self.files)

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        data = self.files["own.npz"]
        if rng.random() < 0.3:
            at = int(rng.integers(len(data)))  # one bit: what the checksums of the members must notice, if it matters
            return {"own.npz": data[:at] + bytes([data[at] ^ 1 << int(rng.integers(8))]) + data[at + 1 :]}, True
        return {"own.npz": damage.in_npz(rng, data)}, False

    def read(self) -> Any:
        return bases.fingerprint(self.folder / "own.npz")


class Images(Reader):
    """A folder of images."""

    allowed = (datasets.DatasetError,)
    strict = False

    def make(self) -> None:
        self.files = bases.images()
        self.put(self.files)

    def read(self) -> Any:
        return bases.fingerprint(self.folder)


class Official(Reader):
    """A dataset by name: what is read must be the official content."""

    allowed = (datasets.DatasetError,)
    name = "mnist"

    def make(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.files = self.official()
        self.put(self.files)

    def official(self) -> Files:
        """Its files."""
        return bases.mnist(self.patch)

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        name = pick(rng, sorted(self.files))
        data = self.files[name]
        change = damage.in_bytes
        if name.endswith(".zip") and rng.random() < 0.5:
            change = lambda rng, data: damage.in_npz(rng, data, damage.in_bytes)  # noqa: E731
        elif name.endswith(".gz") and rng.random() < 0.6:
            change = lambda rng, data: gzip.compress(damage.in_bytes(rng, gzip.decompress(data)), 1)  # noqa: E731
        return {name: change(rng, data)}, True

    def read(self) -> Any:
        for cache in self.folder.rglob("*.npz"):  # made from what was read the last time
            cache.unlink()
        return bases.fingerprint(self.folder, self.name)


class Cifar10(Official):
    """CIFAR-10 as pickles, which are never unpickled."""

    name = "cifar10"

    def official(self) -> Files:
        return bases.cifar10(self.patch, packed=False)


class Cifar10Archive(Cifar10):
    """CIFAR-10 in its tar file."""

    def official(self) -> Files:
        return bases.cifar10(self.patch, packed=True)


class Gtsrb(Official):
    """GTSRB in its zip files."""

    name = "gtsrb"

    def official(self) -> Files:
        return bases.gtsrb(self.patch)


class Proofs(Reader):
    """proof.json, by the checker that stands alone."""

    strict = False
    about = ("it ", "must", "ballots", "input", "spread")

    def make(self) -> None:
        path = bases.a_proof(self.folder)
        if path is None:
            raise NotHereError
        self.files = {"proof.json": path.read_bytes()}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        change = damage.in_bytes if rng.random() < 0.2 else damage.in_json
        return {"proof.json": change(rng, self.files["proof.json"])}, False

    def read(self) -> Any:
        from runoff import check  # type: ignore[attr-defined]

        proof = check.read(self.folder / "proof.json")
        return len(check.check(proof)[0])


READERS: dict[str, type[Reader]] = {
    "scores .npy": Scores,
    "ballots .npy": BallotFiles,
    "spreads": Spreads,
    "run manifests": RunManifest,
    "run files": RunFiles,
    "saved classifiers": Models,
    "saved networks": NetworkModels,
    "datasets .npz": Npz,
    "folders of images": Images,
    "MNIST": Official,
    "CIFAR-10 files": Cifar10,
    "CIFAR-10 archive": Cifar10Archive,
    "GTSRB": Gtsrb,
    "proofs": Proofs,
}


def run(scale: float, seed: int, jobs: int) -> Tally:
    """The same number of cases for every reader, then those that take a process of their own."""
    count = max(20, round(MANY * scale))
    chunks = [
        (name, seed, number, min(CHUNK, count - start))
        for name in READERS
        for number, start in enumerate(range(0, count, CHUNK))
    ]
    return share_out(chunk, chunks, jobs).merge([heavy.run(scale, seed, jobs)])


def chunk(name: str, seed: int, number: int, count: int) -> Tally:
    """Some cases of one reader, in a folder in memory where there is one."""
    tally = Tally()
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
    folder = Path(tempfile.mkdtemp(dir=place, prefix="torture-"))
    patch = None
    try:
        reader = READERS[name](folder)
        patch = getattr(reader, "patch", None)
        rng = np.random.default_rng([seed, list(READERS).index(name), number])
        for _ in range(count):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # of Pillow, on damaged images
                wrong = reader.case(rng)
            tally.check(name, wrong is None, wrong or "")
    except NotHereError:
        pass
    finally:
        if patch is not None:
            patch.undo()
        shutil.rmtree(folder, ignore_errors=True)
    return tally
