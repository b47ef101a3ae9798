"""`runoff train` and `runoff update`: runs from the command line."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console

from runoff._cli_errors import InputError, IntegrityFailure
from runoff._files import written_whole

# What is heavy is imported by the commands that need it, so that `runoff --help` is quick.
if TYPE_CHECKING:
    from runoff.datasets import Dataset
    from runoff.runs import Run, Settings
    from runoff.torch.running import Work


def _common(command: Any) -> Any:
    """Options of all commands that train."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Machine-readable result on standard output."),
        click.option("--dry-run", is_flag=True, help="Say what would be trained, and roughly how long it takes."),
        click.option("--in-flight", type=click.IntRange(1), help="Networks at a time; it changes the time only."),
        click.option("--device", help="cpu, cuda or cuda:N. Default: a GPU if there is one."),
        click.option("--data-dir", type=click.Path(path_type=Path), help="Where the datasets are."),
    ):
        command = option(command)
    return command


@click.command()
@click.argument("dataset")
@click.option("--k", "n_partitions", type=click.IntRange(1), required=True, help="Parts of the data.")
@click.option(
    "--d", "spread", type=click.IntRange(1), default=1, show_default=True, help="Members of each bucket (FA)."
)
@click.option("--n-seeds", type=click.IntRange(1), default=1, show_default=True, help="Networks a member (DPA*).")
@click.option("--network", default="nin", show_default=True, help="nin or small.")
@click.option("--recipe", default="paper", show_default=True, help="paper, paper-no-flip or quick.")
@click.option("--hash", "hash_", type=click.Choice(["content", "pixel-sum"]), default="content", show_default=True)
@click.option("--seed", "random_state", type=click.IntRange(0), default=0, show_default=True)
@click.option("--no-weights", is_flag=True, help="Keep scores only: enough to certify, not to ask new inputs.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The run's directory; resumed if it is there."
)
@_common
def train(
    dataset: str,
    n_partitions: int,
    spread: int,
    n_seeds: int,
    network: str,
    recipe: str,
    hash_: str,
    random_state: int,
    no_weights: bool,
    out: Path,
    data_dir: Path | None,
    device: str | None,
    in_flight: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Train an ensemble on DATASET (a name, a .npz file or a folder of images) and score its test inputs.

    Interrupted or killed, the same command goes on where it was, to the same result. More --n-seeds add networks to a
    run that is there.

    Example: runoff train cifar10 --k 50 --out runs/cifar10-50
    """
    with told():
        from runoff.runs import Run
        from runoff.torch import recipes, running

        data = load_dataset(dataset, data_dir)
        chosen = recipes.get(recipe)
        settings = running.settings_for(
            data,
            data.name,
            chosen,
            n_partitions=n_partitions,
            spread=spread,
            network=network,
            hash=hash_,
            random_state=random_state,
        )
        if dry_run:
            run = Run.open(out) if (out / "manifest.json").exists() else None
            if run is not None:
                run.must_be(settings)
            _dry_run(settings, run, data, out, n_seeds, device, in_flight, as_json)
            return
        run = Run.create(out, settings, {**running.about(data), "weights": not no_weights, "given": dataset})
        _train(run, data, n_seeds, device, in_flight, as_json)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--add", type=click.Path(path_type=Path), help="Samples to add: a .npz file with x and y.")
@click.option("--remove", type=click.Path(path_type=Path), help="Samples to remove, with their labels: likewise.")
@_common
def update(
    run: Path,
    add: Path | None,
    remove: Path | None,
    data_dir: Path | None,
    device: str | None,
    in_flight: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Add and remove training samples of a RUN, and train only the members that they reach.

    The result is that of a run on the edited samples. Removing a sample is unlearning it.

    Example: runoff update runs/digits-20 --remove bad.npz
    """
    from runoff.runs import Run, RunError

    with told():
        if add is None and remove is None:
            raise RunError("update needs --add or --remove, or both")
        there = Run.open(run)
        data = load_dataset(there.manifest["dataset"]["given"], data_dir)
        if data.fingerprint != there.settings.fingerprint:
            raise RunError(f"{run} was trained on other samples than {there.settings.dataset} holds now")
        edits = [(what, *_samples(path)) for what, path in (("remove", remove), ("add", add)) if path is not None]
        from runoff.torch import running

        n_seeds = max(there.seeds(), default=1)
        running.edited(data, [*_edits(there), *edits])  # whether they can be done
        if dry_run:
            _dry_run(there.settings, there, data, run, n_seeds, device, in_flight, as_json, edits)
            return
        (run / "edits").mkdir(exist_ok=True)
        for what, x, y in edits:
            name = f"edits/{len(there.manifest['edits']):06d}-{what}.npz"
            with written_whole(run / name, binary=True) as file:
                np.savez_compressed(file, x=x, y=y)
            there.manifest["edits"].append(name)
        # What is of the samples before goes in the write that brings the edits: a kill leaves the one or the other.
        there.replace(there.manifest["edits"], "ballots-", "certificates/", "members/")
        _train(there, data, n_seeds, device, in_flight, as_json)


def load_dataset(dataset: str, data_dir: Path | None) -> Dataset:
    """A dataset by name or path; what is wrong with it as one sentence."""
    from runoff import datasets

    try:
        return datasets.load(dataset, data_dir)
    except datasets.IntegrityError as error:
        raise IntegrityFailure(str(error)) from None
    except datasets.MissingError as error:
        raise click.ClickException(str(error)) from None


def _samples(path: Path, data: bytes | None = None) -> tuple[Any, Any]:
    from runoff.runs import RunError

    try:
        with np.load(io.BytesIO(path.read_bytes() if data is None else data), allow_pickle=False) as file:
            return file["x"], file["y"]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{path} must be a .npz file with arrays x and y: {error}") from None


def _edits(run: Run) -> list[Any]:
    """What was added and removed since, as the manifest vouches for it."""
    from runoff import storage

    edits = []
    for name in run.manifest["edits"]:
        data = storage.checked(run.path, name, run.manifest["files"][name])
        edits.append((name.removesuffix(".npz").split("-")[-1], *_samples(run.path / name, data)))
    return edits


def work_of(run: Run, data: Dataset, n_seeds: int, device: Any, in_flight: int | None) -> Work:
    """Its networks, and which of them are missing."""
    from runoff.torch import running

    return running.plan(
        run.settings, run.partition(), data, _edits(run), run.path / "members",
        n_seeds=n_seeds, device=device, in_flight=in_flight, weights=run.manifest["dataset"]["weights"],
    )  # fmt: skip


def train_run(run: Run, data: Dataset, n_seeds: int, device: Any, in_flight: int | None) -> dict[str, Any]:
    """Train what a run misses."""
    from runoff.torch import running

    work = work_of(run, data, n_seeds, device, in_flight)
    result = running.train(run, work, data, n_seeds=n_seeds, progress=None)
    for refusal in result["refused"]:
        click.echo(f"Warning: {refusal}; it votes by the shares of its classes.", err=True)
    return result


def _train(run: Run, data: Dataset, n_seeds: int, device: Any, in_flight: int | None, as_json: bool) -> None:
    result = train_run(run, data, n_seeds, device, in_flight)
    if as_json:
        click.echo(json.dumps({"run": str(run.path), **result}))
        return
    words = f"{result['trained']} networks trained in {result['seconds']:.1f} s, {result['found']} were there"
    Console().print(f"{run.settings.told()}: {words}", highlight=False)
    Console().print(f"Next: runoff certify {run.path}", highlight=False)


def _dry_run(
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
    from runoff.torch import running

    if run is None:
        key = hashing.derived_key(settings.random_state)
        partition = Partition.make(settings.n_partitions, settings.spread, settings.random_state, key, settings.hash)
        done: list[Any] = []
    else:
        partition, done = run.partition(), _edits(run)
    with tempfile.TemporaryDirectory() as empty:
        folder = out / "members" if (out / "members").is_dir() else Path(empty)
        work = running.plan(
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
    console = Console()
    console.print(f"{settings.told()}: {facts['members']}", highlight=False)
    console.print(
        f"{facts['missing']} of {facts['networks']} networks to train, {facts['steps']} steps, roughly "
        f"{facts['seconds']:.0f} s on {facts['device']}",
        highlight=False,
    )


@contextmanager
def told() -> Iterator[None]:
    """Errors as one sentence with their exit code."""
    from runoff.members import MemberError
    from runoff.storage import StorageError

    try:
        yield
    except StorageError as error:
        raise IntegrityFailure(str(error)) from None
    except (ImportError, MemberError, OSError) as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise InputError(str(error)) from None
