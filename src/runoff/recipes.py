"""Recipes: training settings of networks as plain data, fixed in advance and stored with the networks."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.errors import InputError

SCHEDULES = ("steps", "cosine", "constant")
OPTIMIZERS = ("sgd", "adamw")
NETWORKS = ("nin", "small")  # names in `runoff.torch.networks`, which cannot be imported without PyTorch
PRECISIONS = ("auto", "fp32", "tf32", "bf16")
NUMBERS = (
    "lr", "momentum", "weight_decay", "gamma", "jitter", "mixup", "label_smoothing", "affine", "cutmix", "average",
)  # fmt: skip
LATER = ("affine", "trivial", "cutmix", "average", "test_shift", "leftover")  # fields of later releases


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The training settings of a network.

    The epochs of a member are one shuffled stream, cut into full batches. A member with fewer samples than `batch_size`
    has batches of about that many samples, so that it takes about one step per epoch. With `leftover`, each epoch is
    cut separately, and ends with a smaller batch of the remaining samples. All of this depends only on the number of
    samples of the member.

    Parameters
    ----------
    epochs, batch_size, optimizer ("sgd" or "adamw"), lr, momentum, nesterov, weight_decay : as in PyTorch
    schedule : "steps" (lr times gamma after each epoch in milestones), "cosine" (to zero) or "constant"
    crop : width in pixels of the black padding before a random crop
    flip : mirror each image with probability 1/2
    jitter : scale brightness, contrast and saturation, each by a factor from 1 - jitter to 1 + jitter
    cutout : side of a square that is set to the mean
    mixup : mix each batch with a permutation of itself, with a weight from Beta(mixup, mixup)
    affine : strength of a random rotation, scaling and shear of every image; 1 is up to 15 degrees, 28 % and 0.1
    trivial : TrivialAugment, one random operation of random strength on every image (see `augment.trivial`)
    cutmix : fraction of batches in which a random rectangle of another image is pasted instead of mixup
    label_smoothing : as in PyTorch
    average : average weights and batch statistics over this fraction of the steps, at the end of training
    test_flip : average the scores of an input and its mirror image
    test_shift : average the scores of an input and four copies, shifted diagonally by this many pixels
    precision : "fp32", "tf32", "bf16", or "auto": bf16 on GPUs that have it, else fp32
    leftover : end each epoch with a batch of the remaining samples, as a plain loop over batches does

    """

    epochs: int
    batch_size: int = 128
    optimizer: str = "sgd"
    lr: float = 0.1
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    schedule: str = "cosine"
    milestones: tuple[int, ...] = ()
    gamma: float = 0.2
    crop: int = 0
    flip: bool = False
    jitter: float = 0.0
    cutout: int = 0
    mixup: float = 0.0
    label_smoothing: float = 0.0
    test_flip: bool = False
    precision: str = "auto"
    affine: float = 0.0
    trivial: bool = False
    cutmix: float = 0.0
    average: float = 0.0
    test_shift: int = 0
    leftover: bool = False

    def __post_init__(self) -> None:
        for name, allowed in (("schedule", SCHEDULES), ("optimizer", OPTIMIZERS), ("precision", PRECISIONS)):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"a recipe's {name} must be one of {', '.join(map(repr, allowed))}, got {getattr(self, name)!r:.60}"
                )
        for name, least in (("epochs", 1), ("batch_size", 2), ("crop", 0), ("cutout", 0), ("test_shift", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InputError(f"a recipe's {name} must be a whole number of at least {least}, got {value!r:.60}")
        for name in NUMBERS:
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
                raise InputError(f"a recipe's {name} must be a number of at least 0, got {value!r:.60}")
        for name in ("jitter", "cutmix", "average"):
            if getattr(self, name) > 1:
                raise InputError(f"a recipe's {name} must be at most 1, got {getattr(self, name)!r:.60}")
        for name in ("trivial", "leftover"):
            if not isinstance(getattr(self, name), bool):
                raise InputError(f"a recipe's {name} must be True or False, got {getattr(self, name)!r:.60}")
        object.__setattr__(self, "milestones", tuple(int(epoch) for epoch in self.milestones))

    @property
    def on_bytes(self) -> str | None:
        """The name of an operation of this recipe that needs 8-bit images, or None."""
        return next((name for name in ("jitter", "trivial") if getattr(self, name)), None)

    def batch_of(self, n_samples: int) -> int:
        """Return the batch size of a member with `n_samples` samples.

        Sizes are multiples of 8, and at least 16, so that members of similar size share a CUDA graph. With `leftover`,
        a member with less than a batch has one batch of all its samples per epoch.
        """
        if n_samples >= self.batch_size:
            return self.batch_size
        if self.leftover:
            return n_samples
        return min(self.batch_size, max(16, 8 * round(n_samples / 8)))

    def steps_of(self, n_samples: int) -> int:
        """Return the number of steps of a member with `n_samples` samples."""
        if self.leftover:
            return self.epochs * -(-n_samples // self.batch_of(n_samples))
        return max(1, round(self.epochs * n_samples / self.batch_of(n_samples)))

    def rates(self, n_samples: int) -> NDArray[np.float32]:
        """Return the learning rate of each step."""
        steps = np.arange(self.steps_of(n_samples))
        if self.schedule == "cosine":
            return (self.lr * 0.5 * (1 + np.cos(np.pi * steps / len(steps)))).astype(np.float32)
        samples_before = steps * self.batch_of(n_samples)
        epochs = steps // (len(steps) // self.epochs) if self.leftover else samples_before // n_samples
        passed = np.searchsorted(self.milestones, epochs, side="right") if self.schedule == "steps" else 0 * steps
        return (self.lr * self.gamma**passed).astype(np.float32)

    def newest(self, n_samples: int) -> NDArray[np.float32]:
        """Return the weight of each step in the running average: 1 until the average starts, then equal shares."""
        steps = self.steps_of(n_samples)
        n_averaged = max(1, round(self.average * steps))
        return (1 / np.maximum(1, np.arange(steps) - (steps - n_averaged) + 1)).astype(np.float32)

    def to_dict(self) -> dict[str, Any]:
        """Return the recipe as plain data for manifests and identities.

        Fields of `LATER` are omitted if they are off, so that recipes of earlier releases keep their identity.
        """
        off = {
            field.name for field in fields(self) if field.name in LATER and getattr(self, field.name) == field.default
        }
        data = {**asdict(self), "milestones": list(self.milestones)}
        return {name: value for name, value in data.items() if name not in off}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Recipe:
        """Return the recipe that a manifest records."""
        if unknown := sorted(set(data) - {field.name for field in fields(cls)}):
            raise InputError(f"a recipe has no field {unknown[0]!r:.60}: it was written by another release")
        return cls(**data)


PAPER = Recipe(epochs=200, schedule="steps", milestones=(60, 120, 160), crop=4, flip=True)

STRONG = Recipe(
    epochs=200,
    lr=0.2,
    weight_decay=2e-3,
    crop=4,
    flip=True,
    jitter=0.4,
    trivial=True,
    mixup=1.0,
    average=0.3,
    test_flip=True,
    test_shift=2,
)

RECIPES = {
    "paper": PAPER,
    # MNIST and GTSRB: a mirrored digit or sign may be another class.
    "paper-no-flip": Recipe.from_dict({**PAPER.to_dict(), "flip": False}),
    # The same in a plain loop over batches, which the paper seems to have used; members are less accurate.
    "paper-literal": Recipe.from_dict({**PAPER.to_dict(), "leftover": True}),
    "paper-literal-no-flip": Recipe.from_dict({**PAPER.to_dict(), "leftover": True, "flip": False}),
    # For members with few images.
    "strong": STRONG,
    "strong-no-flip": Recipe.from_dict({**STRONG.to_dict(), "flip": False, "test_flip": False}),
    # For grey-scale digits and characters.
    "strong-digits": Recipe(epochs=200, weight_decay=2e-3, crop=4, affine=1.5, mixup=0.2, average=0.3),
    "quick": Recipe(epochs=20, batch_size=64, optimizer="adamw", lr=3e-3, weight_decay=1e-2),
}


# Defaults of `runoff train` for the named datasets. A mirrored digit or sign may be another class.
DEFAULTS = {"cifar10": "strong", "gtsrb": "strong-no-flip", "mnist": "strong-digits", "digits": "quick"}
PAPERS = ("paper", "paper-no-flip", "paper-literal", "paper-literal-no-flip")  # with the loop of the paper or ours
PROCEDURAL = ("strong", "strong-no-flip")  # recipes whose networks start from procedural weights by default
SMALLEST = 16  # pixels; smaller images are too small to crop by 4


def default(dataset: str | None, images: NDArray[Any]) -> str:
    """Return the name of the default recipe for a named dataset, or for images of this shape and type."""
    if dataset in DEFAULTS:
        return DEFAULTS[dataset]
    large = images.ndim > 2 and min(images.shape[1:3]) >= SMALLEST
    return "strong-no-flip" if large and images.dtype == np.uint8 else "quick"


def with_epochs(recipe: Recipe, epochs: int) -> Recipe:
    """Return a recipe with another number of epochs, and its milestones moved in proportion."""
    milestones = tuple(milestone * epochs // recipe.epochs for milestone in recipe.milestones)
    return replace(recipe, epochs=epochs, milestones=milestones)


def named(settings: dict[str, Any]) -> tuple[str | None, int | None]:
    """Return the name of a recipe that a manifest records, and its number of epochs if only that differs."""
    if (name := name_of(settings)) is not None:
        return name, None
    epochs = settings.get("epochs")
    if not isinstance(epochs, int) or epochs < 1:
        return None, None
    same = (name for name, recipe in RECIPES.items() if with_epochs(recipe, epochs).to_dict() == settings)
    found = next(same, None)
    return found, None if found is None else epochs


def name_of(settings: dict[str, Any]) -> str | None:
    """Return the name of a recipe that a manifest records, or None if it has none."""
    return next((name for name, recipe in RECIPES.items() if recipe.to_dict() == settings), None)


def get(recipe: str | Recipe) -> Recipe:
    """Return the recipe with this name; a `Recipe` is returned unchanged."""
    if isinstance(recipe, Recipe):
        return recipe
    if recipe not in RECIPES:
        raise InputError(f"recipe must be a Recipe or one of {', '.join(map(repr, RECIPES))}, got {recipe!r}")
    return RECIPES[recipe]
