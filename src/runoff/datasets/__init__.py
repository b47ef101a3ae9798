"""Datasets to train on, each checked to the last bit: `load`, `fetch`, and the user's own files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from runoff.datasets import _cifar10, _folders, _gtsrb, _mnist
from runoff.datasets._catalogue import CATALOGUE, Entry, named
from runoff.datasets._dataset import Dataset
from runoff.datasets._errors import DatasetError, DownloadError, IntegrityError, MissingError
from runoff.datasets._fetch import fetch
from runoff.datasets._found import UnlikeError
from runoff.datasets._places import data_directory

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
) -> Dataset:
    """A dataset by name, checked against its official content, or the user's own by path.

    Names: "digits", "mnist", "cifar10", "gtsrb", looked for in `data_dir`, else in the folder that the environment
    variable RUNOFF_DATA names, else in the user's cache directory. Nothing is downloaded: see `fetch`.

    Paths: a .npz file with x_train, y_train, x_test, y_test, or a folder of images train/<class>/* and
    test/<class>/*, resized bilinearly to `size` = (height, width) where that is given.
    """
    path = Path(name_or_path).expanduser()
    is_name = isinstance(name_or_path, str) and name_or_path in CATALOGUE
    if size is not None and (is_name or not path.is_dir()):
        raise DatasetError(f"size is for folders of images, got it with {os.fspath(name_or_path)!r}: leave it out")
    if is_name:
        return _official(named(str(name_or_path)), data_dir)
    if path.is_dir():
        return _folders.read_images(path, size)
    if path.is_file():
        return _folders.read_npz(path)
    raise DatasetError(
        f"{os.fspath(name_or_path)!r} is neither a dataset ({', '.join(CATALOGUE)}) nor a .npz file or folder of images"
    )


def located(name: str, data_dir: str | os.PathLike[str] | None = None) -> str | None:
    """Where `load` would read a named dataset, judged by the names of the files; None where it is missing."""
    entry = named(name)
    if entry.name == "digits":
        return "scikit-learn"
    root = data_directory(data_dir)
    if entry.name == "gtsrb" and (caches := _gtsrb.caches(root)):
        return str(caches[0])
    found = _READERS[entry.name].find(root, entry)
    return None if found is None else str(found.where)


def _official(entry: Entry, data_dir: str | os.PathLike[str] | None) -> Dataset:
    if entry.name == "digits":
        return entry.check(_digits(entry), Path("scikit-learn"), data_dir)
    root, reader = data_directory(data_dir), _READERS[entry.name]
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
