"""What the commands that train runs share."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from runoff.cli.errors import InputError, IntegrityFailure

# What is heavy is imported by the commands that need it, so that `runoff --help` is quick.
if TYPE_CHECKING:
    from runoff.datasets import Dataset
    from runoff.runs import Run, Settings
    from runoff.runs.training import Work


def load_dataset(dataset: str, data_dir: Path | None, classes: int | Sequence[str] | None = None) -> Dataset:
    """A dataset by name or path; what is wrong with it as one sentence."""
    from runoff import datasets

    if dataset in datasets.NAMES and classes is not None:
        raise InputError(f"--classes is for your own data: {dataset} has its own, so leave it out")
    try:
        return datasets.load(dataset, data_dir, classes=classes)
    except datasets.IntegrityError as error:
        raise IntegrityFailure(str(error)) from None
    except datasets.MissingError as error:
        raise click.ClickException(str(error)) from None


def dataset_of(run: Run, data_dir: Path | None) -> Dataset:
    """The dataset that a run was trained on."""
    from runoff import datasets

    about = run.manifest["dataset"]
    return load_dataset(about["given"], data_dir, None if about["given"] in datasets.NAMES else about["classes"])


def work_of(run: Run, data: Dataset, n_seeds: int, device: Any, in_flight: int | None, edits: Any = ()) -> Work:
    """Its networks, and which of them are missing."""
    from runoff.runs import training

    return training.plan(
        run.settings, run.partition(), data, [*run.edits(), *edits], run.path / "members",
        n_seeds=n_seeds, device=device, in_flight=in_flight, weights=run.manifest["dataset"]["weights"],
    )  # fmt: skip


def train_work(
    run: Run, work: Work, data: Dataset, n_seeds: int, retrain: bool, *, only: bool = False
) -> dict[str, Any]:
    """Train what is missing of this work, and keep it `only`. Whoever calls holds the run's lock."""
    from runoff.runs import training

    if lone := len(work.rows) - len({job.member for job in work.jobs}):
        click.echo(
            f"Warning: {lone} of {len(work.rows)} members have samples of fewer than two classes, so no network: they "
            "vote by the shares of their classes; with fewer parts (--k) each has more.",
            err=True,
        )
    result = training.train(run, work, data, n_seeds=n_seeds, progress=None, retrain=retrain, only=only)
    for refusal in result["refused"]:
        click.echo(f"Warning: {refusal}; it votes by the shares of its classes.", err=True)
    return result


def tell_result(run: Run, result: dict[str, Any], as_json: bool) -> None:
    edits = run.n_edits()
    if as_json:
        click.echo(json.dumps({"run": str(run.path), "edits": edits, **result}))
        return
    edited = f", {edits} edit{'s' if edits > 1 else ''} since" if edits else ""
    words = f"{result['trained']} networks trained in {result['seconds']:.1f} s, {result['found']} were there"
    click.echo(f"{run.settings.told()}{edited}: {words}")  # as it is: paths are no markup
    click.echo(f"Next: runoff certify {shlex.quote(str(run.path))}")


def tell_plan(
    settings: Settings,
    run: Run | None,
    data: Dataset,
    out: Path,
    n_seeds: int,
    device: Any,
    in_flight: int | None,
    as_json: bool,
    edits: Any = (),
) -> None:
    """Nothing is written."""
    import tempfile

    from runoff import hashing
    from runoff.partition import Partition
    from runoff.runs import training

    if run is None:
        key = hashing.derived_key(settings.random_state)
        partition = Partition.make(settings.n_partitions, settings.spread, settings.random_state, key, settings.hash)
        done: list[Any] = []
    else:
        partition, done = run.partition(), run.edits()
    with tempfile.TemporaryDirectory() as empty:
        folder = out / "members" if (out / "members").is_dir() else Path(empty)
        work = training.plan(
            settings, partition, data, [*done, *edits], folder,
            n_seeds=n_seeds, device=device, in_flight=in_flight, weights=True,
        )  # fmt: skip
    sizes = np.array([len(own) for own in work.rows])
    facts = {
        "networks": len(work.jobs),
        "missing": len(work.missing),
        "steps": work.steps(),
        "seconds": round(work.seconds(), 1),
        "device": str(work.trainer.device),
        "members": partition.balance(sizes),
    }
    if as_json:
        click.echo(json.dumps(facts))
        return
    click.echo(f"{settings.told()}: {facts['members']}")
    click.echo(
        f"{facts['missing']} of {facts['networks']} networks to train, {facts['steps']} steps, roughly "
        f"{facts['seconds']:.0f} s on {facts['device']}"
    )


@contextmanager
def told() -> Iterator[None]:
    """Errors as one sentence with their exit code."""
    from runoff.errors import BusyError, MemberError, StorageError

    try:
        yield
    except StorageError as error:
        raise IntegrityFailure(str(error)) from None
    except (ImportError, MemberError, BusyError) as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise InputError(str(error)) from None
