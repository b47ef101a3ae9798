"""Datasets for training: named datasets, checked bit for bit, and the user's own files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, overload

from runoff.datasets._dataset import Dataset
from runoff.datasets._fetch import fetch
from runoff.datasets._texts import TextDataset
from runoff.datasets.catalogue import CATALOGUE, Entry, get
from runoff.datasets.places import data_directory, expand_home, reading
from runoff.errors import DatasetError, DownloadError, IntegrityError, MissingError

__all__ = [
    "NAMES",
    "Dataset",
    "DatasetError",
    "DownloadError",
    "IntegrityError",
    "MissingError",
    "TextDataset",
    "fetch",
    "load",
    "load_images",
    "located",
]

NAMES = tuple(CATALOGUE)


@overload
def load(  # type: ignore[overload-overlap]
    name_or_path: Literal["spamassassin"], data_dir: str | os.PathLike[str] | None = None
) -> TextDataset: ...


@overload
def load(
    name_or_path: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    size: tuple[int, int] | None = None,
    classes: int | Sequence[str] | None = None,
) -> Dataset: ...


def load(
    name_or_path: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    size: tuple[int, int] | None = None,
    classes: int | Sequence[str] | None = None,
) -> Dataset | TextDataset:
    """Load a named dataset, checked against its official content, or the user's own data from a path.

    Names: "digits", "mnist", "cifar10", "gtsrb" (images) and "spamassassin" (texts: a `TextDataset`), read from
    `data_dir`, else from the folder in the environment variable RUNOFF_DATA, else from the user's cache directory.
    Nothing is downloaded: see `fetch`.

    Paths: a .npz file with x_train, y_train, x_test, y_test, or a folder of images train/<class>/* and
    test/<class>/*, resized bilinearly to `size` = (height, width) if that is given.

    `classes` is the number of classes or their names, fixed before the samples are read; an array `classes` in the
    file or a classes.txt in the folder has the same effect. Without any of them, classes are taken from the samples,
    and `classes_fixed` is False.
    """
    given = os.fspath(name_or_path)
    if isinstance(name_or_path, str) and name_or_path in CATALOGUE:
        if size is not None:
            raise DatasetError(f"size applies to folders of images only, not to {given!r}: leave it out")
        if classes is not None:
            raise DatasetError(f"classes applies to your own data only, not to {given!r}: leave it out")
        return _load_official(get(name_or_path), data_dir)
    path = expand_home(name_or_path)
    with reading(path):
        from runoff.datasets import _folders

        if path.is_dir():
            return _folders.read_images(path, size, classes)
        if path.is_file():
            if size is not None:
                raise DatasetError(f"size applies to folders of images only, not to {given!r}: leave it out")
            return _folders.read_npz(path, classes)
    raise DatasetError(
        f"{given!r:.300} is neither a dataset ({', '.join(CATALOGUE)}) nor a .npz file nor a folder of images"
    )


def load_images(
    name_or_path: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    classes: int | Sequence[str] | None = None,
) -> Dataset:
    """Load a dataset as `load` does; raise `DatasetError` for texts, which networks cannot be trained on."""
    if name_or_path in CATALOGUE and not CATALOGUE[str(name_or_path)].shape:
        raise DatasetError(
            f"{name_or_path} holds texts, but networks are trained on images: use runoff.RunoffClassifier for texts"
        )
    return load(name_or_path, data_dir, classes=classes)


def load_recorded(about: Mapping[str, Any], data_dir: Path | None, moved_to: Path | None = None) -> Dataset:
    """Load the images that the manifest of a run describes, with the classes recorded there."""
    given = str(about["given"] if moved_to is None else moved_to)
    return load_images(given, data_dir, classes=None if given in NAMES else about["classes"])


def located(name: str, data_dir: str | os.PathLike[str] | None = None) -> str | None:
    """Return the location of a named dataset for `load`, judged by file names, or None if it is missing."""
    entry = get(name)
    if entry.name == "digits":
        return "scikit-learn"
    root, reader = data_directory(data_dir), _reader(entry)
    with reading(root):
        if entry.name == "gtsrb" and (caches := reader.caches(root)):
            return str(caches[0])
        candidate = reader.find(root, entry)
    return None if candidate is None else str(candidate.where)


def _load_official(entry: Entry, data_dir: str | os.PathLike[str] | None) -> Dataset | TextDataset:
    if entry.name == "digits":
        return entry.check(_digits(entry), Path("scikit-learn"), data_dir)
    root = data_directory(data_dir)
    with reading(root):
        return _read(entry, _reader(entry), root, data_dir)


def _reader(entry: Entry) -> Any:
    """Return the module that reads a dataset, which has the dataset's name."""
    return import_module(f"runoff.datasets._{entry.name}")


def _read(entry: Entry, reader: Any, root: Path, data_dir: str | os.PathLike[str] | None) -> Dataset | TextDataset:
    from runoff.datasets._candidates import LayoutError

    if entry.name == "gtsrb":
        for cache in reader.caches(root):
            try:
                cached: Dataset = reader.read_cache(cache, entry)
                return entry.check(cached, cache, data_dir)
            except DatasetError:
                continue  # a damaged cache is replaced below
    candidate = reader.find(root, entry)
    if candidate is None:
        raise entry.missing(root, reader.absent(root, entry) or entry.archives, data_dir)
    try:
        dataset: Dataset | TextDataset = candidate.read()
    except LayoutError as error:
        raise entry.altered(candidate.where, str(error), data_dir) from None
    entry.check(dataset, candidate.where, data_dir)
    if entry.name == "gtsrb" and isinstance(dataset, Dataset):
        reader.write_cache(dataset, candidate.where)
    return dataset


def _digits(entry: Entry) -> Dataset:
    """Load the digits that come with scikit-learn; every fifth image is a test image."""
    import numpy as np
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x, test = x.reshape(-1, *entry.shape).astype(np.uint8), np.arange(len(x)) % 5 == 0
    return Dataset(entry.name, x[~test], y[~test], x[test], y[test], classes=entry.classes)
