"""`runoff report`: an HTML report on runs, and figures for a paper."""

from __future__ import annotations

import logging
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from runoff import elections
from runoff._io.text import count, size
from runoff.cli.errors import writing
from runoff.cli.options import TableInputs, numbers, table_inputs
from runoff.cli.options import bound as bound_option
from runoff.cli.options import data_dir as data_dir_option
from runoff.elections import BASELINE, DEFAULT
from runoff.errors import InputError

if TYPE_CHECKING:
    from runoff.report import Source

log = logging.getLogger("runoff")


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the report to this file, as in report.html.")
@table_inputs
@click.option("--figures", type=click.Path(path_type=Path), help="Write figures as SVG, PDF and PNG to this folder.")
@click.option(
    "--csv", "table", type=click.Path(path_type=Path), help="Draw figures from this reproduction.csv instead."
)
@click.option("--budgets", metavar="N,N,...", callback=numbers, help="Tabulate these numbers of edits, as in 5,10,15.")
@click.option(
    "--election", "rules", type=click.Choice(elections.NAMES), multiple=True, default=(BASELINE, DEFAULT),
    show_default=True, help="Compare these elections; repeat the option for several.",
)  # fmt: skip
@bound_option
@click.option(
    "--use-seeds",
    "seeds",
    type=click.IntRange(1),
    help="Use N networks per member. Default: every number that a run has ballots for.",
)
@click.option("--sample", type=click.IntRange(1), default=150, show_default=True, help="Show N inputs in full.")
@click.option("--to", metavar="CLASS", help="Also report how many edits might make the runs predict this class.")
@click.option(
    "--collective", is_flag=True,
    help="Also report how many inputs stay correct under one attack on all of them at once.",
)  # fmt: skip
@click.option(
    "--time-limit", type=click.FloatRange(0), metavar="N",
    help="Spend at most about N seconds per run on --collective. Default: 60.",
)  # fmt: skip
@click.option(
    "--input", "example", type=click.IntRange(0),
    help="Open the page with this input of the first run, and draw it in the election figure.",
)  # fmt: skip
@click.option(
    "--undefended", multiple=True, type=click.Path(path_type=Path),
    help="Compare with one model trained on all samples: a .npy file of its predictions for the test inputs, as class "
    "indices, names or scores, or for a saved classifier one that `runoff train TABLE --k 1` saved. Give it once for "
    "all runs, or once per run.",
)  # fmt: skip
@data_dir_option
@click.option("--no-pictures", is_flag=True, help="Leave out the pictures of the inputs.")
def report(
    runs: tuple[Path, ...],
    out: Path | None,
    inputs: TableInputs,
    figures: Path | None,
    table: Path | None,
    budgets: list[int] | None,
    rules: tuple[str, ...],
    bound: str,
    seeds: int | None,
    sample: int,
    example: int | None,
    to: str | None,
    collective: bool,
    time_limit: float | None,
    undefended: tuple[Path, ...],
    data_dir: Path | None,
    no_pictures: bool,
) -> None:
    """Report on RUNs: one HTML page that opens offline in any browser, figures for a paper, or both.

    A RUN can also be the directory of a classifier, as `runoff train TABLE` saves it, with --inputs TABLE.

    Every file of a run is checked first. The page has curves, tables, and the elections of a sample of inputs with
    the cheapest attack on each, step by step.

    Example: runoff report runs/cifar10-50 --undefended predictions.npy --out report.html --figures figures
    """
    if out is None and figures is None:
        raise InputError("report needs --out FILE, --figures FOLDER, or both")
    if time_limit is not None and not collective:
        raise InputError("--time-limit applies to --collective only: leave it out")
    if table is not None:
        _from_table(table, runs, out, figures)
        return
    if not runs:
        raise InputError("report needs at least one run, or --csv FILE with --figures FOLDER")
    if figures is not None:
        from runoff.report import drawing
        from runoff.report import figures as pictures

        drawing.library()  # fails early if matplotlib is missing
    if out is not None:
        with writing(out):  # likewise for an invalid path
            out.parent.mkdir(parents=True, exist_ok=True)
    if len(undefended) not in (0, 1, len(runs)):
        raise InputError(
            f"--undefended must be given once for all runs or once per run, got {len(undefended)} files for "
            f"{count(len(runs), 'run')}"
        )
    baselines = undefended * (len(runs) if len(undefended) == 1 else 1) or (None,) * len(runs)
    from runoff.cli.tables import is_model

    if not any(map(is_model, runs)):
        inputs.refuse("none is given")
    sources = [
        source
        for run, baseline in zip(runs, baselines, strict=True)
        for source in (
            [_from_model(run, inputs, baseline)]
            if is_model(run)
            else _sources(run, seeds, data_dir, not no_pictures, baseline)
        )
    ]
    from runoff import report as reports

    data = reports.collect(
        sources,
        elections=list(dict.fromkeys(rules)),
        bound=bound,
        budgets=budgets,
        sample=sample,
        to=to,
        collective=(60.0 if time_limit is None else time_limit) if collective else None,
        opened=example,
        progress=log.info,
    )
    for source in data["sources"]:
        if (constant := source["members"]["constant"]).endswith("more samples."):
            log.warning("%s: %s", source["name"], constant)
        if source["middle"] in data["budgets"]:
            hints = data["methods"][source["headline"]]["hints"]
            if hint := hints[data["budgets"].index(source["middle"])]:
                log.warning("%s", hint)
    if out is not None:
        with writing(out):
            reports.write(out, data)
        click.echo(f"The report is in {out} ({size(out.stat().st_size)}): open it in a browser.")
    if figures is not None:
        with writing(figures):
            _show(pictures.draw(data, sources[0], figures, example=example), figures)


def _sources(
    path: Path, seeds: int | None, data_dir: Path | None, pictures: bool, undefended: Path | None
) -> list[Source]:
    """Return one source per number of networks per member that a run has ballots for."""
    from runoff.report import Source
    from runoff.runs import Run

    numbers_of_seeds: list[int | None] = [seeds]
    if seeds is None and (path / "manifest.json").exists():
        numbers_of_seeds = [*Run.open(path).seeds()] or numbers_of_seeds
    sources = [
        Source.from_run(path, n, data_dir=data_dir, pictures=pictures, undefended=undefended) for n in numbers_of_seeds
    ]
    for note in sources[0].notes:
        log.warning("%s", note)
    return sources


def _from_model(path: Path, inputs: TableInputs, undefended: Path | None) -> Source:
    """Return the source of a saved classifier, for the inputs in a table."""
    from runoff.cli.tables import is_model, open_model, undefended_predictions
    from runoff.report import Source

    if inputs.path is None or inputs.label_column is None:
        raise InputError(
            f"{path} is a saved classifier: pass test inputs with their labels, as --inputs NEW.csv --label-column NAME"
        )
    opened = open_model(path, inputs)
    baseline: Any = undefended
    if undefended is not None and is_model(undefended):
        baseline = undefended_predictions(undefended, opened.X)
    # Relative paths as given; the page reduces absolute ones to their last part.
    options = f"--inputs {shlex.quote(str(inputs.path))} {inputs.columns()}"
    return Source.from_classifier(
        opened.classifier,
        opened.X,
        opened.labels,  # type: ignore[arg-type]
        name=path.resolve().name,
        dataset=inputs.path.stem,
        undefended=baseline,
        checked=(f"runoff certify {shlex.quote(str(path))} {options}",),
    )


def _from_table(table: Path, runs: tuple[Path, ...], out: Path | None, figures: Path | None) -> None:
    from runoff.report import drawing
    from runoff.report import figures as pictures

    if runs or out is not None or figures is None:
        raise InputError("--csv requires --figures FOLDER and excludes runs and --out")
    drawing.library()
    with writing(figures):
        _show(pictures.draw_table(table, figures), figures)


def _show(written: list[str], folder: Path) -> None:
    click.echo(f"{count(len(written), 'figure')} in {folder}, each as SVG, PDF and PNG: {', '.join(written)}")
