"""`runoff reproduce`: the paper's rows, ours beside them."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from runoff._io.files import written_whole
from runoff.cli.options import training_options
from runoff.cli.runs import load_dataset, told, train_work, work_of
from runoff.errors import InputError
from runoff.paper import tables
from runoff.paper.plans import in_words, n_seeds_of, planned, run_of, shared

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runoff.paper.tables import Row
    from runoff.runs import Run, Settings

COLUMNS = (
    "table", "dataset", "k", "method", "d", "budget", "ours", "std", "paper", "paper_std", "paper_d", "difference",
    "clean", "trials", "networks", "seconds", "device", "network",
    "recipe", "command",
)  # fmt: skip


@click.command()
@click.option("--table", type=click.Choice(["T1", "T2", "T3", "T4", "T6"]), help="Of the paper.")
@click.option("--dataset", type=click.Choice(sorted(tables.RECIPES)))
@click.option("--k", type=click.IntRange(1))
@click.option("--method", help="DPA, DPA+ROE, FA, FA+ROE, DPA* or DPA*+ROE.")
@click.option("--d", type=click.IntRange(2), help="For FA and DPA*, instead of the paper's: fewer networks to train.")
@click.option(
    "--trials",
    type=click.IntRange(1),
    help="Ensembles of other seeds. Default: as in the paper, 16 or 4 in table 6.",
)
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Where runs are."
)
@click.option(
    "--out", type=click.Path(path_type=Path), help="CSV of all rows. Default: reproduction.csv beside the runs."
)
@click.option("--weights", is_flag=True, help="Keep the networks' weights, too, not only their scores.")
@click.option("--network", default="nin", show_default=True, help="Another network, to try things out.")
@click.option("--recipe", help="Another recipe, to try things out. Default: the paper's.")
@training_options
def reproduce(
    table: str | None,
    dataset: str | None,
    k: int | None,
    method: str | None,
    d: int | None,
    trials: int | None,
    runs: Path,
    out: Path | None,
    weights: bool,
    network: str,
    recipe: str | None,
    data_dir: Path | None,
    device: str | None,
    in_flight: int | None,
    dry_run: bool,
    retrain: bool,
    as_json: bool,
) -> None:
    """Train, certify and print rows of the paper's tables beside the printed ones.

    Runs are shared: DPA and DPA+ROE have the same members, DPA* adds seeds to them, all elections of FA share theirs.
    What is there is used again, wherever it was trained, and what was interrupted goes on. The paper's hash (sum of
    pixels) and its certificate are used.

    Example: runoff reproduce --table T3 --dataset cifar10 --k 50
    """
    with told():
        wanted = tables.rows(table, dataset, k, method)
        if d is not None:
            wanted = _nearest(wanted, d)
        if not wanted:
            raise InputError("no row of the paper matches: see `runoff reproduce --dry-run` for all of them")
        if dry_run:
            plans = planned(wanted, trials, runs, network, recipe, device, in_flight)
            if as_json:
                click.echo(json.dumps(plans))
            for plan in [] if as_json else plans:
                click.echo(in_words(plan))
            return
        target = out or runs / "reproduction.csv"
        _read(target)  # whether it can be added to, before the long work
        results: list[dict[str, Any]] = []
        for row in wanted:
            chosen = recipe or tables.RECIPES[row.dataset]
            n = row.trials if trials is None else trials
            found = _trials(row, n, runs, weights, network, chosen, data_dir, device, in_flight, retrain)
            lines = _compared(row, found, network, chosen)
            results += lines
            _write(target, lines)
            if not as_json:
                _show(row, lines)
        if as_json:
            click.echo(json.dumps(results))


def _nearest(rows: list[Row], d: int) -> list[Row]:
    """Of rows that differ in d alone, the one whose d is nearest, with this d instead."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        key = (row.table, row.dataset, row.k, row.method)
        if key not in found or abs(row.d - d) < abs(found[key].d - d):
            found[key] = row
    return [row.at(d) for row in found.values()]


def _trials(
    row: Row,
    trials: int,
    runs: Path,
    weights: bool,
    network: str,
    recipe: str,
    data_dir: Path | None,
    device: str | None,
    in_flight: int | None,
    retrain: bool,
) -> list[dict[str, Any]]:
    """So many ensembles: trained where they are missing, certified with the paper's bound."""
    from runoff import recipes
    from runoff._io.locks import locked
    from runoff.errors import RunError
    from runoff.runs import Run, training

    data = load_dataset(row.dataset, data_dir)
    found = []
    for trial in range(trials):
        settings = training.settings_for(
            data, data.name, recipes.get(recipe), n_partitions=row.k, spread=row.spread, network=network,
            hash="pixel-sum", random_state=0 if shared(row) else trial,
        )  # fmt: skip
        training.check(settings, data, device)
        path, n_seeds = runs / run_of(row, trial), n_seeds_of(row, trials)
        Run.check_place(path, settings)
        with locked(path):
            run = _opened(path, settings, {**training.about(data), "weights": weights, "given": row.dataset})
            if run.manifest["edits"]:
                raise RunError(f"{path} was edited since, so it is no run of the paper: give other --runs")
            work = work_of(run, data, n_seeds, device, in_flight)
            alone = shared(row) and trials > 1
            kept = n_seeds in run.seeds() and not retrain and training.foreign(run, work) is not None
            if kept:
                run.verify()  # what is needed is there
            else:
                train_work(run, work, data, n_seeds, retrain)
            ballots = (
                training.ballots(work, len(data.classes), [trial], as_kept=kept) if alone else run.ballots(n_seeds)
            )
            found.append(_certified(row, run, ballots, len(work.jobs)))
    return found


def _opened(path: Path, settings: Settings, about: dict[str, Any]) -> Run:
    """A run of these settings, new or there; if it keeps weights or not is its own business."""
    from runoff.errors import RunError
    from runoff.runs import Run

    if (path / "manifest.json").exists():
        about["weights"] = Run.open(path).manifest["dataset"]["weights"]
    try:
        return Run.create(path, settings, about)
    except RunError as error:
        raise RunError(str(error).replace("give another directory", "give other --runs")) from None


def _certified(row: Row, run: Run, ballots: NDArray[Any], n_networks: int) -> dict[str, Any]:
    import runoff

    certificates = runoff.certify(ballots, election=row.election, spread=run.spread(), bound="paper")
    budgets = sorted(row.percent)
    right = 100 * runoff.certified_accuracy(certificates, np.asarray(run.labels()), [0, *budgets])
    timings = json.loads((run.path / "timings.json").read_text())
    return {
        "clean": float(right[0]),
        "right": dict(zip(budgets, right[1:].tolist(), strict=True)),
        # Of commands that were killed nobody knows, nor which part of it a run took for some of its networks.
        "seconds": timings["training"] if timings["timed"] >= len(timings["networks"]) == n_networks else None,
        "networks": n_networks,
        "run": run.path.name,
        "device": run.manifest["device"],
    }


def _compared(row: Row, found: list[dict[str, Any]], network: str, recipe: str) -> list[dict[str, Any]]:
    several = len(found) > 1
    runs = list({trial["run"]: trial for trial in found}.values())  # what they share is counted once
    known = all(ours["seconds"] is not None for ours in runs)
    command = f"runoff reproduce --table {row.table} --dataset {row.dataset} --k {row.k} --method '{row.method}'"
    command += f" --d {row.d}" if row.printed_d else ""
    command += f" --trials {len(found)}" if len(found) != row.trials else ""
    command += f" --network {network}" if network != "nin" else ""
    command += f" --recipe {recipe}" if recipe != tables.RECIPES[row.dataset] else ""
    lines = []
    for budget, printed in sorted(row.percent.items()):
        values = [trial["right"][budget] for trial in found]
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
                "clean": round(float(np.mean([trial["clean"] for trial in found])), 2),
                "trials": len(found),
                "networks": sum(ours["networks"] for ours in runs),
                "seconds": round(sum(ours["seconds"] for ours in runs), 1) if known else None,
                "device": found[0]["device"],
                "network": network,
                "recipe": recipe,
                "command": command,
            }
        )
    return lines


def _show(row: Row, lines: list[dict[str, Any]]) -> None:
    title = f"{row.table}: {row.dataset}, k = {row.k}, {row.method}" + (f", d = {row.d}" if row.d > 1 else "")
    title += f" (the paper's: {row.printed_d})" if row.printed_d else ""
    shown = Table(title=f"{title}; clean {lines[0]['clean']:.2f} %", title_justify="left")
    shown.add_column("edits")
    for line in lines:
        shown.add_column(str(line["budget"]), justify="right")
    ours = [f"{line['ours']:.2f}" + (f" +- {line['std']:.2f}" if line["std"] is not None else "") for line in lines]
    printed = [f"{x['paper']:.2f}" + (f" +- {x['paper_std']:.2f}" if x["paper_std"] is not None else "") for x in lines]
    shown.add_row("ours", *ours)
    shown.add_row("paper", *printed)
    shown.add_row("difference", *(f"{line['difference']:+.2f}" for line in lines))
    Console().print(shown)


def _read(path: Path) -> dict[tuple[str, ...], dict[str, Any]]:
    """The rows of other calls."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if list(reader.fieldnames or []) != list(COLUMNS):
            raise InputError(
                f"{path} must be a table that `runoff reproduce` wrote, got other columns: give another --out"
            )
        return {_key(line): dict(line) for line in reader}


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    """These rows, beside those of other calls."""
    kept = _read(path) | {_key(line): line for line in lines}
    path.parent.mkdir(parents=True, exist_ok=True)
    with written_whole(path) as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept.values())


def _key(line: dict[str, Any]) -> tuple[str, ...]:
    names = ("table", "dataset", "k", "method", "d", "paper_d", "trials", "network", "recipe", "budget")
    return tuple(str(line[name]) for name in names)
