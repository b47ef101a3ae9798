"""Random draws: all random numbers for the training of a network, drawn in advance from its seed.

They come from NumPy on the host, so they are the same on every device and depend neither on other members nor on
crashes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.recipes import Recipe

# Each purpose has a separate child seed, so that enabling one does not change the draws of the others.
INITIAL, ORDER, CROP, FLIP, JITTER, CUTOUT, MIXUP, LAYERS, AFFINE, TRIVIAL, STRENGTH, CUTMIX = range(12)
N_OPERATIONS = 13  # of TrivialAugment: see augment.trivial
ON_HOST = ("seeds", "sizes")  # read on the host, all others on the device
PER_SAMPLE = ("rows", "shifts", "flips", "jitter", "holes", "warps", "operations", "strengths")


def child(source: np.random.SeedSequence, purpose: int) -> np.random.SeedSequence:
    """Return the seed of one purpose."""
    return np.random.SeedSequence(source.entropy, spawn_key=(*source.spawn_key, purpose))


def initial_seed(source: np.random.SeedSequence) -> np.random.SeedSequence:
    """Return the seed of a network's initial weights."""
    return child(source, INITIAL)


@dataclass(frozen=True, eq=False)
class RandomDraws:
    """The random numbers of one network, one row per step, or None if the recipe does not use them."""

    rates: NDArray[np.float32]  # (steps,)
    rows: NDArray[np.int32]  # (steps, batch): indices of the member's samples
    seeds: NDArray[np.int64]  # (steps,): for layers that draw random numbers, such as dropout
    sizes: NDArray[np.int64] | None = None  # (steps,): samples of each batch, if not all are full; the rest is unused
    newest: NDArray[np.float32] | None = None  # (steps,): the share of a step's weights in the average of weights
    shifts: NDArray[np.int32] | None = None  # (steps, batch, 2): where the crop starts
    flips: NDArray[np.bool_] | None = None  # (steps, batch)
    jitter: NDArray[np.float32] | None = None  # (steps, batch, 3): brightness, contrast, saturation
    holes: NDArray[np.int32] | None = None  # (steps, batch, 2): the centre of the cutout
    shares: NDArray[np.float32] | None = None  # (steps,): of the image's own label in mixup and CutMix
    blends: NDArray[np.float32] | None = None  # (steps,): of the image's own pixels in mixup, where CutMix is used too
    boxes: NDArray[np.int32] | None = None  # (steps, 4): top, bottom, left and right of CutMix's rectangle
    warps: NDArray[np.float32] | None = None  # (steps, batch, 4): rotation, log scale and both shears, from -1 to 1
    operations: NDArray[np.uint8] | None = None  # (steps, batch): the operation of TrivialAugment
    strengths: NDArray[np.float32] | None = None  # (steps, batch): of that operation, from -1 to 1

    def tables(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a step reads on the device."""
        names = [field.name for field in fields(self) if field.name not in ON_HOST]
        return {name: value for name in names if (value := getattr(self, name)) is not None}

    def size_of(self, step: int) -> int | None:
        """Return the number of samples in a step's batch, or None if it is full."""
        if self.sizes is None or self.sizes[step] == self.rows.shape[1]:
            return None
        return int(self.sizes[step])


def draw(recipe: Recipe, n_samples: int, shape: tuple[int, ...], source: np.random.SeedSequence) -> RandomDraws:
    """Return the draws of a member with `n_samples` samples of shape (height, width, channels) or (features,)."""
    steps, batch = recipe.steps_of(n_samples), recipe.batch_of(n_samples)

    def rng(purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.PCG64(child(source, purpose)))

    epochs = recipe.epochs if recipe.leftover else -(-steps * batch // n_samples)
    stream = rng(ORDER).permuted(np.tile(np.arange(n_samples, dtype=np.int32), (epochs, 1)), axis=1)
    sizes = None
    if recipe.leftover and n_samples % batch:  # epochs are filled up to whole batches with rows that are not used
        sizes = np.tile(np.minimum(batch, n_samples - np.arange(0, n_samples, batch)), epochs)
        stream = np.pad(stream, ((0, 0), (0, -n_samples % batch)))
    seeds = rng(LAYERS).integers(2**63, size=steps, dtype=np.int64)
    shares = rng(MIXUP).beta(recipe.mixup, recipe.mixup, size=steps).astype(np.float32) if recipe.mixup else None
    blends = boxes = None
    if recipe.cutmix:
        cut, boxes, uncovered = _boxes(rng(CUTMIX), recipe.cutmix, steps, shape)
        blends = None if shares is None else np.where(cut, np.float32(1), shares)
        shares = np.where(cut, uncovered, np.float32(1) if shares is None else shares)
    return RandomDraws(
        rates=recipe.rates(n_samples),
        sizes=sizes,
        newest=recipe.newest(n_samples) if recipe.average else None,
        rows=stream.reshape(-1)[: steps * batch].reshape(steps, batch),
        shifts=rng(CROP).integers(2 * recipe.crop + 1, size=(steps, batch, 2), dtype=np.int32) if recipe.crop else None,
        flips=rng(FLIP).integers(2, size=(steps, batch), dtype=np.int8).astype(np.bool_) if recipe.flip else None,
        jitter=_factors(rng(JITTER), recipe.jitter, (steps, batch, 3)) if recipe.jitter else None,
        holes=rng(CUTOUT).integers(shape[:2], size=(steps, batch, 2), dtype=np.int32) if recipe.cutout else None,
        shares=shares,
        blends=blends,
        boxes=boxes,
        warps=_signed(rng(AFFINE), (steps, batch, 4)) if recipe.affine else None,
        operations=rng(TRIVIAL).integers(N_OPERATIONS, size=(steps, batch), dtype=np.uint8) if recipe.trivial else None,
        strengths=_signed(rng(STRENGTH), (steps, batch)) if recipe.trivial else None,
        seeds=seeds,
    )


def _factors(draws: np.random.Generator, most: float, size: tuple[int, ...]) -> NDArray[np.float32]:
    return (1 + most * (2 * draws.random(size, dtype=np.float32) - 1)).astype(np.float32)


def _signed(draws: np.random.Generator, size: tuple[int, ...]) -> NDArray[np.float32]:
    return 2 * draws.random(size, dtype=np.float32) - 1


def _boxes(
    draws: np.random.Generator, chance: float, steps: int, shape: tuple[int, ...]
) -> tuple[NDArray[np.bool_], NDArray[np.int32], NDArray[np.float32]]:
    """Return the steps that use CutMix, its rectangles (empty in other steps) and the uncovered share of the image.

    As in the CutMix paper, a rectangle has the image's aspect ratio, a uniform area before clipping, and a uniform
    centre.
    """
    size = np.array(shape[:2])
    cut = draws.random(steps) < chance
    sides = np.rint(np.sqrt(draws.random((steps, 1))) * size).astype(np.int64)
    first = np.floor(draws.random((steps, 2)) * size).astype(np.int64) - sides // 2
    edges = np.clip(np.stack([first, first + sides], axis=2), 0, size[:, None]) * cut[:, None, None]
    uncovered = 1 - (edges[..., 1] - edges[..., 0]).prod(axis=1) / size.prod()
    return cut, edges.reshape(steps, 4).astype(np.int32), uncovered.astype(np.float32)
