"""The classes of the user's own data, decided before any sample is looked at.

A network has one output for each class. Were the classes taken from the samples, one inserted sample of a new class
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
MOST_BYTES = 2**22  # of the list: 64 for each of the most classes there may be

Classes = int | Sequence[str]


def decided(given: Classes | None, stored: tuple[str, ...] | None, where: str) -> tuple[str, ...] | None:
    """The names, from what was given and from what is stored with the data; None where there is neither.

    A number agrees with as many stored names, whatever they are.
    """
    if given is None:
        return stored
    names = _names(given)
    if stored is None or names == stored or (_is_number(given) and len(names) == len(stored)):
        return names if stored is None else stored
    differing = ((repr(name), repr(other)) for name, other in zip(names, stored, strict=False) if name != other)
    told, kept = next(differing) if len(names) == len(stored) else (f"{len(names)} of them", f"{len(stored)}")
    raise DatasetError(f"classes must agree with {where}, got {told} in place of {kept}: leave classes out")


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
        raise DatasetError(f"classes must be names, which are texts, got {odd[0]!r} of type {type(odd[0]).__name__}")
    return checked(tuple(map(str, given)), "classes")


def checked(names: tuple[str, ...], where: str) -> tuple[str, ...]:
    """The names, if there are some and not too many, all different and none empty."""
    if not 1 <= len(names) <= MOST_CLASSES:
        raise DatasetError(f"{where} must have from 1 to {MOST_CLASSES} names, got {len(names)}")
    seen: set[str] = set()
    for i, name in enumerate(names):
        if not name.strip():
            raise DatasetError(f"{where} must have no empty names, got one in place {i + 1}: remove it")
        if name in seen:
            raise DatasetError(f"{where} must have different names, got {name!r} twice: remove one of them")
        seen.add(name)
    return names


def listed(folder: Path) -> tuple[str, ...] | None:
    """The names in a folder's classes.txt, one a line; None where there is no such file."""
    path = folder / LIST
    if not path.exists() and not path.is_symlink():
        return None
    if not path.is_file() or path.is_symlink():
        raise DatasetError(f"{path} must be a plain file with the name of one class a line, got something else")
    try:
        text = read_bounded(path, MOST_BYTES).decode("utf-8-sig")  # some editors put a mark in front
    except UnicodeDecodeError as error:
        raise DatasetError(
            f"{path} must be text in UTF-8, got other bytes at {error.start}: save it as UTF-8"
        ) from None
    except ValueError as error:
        raise DatasetError(f"{path} cannot be read: {error}") from None
    return checked(tuple(line.strip() for line in text.removesuffix("\n").split("\n")), str(path))
