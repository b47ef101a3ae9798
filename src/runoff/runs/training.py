"""Training of a run: reconcile its directory with the work, train missing networks, publish the results."""

from __future__ import annotations

import json
import logging
import platform
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from runoff._io.files import leftovers, read_regular, sha256_of, write_array
from runoff._io.manifests import LARGEST_MANIFEST, sha256
from runoff.datasets import Dataset
from runoff.errors import RunError
from runoff.runs.directory import CERTIFICATES, Run
from runoff.runs.work import Work
from runoff.torch.checkpoints import is_checkpoint
from runoff.torch.training.jobs import Job

log = logging.getLogger("runoff")


@dataclass(frozen=True)
class Training:
    """The result of training a run: numbers of networks trained and kept, seconds, and refused members."""

    trained: int
    kept: int
    seconds: float
    refused: tuple[str, ...]


def foreign(run: Run, work: Work) -> str | None:
    """Return how the trainer of a run differs from this machine, or None if both give the same networks."""
    before, here = run.manifest.get("trained_by"), work.pipeline.trained_with
    if not isinstance(before, dict):  # recorded before the first network is trained
        return "an unknown version of the training code" if run.seeds() else None
    for name, value in before.items():
        if value != here.get(name):
            return "another version of the training code" if name == "code" else f"{name} {value}, not {here.get(name)}"
    return None


def check_trainer(run: Run, work: Work, retrain: bool) -> bool:
    """Return whether all networks of a run must be retrained, which is an error without `retrain`."""
    if (other := foreign(run, work)) is not None and not retrain:
        raise RunError(
            f"{run.path} was trained with {other}, so all of its networks would have to be retrained: continue "
            "where it was trained, give another directory, or use --retrain"
        )
    return other is not None


def train(
    run: Run,
    work: Work,
    dataset: Dataset,
    *,
    n_seeds: int,
    retrain: bool = False,
    only: bool = False,
) -> Training:
    """Train the missing networks, then write ballots, labels and spread; after an interruption, call it again.

    If networks of the run would give different results on this machine, it is an error unless `retrain`: then all are
    retrained. Then, and with `only`, networks of other code or samples, which are not part of this work, are deleted.
    """
    started = time.perf_counter()
    if untrained := len(work.rows) - len({job.member for job in work.pipeline.jobs}):
        log.warning(
            "%d of %d members have samples of fewer than two classes and no network: they vote by their class shares; "
            "use fewer parts to give each member more samples", untrained, len(work.rows),
        )  # fmt: skip
    only = check_trainer(run, work, retrain) or only
    work = reconcile(run, work, n_seeds)
    with closing(work.pipeline.train()) as results:
        refused = [f"member {done.member}: {done.refused}" for done in results if done.refused]
    seconds = time.perf_counter() - started
    publish(run, work, dataset, n_seeds, seconds, only)
    for reason in refused:
        log.warning("%s; it votes by its class shares", reason)
    jobs, missing = work.pipeline.jobs, work.pipeline.missing
    return Training(len(missing), len(jobs) - len(missing), round(seconds, 3), tuple(refused))


def reconcile(run: Run, work: Work, n_seeds: int) -> Work:
    """Bring a run's directory in line with the work before training; return the work with the missing networks.

    Temporary files of interrupted commands are deleted. Networks that do not match the manifest count as missing.
    Ballots and certificates of networks that are about to change are removed from the manifest.
    """
    run.manifest["trained_by"] = dict(work.pipeline.trained_with)  # written by `settle`, before any network
    for leftover in leftovers(work.store.path) if work.store.path.is_dir() else ():
        leftover.unlink(missing_ok=True)
    run.settle(n_seeds)
    pipeline = work.pipeline
    keys = {job.key for job in pipeline.missing}
    missing = [job for job in pipeline.jobs if job.key in keys or _altered(run, work, job)]
    if missing:
        run.forget(min(job.seed for job in missing), [_name(run, work, job) for job in missing])
    return replace(work, pipeline=replace(pipeline, missing=missing))


def publish(run: Run, work: Work, dataset: Dataset, n_seeds: int, seconds: float, only: bool) -> None:
    """Write ballots, labels, spread and timings, list all files in the manifest, and delete obsolete ones.

    Files are deleted after the manifest on disk no longer lists them, so an interruption never loses a listed file.
    """
    name, files = f"ballots-{n_seeds}.npy", run.manifest["files"]
    ballots = work.ballots(range(n_seeds))
    run.begin(name)
    write_array(run.path / name, ballots)
    write_array(run.path / "labels.npy", dataset.y_test)
    write_array(run.path / "spread.npy", work.partition.spread)
    obsolete = _obsolete(work, only)
    _write_timings(run, work, set(obsolete), seconds)
    run.manifest["device"] = work.pipeline.trained_with["device"]
    run.manifest["precision"] = work.pipeline.trained_with["precision"]
    run.manifest["versions"] |= {"torch": torch.__version__, "python": platform.python_version()}
    run.manifest["member_sizes"] = [len(rows) for rows in work.rows]
    run.manifest["training_sets"] = work.partition.training_sets(work.rows, work.digests, work.labels)
    if work.sources is not None:
        run.manifest["sources"] = list(work.sources)
    run.manifest["n_seeds"] = max(n_seeds, *run.seeds(), 1)
    old = {str(file.relative_to(run.path)): file for file in obsolete.values()}
    stale = list(old)
    if files.get(name) != sha256_of(run.path / name):  # certificates of previous ballots
        stale += [f for f in files if f.startswith(f"{CERTIFICATES}/") and Path(f).stem.endswith(f"-{n_seeds}")]
    for other, file in old.items():
        if other not in files:  # so that nothing remains to be done once the manifest is written
            file.unlink(missing_ok=True)
    networks = [_name(run, work, job) for job in work.pipeline.jobs]
    run.replace([name, "labels.npy", "spread.npy", "timings.json", *networks], *stale)
    for file in old.values():
        file.unlink(missing_ok=True)


def _obsolete(work: Work, only: bool) -> dict[tuple[int, int], Path]:
    """Return the files of obsolete networks: with `only`, all that are not part of this work.

    Without `only`, return those of members that no longer need a network, since their samples now have one class.
    """
    members = {job.member for job in work.pipeline.jobs}
    others = {
        key: file
        for key, file in work.store.existing().items()
        if key not in work.pipeline.identities and is_checkpoint(file)
    }
    return {key: file for key, file in others.items() if only or key[0] not in members}


def _name(run: Run, work: Work, job: Job) -> str:
    return str(work.store.file(*job.key).relative_to(run.path))


def _altered(run: Run, work: Work, job: Job) -> bool:
    """Return whether a network's file is not the one that the manifest lists."""
    digest, file = run.manifest["files"].get(_name(run, work, job)), work.store.file(*job.key)
    return digest is not None and (not file.exists() or sha256_of(file) != digest)


def _write_timings(run: Run, work: Work, obsolete: set[tuple[int, int]], seconds: float) -> None:
    """Write the training seconds per network, and the wall time of all completed commands.

    The wall time of an interrupted command is unknown: `timed` is the number of networks that `training` covers.
    """
    timings, missing = _timings(run), work.pipeline.missing
    if any(f"{job.member}-{job.seed}" in timings["networks"] for job in missing):  # the total counts replaced networks
        timings["training"], timings["timed"] = 0.0, 0
    for m, s in obsolete:
        timings["networks"].pop(f"{m}-{s}", None)
    timings["networks"] |= {f"{m}-{s}": work.store.seconds(m, s) for m, s in work.pipeline.identities}
    if missing:
        timings["training"] = round(timings["training"] + seconds, 3)
        timings["timed"] += len(missing)
    run.write_text("timings.json", json.dumps(timings, indent=1))


def _timings(run: Run) -> dict[str, Any]:
    try:
        digest = run.manifest["files"].get("timings.json")
        written = read_regular(run.path / "timings.json", LARGEST_MANIFEST)
        if digest is not None and digest != sha256(written):
            raise ValueError("timings.json was altered")
        timings = json.loads(written)
        return {
            "networks": dict(timings["networks"]),
            "training": float(timings["training"]),
            "timed": int(timings["timed"]),
        }
    except (OSError, ValueError, KeyError, TypeError):
        return {"networks": {}, "training": 0.0, "timed": 0}
