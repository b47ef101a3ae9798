"""Helpers for the commands that train runs."""

from __future__ import annotations

import json
import logging
import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from runoff._io.text import count, duration
from runoff.cli.options import TrainingOptions
from runoff.cli.output import say
from runoff.errors import RunError

# Commands import heavy modules when they need them, so that `runoff --help` is fast.
if TYPE_CHECKING:
    from runoff.datasets import Dataset
    from runoff.runs import Run, Settings
    from runoff.runs.training import Training
    from runoff.runs.work import Work


log = logging.getLogger("runoff")


def require_torch() -> None:
    """Raise `MissingExtraError` unless PyTorch is installed, before modules are imported that need it."""
    import runoff.torch  # noqa: F401


def dataset_of(run: Run, data_dir: Path | None) -> Dataset:
    """Load the dataset that a run was trained on."""
    from runoff import datasets

    data = datasets.load_recorded(run.manifest["dataset"], data_dir)
    if data.fingerprint != run.settings.fingerprint:
        raise RunError(f"{run.path} was trained on samples that differ from those in {run.settings.dataset}")
    return data


def show_training(run: Run, training: Training, as_json: bool) -> None:
    """Print what was trained, and the next command."""
    edits, facts = run.n_edits(), asdict(training)
    if as_json:
        facts["found"] = facts.pop("kept")
        click.echo(json.dumps({"run": str(run.path), "edits": edits, **facts}))
        return
    edited = f" after {count(edits, 'edit')}" if edits else ""
    trained = f"{count(training.trained, 'network')} trained in {duration(training.seconds)}"
    say(f"{run.settings.describe()}{edited}: {trained}, {training.kept:,} already existed")
    say(f"Next: runoff certify {shlex.quote(str(run.path))}")


def warn_of_idle_members(work: Work) -> None:
    """Warn if most members of a run learn nothing."""
    from runoff.fitting.checking import idle_members

    n = len(work.labels) if work.sources is None else work.sources[0]
    empty = sum(len(rows) == 0 for rows in work.rows)
    if idle := idle_members(empty, work.n_single(), len(work.rows), n, work.partition.unit):
        log.warning("%s", idle)


def show_plan(
    settings: Settings,
    run: Run | None,
    data: Dataset,
    out: Path,
    n_seeds: int,
    options: TrainingOptions,
    edits: Any = (),
) -> None:
    """Print what would be trained, without writing anything."""
    from runoff.runs.directory import MEMBERS
    from runoff.runs.work import plan

    if run is None:
        partition, done = settings.make_partition(), list[Any]()
    else:
        partition, done = run.partition(), run.edits()
    work = plan(
        settings, partition, data, [*done, *edits], out / MEMBERS,
        n_seeds=n_seeds, device=options.device, in_flight=options.in_flight, weights=True, executor=options.executor,
    )  # fmt: skip
    warn_of_idle_members(work)
    planned = None if options.executor.here else work.plan()
    facts: dict[str, Any] = {
        "networks": len(work.pipeline.jobs),
        "missing": len(work.pipeline.missing),
        "steps": work.steps(),
        "seconds": round(work.seconds() if planned is None else planned.seconds, 1),
        "device": str(work.pipeline.settings.trainer().device)
        if options.executor.here
        else work.pipeline.trained_with["device"],
        "members": partition.balance(np.array([len(rows) for rows in work.rows]), work.sources, work.n_single()),
    }
    if planned is not None:
        facts |= {"tasks": len(planned.tasks), "workers": planned.workers, "memory": planned.memory}
    if options.as_json:
        click.echo(json.dumps(facts))
        return
    say(f"{settings.describe()}: {facts['members']}")
    say(
        f"{facts['missing']:,} of {count(facts['networks'], 'network')} to train, {count(facts['steps'], 'step')}, "
        f"roughly {duration(facts['seconds'])} on {facts['device']}"
    )
    if planned is not None:
        say(str(planned))
