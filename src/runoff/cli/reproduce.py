"""`runoff reproduce`: rows of the paper's tables, compared with our results."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.table import Table

from runoff.cli.options import TrainingOptions, training_options
from runoff.cli.output import say
from runoff.errors import InputError
from runoff.paper import tables
from runoff.paper.plans import Setup, describe, planned
from runoff.recipes import NETWORKS, RECIPES

if TYPE_CHECKING:
    from runoff.paper.tables import Row


@click.command()
@click.option("--table", type=click.Choice(["T1", "T2", "T3", "T4", "T6"]), help="Reproduce this table only.")
@click.option("--dataset", type=click.Choice(sorted(tables.RECIPES)), help="Reproduce rows of this dataset only.")
@click.option("--k", type=click.IntRange(1), help="Reproduce rows with this many partitions only.")
@click.option("--method", help="Reproduce this method only: DPA, DPA+ROE, FA, FA+ROE, DPA* or DPA*+ROE.")
@click.option("--d", type=click.IntRange(2), help="Use this d for FA and DPA*, to train fewer networks.")
@click.option(
    "--trials",
    type=click.IntRange(1),
    help="Average over N ensembles with different seeds. Default: as in the paper, 16 or 4 in table 6.",
)
@click.option(
    "--runs", type=click.Path(path_type=Path), default=Path("runs"), show_default=True, help="Keep runs in this folder."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Write all rows to this CSV file. Default: reproduction.csv in --runs.",
)
@click.option(
    "--carry",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Keep no runs, only the mean scores of each member in half precision (10 MB for CIFAR-10, k = 50), or its "
    "ballots for FA, in files of at most 12 MB in this folder, so that rows can be continued on another machine.",
)
@click.option("--weights", is_flag=True, help="Keep the weights of networks, not only their scores.")
@click.option("--network", type=click.Choice(NETWORKS), default="nin", show_default=True, help="Use this architecture.")
@click.option(
    "--recipe",
    type=click.Choice(tuple(RECIPES)),
    help="Train with this recipe, e.g. paper-literal, which ends each epoch with an incomplete batch. paper and "
    "paper-literal do not flip MNIST and GTSRB. Default: paper.",
)
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
    carry: Path | None,
    weights: bool,
    network: str,
    recipe: str | None,
    options: TrainingOptions,
) -> None:
    """Reproduce rows of the paper's tables, and print the results next to the paper's numbers.

    Runs are shared: DPA and DPA+ROE have the same members, DPA* adds seeds to them, and all elections of FA use the
    same members. Existing runs are reused, wherever they were trained, and interrupted runs are resumed. The hash (sum
    of pixels) and the bound are those of the paper.

    Example: runoff reproduce --table T3 --dataset cifar10 --k 50
    """
    from runoff.paper import reproduction

    if carry is not None and (weights or options.retrain):
        raise InputError("--carry keeps no networks: leave out --weights and --retrain")
    wanted = tables.rows(table, dataset, k, method)
    if d is not None:
        wanted = reproduction.nearest(wanted, d)
    if not wanted:
        raise InputError("no row of the paper matches: see `runoff reproduce --dry-run` for all of them")
    setup = Setup(
        runs=runs, carry=carry, weights=weights, network=network, recipe=recipe, data_dir=options.data_dir,
        device=options.device, in_flight=options.in_flight, retrain=options.retrain, executor=options.executor,
    )  # fmt: skip
    if options.dry_run:
        plans = planned(wanted, trials, setup)
        if options.as_json:
            click.echo(json.dumps(plans))
        for plan in [] if options.as_json else plans:
            say(describe(plan))
        return
    target = out or runs / "reproduction.csv"
    reproduction.read_table(target)  # raises an error for other tables before training
    results: list[dict[str, Any]] = []
    for row in wanted:
        trained = reproduction.trial_results(row, row.trials if trials is None else trials, setup)
        lines = reproduction.compared(row, trained, network, tables.recipe_for(row.dataset, recipe))
        results += lines
        reproduction.write_table(target, lines)
        if not options.as_json:
            _show(row, lines)
    if options.as_json:
        click.echo(json.dumps(results))


def _show(row: Row, lines: list[dict[str, Any]]) -> None:
    title = f"{row.table}: {row.dataset}, k = {row.k}, {row.method}" + (f", d = {row.d}" if row.d > 1 else "")
    title += f" (the paper's: {row.printed_d})" if row.printed_d else ""
    result = Table(title=f"{title}; clean {lines[0]['clean']:.2f} %", title_justify="left")
    result.add_column("edits")
    for line in lines:
        result.add_column(str(line["budget"]), justify="right")
    ours = [f"{line['ours']:.2f}" + (f" +- {line['std']:.2f}" if line["std"] is not None else "") for line in lines]
    printed = [f"{x['paper']:.2f}" + (f" +- {x['paper_std']:.2f}" if x["paper_std"] is not None else "") for x in lines]
    result.add_row("ours", *ours)
    result.add_row("paper", *printed)
    result.add_row("difference", *(f"{line['difference']:+.2f}" for line in lines))
    Console().print(result)
