"""`runoff report`: a page about runs, and figures for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from runoff import elections
from runoff.certificates import BOUNDS
from runoff.cli.errors import writing
from runoff.cli.options import numbers
from runoff.cli.runs import told
from runoff.errors import InputError

if TYPE_CHECKING:
    from runoff.report import Source


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="The page to write, as in report.html.")
@click.option("--figures", type=click.Path(path_type=Path), help="Folder for figures as SVG, PDF and PNG.")
@click.option("--csv", "table", type=click.Path(path_type=Path), help="Draw figures from a reproduction.csv instead.")
@click.option("--budgets", metavar="N,N,...", callback=numbers, help="Numbers of edits of the table, as in 5,10,15.")
@click.option(
    "--election", "rules", type=click.Choice(elections.NAMES), multiple=True, default=("plurality", "runoff"),
    show_default=True, help="Which to compare; may be given several times.",
)  # fmt: skip
@click.option("--bound", type=click.Choice(BOUNDS), default="tight", show_default=True)
@click.option("--seeds", type=click.IntRange(1), help="Networks a member. Default: all numbers that a run has.")
@click.option("--sample", type=click.IntRange(1), default=150, show_default=True, help="Inputs to show in full.")
@click.option(
    "--input", "example", type=click.IntRange(0), help="Of the first run: drawn in the figure of an election."
)
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the datasets are, for the pictures.")
@click.option("--no-pictures", is_flag=True, help="Leave the inputs' pictures out.")
def report(
    runs: tuple[Path, ...],
    out: Path | None,
    figures: Path | None,
    table: Path | None,
    budgets: list[int] | None,
    rules: tuple[str, ...],
    bound: str,
    seeds: int | None,
    sample: int,
    example: int | None,
    data_dir: Path | None,
    no_pictures: bool,
) -> None:
    """Show what RUNs certify: one page that opens offline in any browser, figures for a paper, or both.

    Every file of a run is checked first. The page holds curves, tables, and the elections of a sample of inputs with
    the cheapest attack on each, step by step.

    Example: runoff report runs/cifar10-50 --out report.html --figures figures
    """
    with told():
        if out is None and figures is None:
            raise InputError("report needs --out FILE for a page, --figures FOLDER, or both")
        if table is not None:
            _from_table(table, runs, out, figures)
            return
        if not runs:
            raise InputError("report needs at least one run, or --csv FILE with --figures FOLDER")
        if figures is not None:
            from runoff.report import drawing
            from runoff.report import figures as pictures

            drawing.library()  # before the long work
        if out is not None:
            with writing(out):  # likewise
                out.parent.mkdir(parents=True, exist_ok=True)
        sources = [source for run in runs for source in _sources(run, seeds, data_dir, not no_pictures)]
        from runoff import report as reports

        data = reports.collect(
            sources,
            elections=list(dict.fromkeys(rules)),
            bound=bound,
            budgets=budgets,
            sample=sample,
            tell=lambda words: click.echo(words, err=True),
        )
        if out is not None:
            with writing(out):
                reports.write(out, data)
            click.echo(f"The report is in {out} ({out.stat().st_size / 1e6:.1f} MB): open it in a browser.")
        if figures is not None:
            with writing(figures):
                _tell(pictures.draw(data, sources[0], figures, example=example), figures)


def _sources(path: Path, seeds: int | None, data_dir: Path | None, pictures: bool) -> list[Source]:
    """A run, once for each number of networks a member that it has ballots of."""
    from runoff.report import Source
    from runoff.runs import Run

    there: list[int | None] = [seeds]
    if seeds is None and (path / "manifest.json").exists():
        there = [*Run.open(path).seeds()] or there
    found = [Source.from_run(path, n, data_dir=data_dir, pictures=pictures) for n in there]
    for note in found[0].notes:
        click.echo(f"Warning: {note}", err=True)
    return found


def _from_table(table: Path, runs: tuple[Path, ...], out: Path | None, figures: Path | None) -> None:
    from runoff.report import drawing
    from runoff.report import figures as pictures

    if runs or out is not None or figures is None:
        raise InputError("--csv goes with --figures FOLDER alone: leave runs and --out out")
    drawing.library()
    with writing(figures):
        _tell(pictures.draw_table(table, figures), figures)


def _tell(written: list[str], folder: Path) -> None:
    click.echo(f"{len(written)} figures are in {folder}, each as SVG, PDF and PNG: {', '.join(written)}")
