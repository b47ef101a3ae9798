"""Courses: everything random in a member's training, drawn beforehand from the member's own source.

The numbers come from numpy on the host, so they are the same on every device, and nothing that runs beside a member,
or a crash in between, can shift them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.recipes import Recipe

# Each purpose draws from a child of its own, so that turning one on leaves the others as they were.
INITIAL, ORDER, CROP, FLIP, JITTER, CUTOUT, MIXUP, LAYERS, AFFINE, TRIVIAL, STRENGTH, CUTMIX = range(12)
N_OPERATIONS = 13  # of TrivialAugment: see augment.trivial


def child(source: np.random.SeedSequence, purpose: int) -> np.random.SeedSequence:
    """The source of one purpose."""
    return np.random.SeedSequence(source.entropy, spawn_key=(*source.spawn_key, purpose))


def initial_seed(source: np.random.SeedSequence) -> np.random.SeedSequence:
    """Where a network's first weights come from."""
    return child(source, INITIAL)


@dataclass(frozen=True, eq=False)
class RandomDraws:
    """One row a step. What the recipe does not use is None."""

    rates: NDArray[np.float32]  # (steps,)
    rows: NDArray[np.int32]  # (steps, batch): which of the member's samples
    seeds: NDArray[np.int64]  # (steps,): for layers that draw numbers, such as dropout
    newest: NDArray[np.float32] | None = None  # (steps,): the share of a step's weights in the average of weights
    shifts: NDArray[np.int32] | None = None  # (steps, batch, 2): where the crop starts
    flips: NDArray[np.bool_] | None = None  # (steps, batch)
    jitter: NDArray[np.float32] | None = None  # (steps, batch, 3): brightness, contrast, saturation
    holes: NDArray[np.int32] | None = None  # (steps, batch, 2): the centre of the cutout
    shares: NDArray[np.float32] | None = None  # (steps,): of the image's own label in mixup and CutMix
    blends: NDArray[np.float32] | None = None  # (steps,): of the image's own pixels in mixup, where CutMix is used too
    boxes: NDArray[np.int32] | None = None  # (steps, 4): top, bottom, left and right of what CutMix takes from another
    warps: NDArray[np.float32] | None = None  # (steps, batch, 4): rotation, log scale and both shears, from -1 to 1
    operations: NDArray[np.uint8] | None = None  # (steps, batch): which operation of TrivialAugment
    strengths: NDArray[np.float32] | None = None  # (steps, batch): of that operation, from -1 to 1

    def tables(self) -> dict[str, NDArray[Any]]:
        """What the step reads on the device."""
        names = [field.name for field in fields(self) if field.name != "seeds"]  # those are read on the host
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def draw(recipe: Recipe, n_samples: int, shape: tuple[int, ...], source: np.random.SeedSequence) -> RandomDraws:
    """The course of a member with so many samples of a shape (height, width, channels) or (features,)."""
    steps, batch = recipe.steps_of(n_samples), recipe.batch_of(n_samples)

    def of(purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(child(source, purpose)))

    epochs = -(-steps * batch // n_samples)
    stream = of(ORDER).permuted(np.tile(np.arange(n_samples, dtype=np.int32), (epochs, 1)), axis=1)
    seeds = of(LAYERS).integers(2**63, size=steps, dtype=np.int64)
    shares = of(MIXUP).beta(recipe.mixup, recipe.mixup, size=steps).astype(np.float32) if recipe.mixup else None
    blends = boxes = None
    if recipe.cutmix:
        cut, boxes, left = _boxes(of(CUTMIX), recipe.cutmix, steps, shape)
        blends = None if shares is None else np.where(cut, np.float32(1), shares)
        shares = np.where(cut, left, np.float32(1) if shares is None else shares)
    return RandomDraws(
        rates=recipe.rates(n_samples),
        newest=recipe.newest(n_samples) if recipe.average else None,
        rows=stream.reshape(-1)[: steps * batch].reshape(steps, batch),
        shifts=of(CROP).integers(2 * recipe.crop + 1, size=(steps, batch, 2), dtype=np.int32) if recipe.crop else None,
        flips=of(FLIP).integers(2, size=(steps, batch), dtype=np.int8).astype(np.bool_) if recipe.flip else None,
        jitter=_factors(of(JITTER), recipe.jitter, (steps, batch, 3)) if recipe.jitter else None,
        holes=of(CUTOUT).integers(shape[:2], size=(steps, batch, 2), dtype=np.int32) if recipe.cutout else None,
        shares=shares,
        blends=blends,
        boxes=boxes,
        warps=_signed(of(AFFINE), (steps, batch, 4)) if recipe.affine else None,
        operations=of(TRIVIAL).integers(N_OPERATIONS, size=(steps, batch), dtype=np.uint8) if recipe.trivial else None,
        strengths=_signed(of(STRENGTH), (steps, batch)) if recipe.trivial else None,
        seeds=seeds,
    )


def _factors(draws: np.random.Generator, most: float, size: tuple[int, ...]) -> NDArray[np.float32]:
    return (1 + most * (2 * draws.random(size, dtype=np.float32) - 1)).astype(np.float32)


def _signed(draws: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float32]:
    return 2 * draws.random(size, dtype=np.float32) - 1


def _boxes(
    draws: np.random.Generator, chance: float, steps: int, shape: tuple[int, ...]
) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.float32]]:
    """Which steps cut, the rectangles of CutMix (empty in the other steps), and the share of an image that they leave.

    As in the paper of CutMix, a rectangle has the image's proportions, an area that is uniform before it is clipped,
    and a uniform centre.
    """
    size = np.array(shape[:2])
    cut = draws.random(steps) < chance
    sides = np.rint(np.sqrt(draws.random((steps, 1))) * size).astype(np.int64)
    first = np.floor(draws.random((steps, 2)) * size).astype(np.int64) - sides // 2
    edges = np.clip(np.stack([first, first + sides], axis=2), 0, size[:, None]) * cut[:, None, None]
    left = 1 - (edges[..., 1] - edges[..., 0]).prod(axis=1) / size.prod()
    return cut, edges.reshape(steps, 4).astype(np.int32), left.astype(np.float32)
