"""`runoff certify`: certificates for the scores of any ensemble, or for a run."""

from __future__ import annotations

import json
import logging
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from numpy.typing import NDArray

import runoff
from runoff import elections
from runoff._io.progress import with_progress
from runoff._io.text import constant_votes
from runoff._io.units import UNITS
from runoff.ballots import constant_members
from runoff.cli import requirements, summaries
from runoff.cli.errors import writing
from runoff.cli.options import TableInputs, numbers, table_inputs
from runoff.cli.options import as_json as json_option
from runoff.cli.options import bound as bound_option
from runoff.cli.scored import Scored
from runoff.errors import InputError
from runoff.saving import proofs, rows
from runoff.scores import blocks_of

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
    "the columns input, prediction; or with a classifier that `runoff train TABLE --k 1` saved.",
)
@click.option(
    "--spread",
    type=click.Path(path_type=Path),
    help="Read the members of each bucket (n_buckets, d) from this .npy file.",
)
@click.option(
    "--election", type=click.Choice(elections.NAMES), help="Use this election. Default: the run's, else runoff."
)
@bound_option
@table_inputs
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
    help="Exit with code 3 unless this percentage of predictions, correct or wrong, is certified, as in 10:60%.",
)  # fmt: skip
@click.option(
    "--to",
    metavar="CLASS",
    help="Also report how many edits might make the ensemble predict this class, a name or an index.",
)
@click.option(
    "--from",
    "source",
    metavar="CLASS",
    help="With --to, count the inputs of this class only. Default: all other classes.",
)
@click.option(
    "--unit", type=click.Choice(tuple(UNITS)),
    help="Count edits in this unit, for which the members were trained. Runs record it. Default: samples.",
)  # fmt: skip
@click.option(
    "--collective",
    is_flag=True,
    help="Also report the accuracy proven under a single attack on all inputs at once. Needs labels; takes minutes.",
)
@click.option(
    "--time-limit", type=click.FloatRange(0), metavar="N", help="Spend at most about N seconds on --collective."
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
    inputs: TableInputs,
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

    Scores are logits, probabilities or ballots; only each member's ranking of the classes matters. A run
    contains its labels and spread, and the rows are written to its folder certificates/.

    Example: runoff certify scores.npy --labels y.npy --budgets 0,5,10 --require 10:45%
    """
    started = time.perf_counter()
    with ExitStack() as held:
        if source is not None and to is None:
            raise InputError("--from needs --to, the class that an attacker wants these inputs to be predicted as")
        if time_limit is not None and not collective:
            raise InputError("--time-limit applies to --collective only: leave it out")
        read = Scored.read(scores, labels, spread, seeds, inputs, held)
        array, y = read.scores, read.labels
        requirements.check_labels(required, y)
        if collective and y is None:
            raise InputError("--collective counts correct predictions, so it needs --labels FILE")
        baseline = None if undefended is None else read.undefended(undefended)
        election = election or read.election or elections.DEFAULT
        if read.unit is not None and unit not in (None, read.unit):
            raise InputError(f"{scores} counts {read.unit}: leave out --unit {unit}")
        unit = read.unit or unit or "samples"
        blocks = with_progress(blocks_of(array), "certifying", len(array), unit="inputs")
        with closing(blocks):  # so that the bar ends before any error is printed
            plain = runoff.certify(blocks, election=election, spread=read.spread, bound=bound, unit=unit)
        certificates = read.named(plain)
        if plain.spread is not None and (out_of_reach := plain.spread.n_unreached):
            log.warning("%s", summaries.unreached(out_of_reach, plain.n_members))
        if budgets is None:
            named = [requirement.edits for requirement in (*required, *required_certified)]
            budgets = sorted({*_some_budgets(certificates), *named})
        target = None if to is None else read.target(plain, to, source)
        together = _together(certificates, y, budgets, array, time_limit) if collective else None
        constant = constant_members(array)
        summary = summaries.summarize(certificates, budgets, y, read.classes, baseline, together, target, constant)
        verdicts = requirements.verdicts([*required, *required_certified], certificates, y)
        if read.run is not None:
            name = f"{CERTIFICATES}/{election}-{bound}-{read.run.seeds()[-1] if seeds is None else seeds}.{kind}"
            if not (read.writable and _write_rows(read.run, name, certificates, y)):
                log.warning("%s is read-only, so the rows of these certificates are not written there", read.run.path)
    if out is not None:
        with writing(out):
            radius_to = None if target is None else target.radius
            rows.write(out, certificates, y, inputs=read.names, radius_to=radius_to)
    if export is not None:
        with writing(export):
            proofs.write(export, plain, array, **read.about(seeds))
    summary |= {"seconds": round(time.perf_counter() - started, 3)} | requirements.summary(verdicts)
    if as_json:
        if 2 * (constant or 0) > certificates.n_members:
            log.warning("%s", constant_votes(constant, certificates.n_members))
        click.echo(json.dumps(summary, indent=2))
    else:
        summaries.show(summary, target)
    requirements.must_be_met(verdicts)


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


def _some_budgets(certificates: Certificates) -> list[int]:
    """Return about six budgets from 0 to the largest radius."""
    largest = int(certificates.radius.max())
    return list(range(0, largest + 1, max(1, -(-largest // 5))))


def _together(
    certificates: Certificates, y: Any, budgets: list[int], array: NDArray[Any], time_limit: float | None
) -> list[float]:
    """Return the collective accuracy for each budget."""
    from runoff.collective import by_budget

    bounds = by_budget(certificates, y, budgets, scores=array, time_limit=time_limit)
    shares = dict(with_progress(bounds, "bounding collective accuracy", len(set(budgets))))
    return [shares[budget] for budget in budgets]
