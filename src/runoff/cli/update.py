"""`runoff update`: edits of a run's samples."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from runoff._io.files import written_whole
from runoff.cli.options import training_options
from runoff.cli.runs import dataset_of, tell_plan, tell_result, told, train_work, work_of

if TYPE_CHECKING:
    from runoff.runs import Run


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--add", type=click.Path(path_type=Path), help="Samples to add: a .npz file with x and y.")
@click.option("--remove", type=click.Path(path_type=Path), help="Samples to remove, with their labels: likewise.")
@click.option("--again", is_flag=True, help="Do the same edits as the last time once more.")
@training_options
def update(
    run: Path,
    add: Path | None,
    remove: Path | None,
    again: bool,
    data_dir: Path | None,
    device: str | None,
    in_flight: int | None,
    dry_run: bool,
    retrain: bool,
    as_json: bool,
) -> None:
    """Add and remove training samples of a RUN, and train only the members that they reach.

    The result is that of a run on the edited samples. Removing a sample is unlearning it. The same command again does
    nothing, so that one that was killed can be repeated.

    Example: runoff update runs/digits-20 --remove bad.npz
    """
    from runoff._io.locks import locked
    from runoff.errors import RunError
    from runoff.runs import Run

    with told():
        if not (run / "manifest.json").exists():
            raise RunError(f"{run} is not a run: it has no manifest.json; make one with `runoff train`")
        with locked(run, reading=dry_run):
            there = Run.open(run)
            there.verify()  # before its members are taken for those of the edited samples
            data = dataset_of(there, data_dir)
            if data.fingerprint != there.settings.fingerprint:
                raise RunError(f"{run} was trained on other samples than {there.settings.dataset} holds now")
            edits = [(what, *_samples(path)) for what, path in (("remove", remove), ("add", add)) if path is not None]
            done = there.edits()
            if done and not there.seeds():  # an update was killed, or failed
                if edits and not _same(done[-len(edits) :], edits):
                    raise there.unfinished()
                edits = []
            elif not edits:
                raise RunError("update needs --add or --remove, or both")
            elif _same(done[-len(edits) :], edits) and not again:
                click.echo(f"The last edits of {run} are the same, so they are done; --again repeats them.", err=True)
                edits = []
            from runoff.runs import edits as of_samples
            from runoff.runs import training

            n_seeds = there.n_seeds
            of_samples.edited(data, [*done, *edits])  # whether they can be done
            if dry_run:
                tell_plan(there.settings, there, data, run, n_seeds, device, in_flight, as_json, edits)
                return
            work = work_of(there, data, n_seeds, device, in_flight, edits)
            if edits:
                training.check_trainer(there, work, retrain)
                _commit(there, edits)
            tell_result(there, train_work(there, work, data, n_seeds, retrain, only=True), as_json)


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


def _samples(path: Path) -> tuple[Any, Any]:
    from runoff.datasets import npz
    from runoff.errors import DatasetError, RunError

    try:
        found = npz.read(path, ["x", "y"])
    except DatasetError as error:
        raise RunError(str(error)) from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    if not len(found["x"]):
        raise RunError(f"{path} holds no samples: give at least one")
    return found["x"], found["y"]
