"""Tables of scores in long form, CSV or Parquet: one row per score, with names of inputs, members and classes."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff._io.text import count, one_line
from runoff.errors import InputError
from runoff.saving import tables

COLUMNS = ("input", "member", "class", "score")
SHOWN = 40  # characters of a name


@dataclass(frozen=True, eq=False)
class LongScores:
    """Scores (n_inputs, n_members, n_classes), the names of inputs and classes, and the labels if the table has them.

    Inputs are in the order of the table. Members and classes are sorted, as numbers if all are whole numbers.
    """

    scores: NDArray[np.float64]
    inputs: NDArray[Any]
    classes: NDArray[Any]
    labels: NDArray[Any] | None
    members: tuple[Any, ...] | None = None  # their names in the order of the scores; None: they are in no table
    spread: NDArray[Any] | None = None
    unit: str | None = None  # what one edit is, if known
    election: str | None = None

    def check_numbered(self, path: Path) -> None:
        """Check that members are numbered without gaps, so that a spread, which lists members by number, means these.

        The positions of other names depend on how they sort (m10 is before m2), and a member that is missing shifts all
        that follow: radii for the wrong members would be too large.
        """
        names = self.members
        if names is None:
            return
        n = len(names)
        if names not in (tuple(range(n)), tuple(range(1, n + 1))):
            expected = set(range(n)) if 0 in names else set(range(1, n + 1))
            odd = next((name for name in names if name not in expected), names[0])
            raise InputError(
                f"{path} must number its {count(n, 'member')} 0 to {n - 1:,} or 1 to {n:,}, since a spread lists "
                f"members by number, got member {one_line(odd, SHOWN)}: rename them in the spread's order, without gaps"
            )


def read_scores(path: Path) -> LongScores:
    """Read a table with the columns input, member, class and score, and label if there is one."""
    table = _columns(path, COLUMNS, ("label",))
    names = {column: _names(path, column, table[column]) for column in COLUMNS[:3]}
    inputs = list(dict.fromkeys(names["input"]))
    members, classes = sorted(set(names["member"])), sorted(set(names["class"]))
    places = [{name: i for i, name in enumerate(known)} for known in (inputs, members, classes)]
    at = [
        np.array([place[name] for name in names[column]], np.int64)
        for column, place in zip(COLUMNS, places, strict=False)
    ]
    shape = (len(inputs), len(members), len(classes))
    which = np.ravel_multi_index(tuple(at), shape) if at[0].size else at[0]
    _check_complete(path, which, shape, (inputs, members, classes))
    scores = np.empty(math.prod(shape))
    scores[which] = _numbers(path, table["score"])
    labels = None
    if "label" in table:
        given = _names(path, "label", table["label"], whole=isinstance(classes[0], int))
        by_input: dict[Hashable, Any] = {}
        for name, label in zip(names["input"], given, strict=True):
            if by_input.setdefault(name, label) != label:
                raise InputError(f"{path} must have one label per input, got two for input {one_line(name, SHOWN)}")
        labels = np.array([by_input[name] for name in inputs])
    return LongScores(scores.reshape(shape), np.array(inputs), np.array(classes), labels, tuple(members))


def read_column(path: Path, column: str, inputs: NDArray[Any]) -> NDArray[Any]:
    """Read a table with the columns input and `column`; return the latter in the order of these inputs."""
    table = _columns(path, ("input", column), ())
    values = _names(path, column, table[column])
    known = dict(zip(map(str, table["input"]), values, strict=True))
    if len(known) != len(values):
        raise InputError(f"{path} must have one row per input, got {len(values):,} rows of {len(known):,} inputs")
    if (missing := next((name for name in inputs.tolist() if str(name) not in known), None)) is not None:
        raise InputError(f"{path} has no {column} of input {one_line(missing, SHOWN)}")
    return np.array([known[str(name)] for name in inputs.tolist()])


def _columns(path: Path, needed: Sequence[str], optional: Sequence[str]) -> dict[str, list[Any]]:
    """Return columns of a table, as texts from CSV."""
    table = tables.columns(path)
    if missing := [name for name in needed if name not in table]:
        raise InputError(
            f"{path} must have the columns {', '.join(needed)}, got {one_line(', '.join(table)) or 'none'}: "
            f"{missing[0]} is missing"
        )
    return {name: table[name] for name in (*needed, *optional) if name in table}


def _names(path: Path, column: str, values: list[Any], whole: bool | None = None) -> list[Any]:
    """Return names as integers if all are whole numbers, else as strings."""
    if any(value is None or value == "" for value in values):
        raise InputError(f"{path} must have a value for {column} in every row, got an empty cell")
    texts = [str(value) for value in values]
    numeric = all(text.removeprefix("-").isascii() and text.removeprefix("-").isdigit() for text in set(texts))
    numeric = numeric and max(map(len, texts)) < 18
    return [int(text) for text in texts] if numeric and whole is not False else texts


def _numbers(path: Path, values: list[Any]) -> NDArray[np.float64]:
    try:
        numbers = np.array(values, np.float64)
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if numbers.shape != (len(values),) or not np.isfinite(numbers).all():  # lists are possible in Parquet
        raise InputError(f"{path} must have a finite number as the score in every row")
    return numbers


def _check_complete(path: Path, which: NDArray[np.int64], shape: tuple[int, ...], names: Sequence[list[Any]]) -> None:
    """Check that every member has one score for every class of every input."""

    def described(place: int) -> str:
        i, m, c = (known[at] for known, at in zip(names, np.unravel_index(place, shape), strict=True))
        return f"member {one_line(m, SHOWN)} for class {one_line(c, SHOWN)} of input {one_line(i, SHOWN)}"

    cells, counts = np.unique(which, return_counts=True)
    if (counts > 1).any():
        raise InputError(
            f"{path} must have one score per member, class and input, got two of {described(int(cells[counts > 1][0]))}"
        )
    if len(cells) < math.prod(shape):
        gaps = np.flatnonzero(cells != np.arange(len(cells)))
        place = int(gaps[0]) if gaps.size else len(cells)
        raise InputError(
            f"{path} must have a score of every member for every class of every input: {described(place)} is missing"
        )
