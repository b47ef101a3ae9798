"""Predictions and radii of all inputs, computed by the kernels of an election."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runoff.ballots import readable
from runoff.scores import blocks_of, in_parts, n_threads
from runoff.spreads import Spread

if TYPE_CHECKING:
    from runoff.elections.base import Election

NODES = 200  # of search per input with a spread; enough for the exact cost of about half of all inputs


class Outcomes(NamedTuple):
    """Predictions and radii of all inputs, and the sizes of the ensemble."""

    prediction: NDArray[np.int64]
    radius: NDArray[np.int64]
    runner_up: NDArray[np.int64]
    n_members: int
    n_classes: int
    n_buckets: int
    spread: Spread | None


def outcomes(
    scores: NDArray[Any] | Iterator[Any], rule: Election, spread: Any, tight: bool, start: int = 0
) -> Outcomes:
    """Predict and certify every input of an array that was checked, or of an iterator of blocks.

    `start` is the index of the first input, for error messages.
    """
    checked: Spread | None = None
    results: list[NDArray[np.int64]] = []
    done = n_members = n_classes = 0
    with ThreadPoolExecutor(n_threads()) as pool:
        for block in blocks_of(scores):
            if not results:
                _, n_members, n_classes = block.shape
                checked = None if spread is None else Spread.from_any(spread, n_members)
            results.append(_certify_block(readable(block, start + done), start + done, rule, checked, tight, pool))
            done += len(block)
    prediction, runner_up, cost = np.concatenate(results, axis=1)
    n_buckets = n_members if checked is None else checked.n_buckets
    radius = np.minimum(cost - 1, n_buckets)
    return Outcomes(prediction, radius, runner_up, n_members, n_classes, n_buckets, checked)


def _certify_block(
    block: NDArray[Any], start: int, rule: Election, spread: Spread | None, tight: bool, pool: ThreadPoolExecutor
) -> NDArray[np.int64]:
    """Return prediction, runner-up and cost of the inputs of a block, divided among threads."""
    out = np.empty((3, len(block)), np.int64)
    if spread is None or spread.one_to_one is not None:
        extra: tuple[Any, ...] = ()
        certify_part: Any = rule.certify_disjoint
    else:
        extra = (spread.reach, NODES)
        certify_part = rule.certify_spread

    def part(a: int, b: int) -> int:
        return int(certify_part(block[a:b], tight, *extra, out[0, a:b], out[1, a:b], out[2, a:b]))

    in_parts(pool, part, block, start)
    return out
