"""The work of a run: the members it needs, the networks that exist, and those that are missing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runoff._io.text import one_line
from runoff.ballots import points
from runoff.datasets import Dataset
from runoff.errors import RunError, RunoffError, StorageError
from runoff.executors import Executor, Plan
from runoff.hashing import Digests, source_sizes
from runoff.recipes import Recipe
from runoff.runs.directory import MEMBERS, Run
from runoff.runs.edits import arranged, edited
from runoff.runs.settings import Settings
from runoff.samples import Rows
from runoff.torch import devices, inputs, starting
from runoff.torch.building import build, check_scores
from runoff.torch.checkpoints import Checkpoints
from runoff.torch.heads import HeadTrainer
from runoff.torch.pipeline import Pipeline, class_shares, member_scores, network_jobs
from runoff.torch.training.jobs import Job, array_digest, compact
from runoff.torch.workload import HeadSettings, TrainerSettings, guess

if TYPE_CHECKING:
    from runoff.partition import Partition


def settings_for(
    dataset: Dataset, name: str, recipe: Recipe | None, *, threat: str = "samples", **given: Any
) -> Settings:
    """Return the settings of a run on a dataset; if its samples have sources, edits are counted by source."""
    if threat == "labels" and dataset.groups is not None:
        raise RunError(f"{dataset.name} has groups, which cannot be used if labels are counted: leave them out")
    unit = threat if dataset.groups is None else "sources"
    described = {} if recipe is None else recipe.to_dict()
    return Settings(dataset=name, fingerprint=dataset.fingerprint, recipe=described, unit=unit, **given)


def check(settings: Settings, dataset: Dataset, device: Any, executor: Executor | None = None) -> None:
    """Raise an error for settings that cannot be trained, before anything is written."""
    settings.make_partition()
    if executor is None or executor.here:
        devices.find(device)
    elif settings.encoder is not None:
        raise RunError("--executor must be local with --encoder, which runs on this machine only: leave it out")
    images = arranged(dataset.x_train[:1])
    if len(dataset.classes) < 2:
        raise RunError(f"{dataset.name} must have at least 2 classes, got {len(dataset.classes)}")
    if settings.encoder is not None:
        if dataset.x_train.dtype != np.uint8 or dataset.x_test.dtype != np.uint8:
            raise RunError(f"{dataset.name} must contain 8-bit images for an encoder, got {dataset.x_train.dtype}")
        from runoff.torch import encoders

        encoders.recorded(settings.encoder, device).features(images)
        return
    factory = starting.recorded(settings.network, settings.first_weights)
    inputs.suits(Recipe.from_dict(settings.recipe), images)
    module = build(factory, images.shape[1:], len(dataset.classes), np.random.SeedSequence(0))
    check_scores(module, images.shape[1:], len(dataset.classes))


def about(dataset: Dataset) -> dict[str, Any]:
    """Return the description of a dataset for a run's manifest."""
    return {
        "name": dataset.name,
        "n_train": len(dataset.x_train),
        "n_test": len(dataset.x_test),
        "shape": list(dataset.x_train.shape[1:]),
        "classes": list(dataset.classes),
    }


@dataclass(frozen=True, eq=False)
class Work:
    """The members of a run, and its networks."""

    partition: Partition
    rows: list[Rows]
    digests: Digests
    labels: NDArray[np.int64]
    n_classes: int
    pipeline: Pipeline
    inputs: NDArray[Any]
    store: Checkpoints
    sources: tuple[int, float] | None = None  # their number, and the share of the samples of the largest

    def n_single(self) -> int:
        """Return the number of members with samples of one class only."""
        return self.partition.single_class(self.rows, self.labels)

    def steps(self) -> int:
        """Return the number of training steps that remain."""
        return sum(self.pipeline.settings.steps_of(len(job.rows)) for job in self.pipeline.missing)

    def seconds(self) -> float:
        """Return a rough estimate of the training time: measured on a CPU, computed for a GPU."""
        missing = self.pipeline.missing
        if not missing:
            return 0.0
        plan = self.plan()
        if plan is not None:
            return plan.seconds
        trainer = self.pipeline.settings.trainer()
        return guess(trainer, missing[0], [len(job.rows) for job in missing], self.inputs)

    def plan(self) -> Plan | None:
        """Return the plan of an executor that trains on other machines, or None."""
        missing = [job.key for job in self.pipeline.missing]
        return self.pipeline.executor.plan(self.pipeline.work(), missing) if missing else None

    def ballots(self, seeds: Iterable[int], *, verified: bool = False) -> NDArray[Any]:
        """Return the members' ballots, (n_inputs, n_members, n_classes), from their networks of these seeds.

        With `verified`, identities of networks are ignored, for runs whose files have just been checked.
        """
        digest, wanted = array_digest(self.inputs), set(seeds)
        jobs: dict[int, list[Job]] = {m: [] for m in range(len(self.rows))}
        for job in self.pipeline.jobs:
            if job.seed in wanted:
                jobs[job.member].append(job)
        result: Any = None
        for m, rows in enumerate(self.rows):
            scores = [self._scores(job, digest, verified) for job in jobs[m]]
            usable = [part for part in scores if part is not None]
            shares = class_shares(self.labels[rows], self.n_classes)
            ranked = points(member_scores(usable, shares, len(self.inputs)))
            if result is None:
                result = np.empty((len(self.inputs), len(self.rows), self.n_classes), ranked.dtype)
            result[:, m] = ranked
        return result  # type: ignore[no-any-return]

    def _scores(self, job: Job, digest: str, verified: bool) -> NDArray[np.float32] | None:
        """Return the scores of a network; None if it cannot be used."""
        network = self.store.get(job, None if verified else self.pipeline.identities[job.key], digest)
        if network is None or (network.scores is None and network.refused is None):
            raise RunError(f"networks of member {job.member} in {self.store.path} are missing or changed: retrain it")
        return network.scores if network.refused is None else None


def plan(
    settings: Settings,
    partition: Partition,
    dataset: Dataset,
    edits: list[Any],
    folder: Path,
    *,
    n_seeds: int,
    device: Any,
    in_flight: int | None,
    weights: bool,
    executor: Executor | None = None,
) -> Work:
    """Return the work of a run: the networks it needs, those that exist in `folder`, and those that are missing."""
    samples, labels, groups = edited(dataset, edits, settings.unit)
    trainer = trainer_settings(settings, samples.data, len(dataset.classes), device=device, in_flight=in_flight)
    digests = partition.digests(samples)
    sources = None if groups is None else partition.sources(groups, len(samples))
    rows = partition.rows(partition.buckets(samples, digests, sources), digests, labels)
    jobs = network_jobs(samples.data, labels, rows, range(len(rows)), settings.random_state, n_seeds)
    scored = compact(arranged(dataset.x_test))
    store = Checkpoints(folder, weights=weights, make=False)
    pipeline = Pipeline.plan(trainer, store, jobs, scored, need_scores=True, executor=executor)
    sizes = None if sources is None else source_sizes(sources)
    return Work(partition, rows, digests, labels, len(dataset.classes), pipeline, scored, store, sizes)


def trainer_settings(
    settings: Settings, x: NDArray[Any], n_classes: int, *, device: Any, in_flight: int | None = None
) -> TrainerSettings:
    """Return the settings of the trainer of a run's members, for samples with the shape of x."""
    shape = x.shape[1:]
    if settings.encoder is not None:
        from runoff.torch import encoders

        encoder = encoders.recorded(settings.encoder, device)
        return HeadSettings(HeadTrainer(encoder, shape, n_classes, device=device, in_flight=in_flight))
    recipe = _recipe(settings)
    inputs.suits(recipe, x)
    network = starting.recorded(settings.network, settings.first_weights)
    return TrainerSettings(network, recipe, shape, n_classes, device=device, in_flight=in_flight)


def work_of(
    run: Run,
    dataset: Dataset,
    *,
    n_seeds: int,
    device: Any = None,
    in_flight: int | None = None,
    edits: Any = (),
    executor: Executor | None = None,
) -> Work:
    """Return the work of an existing run, after further `edits`."""
    return plan(
        run.settings, run.partition(), dataset, [*run.edits(), *edits], run.path / MEMBERS,
        n_seeds=n_seeds, device=device, in_flight=in_flight, weights=run.manifest["dataset"]["weights"],
        executor=executor,
    )  # fmt: skip


def _recipe(settings: Settings) -> Recipe:
    try:
        return Recipe.from_dict(settings.recipe)
    except RunoffError:
        raise
    except (TypeError, ValueError, OverflowError) as error:
        raise StorageError(f"the run's recipe is invalid ({one_line(error)}): its manifest was altered") from None
