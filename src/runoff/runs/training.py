"""Train the members of a run: what is missing, and nothing that is there."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from runoff._io.files import leftovers, read_regular, sha256_of
from runoff._io.manifests import LARGEST_MANIFEST, sha256
from runoff._io.progress import with_progress
from runoff.ballots import points
from runoff.datasets import Dataset
from runoff.errors import RunError, StorageError
from runoff.hashing import Digests
from runoff.isolation import seeds_of
from runoff.recipes import Recipe
from runoff.runs import Run, Settings
from runoff.runs.edits import arranged, edited
from runoff.samples import Rows
from runoff.torch import devices, inputs, starting
from runoff.torch.building import build
from runoff.torch.checkpoints import Checkpoints, Identities, is_checkpoint
from runoff.torch.classifier import averaged
from runoff.torch.training.jobs import Job, array_digest, compact
from runoff.torch.training.slots import INPUTS
from runoff.torch.training.trainer import Trainer

if TYPE_CHECKING:
    from runoff.partition import Partition

# Of Network-in-Network on an NVIDIA H200: 0.85 ms for 128 images of 32 x 32, and never below 0.36 ms.
SECONDS_A_PIXEL, SECONDS_A_STEP, START_SECONDS = 0.85e-3 / (128 * 32 * 32), 0.36e-3, 12.0


def settings_for(dataset: Dataset, name: str, recipe: Recipe, **given: Any) -> Settings:
    """The settings of a run on a dataset."""
    return Settings(dataset=name, fingerprint=dataset.fingerprint, recipe=recipe.to_dict(), **given)


def check(settings: Settings, dataset: Dataset, device: Any) -> None:
    """Refuse what cannot be trained before anything is written."""
    factory = starting.recorded(settings.network, settings.first_weights)
    devices.find(device)
    images = arranged(dataset.x_train[:1])
    inputs.suits(Recipe.from_dict(settings.recipe), images)
    if len(dataset.classes) < 2:
        raise RunError(f"{dataset.name} must have at least 2 classes, got {len(dataset.classes)}")
    build(factory, images.shape[1:], len(dataset.classes), np.random.SeedSequence(0))


def about(dataset: Dataset) -> dict[str, Any]:
    """What a run's manifest says of its dataset."""
    return {
        "name": dataset.name,
        "n_train": len(dataset.x_train),
        "n_test": len(dataset.x_test),
        "shape": list(dataset.x_train.shape[1:]),
        "classes": list(dataset.classes),
    }


@dataclass(frozen=True, eq=False)
class Work:
    """The networks of a run, and which of them are still to be trained."""

    trainer: Trainer
    partition: Partition
    rows: list[Rows]
    digests: Digests
    labels: NDArray[np.int64]
    jobs: list[Job]
    names: dict[tuple[int, int], str]
    missing: list[Job]
    asked: NDArray[Any]
    store: Checkpoints
    told: dict[str, str]  # what networks follow from beside samples and settings: see Identities.told

    def steps(self) -> int:
        """How many are still to be taken."""
        return sum(self.trainer.recipe.steps_of(len(job.rows)) for job in self.missing)

    def seconds(self) -> float:
        """A rough guess of the time that they take: a few steps are tried on a CPU; on a GPU, as measured on one."""
        if not self.missing:
            return 0.0
        return guess(self.trainer, self.missing[0], [len(job.rows) for job in self.missing], self.asked)


def guess(trainer: Trainer, like: Job, sizes: Iterable[int], asked: NDArray[Any]) -> float:
    """Seconds to train networks with so many samples each, roughly, and to ask them: tried on a CPU with such a job."""
    recipe, shape = trainer.recipe, trainer.shape
    if trainer.device.type == "cpu":
        step, block = trainer.try_out(like, asked)
        blocks = -(-len(asked) // INPUTS["cpu"])
        return sum(recipe.steps_of(n) * step + blocks * block for n in sizes) / trainer.workers()
    pixels = shape[0] * shape[1] if len(shape) == 3 else 1
    return START_SECONDS + sum(
        recipe.steps_of(n) * max(SECONDS_A_STEP, recipe.batch_of(n) * pixels * SECONDS_A_PIXEL) for n in sizes
    )


def plan(
    run_settings: Settings,
    partition: Partition,
    dataset: Dataset,
    edits: list[Any],
    folder: Path,
    *,
    n_seeds: int,
    device: Any,
    in_flight: int | None,
    weights: bool,
) -> Work:
    """What a run needs, what is there already, and what is missing."""
    samples, labels = edited(dataset, edits)
    recipe = _recipe(run_settings)
    array = samples.data
    inputs.suits(recipe, array)
    shape, n_classes = array.shape[1:], len(dataset.classes)
    network = starting.recorded(run_settings.network, run_settings.first_weights)
    trainer = Trainer(network, recipe, shape, n_classes, device=device, in_flight=in_flight)
    digests = partition.digests(samples)
    rows = partition.rows(partition.buckets(samples, digests), digests, labels)
    jobs = [
        Job(m, s, source, array, own, labels[own])
        for m, own in enumerate(rows)
        if len(np.unique(labels[own])) > 1
        for s, source in enumerate(seeds_of(run_settings.random_state, m, n_seeds))
    ]
    asked = compact(arranged(dataset.x_test))
    identities, digest = Identities(trainer), array_digest(asked)
    store = Checkpoints(folder, weights=weights, make=False)
    names = {(job.member, job.seed): identities.of(job) for job in jobs}
    missing = [job for job in jobs if not store.has(job, names[job.member, job.seed], digest)]
    return Work(trainer, partition, rows, digests, labels, jobs, names, missing, asked, store, identities.told)


def _recipe(settings: Settings) -> Recipe:
    try:
        return Recipe.from_dict(settings.recipe)
    except (TypeError, OverflowError) as error:
        raise StorageError(f"the run's recipe is none ({error}): its manifest was altered") from None


def foreign(run: Run, work: Work) -> str | None:
    """How what is here differs from what trained a run's networks, so that none of them would come out the same."""
    code = "another version of the code that trains"
    before = run.manifest.get("trained_by")
    if not isinstance(before, dict):  # by a version that did not note it
        if not run.seeds():
            return None
        before = {"device": run.manifest.get("device"), "precision": run.manifest.get("precision")}
        before |= {name: run.manifest["versions"].get(name) for name in ("torch", "numpy", "runoff")}
        known = [(job, _name(run, work, job)) for job in work.missing]
        if any(name in run.manifest["files"] and not _altered(run, work, job) for job, name in known):
            before["code"] = "another"
    for name, value in before.items():
        if value != work.told.get(name):
            return code if name == "code" else f"{name} {value}, not {work.told.get(name)}"
    return None


def check_trainer(run: Run, work: Work, retrain: bool) -> bool:
    """Whether all of a run is to be trained anew; without being asked to, that is refused."""
    if (other := foreign(run, work)) is not None and not retrain:
        raise RunError(
            f"{run.path} was trained with {other}, so all of it would have to be trained anew: go on where it was "
            "trained, give another directory, or use --retrain"
        )
    return other is not None


def train(
    run: Run,
    work: Work,
    dataset: Dataset,
    *,
    n_seeds: int,
    progress: bool | None,
    retrain: bool = False,
    only: bool = False,
) -> dict[str, Any]:
    """Train what is missing, then write ballots, labels and spread. Interrupted at any point, the next call goes on.

    Networks that would come out otherwise here are left alone unless `retrain`: then all of them are trained anew.
    Then, and with `only`, those that are not of this work are deleted: they are of other code, or of other samples.
    """
    started = time.perf_counter()
    only = check_trainer(run, work, retrain) or only
    run.manifest["trained_by"] = dict(work.told)  # in the next write of the manifest, before any network is
    if work.store.path.is_dir():
        for leftover in leftovers(work.store.path):  # of a kill
            leftover.unlink(missing_ok=True)
    run.settle(n_seeds)
    work = replace(work, missing=[job for job in work.jobs if job in work.missing or _altered(run, work, job)])
    if work.missing:  # what rests on them is of other networks
        run.forget(min(job.seed for job in work.missing), [_name(run, work, job) for job in work.missing])
    found = len(work.jobs) - len(work.missing)
    training = work.trainer.train(work.missing, work.asked) if work.missing else iter(())
    refused = []
    for trained in with_progress(training, "training networks", len(work.missing), done=found, show=progress):
        work.store.put(trained, work.names[trained.member, trained.seed])
        if trained.refused:
            refused.append(f"member {trained.member}: {trained.refused}")
    took = time.perf_counter() - started
    _write_ballots(run, work, dataset, n_seeds)
    gone = _gone(work, only)
    timings = _timings(run)
    if any(f"{job.member}-{job.seed}" in timings["networks"] for job in work.missing):  # what was timed is of others
        timings["training"], timings["timed"] = 0.0, 0
    for m, s in gone:
        timings["networks"].pop(f"{m}-{s}", None)
    timings["networks"] |= {f"{m}-{s}": work.store.seconds(m, s) for m, s in work.names}
    if work.missing:
        timings["training"] = round(timings["training"] + took, 3)
        timings["timed"] += len(work.missing)
    run.write_text("timings.json", json.dumps(timings, indent=1))
    run.manifest["device"] = devices.describe(work.trainer.device)
    run.manifest["precision"] = work.trainer.precision
    run.manifest["versions"] |= {"torch": torch.__version__, "python": platform.python_version()}
    run.manifest["member_sizes"] = [len(own) for own in work.rows]
    run.manifest["training_sets"] = work.partition.training_sets(work.rows, work.digests, work.labels)
    run.manifest["n_seeds"] = max(n_seeds, *run.seeds(), 1)
    made, files = f"ballots-{n_seeds}.npy", run.manifest["files"]
    stale: list[str] = []
    if files.get(made) != sha256_of(run.path / made):  # certificates of other ballots
        stale += [f for f in files if f.startswith("certificates/") and Path(f).stem.endswith(f"-{n_seeds}")]
    stale += [str(file.relative_to(run.path)) for file in gone.values()]
    for file in gone.values():
        if str(file.relative_to(run.path)) not in files:  # after an update nothing is left to do once it is finished
            file.unlink(missing_ok=True)
    vouched = [made, "labels.npy", "spread.npy", "timings.json", *(_name(run, work, job) for job in work.jobs)]
    run.replace(vouched, *stale)
    for file in gone.values():
        file.unlink(missing_ok=True)
    return {"trained": len(work.missing), "found": found, "seconds": round(took, 3), "refused": refused}


def _gone(work: Work, only: bool) -> dict[tuple[int, int], Path]:
    """Networks that no longer hold.

    Members whose samples are of one class by now have no network; those that they had are of other samples.
    """
    with_one = {job.member for job in work.jobs}
    others = {key: file for key, file in work.store.there().items() if key not in work.names and is_checkpoint(file)}
    return {key: file for key, file in others.items() if only or key[0] not in with_one}


def _name(run: Run, work: Work, job: Job) -> str:
    return str(work.store.file(job.member, job.seed).relative_to(run.path))


def _altered(run: Run, work: Work, job: Job) -> bool:
    """Whether a network that is there is another than the manifest vouches for."""
    digest, file = run.manifest["files"].get(_name(run, work, job)), work.store.file(job.member, job.seed)
    return digest is not None and (not file.exists() or sha256_of(file) != digest)


def _timings(run: Run) -> dict[str, Any]:
    try:
        digest = run.manifest["files"].get("timings.json")
        written = read_regular(run.path / "timings.json", LARGEST_MANIFEST)
        if digest is not None and digest != sha256(written):  # of no use
            raise ValueError
        timings = json.loads(written)
        return {
            "networks": dict(timings["networks"]),  # seconds of each, beside others
            "training": float(timings["training"]),  # seconds of all that commands which came to their end trained,
            "timed": int(timings["timed"]),  # so many
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {"networks": {}, "training": 0.0, "timed": 0}


def ballots(work: Work, n_classes: int, seeds: Iterable[int], *, as_kept: bool = False) -> NDArray[Any]:
    """The members' ballots, (n_inputs, n_members, n_classes), from their networks of these seeds alone.

    `as_kept` takes the networks that are there, whoever trained them: for runs that have been verified.
    """
    digest, wanted = array_digest(work.asked), set(seeds)
    by_member: dict[int, list[Job]] = {}
    for job in work.jobs:
        if job.seed in wanted:
            by_member.setdefault(job.member, []).append(job)
    result: Any = None
    for m, own in enumerate(work.rows):
        shares = np.bincount(work.labels[own], minlength=n_classes) / max(1, len(own))
        jobs = by_member.get(m, [])
        found = [work.store.get(job, None if as_kept else work.names[job.member, job.seed], digest) for job in jobs]
        if any(net is None or (net.scores is None and net.refused is None) for net in found):
            raise RunError(f"the networks of member {m} in {work.store.path} are not there, or changed: train again")
        scores = [net.scores for net in found if net is not None and net.refused is None and net.scores is not None]
        voted = averaged(scores, shares) if scores else np.tile(shares.astype(np.float32), (len(work.asked), 1))
        ranked = points(voted)
        if result is None:
            result = np.empty((len(work.asked), len(work.rows), n_classes), ranked.dtype)
        result[:, m] = ranked
    return result  # type: ignore[no-any-return]


def _write_ballots(run: Run, work: Work, dataset: Dataset, n_seeds: int) -> None:
    made = ballots(work, len(dataset.classes), range(n_seeds))
    run.begin(f"ballots-{n_seeds}.npy")
    run.write_array(f"ballots-{n_seeds}.npy", made)
    run.write_array("labels.npy", dataset.y_test)
    run.write_array("spread.npy", work.partition.spread)
