"""State of a fitted ensemble for saving."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.partition import Partition


@dataclass(frozen=True, eq=False)
class FittedState:
    """The state of a fitted ensemble that is saved and restored, without its settings and its members."""

    partition: Partition
    classes: NDArray[Any]
    classes_fixed: bool  # whether the classes were passed, not taken from y
    training_sets: list[str]  # a SHA-256 per member
    member_sizes: NDArray[np.int64]
    seed: int
    n_seeds: int
    width: tuple[str, tuple[int, ...]]  # the kind and the width of X
    sources: tuple[int, float] | None = None  # their number, and the share of the samples of the largest
    n_single_class: int = 0  # members with samples of one class only
    numbers: str = "float64"  # type of numbers for members
