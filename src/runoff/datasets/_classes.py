"""Classes of the user's own data, fixed before any sample is read.

A network has one output per class. If the classes were taken from the samples, one inserted sample of a new class
would change every member, and no radius would hold.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from runoff.datasets._archives import read_bounded
from runoff.datasets._dataset import MOST_CLASSES
from runoff.errors import DatasetError

LIST = "classes.txt"
MOST_BYTES = 2**22  # maximum size of the list: 64 per class

Classes = int | Sequence[str]


def fixed_classes(given: Classes | None, stored: tuple[str, ...] | None, where: str) -> tuple[str, ...] | None:
    """Return the names from the caller or stored with the data, or None if there are neither.

    A number of classes matches any list of that many stored names.
    """
    if given is None:
        return stored
    names = _names(given)
    if stored is None or names == stored or (_is_number(given) and len(names) == len(stored)):
        return names if stored is None else stored
    differing = (
        (f"{name!r:.60}", f"{other!r:.60}") for name, other in zip(names, stored, strict=False) if name != other
    )
    got, expected = next(differing) if len(names) == len(stored) else (f"{len(names)} classes", f"{len(stored)}")
    raise DatasetError(f"classes must agree with {where}, got {got} instead of {expected}: leave classes out")


def _is_number(given: Any) -> bool:
    return hasattr(given, "__index__") and not isinstance(given, (bool, np.bool_, np.ndarray))


def _names(given: Any) -> tuple[str, ...]:
    if _is_number(given):
        n = operator.index(given)
        if not 1 <= n <= MOST_CLASSES:
            raise DatasetError(f"classes must be from 1 to {MOST_CLASSES}, got {n}")
        return tuple(map(str, range(n)))
    is_list = isinstance(given, Sequence) and not isinstance(given, (str, bytes))
    if not is_list and not (isinstance(given, np.ndarray) and given.ndim == 1):
        raise DatasetError(f"classes must be a number of classes or a list of their names, got {given!r}")
    odd = [name for name in given if not isinstance(name, str)]
    if odd:
        raise DatasetError(f"classes must be names (str), got {odd[0]!r} of type {type(odd[0]).__name__}")
    return check_names(tuple(map(str, given)), "classes")


def check_names(names: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Return the names if their number is valid, they are distinct and none is empty."""
    if not 1 <= len(names) <= MOST_CLASSES:
        raise DatasetError(f"{where} must have from 1 to {MOST_CLASSES} names, got {len(names)}")
    seen: set[str] = set()
    for i, name in enumerate(names):
        if not name.strip():
            raise DatasetError(f"{where} must have no empty names, but number {i + 1} is empty: remove it")
        if name in seen:
            raise DatasetError(f"{where} must have different names, got {name!r:.60} twice: remove one of them")
        seen.add(name)
    return names


def read_list(folder: Path) -> tuple[str, ...] | None:
    """Read the names in a folder's classes.txt, one per line; return None if there is no such file."""
    path = folder / LIST
    if not path.exists() and not path.is_symlink():
        return None
    if not path.is_file() or path.is_symlink():
        raise DatasetError(f"{path} must be a regular file with one class name per line, got something else")
    try:
        text = read_bounded(path, MOST_BYTES).decode("utf-8-sig")  # some editors write a byte order mark
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path} must be text in UTF-8, got an invalid byte at {error.start}: save it as UTF-8"
        ) from None
    except ValueError as error:
        raise DatasetError(f"{path} cannot be read: {error}") from None
    return check_names(tuple(line.strip() for line in text.removesuffix("\n").split("\n")), str(path))
