"""`runoff update`: add and remove training samples of a run."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from runoff._io.files import written_whole
from runoff.cli.options import TrainingOptions, own_network, training_options
from runoff.cli.runs import dataset_of, require_torch, show_plan, show_training
from runoff.errors import DatasetError, InputError, RunError

if TYPE_CHECKING:
    from runoff.runs import Run

log = logging.getLogger("runoff")


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--add", type=click.Path(path_type=Path), help="Add the samples of this .npz file with x, y[, groups].")
@click.option(
    "--remove", type=click.Path(path_type=Path), help="Remove the samples of this .npz file with x, y[, groups]."
)
@own_network
@click.option("--again", is_flag=True, help="Apply the edits of the last update again.")
@training_options
def update(
    run: Path,
    add: Path | None,
    remove: Path | None,
    again: bool,
    options: TrainingOptions,
) -> None:
    """Add and remove training samples of a RUN, and retrain only the members that they reach.

    The result equals that of a run on the edited samples, so removing a sample unlearns it. Repeating the
    command changes nothing, so an interrupted update can be run again.

    Example: runoff update runs/digits-20 --remove bad.npz
    """
    from runoff.cli.tables import is_model
    from runoff.runs import Run

    Run.require(run)
    if is_model(run):
        raise InputError(
            f"{run} is a saved classifier, which holds no training samples to update: change its table and repeat "
            "`runoff train`, or use classifier.update() in Python before saving"
        )
    require_torch()

    from runoff._io.locks import locked
    from runoff.runs import training
    from runoff.runs.edits import edited
    from runoff.runs.work import work_of

    with locked(run, reading=options.dry_run):
        existing = Run.open(run)
        existing.verify()  # before its members are reused for the edited samples
        data = dataset_of(existing, options.data_dir)
        edits = [(what, *_samples(path)) for what, path in (("remove", remove), ("add", add)) if path is not None]
        done = existing.edits()
        if done and not existing.seeds():  # an update was interrupted or failed
            if edits and not _same(done[-len(edits) :], edits):
                raise existing.unfinished()
            edits = []
        elif not edits:
            raise RunError("update needs --add or --remove, or both")
        elif _same(done[-len(edits) :], edits) and not again:
            log.warning("the last edits of %s are the same, so nothing is done; use --again to repeat them", run)
            edits = []
        n_seeds = existing.n_seeds
        edited(data, [*done, *edits], existing.settings.unit)  # raises an error for impossible edits
        if options.dry_run:
            show_plan(existing.settings, existing, data, run, n_seeds, options, edits)
            return
        work = work_of(
            existing, data, n_seeds=n_seeds, device=options.device, in_flight=options.in_flight, edits=edits,
            executor=options.executor,
        )  # fmt: skip
        if edits:
            training.check_trainer(existing, work, options.retrain)
            _commit(existing, edits)
        trained = training.train(existing, work, data, n_seeds=n_seeds, retrain=options.retrain, only=True)
        show_training(existing, trained, options.as_json)


def _same(done: list[Any], edits: list[Any]) -> bool:
    return len(done) == len(edits) and all(
        len(one) == len(other) and all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
        for one, other in zip(done, edits, strict=True)
    )


def _commit(run: Run, edits: list[Any]) -> None:
    """Record the edits in the manifest, which makes the run one on the edited samples."""
    from runoff.runs.directory import EDIT

    (run.path / "edits").mkdir(exist_ok=True)
    for what, *arrays in edits:
        name = f"edits/{len(run.manifest['edits']):06d}-{what}.npz"
        with written_whole(run.path / name, binary=True) as file:
            np.savez_compressed(file, **dict(zip(EDIT, arrays, strict=False)))
        run.manifest["edits"].append(name)
    run.manifest["n_seeds"] = run.n_seeds  # the ballots that imply it are about to be deleted
    # One write of the manifest adds the edits and drops all results of the previous samples.
    run.replace(run.manifest["edits"], "ballots-", "certificates/", "members/")


def _samples(path: Path) -> tuple[Any, ...]:
    from runoff.datasets import npz
    from runoff.runs.directory import EDIT

    try:
        arrays = npz.read(path, EDIT[:2], EDIT[2:])
    except DatasetError as error:
        raise RunError(str(error)) from None
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from None
    if not len(arrays["x"]):
        raise RunError(f"{path} contains no samples: give at least one")
    return tuple(arrays[name] for name in EDIT if name in arrays)
