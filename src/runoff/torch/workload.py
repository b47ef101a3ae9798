"""Training of networks as work for an executor, on this machine or on a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from runoff._io.manifests import sha256
from runoff.executors import Place, Work
from runoff.recipes import Recipe
from runoff.torch import checkpoints, identities
from runoff.torch.heads import HeadTrainer, linear
from runoff.torch.networks import Factory
from runoff.torch.training.jobs import Job, array_digest
from runoff.torch.training.results import Trained
from runoff.torch.training.slots import INPUTS
from runoff.torch.training.trainer import Trainer

Key = tuple[int, int]  # member and seed

# Network-in-Network on an NVIDIA H200: 0.85 ms for 128 images of 32 x 32, and never below 0.36 ms.
SECONDS_PER_PIXEL, SECONDS_PER_STEP, START_SECONDS = 0.85e-3 / (128 * 32 * 32), 0.36e-3, 12.0


@dataclass(frozen=True, eq=False)
class TrainerSettings:
    """The parameters of a `Trainer`, from which other machines can create it."""

    network: Factory
    recipe: Recipe
    shape: tuple[int, ...]
    n_classes: int
    device: Any = None
    in_flight: int | None = None
    what: ClassVar[str] = "networks"  # in progress bars

    def trainer(self, place: Place = Place()) -> Trainer:  # noqa: B008
        """Return a trainer on this machine; the place of a task overrides `device`."""
        device = self.device if place.gpu is None else "cuda" if place.gpu else "cpu"
        in_flight = self.in_flight or (None if place.gpu else place.cpus)
        return Trainer(self.network, self.recipe, self.shape, self.n_classes, device=device, in_flight=in_flight)

    def kind(self, place: Place = Place()) -> dict[str, Any]:  # noqa: B008
        """Return the facts that determine the bits of networks on this machine."""
        return identities.conditions(self.trainer(place))

    def steps_of(self, n_samples: int) -> int:
        """Return the number of training steps of a network with `n_samples` samples."""
        return self.recipe.steps_of(n_samples)


class HeadSettings(TrainerSettings):
    """The settings of a `HeadTrainer`, which encodes samples on this machine."""

    what: ClassVar[str] = "heads"

    def __init__(self, trainer: HeadTrainer) -> None:
        super().__init__(linear, Recipe(epochs=1), trainer.shape, trainer.n_classes)  # the recipe is not used
        object.__setattr__(self, "_trainer", trainer)

    def trainer(self, place: Place = Place()) -> Trainer:  # noqa: ARG002, B008
        """Return the trainer, with the features that it has computed."""
        trainer: Trainer = self.__dict__["_trainer"]
        return trainer

    def steps_of(self, n_samples: int) -> int:  # noqa: ARG002
        """Return the number of training steps: none, since heads are trained in closed form."""
        return 0


@dataclass(frozen=True, eq=False)
class Networks(Work):
    """Networks to train; an item is a member and a seed.

    Results are files as `Checkpoints` writes them, with `identities`; `weights` and `half` have the same meaning.
    """

    settings: TrainerSettings
    jobs: Mapping[Key, Job] = field(repr=False)
    inputs: NDArray[Any] | None = field(repr=False)
    identities: Mapping[Key, str] = field(repr=False)
    weights: bool = True
    half: bool = False
    kinds: tuple[dict[str, Any], ...] = ()

    def train(self, items: Sequence[Key], place: Place) -> Iterator[tuple[Key, Trained]]:
        """Train these networks on one device, several at a time."""
        inputs = self.inputs
        if inputs is not None and not inputs.flags.writeable:  # shared memory of the cluster, about which PyTorch warns
            inputs = inputs.copy()
        for trained in self.settings.trainer(place).train([self.jobs[item] for item in items], inputs):
            yield (trained.member, trained.seed), trained

    def kind(self, place: Place) -> dict[str, Any]:
        """Return the facts that determine the bits of networks on this machine."""
        return self.settings.kind(place)

    def member(self, item: Key) -> int:
        """Return the member."""
        return item[0]

    def name(self, item: Key) -> str:
        """Return the member, and the seed if it is not the first."""
        return f"member {item[0]}" + (f", seed {item[1]}" if item[1] else "")

    def part(self, items: Sequence[Key]) -> Networks:
        """Return work with the samples of these networks only."""
        jobs = {}
        for item in items:
            job = self.jobs[item]
            jobs[item] = replace(job, samples=job.samples[job.rows], rows=np.arange(len(job.rows)))
        return replace(self, jobs=jobs, identities={item: self.identities[item] for item in items})

    def weight(self, item: Key) -> float:
        """Return the number of training steps."""
        return float(max(1, self.settings.steps_of(len(self.jobs[item].rows))))

    def measure(self, items: Sequence[Key], place: Place) -> float:
        """Return the estimated seconds for these networks: from a few steps on a CPU, computed for a GPU."""
        jobs = [self.jobs[item] for item in items]
        scored = jobs[0].images() if self.inputs is None else self.inputs
        sizes = [len(job.rows) for job in jobs]
        return guess(self.settings.trainer(place), jobs[0], sizes, np.array(scored)) - START_SECONDS * bool(place.gpu)

    def basis(self, place: Place) -> str:
        """Return how the time was estimated."""
        return "computed from times on an H200" if place.gpu else "from a few training steps after the first"

    def address(self, item: Key) -> str:
        """Return a unique name for a result: a digest of the network, the inputs that it scored and the format."""
        scored = "" if self.inputs is None else self._inputs_digest
        return sha256(f"{self.identities[item]} {scored} {self.weights} {self.half}".encode())

    def pack(self, item: Key, result: Trained) -> bytes:
        """Return a network as the content of a checkpoint."""
        return checkpoints.encoded(result, self.identities[item], weights=self.weights, half=self.half)

    @property
    def _inputs_digest(self) -> str:
        """A digest of the inputs, computed once."""
        known: str | None = self.__dict__.get("_known_digest")
        if known is None:
            known = array_digest(self.inputs)
            object.__setattr__(self, "_known_digest", known)
        return known

    def __getstate__(self) -> dict[str, Any]:
        """Pack all jobs into a few arrays, since two arrays per network would be slow to send."""
        jobs = list(self.jobs.values())
        packed = {
            "keys": np.array([job.key for job in jobs], np.int64).reshape(-1, 2),
            "sources": [(job.source.entropy, job.source.spawn_key) for job in jobs],
            "ends": np.cumsum([len(job.rows) for job in jobs]),
            "rows": np.concatenate([np.empty(0, np.int64), *(job.rows for job in jobs)]),
            "labels": np.concatenate([np.empty(0, np.int64), *(job.labels for job in jobs)]),
            "samples": jobs[0].samples if jobs else None,
        }
        alike = all(job.samples is packed["samples"] for job in jobs)
        return self.__dict__ | ({"jobs": packed} if alike else {})

    def __setstate__(self, state: dict[str, Any]) -> None:
        packed = state["jobs"]
        if "samples" in packed:
            jobs, start = {}, 0
            for key, source, end in zip(
                packed["keys"].tolist(), packed["sources"], packed["ends"].tolist(), strict=True
            ):
                entropy, spawn_key = source
                seeds = np.random.SeedSequence(entropy, spawn_key=spawn_key)
                rows, labels = packed["rows"][start:end], packed["labels"][start:end]
                jobs[key[0], key[1]] = Job(key[0], key[1], seeds, packed["samples"], rows, labels)
                start = end
            state = state | {"jobs": jobs}
        self.__dict__.update(state)


def guess(trainer: Trainer, example: Job, sizes: Iterable[int], scored: NDArray[Any]) -> float:
    """Return the estimated seconds to train networks on these numbers of samples and to score inputs."""
    if isinstance(trainer, HeadTrainer):
        return trainer.guess(len(example.samples), scored)
    recipe, shape = trainer.recipe, trainer.shape
    if trainer.device.type == "cpu":
        step, block = trainer.try_out(example, scored)
        blocks = -(-len(scored) // INPUTS["cpu"])
        return sum(recipe.steps_of(n) * step + blocks * block for n in sizes) / trainer.workers()
    pixels = shape[0] * shape[1] if len(shape) == 3 else 1
    return START_SECONDS + sum(
        recipe.steps_of(n) * max(SECONDS_PER_STEP, recipe.batch_of(n) * pixels * SECONDS_PER_PIXEL) for n in sizes
    )
