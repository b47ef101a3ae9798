"""`runoff certify`: certificates for the scores of any ensemble, or for a run."""

from __future__ import annotations

import hashlib
import json
import logging
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import runoff
from runoff import elections
from runoff._io.files import open_array
from runoff._io.progress import with_progress
from runoff._io.units import UNITS, unit_of
from runoff.certificates import BOUNDS
from runoff.cli import requirements
from runoff.cli.errors import writing
from runoff.cli.options import as_json as json_option
from runoff.cli.options import numbers
from runoff.cli.tables import is_model, scores_of
from runoff.cli.targets import Target
from runoff.errors import InputError
from runoff.saving import long_form, rows, tables
from runoff.scores import blocks_of, checked_scores

if TYPE_CHECKING:
    from runoff.certificates import Certificates
    from runoff.cli.requirements import Requirement
    from runoff.runs import Run

CERTIFICATES = "certificates"
log = logging.getLogger("runoff")


@click.command()
@click.argument("scores", type=click.Path(path_type=Path))
@click.option(
    "--labels",
    type=click.Path(path_type=Path),
    help="Read the true classes from this file: .npy (n,), or .csv or .parquet with the columns input, label.",
)
@click.option(
    "--undefended",
    type=click.Path(path_type=Path),
    help="Compare with the predictions of one model trained on all samples, from .npy (n,), or .csv or .parquet with "
    "the columns input, prediction.",
)
@click.option(
    "--spread",
    type=click.Path(path_type=Path),
    help="Read the members of each bucket (n_buckets, d) from this .npy file.",
)
@click.option(
    "--election", type=click.Choice(elections.NAMES), help="Use this election. Default: the run's, else runoff."
)
@click.option("--bound", type=click.Choice(BOUNDS), default="tight", show_default=True, help="Use this bound.")
@click.option(
    "--inputs", type=click.Path(path_type=Path), help="Certify this .csv or .parquet table with a saved classifier."
)
@click.option("--label-column", metavar="NAME", help="Read the true classes from this column of --inputs.")
@click.option("--group-column", metavar="NAME", help="Leave out this column of --inputs, which names sources.")
@click.option("--budgets", metavar="N,N,...", callback=numbers, help="Report these numbers of edits, as in 5,10,15.")
@click.option(
    "--require",
    "required",
    metavar="EDITS:PERCENT",
    multiple=True,
    callback=requirements.parsed,
    help="Exit with code 3 unless the certified accuracy reaches this percentage, as in 10:45%. Needs labels.",
)
@click.option(
    "--require-certified", "required_certified", metavar="EDITS:PERCENT", multiple=True, callback=requirements.parsed,
    help="The same for the share of certified predictions, correct or wrong.",
)  # fmt: skip
@click.option(
    "--to",
    metavar="CLASS",
    help="Also report what it takes to make the ensemble predict this class, a name or an index.",
)
@click.option(
    "--from",
    "source",
    metavar="CLASS",
    help="With --to, count the inputs of this class only. Default: all other classes.",
)
@click.option(
    "--unit", type=click.Choice(tuple(UNITS)),
    help="Say what one edit was when the members were trained. A run knows it. Default: samples.",
)  # fmt: skip
    "--collective",
    is_flag=True,
    help="Also bound what stays correct under one attack on all inputs at once. Needs labels; takes minutes.",
)
@click.option(
    "--time-limit", type=click.FloatRange(0), metavar="SECONDS", help="Spend at most about this long on --collective."
)
@click.option("--out", type=click.Path(path_type=Path), help="Write one row per input to this file, .csv or .parquet.")
@click.option(
    "--export",
    type=click.Path(path_type=Path),
    help="Write ballots and certificates to this JSON file, which python -m runoff.check verifies.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "parquet"]),
    default="csv",
    show_default=True,
    help="Write the rows of a run in this format.",
)
@click.option("--use-seeds", "seeds", type=click.IntRange(1), help="Use N networks per member of a run. Default: all.")
@json_option
def certify(
    scores: Path,
    labels: Path | None,
    undefended: Path | None,
    spread: Path | None,
    election: str | None,
    bound: str,
    inputs: Path | None,
    label_column: str | None,
    group_column: str | None,
    budgets: list[int] | None,
    required: list[Requirement],
    required_certified: list[Requirement],
    to: str | None,
    source: str | None,
    unit: str | None,
    collective: bool,
    time_limit: float | None,
    out: Path | None,
    export: Path | None,
    kind: str,
    seeds: int | None,
    as_json: bool,
) -> None:
    """Certify an ensemble's SCORES, a .npy file (n_samples, n_members, n_classes), or a run's directory.

    SCORES can also be a .csv or .parquet table with the columns input, member, class and score, and label if known; or
    the directory of a classifier, as `runoff train TABLE` saves it, with --inputs TABLE.

    Scores are logits, probabilities or ballots; only each member's ranking of the classes matters. A run brings its
    labels and spread, and the rows are written to its folder certificates/.

    Example: runoff certify scores.npy --labels y.npy --budgets 0,5,10 --require 10:45%
    """
    started = time.perf_counter()
    with ExitStack() as held:
        if source is not None and to is None:
            raise InputError("--from needs --to, the class that an attacker wants these inputs to be predicted as")
        table = _table(scores, inputs, label_column, group_column)
        run, writable, array, y, members = _read(scores, table, labels, spread, seeds, held)
        requirements.check_labels(required, y)
        election = election or (None if table is None else table.election)
        if collective and y is None:
            raise InputError("--collective counts correct predictions, so it needs --labels FILE")
        if time_limit is not None and not collective:
            raise InputError("--time-limit applies to --collective only: leave it out")
        election = election or (elections.DEFAULT if run is None else run.election)
        if y is not None and y.shape != array.shape[:1]:
            raise InputError(f"{labels} must have one label for each of {len(array)} inputs, got shape {y.shape}")
        baseline = None if undefended is None else _undefended(undefended, len(array), table, y)
        known = run.settings.unit if run is not None else None if table is None else table.unit
        if known is not None and unit not in (None, known):
            raise InputError(f"{scores} counts {known}: leave out --unit {unit}")
        unit = known or unit or "samples"
        blocks = with_progress(blocks_of(array), "certifying", len(array), unit="inputs")
        with closing(blocks):  # so that the bar ends before any error is printed
            plain = runoff.certify(blocks, election=election, spread=members, bound=bound, unit=unit)
        certificates = plain if table is None else plain.named(table.classes)
        budgets = _some_budgets(certificates) if budgets is None else budgets
        accuracy = None if y is None else certificates.certified_accuracy(y, [0, *budgets])
        by_class = None if y is None else certificates.certified_accuracy(y, budgets, by_class=True)
        target = None if to is None else _target(plain, array, y, run, table, to, source)
        together = _together(certificates, y, budgets, array, time_limit) if collective else None
        if run is not None:
            name = f"{CERTIFICATES}/{election}-{bound}-{run.seeds()[-1] if seeds is None else seeds}.{kind}"
            if not (writable and _write_rows(run, name, certificates, y)):
                log.warning("%s is read-only, so the rows of these certificates are not written there", run.path)
    if out is not None:
        with writing(out):
            radius_to = None if target is None else target.radius
            rows.write(out, certificates, y, inputs=None if table is None else table.inputs, radius_to=radius_to)
    if export is not None:
        _export(export, plain, array, scores, run, seeds, table)
    verdicts = requirements.verdicts([*required, *required_certified], certificates, y)
    summary = _summary(certificates, budgets, accuracy, together, time.perf_counter() - started)
    summary |= requirements.summary(verdicts)
    summary["target"] = None if target is None else target.summary(budgets)
    summary["undefended_accuracy"] = None if baseline is None else float(np.mean(baseline == y))
    if by_class is not None:
        names = certificates.classes if run is None else np.array(run.manifest["dataset"]["classes"])
        summary |= _by_class(by_class, np.arange(len(by_class)) if names is None else names)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        _show(summary, target)
    requirements.must_be_met(verdicts)


def _table(
    scores: Path, inputs: Path | None, label_column: str | None, group_column: str | None
) -> long_form.LongScores | None:
    """Return scores with names: from a table in long form, or of a saved classifier."""
    if is_model(scores):
        return scores_of(scores, inputs, label_column, group_column)
    if inputs is not None or label_column is not None or group_column is not None:
        raise InputError(
            f"--inputs and --label-column are for a saved classifier, and {scores} is none: leave them out"
        )
    return long_form.read_scores(scores) if tables.is_table(scores) else None


def _read(
    scores: Path,
    table: long_form.LongScores | None,
    labels: Path | None,
    spread: Path | None,
    seeds: int | None,
    held: ExitStack,
) -> tuple[Run | None, bool, NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]:
    """Return a locked run or None, whether it can be written to, and scores, labels and spread."""
    if table is None and (scores / "manifest.json").exists():
        if labels is not None or spread is not None:
            raise InputError(f"{scores} is a run, which includes labels and spread: leave out --labels and --spread")
        run, writable = _open(scores, held)
        return run, writable, run.ballots(seeds), np.asarray(run.labels()), run.spread()
    if table is None and scores.is_dir():
        raise InputError(f"{scores} is not a run: it has no manifest.json; create a run with `runoff train`")
    if seeds is not None:
        raise InputError(f"--use-seeds applies to runs only, and {scores} is a file: leave it out")
    array = checked_scores(open_array(scores) if table is None else table.scores, str(scores))
    y = None if table is None else table.labels
    if labels is not None:
        y = _per_input(labels, "label", len(array), table)
    members = None if table is None else table.spread
    if spread is not None:
        if members is not None:
            raise InputError(f"{scores} is a saved classifier, which includes its spread: leave out --spread")
        members = np.asarray(open_array(spread))
    return None, False, array, y, members


def _target(
    certificates: Certificates,
    array: NDArray[Any],
    labels: NDArray[Any] | None,
    run: Run | None,
    table: long_form.LongScores | None,
    to: str,
    source: str | None,
) -> Target:
    """Return what it takes to reach one class; certificates and labels of a table are taken as class indices."""
    if table is None:
        classes = None if run is None else run.manifest["dataset"]["classes"]
        return Target.of(certificates, array, labels, classes, to, source)
    index = {name: c for c, name in enumerate(table.classes.tolist())}
    codes = None if labels is None else np.array([index.get(label, -1) for label in labels.tolist()])
    return Target.of(certificates, array, codes, [str(name) for name in index], to, source)


def _per_input(path: Path, column: str, n: int, table: long_form.LongScores | None) -> NDArray[Any]:
    """Return a value for each input, from an array or a table."""
    if not tables.is_table(path):
        return np.asarray(open_array(path))
    return long_form.read_column(path, column, np.arange(n) if table is None else table.inputs)


def _undefended(path: Path, n: int, table: long_form.LongScores | None, y: NDArray[Any] | None) -> NDArray[Any]:
    """Return the predictions of an undefended model."""
    if y is None:
        raise InputError("--undefended is compared with the true classes, so it needs --labels FILE")
    predictions = _per_input(path, "prediction", n, table)
    if predictions.shape != y.shape or (predictions.dtype.kind in "US") != (y.dtype.kind in "US"):
        raise InputError(
            f"{path} must have one predicted class for each of {n} inputs, as the labels do, got shape "
            f"{predictions.shape} and dtype {predictions.dtype}"
        )
    return predictions


def _by_class(by_class: NDArray[np.float64], names: NDArray[Any]) -> dict[str, Any]:
    """Return the certified accuracy of every class, and the lowest for each number of edits."""
    known = ~np.isnan(by_class).any(axis=1)
    present, shares = names[known].tolist(), by_class[known]
    return {
        "classes_with_inputs": present,
        "certified_accuracy_by_class": shares.T.tolist(),
        "lowest_class": [present[int(c)] for c in shares.argmin(axis=0)] if present else [],
    }


def _open(path: Path, held: ExitStack) -> tuple[Run, bool]:
    """Lock a run and check all its files; return it, and whether it can be written to."""
    from runoff._io.locks import locked
    from runoff.runs import Run

    writable = held.enter_context(locked(path, reading=True))
    run = Run.open(path)
    run.verify()
    return run, writable


def _write_rows(run: Run, name: str, certificates: Certificates, y: NDArray[Any] | None) -> bool:
    """Write the rows into a run; return False if its folder is read-only."""
    from runoff._io.locks import NO_WRITING

    with writing(run.path / name):
        try:
            (run.path / CERTIFICATES).mkdir(exist_ok=True)
            run.begin(name)
            rows.write(run.path / name, certificates, y)
            run.record(name)
            run.sweep()
        except OSError as error:
            if error.errno not in NO_WRITING:
                raise
            return False
    return True


def _export(
    path: Path,
    certificates: Certificates,
    array: NDArray[Any],
    scores: Path,
    run: Run | None,
    seeds: int | None,
    table: long_form.LongScores | None,
) -> None:
    """Write a proof of these certificates."""
    from runoff.saving import proofs

    about: dict[str, Any] = {"source": {"file": scores.name}}
    if run is None:
        about |= {} if table is None else {"classes": [str(name) for name in table.classes]}
        content = scores / "manifest.json" if scores.is_dir() else scores
        about["source"]["sha256"] = hashlib.sha256(content.read_bytes()).hexdigest()
    else:
        name = f"ballots-{run.seeds()[-1] if seeds is None else seeds}.npy"
        about["source"] = {"file": name, "sha256": run.manifest["files"][name]}
        about |= {"classes": run.manifest["dataset"]["classes"], "partition": run.partition().fingerprint}
    with writing(path):
        proofs.write(path, certificates, array, **about)


def _some_budgets(certificates: Certificates) -> list[int]:
    """Return about six budgets from 0 to the largest radius."""
    largest = int(certificates.radius.max())
    return list(range(0, largest + 1, max(1, -(-largest // 5))))


def _together(
    certificates: Certificates, y: Any, budgets: list[int], array: NDArray[Any], time_limit: float | None
) -> list[float]:
    """Return the collective accuracy for each budget."""
    from runoff.collective import by_budget

    found = by_budget(certificates, y, budgets, scores=array, time_limit=time_limit)
    shares = dict(with_progress(found, "bounding collective accuracy", len(set(budgets))))
    return [shares[budget] for budget in budgets]


def _summary(
    certificates: Certificates,
    budgets: list[int],
    accuracy: NDArray[np.float64] | None,
    together: list[float] | None,
    seconds: float,
) -> dict[str, Any]:
    return {
        "inputs": len(certificates),
        "members": certificates.n_members,
        "classes": certificates.n_classes,
        "buckets": certificates.n_buckets,
        "election": certificates.election.name,
        "bound": certificates.bound,
        "unit": certificates.unit,
        "edit": unit_of(certificates.unit).definition,
        "clean_accuracy": None if accuracy is None else float(accuracy[0]),
        "budgets": budgets,
        "certified": [float((certificates.radius >= budget).mean()) for budget in budgets],
        "certified_accuracy": None if accuracy is None else [float(a) for a in accuracy[1:]],
        "collective_accuracy": together,
        "median_radius": float(np.median(certificates.radius)),
        "largest_radius": int(certificates.radius.max()),
        "seconds": round(seconds, 3),
    }


def _show(summary: dict[str, Any], target: Target | None) -> None:
    title = (
        "{inputs:,} inputs, {members:,} members, {classes:,} classes, {buckets:,} buckets: {election}, {bound} bound"
    )
    table = Table(title=title.format(**summary), title_justify="left")
    unit = unit_of(summary["unit"])
    table.add_column(f"{unit.noun}s", justify="right")
    table.add_column("certified", justify="right")
    accuracy = summary["certified_accuracy"]
    if accuracy is not None:
        table.add_column("certified accuracy", justify="right")
        table.add_column("of the lowest class", justify="right")
    together = summary["collective_accuracy"]
    if together is not None:
        table.add_column("collective accuracy", justify="right")
    rates = [] if target is None else target.rates(summary["budgets"])
    if target is not None:
        table.add_column(target.title(), justify="right")
    for i, budget in enumerate(summary["budgets"]):
        cells = [f"{100 * summary['certified'][i]:.2f} %"]
        if accuracy is not None:
            lowest = min(summary["certified_accuracy_by_class"][i])
            cells.append(f"{100 * accuracy[i]:.2f} %")
            cells.append(f"{100 * lowest:.2f} % (class {escape(str(summary['lowest_class'][i]))})")
        cells += [f"{100 * together[i]:.2f} %"] if together is not None else []
        cells += [f"{100 * rates[i]:.2f} %"] if target is not None else []
        table.add_row(str(budget), *cells)
    console = Console()
    console.print(table)
    if together is not None:
        console.print("Collective accuracy: proven to stay correct under any one attack on all inputs at once.")
    clean = summary["clean_accuracy"]
    if clean is not None:
        console.print(f"Accuracy without attack: {100 * clean:.2f} %")
    if (undefended := summary["undefended_accuracy"]) is not None:
        console.print(
            f"Accuracy of the undefended model without attack: {100 * undefended:.2f} %; nothing is proven for it"
        )
    if target is not None:
        console.print(target.sentence())
    if unit.name != "samples":
        console.print(unit.definition)
