"""Readers for the user's own data: a .npz file of arrays, or a folder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.datasets import _classes, npz
from runoff.datasets._classes import Classes
from runoff.datasets._dataset import MOST_CLASSES, Dataset
from runoff.datasets._images import decoded, resized
from runoff.errors import DatasetError

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
SUFFIXES = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".pbm", ".bmp", ".gif", ".webp", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "PPM", "BMP", "GIF", "WEBP", "TIFF")
LARGEST_SIDE = 8192


def read_npz(path: Path, classes: Classes | None) -> Dataset:
    """Read x_train, y_train, x_test, y_test, and the classes and the sources (groups) if the file has them.

    If neither the caller nor the file gives classes, their number follows from the largest label.
    """
    arrays: dict[str, Any] = npz.read(path, ARRAYS, optional=("classes", "groups", "groups_train"))
    if "groups_train" in arrays:  # otherwise radii would count samples without notice
        raise DatasetError(f"{path} has an array groups_train: the sources of the training images must be named groups")
    stored = _stored_classes(path, arrays.pop("classes", None))
    names = _classes.fixed_classes(classes, stored, f"the classes in {path}")
    fixed = names is not None
    if names is None:
        most = max((int(arrays[y].max()) for y in ("y_train", "y_test") if _is_integer(arrays[y])), default=0)
        names = tuple(map(str, range(min(max(most, 0), MOST_CLASSES - 1) + 1)))
    return Dataset(name=path.name, classes=names, classes_fixed=fixed, **arrays)


def _stored_classes(path: Path, classes: NDArray[Any] | None) -> tuple[str, ...] | None:
    if classes is None:
        return None
    if classes.dtype.kind != "U" or classes.ndim != 1:
        raise DatasetError(f"{path}: classes must be a list of strings, got {classes.dtype} {classes.shape}")
    return _classes.check_names(tuple(map(str, classes)), f"{path}: classes")


def _is_integer(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iu" and array.size > 0


def read_images(path: Path, size: tuple[int, int] | None, classes: Classes | None) -> Dataset:
    """Read train/<class>/* and test/<class>/*, with classes as given, from classes.txt, or from train/."""
    if size is not None:
        size = _checked_size(size)
    name = path.resolve().name
    fixed = _classes.fixed_classes(classes, _classes.read_list(path), str(path / _classes.LIST))
    folders = {part: _class_folders(path, part) for part in _PARTS}
    names = tuple(sorted(folders["train"])) if fixed is None else fixed
    for part, existing in folders.items():
        _check_known(path, part, existing - set(names), None if fixed is None else len(names))
    # Only classes with a folder are read: the name of a class may be that of a link, or a path outside of the folder.
    existing_classes = {part: [(y, c) for y, c in enumerate(names) if c in folders[part]] for part in _PARTS}
    files = {part: [(f, y) for y, c in existing_classes[part] for f in _images(path / part / c)] for part in _PARTS}
    for part in _PARTS:
        if not files[part]:
            raise DatasetError(f"{path / part} must hold images in folders named by class, got none")
    first = files["train"][0][0]
    train, test = (_stacked([f for f, _ in files[part]], first, size) for part in _PARTS)
    y_train, y_test = (np.array([y for _, y in files[part]], np.int64) for part in _PARTS)
    return Dataset(name, train, y_train, test, y_test, classes=names, classes_fixed=fixed is not None)


_PARTS = ("train", "test")


def _check_known(path: Path, part: str, unknown: set[str], n_fixed: int | None) -> None:
    if not unknown:
        return
    first = min(unknown)
    if n_fixed is None:
        raise DatasetError(f"{path} has test/{first} but no train/{first}: add that folder, even if it is empty")
    raise DatasetError(
        f"{path} has the folder {part}/{first}, which is not one of its {n_fixed} classes: remove it, or list it "
        f"in classes= or {_classes.LIST}"
    )


def _checked_size(size: Any) -> tuple[int, int]:
    try:
        height, width = (int(side) if int(side) == side else 0 for side in size)
    except (TypeError, ValueError):
        height = width = 0
    if not (1 <= height <= LARGEST_SIDE and 1 <= width <= LARGEST_SIDE):
        raise DatasetError(f"size must be (height, width), each from 1 to {LARGEST_SIDE}, got {size!r}")
    return height, width


def _class_folders(path: Path, part: str) -> set[str]:
    """Return the names of the class folders, without following links."""
    folder = path / part
    if not folder.is_dir() or folder.is_symlink():
        raise DatasetError(f"{path} must be a folder of images, train/<class>/* and test/<class>/*: it has no {part}")
    return {f.name for f in folder.iterdir() if _is_visible(f) and f.is_dir()}


def _images(folder: Path) -> list[Path]:
    files = [f for f in folder.iterdir() if _is_visible(f) and f.is_file() and f.suffix.lower() in SUFFIXES]
    return sorted(files, key=lambda f: f.name)  # directory listings have no fixed order


def _is_visible(path: Path) -> bool:
    return not path.name.startswith(".") and not path.is_symlink()


def _stacked(files: list[Path], reference: Path, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    """Decode all images, which must have the mode and, without `size`, the size of the first training image.

    No image changes how another one is read: an image that does not match is an error.
    """
    first = decoded(reference, str(reference), FORMATS)
    height, width = size or (first.height, first.width)
    x = np.empty((len(files), height, width, *((3,) if first.mode == "RGB" else ())), np.uint8)
    for i, file in enumerate(files):
        image = decoded(file, str(file), FORMATS)
        if image.mode != first.mode:
            kinds = {"L": "grey", "RGB": "in colour"}
            raise DatasetError(
                f"{file} is {kinds[image.mode]} and {reference} is {kinds[first.mode]}: convert one of them"
            )
        if size is None and image.size != first.size:
            raise DatasetError(
                f"images must have one size, got {image.height} x {image.width} in {file} and {height} x {width} in "
                f"{reference}: pass size=(height, width) to resize them"
            )
        x[i] = np.asarray(image) if image.size == (width, height) else resized(image, (height, width))
    return x
