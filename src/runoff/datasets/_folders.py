"""The user's own data: a .npz file of arrays, or a folder of images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.datasets import _npz
from runoff.datasets._dataset import MOST_CLASSES, Dataset
from runoff.datasets._errors import DatasetError
from runoff.datasets._images import decoded, resized

ARRAYS = ("x_train", "y_train", "x_test", "y_test")
SUFFIXES = (".png", ".jpg", ".jpeg", ".ppm", ".pgm", ".pbm", ".bmp", ".gif", ".webp", ".tif", ".tiff")
FORMATS = ("PNG", "JPEG", "PPM", "BMP", "GIF", "WEBP", "TIFF")
LARGEST_SIDE = 8192


def read_npz(path: Path) -> Dataset:
    """x_train, y_train, x_test, y_test, and classes where the file has them; else the labels name themselves."""
    arrays = _npz.read(path, ARRAYS, optional=("classes",))
    classes = arrays.pop("classes", None)
    if classes is None:
        most = max((int(arrays[y].max()) for y in ("y_train", "y_test") if _is_whole(arrays[y])), default=0)
        names = tuple(map(str, range(min(max(most, 0), MOST_CLASSES - 1) + 1)))
    elif classes.dtype.kind != "U" or classes.ndim != 1:
        raise DatasetError(f"{path}: classes must be a list of texts, got {classes.dtype} {classes.shape}")
    else:
        names = tuple(map(str, classes))
    return Dataset(name=path.name, classes=names, **arrays)


def _is_whole(array: NDArray[Any]) -> bool:
    return array.dtype.kind in "iu" and array.size > 0


def read_images(path: Path, size: tuple[int, int] | None) -> Dataset:
    """train/<class>/* and test/<class>/*: the class folders of train, sorted, are the labels."""
    if size is not None:
        size = _checked_size(size)
    name = path.resolve().name
    classes = _folders(path, "train")
    unknown = sorted(set(_folders(path, "test")) - set(classes))
    if unknown:
        raise DatasetError(f"{path} has test/{unknown[0]} and no train/{unknown[0]}: add the folder, if an empty one")
    listed = {part: [(f, y) for y, c in enumerate(classes) for f in _images(path / part / c)] for part in _PARTS}
    for part, files in listed.items():
        if not files:
            raise DatasetError(f"{path / part} must hold images in folders named by class, got none")
    like = listed["train"][0][0]
    train, test = (_stacked([f for f, _ in listed[part]], like, size) for part in _PARTS)
    y_train, y_test = (np.array([y for _, y in listed[part]], np.int64) for part in _PARTS)
    return Dataset(name, train, y_train, test, y_test, classes=classes)


_PARTS = ("train", "test")


def _checked_size(size: Any) -> tuple[int, int]:
    try:
        height, width = (int(side) if int(side) == side else 0 for side in size)
    except (TypeError, ValueError):
        height = width = 0
    if not (1 <= height <= LARGEST_SIDE and 1 <= width <= LARGEST_SIDE):
        raise DatasetError(f"size must be (height, width), each from 1 to {LARGEST_SIDE}, got {size!r}")
    return height, width


def _folders(path: Path, part: str) -> tuple[str, ...]:
    """The names of the class folders. Links are not followed: they would bring in what is not in the folder."""
    folder = path / part
    if not folder.is_dir() or folder.is_symlink():
        raise DatasetError(f"{path} must be a folder of images, train/<class>/* and test/<class>/*: it has no {part}")
    return tuple(sorted(f.name for f in folder.iterdir() if _counts(f) and f.is_dir()))


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    files = [f for f in folder.iterdir() if _counts(f) and f.is_file() and f.suffix.lower() in SUFFIXES]
    return sorted(files, key=lambda f: f.name)  # a listing has no order of its own


def _counts(path: Path) -> bool:
    return not path.name.startswith(".") and not path.is_symlink()


def _stacked(files: list[Path], like: Path, size: tuple[int, int] | None) -> NDArray[np.uint8]:
    """All images, of the kind and, without `size`, of the size that the first training image has.

    No image is ever changed because of another: an odd one is refused, not fitted in.
    """
    first = decoded(like, str(like), FORMATS)
    height, width = size or (first.height, first.width)
    x = np.empty((len(files), height, width, *((3,) if first.mode == "RGB" else ())), np.uint8)
    for i, file in enumerate(files):
        image = decoded(file, str(file), FORMATS)
        if image.mode != first.mode:
            kinds = {"L": "grey", "RGB": "in colour"}
            raise DatasetError(f"{file} is {kinds[image.mode]} and {like} is {kinds[first.mode]}: convert one of them")
        if size is None and image.size != first.size:
            raise DatasetError(
                f"images must have one size, got {image.height} x {image.width} in {file} and {height} x {width} in "
                f"{like}: give size=(height, width) to resize them"
            )
        x[i] = np.asarray(image) if image.size == (width, height) else resized(image, (height, width))
    return x
