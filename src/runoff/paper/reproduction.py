"""Reproduction of the paper's tables: train, certify and compare with the printed numbers."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runoff import datasets, recipes
from runoff._io.files import written_whole
from runoff._io.locks import locked
from runoff.certificates import certified_accuracy, certify
from runoff.errors import InputError, RunError
from runoff.paper import tables
from runoff.paper.plans import Setup, n_seeds_of, run_of, shared
from runoff.runs import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runoff.paper.tables import Row
    from runoff.runs import Settings

COLUMNS = (
    "table", "dataset", "k", "method", "d", "budget", "ours", "std", "paper", "paper_std", "paper_d", "difference",
    "clean", "trials", "networks", "seconds", "device", "network",
    "recipe", "command",
)  # fmt: skip


def nearest(rows: list[Row], d: int) -> list[Row]:
    """Return one row for each group of rows that differ only in d: the one with the nearest d, changed to this d."""
    closest: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = (row.table, row.dataset, row.k, row.method)
        if key not in closest or abs(row.d - d) < abs(closest[key].d - d):
            closest[key] = row
    return [row.at(d) for row in closest.values()]


def trial_results(row: Row, trials: int, setup: Setup) -> list[dict[str, Any]]:
    """Train the missing ensembles of a row, and certify all with the paper's bound."""
    from runoff.runs import training, work  # these need PyTorch

    recipe = recipes.get(tables.recipe_for(row.dataset, setup.recipe))
    if setup.carry is not None and shared(row) and trials > 1:
        raise InputError("--carry keeps means over networks, and trials need the networks one by one: leave it out")
    data = datasets.load(row.dataset, setup.data_dir)
    results = []
    for trial in range(trials):
        settings = work.settings_for(
            data, data.name, recipe, n_partitions=row.k, spread=row.spread, network=setup.network,
            hash="pixel-sum", random_state=0 if shared(row) else trial,
        )  # fmt: skip
        work.check(settings, data, setup.device, setup.executor)
        n_seeds = n_seeds_of(row, trials)
        if setup.carry is not None:
            file = setup.carry / f"{run_of(row, trial)}.npz"
            results.append(_with_carried(row, file, settings, data, n_seeds, setup))
            continue
        path = setup.runs / run_of(row, trial)
        Run.check_place(path, settings)
        with locked(path):
            run = _open(path, settings, {**work.about(data), "weights": setup.weights, "given": row.dataset})
            if run.manifest["edits"]:
                raise RunError(f"{path} was edited, so it is not a run of the paper: give another folder with --runs")
            needed = work.work_of(
                run, data, n_seeds=n_seeds, device=setup.device, in_flight=setup.in_flight, executor=setup.executor
            )
            kept = n_seeds in run.seeds() and not setup.retrain and training.foreign(run, needed) is not None
            if kept:  # complete, and trained on another machine
                run.verify()
            else:
                training.train(run, needed, data, n_seeds=n_seeds, retrain=setup.retrain)
            one_seed = shared(row) and trials > 1
            ballots = needed.ballots([trial], verified=kept) if one_seed else run.ballots(n_seeds)
            results.append(_certified(row, run, ballots, len(needed.pipeline.jobs)))
    return results


def _open(path: Path, settings: Settings, about: dict[str, Any]) -> Run:
    """Open or create a run with these settings; an existing run determines whether weights are kept."""
    if (path / "manifest.json").exists():
        about["weights"] = Run.open(path).manifest["dataset"]["weights"]
    try:
        return Run.create(path, settings, about)
    except RunError as error:
        raise RunError(str(error).replace("give another directory", "give another folder with --runs")) from None


def _with_carried(
    row: Row, file: Path, settings: Settings, data: datasets.Dataset, n_seeds: int, setup: Setup
) -> dict[str, Any]:
    """Train the networks that are not among the carried scores, and certify the members' mean scores."""
    from runoff.paper import carrying
    from runoff.runs import work

    partition = settings.make_partition()
    with locked(file.parent):
        needed = work.plan(
            settings, partition, data, [], file.with_suffix(""),
            n_seeds=n_seeds, device=setup.device, in_flight=setup.in_flight, weights=False, executor=setup.executor,
        )  # fmt: skip
        carried = carrying.Carried.open(file, settings, needed)
        carrying.train(carried, needed)
    return {
        **_accuracies(row, carried.ballots(n_seeds), partition.spread, data.y_test),
        "seconds": round(carried.seconds, 3),
        "networks": len(needed.pipeline.jobs),
        "run": file.stem,
        "device": " | ".join(dict.fromkeys(kind["device"] for kind in carried.trained_with)),
        "carry": file.parent.name,
    }


def _accuracies(row: Row, ballots: NDArray[Any], spread: NDArray[Any], labels: NDArray[Any]) -> dict[str, Any]:
    """Return clean and certified accuracy in percent, with the paper's bound."""
    certificates = certify(ballots, election=row.election, spread=spread, bound="paper")
    budgets = sorted(row.percent)
    accuracy = 100 * certified_accuracy(certificates, np.asarray(labels), [0, *budgets])
    return {"clean": float(accuracy[0]), "certified": dict(zip(budgets, accuracy[1:].tolist(), strict=True))}


def _certified(row: Row, run: Run, ballots: NDArray[Any], n_networks: int) -> dict[str, Any]:
    timings = json.loads((run.path / "timings.json").read_text())
    return {
        **_accuracies(row, ballots, run.spread(), run.labels()),
        # Unknown if a command was interrupted, or if the run has additional networks.
        "seconds": timings["training"] if timings["timed"] >= len(timings["networks"]) == n_networks else None,
        "networks": n_networks,
        "run": run.path.name,
        "device": run.manifest["device"],
    }


def compared(row: Row, results: list[dict[str, Any]], network: str, recipe: str) -> list[dict[str, Any]]:
    """Return the lines of a table: our certified accuracy and the printed one for each number of edits."""
    several = len(results) > 1
    runs = list({trial["run"]: trial for trial in results}.values())  # shared runs count once
    known = all(run["seconds"] is not None for run in runs)
    command = f"runoff reproduce --table {row.table} --dataset {row.dataset} --k {row.k} --method '{row.method}'"
    command += f" --d {row.d}" if row.printed_d else ""
    command += f" --trials {len(results)}" if len(results) != row.trials else ""
    command += f" --network {network}" if network != "nin" else ""
    command += f" --recipe {recipe}" if recipe != tables.RECIPES[row.dataset] else ""
    command += f" --carry {results[0]['carry']}" if "carry" in results[0] else ""
    lines = []
    for budget, printed in sorted(row.percent.items()):
        values = [trial["certified"][budget] for trial in results]
        ours = float(np.mean(values))
        lines.append(
            {
                "table": row.table,
                "dataset": row.dataset,
                "k": row.k,
                "method": row.method,
                "d": row.d,
                "budget": budget,
                "ours": round(ours, 2),
                "std": round(float(np.std(values, ddof=1)), 2) if several else None,
                "paper": printed,
                "paper_std": row.std.get(budget),
                "paper_d": row.printed_d or row.d,
                "difference": round(ours - printed, 2),
                "clean": round(float(np.mean([trial["clean"] for trial in results])), 2),
                "trials": len(results),
                "networks": sum(run["networks"] for run in runs),
                "seconds": round(sum(run["seconds"] for run in runs), 1) if known else None,
                "device": results[0]["device"],
                "network": network,
                "recipe": recipe,
                "command": command,
            }
        )
    return lines


def read_table(path: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """Read the rows of a table that an earlier command wrote."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if list(reader.fieldnames or []) != list(COLUMNS):
            raise InputError(
                f"{path} must be a table written by `runoff reproduce`, got other columns: use another --out"
            )
        return {_key(line): dict(line) for line in reader}


def write_table(path: Path, lines: list[dict[str, Any]]) -> None:
    """Add these rows to those of earlier commands."""
    kept = read_table(path) | {_key(line): line for line in lines}
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept.values())


def _key(line: dict[str, Any]) -> tuple[str, ...]:
    names = ("table", "dataset", "k", "method", "d", "paper_d", "trials", "network", "recipe", "budget")
    return tuple(str(line[name]) for name in names)
