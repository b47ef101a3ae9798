"""Ballots: strict rankings of the classes, computed from scores by the only code that breaks ties in scores.

A ballot is stored as points: n_classes - 1 for the first choice of a member down to 0 for its last, one byte per class
(two above 256 classes). Points are valid scores, so an array of ballots can be stored with `numpy.save`, memory-mapped
and passed to `certify` instead of the scores, with the same results.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff.errors import InputError
from runoff.scores import Scores, blocks_of, check_finite, origin_of

# Exact conversions to types that kernels support. Scores of other types (64-bit integers, long doubles) are ranked.
READ_AS: dict[str, type] = {
    "bool": np.uint8,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "int8": np.float32,
    "int16": np.float32,
    "uint32": np.float64,
    "int32": np.float64,
    "float16": np.float32,
    "float32": np.float32,
    "float64": np.float64,
}

FEWEST = 20  # minimum of inputs to state that a member votes the same for all of them
STEP = 64  # inputs that are compared at a time; the first almost always suffice

Ballots = NDArray[np.unsignedinteger[Any]]


def points_dtype(n_classes: int) -> np.dtype[Any]:
    """Return the smallest type for a ballot of `n_classes` classes."""
    return np.dtype(np.uint8 if n_classes <= 256 else np.uint16 if n_classes <= 65536 else np.uint32)


def rank(scores: ArrayLike | Iterator[ArrayLike], out: NDArray[Any] | None = None) -> Ballots | Scores:
    """Rank the classes for every member and input; a tie in scores ranks the lower class index first.

    Parameters
    ----------
    scores : (n_samples, n_members, n_classes) real numbers, or an iterator of such blocks
    out : array with the shape and dtype of the result, such as a memory-mapped file, to write the ballots to

    Returns
    -------
    ballots : (n_samples, n_members, n_classes) points, uint8 up to 256 classes, else uint16; for a classifier's scores,
        a `Scores` object with the same spread and unit, whose `values` are the points

    """
    scores, origin = origin_of(scores)
    done, ranked = 0, []
    for block in blocks_of(scores):
        check_finite(block, done)
        target = points(block)
        if out is None:
            ranked.append(target)
        else:
            if out.shape[1:] != target.shape[1:] or out.dtype != target.dtype or len(out) < done + len(block):
                raise InputError(
                    f"out must have the shape of the scores, {target.shape[1:]} after the first axis, and dtype "
                    f"{target.dtype}, got shape {out.shape} and dtype {out.dtype}"
                )
            out[done : done + len(block)] = target
        done += len(block)
    ballots = out if out is not None else np.concatenate(ranked)
    # Without their spread, ballots would be certified as those of one bucket per member.
    return ballots if origin is None else replace(origin, values=ballots)


def points(block: NDArray[Any]) -> Ballots:
    """Return the ballots of one block of finite scores."""
    n_classes = block.shape[-1]
    result = np.empty(block.shape, points_dtype(n_classes))
    if n_classes <= 64 and block.size > 2**12 and block.dtype.name in ("float32", "float64"):
        from runoff._kernels.counting import give_points

        give_points(readable(block).reshape(-1, n_classes), result.reshape(-1, n_classes))
        return result
    # A stable ascending sort of the reversed classes: of equal scores, the higher index is first and gets fewer points.
    order = np.argsort(block[..., ::-1], axis=-1, kind="stable")
    np.put_along_axis(result, order, np.arange(n_classes, dtype=result.dtype), axis=-1)
    return np.ascontiguousarray(result[..., ::-1])


def constant_members(scores: Any) -> int | None:
    """Return the number of members that rank the classes in the same way for every input; None for too few inputs.

    These are members without training samples, or with samples of one class, whose votes do not depend on the input.
    """
    if len(scores) < FEWEST:
        return None
    first = points(np.asarray(scores[:1]))
    which = np.arange(first.shape[1])
    for start in range(0, len(scores), STEP):
        ballots = points(np.ascontiguousarray(np.asarray(scores[start : start + STEP])[:, which]))
        which = which[(ballots == first[:, which]).all(axis=(0, 2))]
        if not len(which):
            break
    return len(which)


def readable(block: NDArray[Any], start: int = 0) -> NDArray[Any]:
    """Return scores with the same rankings in a type that kernels support; `start` is the first input of the block.

    The result cannot be written to: Numba compiles every kernel again for arrays that differ in this only, such as
    those of memory-mapped files.
    """
    read_as = READ_AS.get(block.dtype.newbyteorder("=").name)
    if read_as is None:
        check_finite(block, start)
    result = (points(block) if read_as is None else np.ascontiguousarray(block, dtype=read_as)).view()
    result.flags.writeable = False
    return result


def prefer(ballots: Ballots, firsts: NDArray[np.int64], last: int | None) -> Ballots:
    """Move class `firsts[j]` of each ballot j to the top, and `last` to the bottom; the others keep their order."""
    moved = ballots.astype(np.int64)
    moved[np.arange(len(moved)), firsts] = moved.shape[1]
    if last is not None:
        moved[:, last] = -1
    return points(moved)
