"""Scores of an ensemble, validated and read in blocks of a few megabytes from any source."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.errors import InputError

BLOCK_BYTES = 16 * 2**20
ONE_HOT = "pass np.eye(n_classes)[predictions] with election='plurality', which needs first choices only"


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores of members, (n_inputs, n_members, n_classes), with the spread that the members were trained with.

    `runoff.certify` accepts it like an array, uses its spread, and rejects any other.
    """

    values: NDArray[Any]  # scores, or ballots as points
    spread: NDArray[np.int64] = field(repr=False)
    fingerprint: str
    classes_fixed: bool = True  # whether the labels were fixed in advance, which `certify` requires
    unit: str = "samples"  # what one edit is: "samples", "sources" or "labels"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype) if copy else np.asarray(self.values, dtype=dtype)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, inputs: Any) -> Scores:
        """Return the scores of some inputs, for all members and classes."""
        try:
            np.arange(len(self))[inputs]
        except IndexError:
            raise InputError(
                "scores of a classifier are selected by input only, as in scores[:10], since the spread is that of all "
                f"members, got {inputs!r:.80}: select from scores.values, and pass the spread of the members selected"
            ) from None
        values = self.values[inputs].reshape(-1, *self.values.shape[1:])
        return replace(self, values=values)


def origin_of(scores: Any) -> tuple[Any, Scores | None]:
    """Return the scores, and the `Scores` object that describes the members: `scores` or the first block, if any."""
    if not isinstance(scores, Iterator):
        return scores, scores if isinstance(scores, Scores) else None
    if (first := next(scores, None)) is None:
        return scores, None
    expected = _members_of(first)

    def blocks(blocks: Iterator[Any]) -> Iterator[Any]:
        for i, block in enumerate(blocks):
            if _members_of(block) != expected:
                raise InputError(
                    f"blocks of scores must all be those of one classifier, or all be plain arrays, but block {i} "
                    "differs from the first: certify them separately"
                )
            yield block

    # Without the values, so that those of the first block do not stay in memory.
    origin = replace(first, values=np.empty((0, 0, 0))) if isinstance(first, Scores) else None
    return blocks(chain([first], scores)), origin


def _members_of(scores: Any) -> tuple[str, bool] | None:
    """Return the identity of the members that gave the scores, if it is known."""
    return (scores.fingerprint, scores.classes_fixed) if isinstance(scores, Scores) else None


def blocks_of(scores: Any) -> Iterator[NDArray[Any]]:
    """Yield the scores in consecutive blocks, checked for shape and type but not for NaN."""
    if isinstance(scores, Iterator):
        seen, shape = 0, None
        for part in scores:
            array = checked_scores(part, f"block {seen} of scores")
            if shape is None:
                shape = array.shape[1:]
            if array.shape[1:] != shape:
                raise InputError(
                    f"block {seen} of scores must have {shape[0]} members and {shape[1]} classes like the first, "
                    f"got shape {array.shape}"
                )
            seen += 1
            yield from _cut(array)
        if not seen:
            raise InputError("scores must hold at least one input, got an iterator without blocks")
    else:
        yield from _cut(checked_scores(scores))


def checked_scores(scores: Any, name: str = "scores") -> NDArray[Any]:
    """Return scores as an array (n_samples, n_members, n_classes) of real numbers, or raise InputError."""
    try:
        array = np.asarray(scores)
    except ValueError as error:
        raise InputError(f"{name} must be an array (n_samples, n_members, n_classes): {error}") from None
    if isinstance(scores, np.ma.MaskedArray):
        raise InputError(f"{name} must be a plain array, got a masked one: give every member a score for every class")
    if isinstance(scores, (str, PathLike)):
        raise InputError(f"{name} must be an array, got a path: read the file, as in np.load({str(scores)!r:.100})")
    if array.dtype.kind not in "biuf":
        raise InputError(f"{name} must be real numbers, got dtype {array.dtype}")
    if array.ndim != 3:
        votes = array.ndim == 2 and array.dtype.kind in "iu"
        raise InputError(
            f"{name} must have 3 dimensions (n_samples, n_members, n_classes), got shape {array.shape}"
            f"{': if these are predicted classes, ' + ONE_HOT if votes else ''}"
        )
    n, n_members, n_classes = array.shape
    if n == 0:
        raise InputError(f"{name} must hold at least one input, got shape {array.shape}")
    if n_members == 0:
        raise InputError(f"{name} must have at least one member, got shape {array.shape}")
    if n_classes < 2:
        raise InputError(f"{name} must have at least 2 classes, got shape {array.shape}")
    return array


def check_finite(block: NDArray[Any], start: int) -> None:
    """Raise InputError at the first NaN or infinite score; `start` is the first input of the block."""
    if block.dtype.kind == "f" and not np.isfinite(block).all():
        i, j, c = (int(k) for k in np.argwhere(~np.isfinite(block))[0])
        raise InputError(
            f"scores must be finite, got {block[i, j, c]} for input {start + i}, member {j}, class {c}: "
            "give every member a finite score for every class"
        )


def n_threads() -> int:
    """Return the number of threads for certification, as set by NUMBA_NUM_THREADS."""
    from numba import config

    return int(config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


def in_parts(pool: ThreadPoolExecutor, part: Callable[[int, int], int], block: NDArray[Any], start: int) -> None:
    """Call `part(a, b)` in threads for consecutive parts of a block; `start` is the index of its first input.

    `part` returns the first of its inputs with a score that is not finite, or -1.
    """
    # More parts than threads, since some inputs take longer than others.
    edges = np.unique(np.linspace(0, len(block), 4 * n_threads() + 1, dtype=int))
    bad = [a + at for a, at in zip(edges, pool.map(part, edges[:-1], edges[1:]), strict=False) if at >= 0]
    if bad:
        check_finite(block[min(bad)][None], start + min(bad))


def selected(array: NDArray[Any], rows: NDArray[np.int64]) -> Iterator[NDArray[Any]]:
    """Yield these rows of an array in blocks, without copying all of them at once."""
    step = _rows_per_block(array)
    for start in range(0, len(rows), step):
        yield array[rows[start : start + step]]


def _rows_per_block(array: NDArray[Any]) -> int:
    return max(1, BLOCK_BYTES // int(array[0].size * max(4, array.itemsize)))


def _cut(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    rows = _rows_per_block(array)
    pages = _mapped(array)
    for start in range(0, len(array), rows):
        yield array[start : start + rows]
        if pages is not None:
            pages.madvise(mmap.MADV_DONTNEED)  # the data stay in the page cache, but not in the memory of this process


def _mapped(array: NDArray[Any]) -> mmap.mmap | None:
    """Return the memory map of an array from `numpy.load(mmap_mode="r")`, whose pages can be released, or None."""
    base: Any = array
    while isinstance(base, np.ndarray):
        if isinstance(base, np.memmap) and base.mode == "r" and hasattr(mmap, "MADV_DONTNEED"):
            pages = base._mmap  # type: ignore[attr-defined]
            return pages if isinstance(pages, mmap.mmap) else None
        base = base.base
    return None
