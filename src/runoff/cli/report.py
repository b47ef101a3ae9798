"""`runoff report`: an HTML report on runs, and figures for a paper."""

from __future__ import annotations

import logging
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray

from runoff import elections
from runoff._io.text import count, size
from runoff._io.units import UNITS
from runoff.cli.errors import writing
from runoff.cli.options import TableInputs, numbers, table_inputs
from runoff.cli.options import bound as bound_option
from runoff.cli.options import data_dir as data_dir_option
from runoff.cli.output import say
from runoff.elections import BASELINE, DEFAULT
from runoff.errors import InputError
from runoff.saving.tables import SUFFIXES

if TYPE_CHECKING:
    from runoff.report import Source

log = logging.getLogger("runoff")


@click.command()
@click.argument("runs", nargs=-1, metavar="RUN...", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the report to this file, as in report.html.")
@table_inputs
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    help="Read the true classes of scores from this file, as in runoff certify.",
)
@click.option(
    "--spread", type=click.Path(path_type=Path),
    help="Read the members of each bucket (n_buckets, d) from this .npy file, for scores.",
)  # fmt: skip
@click.option("--unit", type=click.Choice(tuple(UNITS)), help="Count edits of scores in this unit. Default: samples.")
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
    labels: Path | None,
    spread: Path | None,
    unit: str | None,
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

    A RUN can also be the directory of a classifier, as `runoff train TABLE` saves it, with --inputs TABLE; or scores of
    any ensemble, as for `runoff certify`: a .npy file with --labels, or a .csv or .parquet table.

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
    given = {"--labels": labels, "--spread": spread, "--unit": unit}
    if not any(map(_is_scores, runs)) and (option := next((name for name in given if given[name] is not None), None)):
        raise InputError(f"{option} is for scores, and none are given: leave it out")
    sources = [
        source
        for run, baseline in zip(runs, baselines, strict=True)
        for source in (
            [_from_model(run, inputs, baseline)]
            if is_model(run)
            else [_from_scores(run, given, seeds, baseline)]
            if _is_scores(run)
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
        say(f"The report is in {out} ({size(out.stat().st_size)}): open it in a browser.")
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


def _is_scores(path: Path) -> bool:
    return path.suffix.lower() in (".npy", *SUFFIXES) and not path.is_dir()


def _from_scores(path: Path, given: dict[str, Any], seeds: int | None, undefended: Path | None) -> Source:
    """Return the source of scores in a file, with the options that `runoff certify` has for them."""
    from runoff.ballots import rank
    from runoff.cli.scored import Scored
    from runoff.report import Source

    with ExitStack() as held:
        read = Scored.read(path, given["--labels"], given["--spread"], seeds, TableInputs(None, None, None), held)
    if read.labels is None:
        raise InputError(f"a report compares predictions with the true classes: pass those of {path} as --labels FILE")
    known = None if read.classes is None else read.classes.tolist()
    predictions = None if undefended is None else read.undefended(undefended)
    options = " ".join(f"{name} {shlex.quote(str(value))}" for name, value in given.items() if value is not None)
    return Source(
        name=path.stem,
        ballots=np.asarray(rank(read.scores)),
        labels=_as_indices(read.labels, known, f"the labels of {path}"),
        spread=read.spread,  # type: ignore[arg-type]
        classes=None if known is None else tuple(map(str, known)),  # type: ignore[arg-type]
        unit=given["--unit"] or "samples",
        undefended=None if predictions is None else _as_indices(predictions, known, str(undefended)),
        features=None if read.names is None else [str(name) for name in read.names.tolist()],
        checked=(f"runoff certify {shlex.quote(str(path))} {options}".rstrip(),),
    )


def _as_indices(values: NDArray[Any], classes: list[Any] | None, what: str) -> NDArray[np.int64]:
    """Return classes, by name or by index, as indices."""
    if classes is None:
        if values.dtype.kind not in "iu":
            raise InputError(f"{what} must be class indices (integers), got {values.dtype}")
        return values.astype(np.int64)
    index = {name: c for c, name in enumerate(classes)}
    if (i := next((i for i, value in enumerate(values.tolist()) if value not in index), None)) is not None:
        raise InputError(
            f"{what} must be among the classes of the scores, got {values.tolist()[i]!r:.60} for input {i}"
        )
    return np.array([index[value] for value in values.tolist()], np.int64)


def _from_table(table: Path, runs: tuple[Path, ...], out: Path | None, figures: Path | None) -> None:
    from runoff.report import drawing
    from runoff.report import figures as pictures

    if runs or out is not None or figures is None:
        raise InputError("--csv requires --figures FOLDER and excludes runs and --out")
    drawing.library()
    with writing(figures):
        _show(pictures.draw_table(table, figures), figures)


def _show(written: list[str], folder: Path) -> None:
    say(f"{count(len(written), 'figure')} in {folder}, each as SVG, PDF and PNG: {', '.join(written)}")
