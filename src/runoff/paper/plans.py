"""Plans of a reproduction: the runs, networks and training time of rows of the paper, without reading the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runoff._io.text import count, duration
from runoff.executors import Executor
from runoff.paper import tables

if TYPE_CHECKING:
    from runoff.paper.tables import Row
    from runoff.torch import Job, Trainer


@dataclass(frozen=True, eq=False, kw_only=True)
class Setup:
    """The settings with which rows are trained, and the folder of their runs.

    With `carry`, no runs are kept, only mean scores or ballots of the members, in this folder. Without a `recipe`, it
    is that of the paper.
    """

    runs: Path
    carry: Path | None
    weights: bool
    network: str
    recipe: str | None
    data_dir: Path | None
    device: str | None
    in_flight: int | None
    retrain: bool
    executor: Executor


def planned(rows: list[Row], trials: int | None, setup: Setup) -> list[dict[str, Any]]:
    """Return the networks that each row needs, those missing after earlier rows, and an estimated training time."""
    counted: dict[str, int] = {}  # networks per run, including planned ones
    plans = []
    for row in rows:
        n = row.trials if trials is None else trials
        n_members = row.k * row.spread
        needed = {run_of(row, trial): n_members * n_seeds_of(row, n) for trial in range(n)}
        missing = 0
        for name, networks in needed.items():
            if name not in counted:
                counted[name] = _existing(setup, name, n_members)
            existing = counted[name]
            missing += max(0, networks - existing)
            counted[name] = max(networks, existing)
        names = ("table", "dataset", "k", "method", "d")
        plan = {name: getattr(row, name) for name in names}
        seconds = seconds_for(row, missing, setup)
        total = sum(needed.values())
        plans.append({**plan, "trials": n, "n_networks": total, "missing": missing, "seconds": round(seconds, 1)})
    return plans


def _existing(setup: Setup, name: str, n_members: int) -> int:
    """Return the number of networks of a run, including networks that were deleted after computing the ballots."""
    from runoff.runs import Run

    if setup.carry is not None:
        from runoff.paper import carrying

        return carrying.count(setup.carry / f"{name}.npz")
    path = setup.runs / name
    if not (path / "manifest.json").exists():
        return 0
    seeds = Run.open(path).seeds()
    return max(len(list(path.glob("members/member-*.safetensors"))), n_members * max(seeds, default=0))


def describe(plan: dict[str, Any]) -> str:
    """Return a plan as one line."""
    row = "{table} {dataset} k={k} {method} d={d}".format(**plan)
    trials = f" for {plan['trials']} trials" if plan["trials"] > 1 else ""
    left = f"{plan['missing']:,} to train, roughly {duration(plan['seconds'])}" if plan["missing"] else "none to train"
    return f"{row}: {count(plan['n_networks'], 'network')}{trials}, {left}"


def shared(row: Row) -> bool:
    """Return whether all trials share one run: DPA* adds networks of other seeds to each member of DPA."""
    return row.base == "DPA"


def run_of(row: Row, trial: int) -> str:
    """Return the name of a trial's run."""
    return row.run if shared(row) or not trial else f"{row.run}-trial{trial}"


def n_seeds_of(row: Row, trials: int) -> int:
    """Return the number of networks per member of a row's run."""
    return trials if shared(row) else row.n_seeds


def seconds_for(row: Row, n_networks: int, setup: Setup) -> float:
    """Return an estimate of the seconds to train `n_networks` networks of a row."""
    if not n_networks:
        return 0.0
    recipe = tables.recipe_for(row.dataset, setup.recipe)
    start, each = _pace(row.dataset, row.k, setup.network, recipe, setup.device, setup.in_flight)
    return start + n_networks * each


@lru_cache
def _pace(
    dataset: str, k: int, network: str, recipe: str, device: str | None, in_flight: int | None
) -> tuple[float, float]:
    """Return the estimated start-up seconds, and the seconds per network of average size."""
    import numpy as np

    from runoff import recipes
    from runoff.datasets.catalogue import CATALOGUE
    from runoff.torch import workload

    entry = CATALOGUE[dataset]
    n, shape = round(entry.n_train / k), (*entry.shape, 1)[:3]
    trainer, job = _example(network, recipe, shape, len(entry.classes), device, in_flight)
    if trainer.device.type != "cpu":
        inputs = np.broadcast_to(np.uint8(0), (entry.n_test, *shape))
        return workload.START_SECONDS, workload.guess(trainer, job, [n], inputs) - workload.START_SECONDS
    trained, scored = _pixel_seconds(network, recipe, device, in_flight)
    chosen = recipes.get(recipe)
    images = chosen.steps_of(n) * chosen.batch_of(n)
    return 0.0, (images * trained + entry.n_test * scored) * shape[0] * shape[1] / trainer.workers()


@lru_cache
def _pixel_seconds(network: str, recipe: str, device: str | None, in_flight: int | None) -> tuple[float, float]:
    """Return the seconds per pixel of training and of scoring on a CPU, measured once with a few small images.

    Measuring the steps of every dataset and k would take minutes, and the time is proportional to the pixels.
    """
    import numpy as np

    from runoff import recipes
    from runoff.torch.training.slots import INPUTS

    shape = (16, 16, 3)
    trainer, job = _example(network, recipe, shape, 10, device, in_flight)
    step, block = trainer.try_out(job, np.zeros((INPUTS["cpu"], *shape), np.uint8))
    pixels = shape[0] * shape[1]
    return step / (recipes.get(recipe).batch_of(len(job.labels)) * pixels), block / (INPUTS["cpu"] * pixels)


def _example(
    network: str, recipe: str, shape: tuple[int, ...], n_classes: int, device: str | None, in_flight: int | None
) -> tuple[Trainer, Job]:
    """Return a trainer, and a job with 16 random images."""
    import numpy as np

    from runoff import recipes
    from runoff.isolation import seeds_of
    from runoff.torch import Job, Trainer, networks

    trainer = Trainer(networks.get(network), recipes.get(recipe), shape, n_classes, device=device, in_flight=in_flight)
    draws, n = np.random.default_rng(0), 16
    images = draws.integers(0, 256, (n, *shape), dtype=np.uint8)
    return trainer, Job(0, 0, seeds_of(0, 0, 1)[0], images, np.arange(n), draws.integers(0, n_classes, n))
