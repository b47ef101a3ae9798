"""Datasets to train on, each checked to the last bit: `load`, `fetch`, and the user's own files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from runoff.datasets import _cifar10, _folders, _gtsrb, _mnist
from runoff.datasets._dataset import Dataset
from runoff.datasets._fetch import fetch
from runoff.datasets._found import UnlikeError
from runoff.datasets.catalogue import CATALOGUE, Entry, named
from runoff.datasets.places import data_directory, expanded, reading
from runoff.errors import DatasetError, DownloadError, IntegrityError, MissingError

__all__ = [
    "NAMES",
    "Dataset",
    "DatasetError",
    "DownloadError",
    "IntegrityError",
    "MissingError",
    "fetch",
    "load",
    "located",
]

NAMES = tuple(CATALOGUE)
_READERS: dict[str, Any] = {"mnist": _mnist, "cifar10": _cifar10, "gtsrb": _gtsrb}


def load(
    name_or_path: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    size: tuple[int, int] | None = None,
    classes: int | Sequence[str] | None = None,
) -> Dataset:
    """A dataset by name, checked against its official content, or the user's own by path.

    Names: "digits", "mnist", "cifar10", "gtsrb", looked for in `data_dir`, else in the folder that the environment
    variable RUNOFF_DATA names, else in the user's cache directory. Nothing is downloaded: see `fetch`.

    Paths: a .npz file with x_train, y_train, x_test, y_test, or a folder of images train/<class>/* and
    test/<class>/*, resized bilinearly to `size` = (height, width) where that is given.

    `classes` is the number of classes or their names, decided before the samples were seen; an array `classes` in the
    file or a classes.txt in the folder does the same. Where there is none of them the classes are taken from the
    samples, and `classes_fixed` is False.
    """
    given = os.fspath(name_or_path)
    if isinstance(name_or_path, str) and name_or_path in CATALOGUE:
        if size is not None:
            raise DatasetError(f"size is for folders of images, got it with {given!r}: leave it out")
        if classes is not None:
            raise DatasetError(f"classes is for your own data, those of {given!r} are known: leave it out")
        return _official(named(name_or_path), data_dir)
    path = expanded(name_or_path)
    with reading(path):
        if path.is_dir():
            return _folders.read_images(path, size, classes)
        if path.is_file():
            if size is not None:
                raise DatasetError(f"size is for folders of images, got it with {given!r}: leave it out")
            return _folders.read_npz(path, classes)
    raise DatasetError(f"{given!r} is neither a dataset ({', '.join(CATALOGUE)}) nor a .npz file or folder of images")


def located(name: str, data_dir: str | os.PathLike[str] | None = None) -> str | None:
    """Where `load` would read a named dataset, judged by the names of the files; None where it is missing."""
    entry = named(name)
    if entry.name == "digits":
        return "scikit-learn"
    root = data_directory(data_dir)
    with reading(root):
        if entry.name == "gtsrb" and (caches := _gtsrb.caches(root)):
            return str(caches[0])
        found = _READERS[entry.name].find(root, entry)
    return None if found is None else str(found.where)


def _official(entry: Entry, data_dir: str | os.PathLike[str] | None) -> Dataset:
    if entry.name == "digits":
        return entry.check(_digits(entry), Path("scikit-learn"), data_dir)
    root = data_directory(data_dir)
    with reading(root):
        return _read(entry, _READERS[entry.name], root, data_dir)


def _read(entry: Entry, reader: Any, root: Path, data_dir: str | os.PathLike[str] | None) -> Dataset:
    if entry.name == "gtsrb":
        for cache in _gtsrb.caches(root):
            try:
                return entry.check(_gtsrb.read_cache(cache, entry), cache, data_dir)
            except DatasetError:
                continue  # a damaged cache is made again
    found = reader.find(root, entry)
    if found is None:
        raise entry.missing(root, reader.absent(root, entry) or entry.archives, data_dir)
    try:
        dataset: Dataset = found.read()
    except UnlikeError as error:
        raise entry.altered(found.where, str(error), data_dir) from None
    entry.check(dataset, found.where, data_dir)
    if entry.name == "gtsrb":
        _gtsrb.write_cache(dataset, found.where)
    return dataset


def _digits(entry: Entry) -> Dataset:
    """The digits that come with scikit-learn; every fifth image is for testing."""
    import numpy as np
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, test = x.reshape(-1, *entry.shape).astype(np.uint8), np.arange(len(x)) % 5 == 0
    return Dataset(entry.name, x[~test], y[~test], x[test], y[test], classes=entry.classes)
