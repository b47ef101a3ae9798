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
from rich.table import Table

import runoff
from runoff import elections
from runoff._io.files import open_array
from runoff._io.progress import with_progress
from runoff._io.units import unit_of
from runoff.certificates import BOUNDS
from runoff.cli import requirements
from runoff.cli.errors import writing
from runoff.cli.options import as_json as json_option
from runoff.cli.options import numbers
from runoff.errors import InputError
from runoff.saving import rows
from runoff.scores import blocks_of, checked_scores

if TYPE_CHECKING:
    from runoff.certificates import Certificates
    from runoff.cli.requirements import Requirement
    from runoff.runs import Run

CERTIFICATES = "certificates"
log = logging.getLogger("runoff")


@click.command()
@click.argument("scores", type=click.Path(path_type=Path))
@click.option("--labels", type=click.Path(path_type=Path), help="Read the true classes (n,) from this .npy file.")
@click.option(
    "--spread",
    type=click.Path(path_type=Path),
    help="Read the members of each bucket (n_buckets, d) from this .npy file.",
)
@click.option(
    "--election", type=click.Choice(elections.NAMES), help="Use this election. Default: the run's, else runoff."
)
@click.option("--bound", type=click.Choice(BOUNDS), default="tight", show_default=True, help="Use this bound.")
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
    spread: Path | None,
    election: str | None,
    bound: str,
    budgets: list[int] | None,
    required: list[Requirement],
    required_certified: list[Requirement],
    collective: bool,
    time_limit: float | None,
    out: Path | None,
    export: Path | None,
    kind: str,
    seeds: int | None,
    as_json: bool,
) -> None:
    """Certify an ensemble's SCORES, a .npy file (n_samples, n_members, n_classes), or a run's directory.

    Scores are logits, probabilities or ballots; only each member's ranking of the classes matters. A run brings its
    labels and spread, and the rows are written to its folder certificates/.

    Example: runoff certify scores.npy --labels y.npy --budgets 0,5,10 --require 10:45%
    """
    started = time.perf_counter()
    with ExitStack() as held:
        run, writable, array, y, members = _read(scores, labels, spread, seeds, held)
        requirements.check_labels(required, y)
        if collective and y is None:
            raise InputError("--collective counts correct predictions, so it needs --labels FILE")
        if time_limit is not None and not collective:
            raise InputError("--time-limit applies to --collective only: leave it out")
        election = election or (elections.DEFAULT if run is None else run.election)
        if y is not None and y.shape != array.shape[:1]:
            raise InputError(f"{labels} must have one label for each of {len(array)} inputs, got shape {y.shape}")
        blocks = with_progress(blocks_of(array), "certifying", len(array), unit="inputs")
        with closing(blocks):  # so that the bar ends before any error is printed
            unit = "samples" if run is None else run.settings.unit
            certificates = runoff.certify(blocks, election=election, spread=members, bound=bound, unit=unit)
        budgets = _some_budgets(certificates) if budgets is None else budgets
        accuracy = None if y is None else runoff.certified_accuracy(certificates, y, [0, *budgets])
        together = _together(certificates, y, budgets, array, time_limit) if collective else None
        if run is not None:
            name = f"{CERTIFICATES}/{election}-{bound}-{run.seeds()[-1] if seeds is None else seeds}.{kind}"
            if not (writable and _write_rows(run, name, certificates, y)):
                log.warning("%s is read-only, so the rows of these certificates are not written there", run.path)
    if out is not None:
        with writing(out):
            rows.write(out, certificates, y)
    if export is not None:
        _export(export, certificates, array, scores, run, seeds)
    verdicts = requirements.verdicts([*required, *required_certified], certificates, y)
    summary = _summary(certificates, budgets, accuracy, together, time.perf_counter() - started)
    summary |= requirements.summary(verdicts)
    if as_json:
        click.echo(json.dumps(summary, indent=2))
    else:
        _show(summary)
    requirements.must_be_met(verdicts)


def _read(
    scores: Path, labels: Path | None, spread: Path | None, seeds: int | None, held: ExitStack
) -> tuple[Run | None, bool, NDArray[Any], NDArray[Any] | None, NDArray[Any] | None]:
    """Return a locked run or None, whether it can be written to, and scores, labels and spread."""
    if (scores / "manifest.json").exists():
        if labels is not None or spread is not None:
            raise InputError(f"{scores} is a run, which includes labels and spread: leave out --labels and --spread")
        run, writable = _open(scores, held)
        return run, writable, run.ballots(seeds), np.asarray(run.labels()), run.spread()
    if scores.is_dir():
        raise InputError(f"{scores} is not a run: it has no manifest.json; create a run with `runoff train`")
    if seeds is not None:
        raise InputError(f"--use-seeds applies to runs only, and {scores} is a file: leave it out")
    array = checked_scores(open_array(scores), str(scores))
    y = None if labels is None else np.asarray(open_array(labels))
    members = None if spread is None else np.asarray(open_array(spread))
    return None, False, array, y, members


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
    path: Path, certificates: Certificates, array: NDArray[Any], scores: Path, run: Run | None, seeds: int | None
) -> None:
    """Write a proof of these certificates."""
    from runoff.saving import proofs

    about: dict[str, Any] = {"source": {"file": scores.name}}
    if run is None:
        about["source"]["sha256"] = hashlib.sha256(scores.read_bytes()).hexdigest()
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
        "clean_accuracy": None if accuracy is None else float(accuracy[0]),
        "budgets": budgets,
        "certified": [float((certificates.radius >= budget).mean()) for budget in budgets],
        "certified_accuracy": None if accuracy is None else [float(a) for a in accuracy[1:]],
        "collective_accuracy": together,
        "median_radius": float(np.median(certificates.radius)),
        "largest_radius": int(certificates.radius.max()),
        "seconds": round(seconds, 3),
    }


def _show(summary: dict[str, Any]) -> None:
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
    together = summary["collective_accuracy"]
    if together is not None:
        table.add_column("collective accuracy", justify="right")
    for i, budget in enumerate(summary["budgets"]):
        shares = [column[i] for column in (summary["certified"], accuracy, together) if column is not None]
        table.add_row(str(budget), *(f"{100 * share:.2f} %" for share in shares))
    console = Console()
    console.print(table)
    if together is not None:
        console.print("Collective accuracy: proven to stay correct under any one attack on all inputs at once.")
    clean = summary["clean_accuracy"]
    if clean is not None:
        console.print(f"Accuracy without attack: {100 * clean:.2f} %")
    if unit.name != "samples":
        console.print(unit.definition)
