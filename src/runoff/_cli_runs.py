"""`runoff train` and `runoff update`: runs from the command line."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from runoff._cli_errors import InputError, IntegrityFailure
from runoff._cli_options import training
from runoff._files import written_whole

# What is heavy is imported by the commands that need it, so that `runoff --help` is quick.
if TYPE_CHECKING:
    from runoff.datasets import Dataset
    from runoff.runs import Run, Settings
    from runoff.torch.running import Work


def _classes(_ctx: click.Context, _param: click.Parameter, value: str | None) -> int | list[str] | None:
    """A number of classes, or their names."""
    if value is None:
        return None
    if value.isascii() and value.isdigit() and len(value) <= 9:
        return int(value)
    return [name.strip() for name in value.split(",")]


@click.command()
@click.argument("dataset")
@click.option("--k", "n_partitions", type=click.IntRange(1), required=True, help="Parts of the data.")
@click.option(
    "--d", "spread", type=click.IntRange(1), default=1, show_default=True, help="Members of each bucket (FA)."
)
@click.option("--n-seeds", type=click.IntRange(1), default=1, show_default=True, help="Networks a member (DPA*).")
@click.option("--network", default="nin", show_default=True, help="nin or small.")
@click.option("--recipe", default="paper", show_default=True, help="paper, paper-no-flip or quick.")
@click.option(
    "--classes",
    metavar="N or A,B,...",
    callback=_classes,
    help="Of your own data: how many classes there are, or their names. Decided beforehand, not by the samples.",
)
@click.option("--hash", "hash_", type=click.Choice(["content", "pixel-sum"]), default="content", show_default=True)
@click.option("--seed", "random_state", type=click.IntRange(0), default=0, show_default=True)
@click.option("--no-weights", is_flag=True, help="Keep scores only: enough to certify, not to ask new inputs.")
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, help="The run's directory; resumed if it is there."
)
@training
def train(
    dataset: str,
    n_partitions: int,
    spread: int,
    n_seeds: int,
    network: str,
    recipe: str,
    classes: int | list[str] | None,
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
        from runoff.runs import Run, RunError, locked
        from runoff.torch import recipes, running

        data = load_dataset(dataset, data_dir, classes)
        if not data.classes_fixed:
            raise RunError(
                f"{dataset} must say which classes there are, or one sample with a new label would change every "
                "member: use --classes, or put them into the data"
            )
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
        running.check(settings, data, device)
        if dry_run:
            run = Run.open(out) if (out / "manifest.json").exists() else None
            if run is not None:
                run.must_be(settings, data.classes)
            _dry_run(settings, run, data, out, n_seeds, device, in_flight, as_json)
            return
        with locked(out):
            about = {**running.about(data), "weights": not no_weights, "given": absolute(dataset)}
            run = Run.create(out, settings, about)
            _told(run, train_run(run, data, n_seeds, device, in_flight), as_json)


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--add", type=click.Path(path_type=Path), help="Samples to add: a .npz file with x and y.")
@click.option("--remove", type=click.Path(path_type=Path), help="Samples to remove, with their labels: likewise.")
@training
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
    from runoff.runs import Run, RunError, locked

    with told():
        if not (run / "manifest.json").exists():
            raise RunError(f"{run} is not a run: it has no manifest.json; make one with `runoff train`")
        with locked(run):
            there = Run.open(run)
            about = there.manifest["dataset"]
            data = load_dataset(about["given"], data_dir, about["classes"])
            if data.fingerprint != there.settings.fingerprint:
                raise RunError(f"{run} was trained on other samples than {there.settings.dataset} holds now")
            edits = [(what, *_samples(path)) for what, path in (("remove", remove), ("add", add)) if path is not None]
            done = _edits(there)
            if done and not there.seeds():  # an update was killed, or failed
                if edits and not _same(done[-len(edits) :], edits):
                    raise RunError(
                        f"{run} has an update that is not finished: finish it first with `runoff update {run}`"
                    )
                edits = []
            elif not edits:
                raise RunError("update needs --add or --remove, or both")
            elif _same(done[-len(edits) :], edits):
                click.echo(f"Warning: the last edits of {run} are the same; they are done once more.", err=True)
            from runoff.torch import running

            n_seeds = there.n_seeds
            running.edited(data, [*done, *edits])  # whether they can be done
            if dry_run:
                _dry_run(there.settings, there, data, run, n_seeds, device, in_flight, as_json, edits)
                return
            work = work_of(there, data, n_seeds, device, in_flight, edits)
            if edits:
                _commit(there, edits)
            _told(there, train_work(there, work, data, n_seeds), as_json)


def _same(done: list[Any], edits: list[Any]) -> bool:
    return len(done) == len(edits) and all(
        what == again and np.array_equal(x, other_x) and np.array_equal(y, other_y)
        for (what, x, y), (again, other_x, other_y) in zip(done, edits, strict=True)
    )


def _commit(run: Run, edits: list[Any]) -> None:
    """From here on the run is one of the edited samples."""
    (run.path / "edits").mkdir(exist_ok=True)
    for what, x, y in edits:
        name = f"edits/{len(run.manifest['edits']):06d}-{what}.npz"
        with written_whole(run.path / name, binary=True) as file:
            np.savez_compressed(file, x=x, y=y)
        run.manifest["edits"].append(name)
    run.manifest["n_seeds"] = run.n_seeds  # the ballots that tell are about to go
    # What is of the samples before goes in the write that brings the edits: a kill leaves the one or the other.
    run.replace(run.manifest["edits"], "ballots-", "certificates/", "members/")


def absolute(dataset: str) -> str:
    """A name as it is, a path so that it can be found from elsewhere."""
    from runoff import datasets

    return dataset if dataset in datasets.NAMES else str(Path(dataset).expanduser().resolve())


def load_dataset(dataset: str, data_dir: Path | None, classes: int | Sequence[str] | None = None) -> Dataset:
    """A dataset by name or path; what is wrong with it as one sentence."""
    from runoff import datasets

    try:
        return datasets.load(dataset, data_dir, classes=None if dataset in datasets.NAMES else classes)
    except datasets.IntegrityError as error:
        raise IntegrityFailure(str(error)) from None
    except datasets.MissingError as error:
        raise click.ClickException(str(error)) from None


def _samples(path: Path) -> tuple[Any, Any]:
    from runoff.datasets import DatasetError, _npz
    from runoff.runs import RunError

    try:
        found = _npz.read(path, ["x", "y"])
    except DatasetError as error:
        raise RunError(str(error)) from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    return found["x"], found["y"]


def _edits(run: Run) -> list[Any]:
    """What was added and removed since, as the manifest vouches for it."""
    from runoff import storage

    edits = []
    for name in run.manifest["edits"]:
        data = storage.checked(run.path, name, run.manifest["files"][name])
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            edits.append((name.removesuffix(".npz").split("-")[-1], file["x"], file["y"]))
    return edits


def work_of(run: Run, data: Dataset, n_seeds: int, device: Any, in_flight: int | None, edits: Any = ()) -> Work:
    """Its networks, and which of them are missing."""
    from runoff.torch import running

    return running.plan(
        run.settings, run.partition(), data, [*_edits(run), *edits], run.path / "members",
        n_seeds=n_seeds, device=device, in_flight=in_flight, weights=run.manifest["dataset"]["weights"],
    )  # fmt: skip


def train_run(run: Run, data: Dataset, n_seeds: int, device: Any, in_flight: int | None) -> dict[str, Any]:
    """Train what a run misses. Whoever calls holds its lock."""
    return train_work(run, work_of(run, data, n_seeds, device, in_flight), data, n_seeds)


def train_work(run: Run, work: Work, data: Dataset, n_seeds: int) -> dict[str, Any]:
    """Train what is missing of this work."""
    from runoff.torch import running

    result = running.train(run, work, data, n_seeds=n_seeds, progress=None)
    for refusal in result["refused"]:
        click.echo(f"Warning: {refusal}; it votes by the shares of its classes.", err=True)
    return result


def _told(run: Run, result: dict[str, Any], as_json: bool) -> None:
    edits = len(run.manifest["edits"])
    if as_json:
        click.echo(json.dumps({"run": str(run.path), "edits": edits, **result}))
        return
    edited = f", {edits} edit{'s' if edits > 1 else ''} since" if edits else ""
    words = f"{result['trained']} networks trained in {result['seconds']:.1f} s, {result['found']} were there"
    click.echo(f"{run.settings.told()}{edited}: {words}")  # as it is: paths are no markup
    click.echo(f"Next: runoff certify {shlex.quote(str(run.path))}")


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
    click.echo(f"{settings.told()}: {facts['members']}")
    click.echo(
        f"{facts['missing']} of {facts['networks']} networks to train, {facts['steps']} steps, roughly "
        f"{facts['seconds']:.0f} s on {facts['device']}"
    )


@contextmanager
def told() -> Iterator[None]:
    """Errors as one sentence with their exit code."""
    from runoff.members import MemberError
    from runoff.runs import BusyError
    from runoff.storage import StorageError

    try:
        yield
    except StorageError as error:
        raise IntegrityFailure(str(error)) from None
    except (ImportError, MemberError, BusyError) as error:
        raise click.ClickException(str(error)) from None
    except ValueError as error:
        raise InputError(str(error)) from None
