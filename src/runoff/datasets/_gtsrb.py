"""Reader for GTSRB: the official zip archives or their extracted trees, resized to 48 x 48 and cached."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff import hashing
from runoff.datasets import npz
from runoff.datasets._archives import Files, Folder, Zip
from runoff.datasets._candidates import Candidate, LayoutError
from runoff.datasets._dataset import Dataset
from runoff.datasets._images import decoded, resized
from runoff.datasets.catalogue import Archive, Entry
from runoff.datasets.places import user_cache
from runoff.errors import DatasetError

PLACES = ("gtsrb", ".")
CACHE = "gtsrb-48x48.npz"
TRAIN, TEST, TRUTH = "GTSRB/Final_Training/Images", "GTSRB/Final_Test/Images", "GT-final_test.csv"
TRUTHS = (f"{TEST}/{TRUTH}", TRUTH, f"GTSRB/Final_Test/{TRUTH}", f"GTSRB/{TRUTH}")
MOST_BYTES = 2**22  # per file; the largest image has 187 kB, the largest list 400 kB

Listed = list[tuple[str, int]]  # a file's name and its label


def find(root: Path, entry: Entry) -> Candidate | None:
    """Return the first place with training images, test images and test labels, each archived or extracted."""
    for place in (root / place for place in PLACES):
        parts = _parts(place, entry)
        if all(parts):
            return Candidate(place, partial(_read, [part for part in parts if part], entry))
    return None


def absent(root: Path, entry: Entry) -> tuple[Archive, ...]:
    """Return the archives whose content was not found."""
    parts = [_parts(root / place, entry) for place in PLACES]
    return tuple(archive for i, archive in enumerate(entry.archives) if not any(part[i] for part in parts))


def caches(root: Path) -> list[Path]:
    """Return the existing cache files: next to the data, then in the user's cache directory."""
    return [file for file in (*(root / place / CACHE for place in PLACES), user_cache() / CACHE) if file.is_file()]


def read_cache(path: Path, entry: Entry) -> Dataset:
    """Read the dataset from a cache, without checking its content."""
    n, m = entry.n_train, entry.n_test
    kinds: dict[str, npz.Kind] = {
        "x_train": (np.dtype(np.uint8), (n, *entry.shape)),
        "y_train": (np.dtype("<i8"), (n,)),
        "x_test": (np.dtype(np.uint8), (m, *entry.shape)),
        "y_test": (np.dtype("<i8"), (m,)),
        "original_digests": (np.dtype(np.uint8), (n, hashing.DIGEST_BYTES)),
        "original_sums": (np.dtype("<i8"), (n,)),
    }
    arrays: dict[str, Any] = npz.read(path, list(kinds), kinds=kinds)
    return Dataset(name=entry.name, classes=entry.classes, **arrays)


def write_cache(dataset: Dataset, place: Path) -> Path | None:
    """Cache the decoded dataset, next to the data if possible; return None if no place is writable."""
    fields = ("x_train", "y_train", "x_test", "y_test", "original_digests", "original_sums")
    for folder in (place, user_cache()):
        with suppress(OSError):  # a cache only saves time
            folder.mkdir(parents=True, exist_ok=True)
            npz.write(folder / CACHE, {field: getattr(dataset, field) for field in fields})
            return folder / CACHE
    return None


def _parts(place: Path, entry: Entry) -> list[tuple[Path, str] | None]:
    """Return a zip archive or folder, and the name inside it, for each of the three parts; None for a missing part."""
    zips = [place / archive.file for archive in entry.archives]
    truth = next((name for name in TRUTHS if (place / name).is_file()), None)
    extracted = [name if name and (place / name).exists() else None for name in (TRAIN, TEST, truth)]
    archived = (TRAIN, TEST, TRUTH)
    return [
        (place, folder) if folder else (file, inside) if file.is_file() else None
        for folder, file, inside in zip(extracted, zips, archived, strict=True)
    ]


def _open(path: Path) -> Files:
    return Zip(path) if path.is_file() else Folder(path)


def _read(parts: list[tuple[Path, str]], entry: Entry) -> Dataset:
    (train, train_folder), (test, test_folder), (truth, truth_name) = parts
    with _open(truth) as files:
        tests = _read_list(files, truth_name, r"\d{5}\.ppm", len(entry.classes))
    with _open(train) as files:
        trains = []
        for label in range(len(entry.classes)):
            folder = f"{train_folder}/{label:05d}"
            images = _read_list(files, f"{folder}/GT-{label:05d}.csv", r"\d{5}_\d{5}\.ppm", len(entry.classes))
            if any(class_id != label for _, class_id in images):
                raise LayoutError(f"{folder} lists images of another class")
            trains += [(f"{folder}/{name}", label) for name, _ in images]
        _check_count(trains, entry.n_train, "training")
        _check_count(tests, entry.n_test, "test")
        x_train, digests, sums = _decode_all(files, [name for name, _ in trains], entry)
    with _open(test) as files:
        x_test, _, _ = _decode_all(files, [f"{test_folder}/{name}" for name, _ in tests], entry)
    y_train, y_test = (np.array([label for _, label in listed], np.int64) for listed in (trains, tests))
    return Dataset(entry.name, x_train, y_train, x_test, y_test, entry.classes, digests, sums)


def _check_count(listed: Listed, n: int, what: str) -> None:
    if len(listed) != n:
        raise LayoutError(f"it lists {len(listed)} {what} images, expected {n}")


def _read_list(files: Files, name: str, pattern: str, n_classes: int) -> Listed:
    """Read image names and classes from a file with semicolons; names that do not match the pattern are an error."""
    text = files.read(name, MOST_BYTES).decode("ascii")
    listed = []
    try:
        rows = list(csv.DictReader(text.splitlines(), delimiter=";"))
    except csv.Error as error:
        raise LayoutError(f"{name} is not a list with semicolons ({error})") from None
    for row in rows:
        file, label = row.get("Filename") or "", row.get("ClassId") or ""
        if not re.fullmatch(pattern, file, re.ASCII) or not re.fullmatch(r"\d{1,5}", label, re.ASCII):
            raise LayoutError(f"{name} must list Filename;...;ClassId, got {file[:40]!r} of class {label[:40]!r}")
        if int(label) >= n_classes:
            raise LayoutError(f"{name} lists class {label}, expected 0 to {n_classes - 1}")
        listed.append((file, int(label)))
    return listed


def _decode_all(
    files: Files, names: list[str], entry: Entry
) -> tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.int64]]:
    """Return the resized images, and the digests and sums of their original pixels."""
    height, width = entry.shape[:2]
    x = np.empty((len(names), *entry.shape), np.uint8)
    sums = np.empty(len(names), np.int64)

    def contents() -> Iterator[memoryview]:
        for i, name in enumerate(names):
            try:
                image = decoded(files.read(name, MOST_BYTES), name, ("PPM",))
            except DatasetError as error:
                raise LayoutError(str(error)) from None
            if image.mode != "RGB":
                raise LayoutError(f"{name} must be an RGB image")
            pixels = np.asarray(image)
            sums[i] = pixels.sum(dtype=np.int64)
            x[i] = resized(image, (height, width))
            yield from hashing.number_rows(pixels[None])

    digests = hashing.digests(contents(), key=b"")
    return x, digests.astype("<u8").view(np.uint8).reshape(-1, hashing.DIGEST_BYTES), sums
