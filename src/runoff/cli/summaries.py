"""Summaries that `runoff certify` prints: as data for JSON, and as a table for people."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from runoff._io.text import constant_votes, count
from runoff._io.units import unit_of
from runoff.cli.output import cell, say

WIDTH = 200  # characters, at most, of a table that is not printed on a terminal

if TYPE_CHECKING:
    from runoff.certificates import Certificates
    from runoff.cli.targets import Target


def summarize(
    certificates: Certificates,
    budgets: list[int],
    y: NDArray[Any] | None,
    classes: NDArray[Any] | None,
    undefended: NDArray[Any] | None,
    together: list[float] | None,
    target: Target | None,
    constant: int | None,
) -> dict[str, Any]:
    """Return the share of certified inputs by number of edits and, if labels are known, the certified accuracy."""
    accuracy = None if y is None else certificates.certified_accuracy(y, [0, *budgets])
    summary = {
        "inputs": len(certificates),
        "members": certificates.n_members,
        "classes": certificates.n_classes,
        "buckets": certificates.n_buckets,
        "election": certificates.election.name,
        "bound": certificates.bound,
        "unit": certificates.unit,
        "edit": unit_of(certificates.unit).definition,
        "clean_accuracy": None if accuracy is None else float(accuracy[0]),
        "undefended_accuracy": None if undefended is None else float(np.mean(undefended == y)),
        "budgets": budgets,
        "certified": [float((certificates.radius >= budget).mean()) for budget in budgets],
        "certified_accuracy": None if accuracy is None else [float(a) for a in accuracy[1:]],
        "collective_accuracy": together,
        "target": None if target is None else target.summary(budgets),
        "median_radius": float(np.median(certificates.radius)),
        "largest_radius": int(certificates.radius.max()),
        "constant_members": constant,
    }
    return summary if y is None else summary | _by_class(certificates, y, budgets, classes)


def _by_class(
    certificates: Certificates, y: NDArray[Any], budgets: list[int], classes: NDArray[Any] | None
) -> dict[str, Any]:
    """Return the certified accuracy of every class, and the lowest for each number of edits."""
    by_class = certificates.certified_accuracy(y, budgets, by_class=True)
    names = np.arange(len(by_class)) if classes is None else classes
    known = ~np.isnan(by_class).any(axis=1)
    present, shares = names[known].tolist(), by_class[known]
    return {
        "classes_with_inputs": present,
        "certified_accuracy_by_class": shares.T.tolist() if present else [],
        "lowest_class": [present[int(c)] for c in shares.argmin(axis=0)] if present else [],
    }


def unreached(n: int, n_members: int) -> str:
    """Return a warning about members that no bucket reaches, which is right only if nobody can edit their samples."""
    verb = "is" if n == 1 else "are"
    return (
        f"{n:,} of {count(n_members, 'member')} {verb} in no row of the spread, so radii assume that no edit changes "
        f"{'it' if n == 1 else 'them'}: use the spread that the members were trained with"
    )


def show(summary: dict[str, Any], target: Target | None) -> None:
    """Print the summary as a table for people."""
    inputs, members, buckets = (count(summary[f"{noun}s"], noun) for noun in ("input", "member", "bucket"))
    table = Table()
    unit = unit_of(summary["unit"])
    table.add_column(f"{unit.noun}s", justify="right")
    table.add_column("certified", justify="right")
    accuracy = summary["certified_accuracy"]
    if accuracy is not None:
        table.add_column("certified accuracy", justify="right")
    by_class = summary.get("certified_accuracy_by_class")
    if by_class:
        table.add_column("of the lowest class", justify="right")
    together = summary["collective_accuracy"]
    if together is not None:
        table.add_column("collective accuracy", justify="right")
    rates = [] if target is None else target.rates(summary["budgets"])
    if target is not None:
        table.add_column(cell(target.title()), justify="right")
    for i, budget in enumerate(summary["budgets"]):
        cells = [f"{100 * summary['certified'][i]:.2f} %"]
        cells += [f"{100 * accuracy[i]:.2f} %"] if accuracy is not None else []
        if by_class:
            cells.append(f"{100 * min(by_class[i]):.2f} % (class {cell(summary['lowest_class'][i])})")
        cells += [f"{100 * together[i]:.2f} %"] if together is not None else []
        cells += [f"{100 * rates[i]:.2f} %"] if target is not None else []
        table.add_row(str(budget), *cells)
    # In files and logs, which have no width, rich would wrap cells at 80 characters.
    console = Console(width=None if sys.stdout.isatty() or "COLUMNS" in os.environ else WIDTH)
    method = f"{summary['election']}, {summary['bound']} bound"
    say(f"{inputs}, {members}, {summary['classes']:,} classes, {buckets}: {method}")
    console.print(table)
    if constant := constant_votes(summary["constant_members"], summary["members"]):
        say(constant)
    if together is not None:
        say("Collective accuracy: proven to stay correct under any one attack on all inputs at once.")
    clean = summary["clean_accuracy"]
    if clean is not None:
        say(f"Accuracy without attack: {100 * clean:.2f} %")
    if (undefended := summary["undefended_accuracy"]) is not None:
        say(f"Accuracy of the undefended model without attack: {100 * undefended:.2f} %; nothing is proven for it")
    if target is not None:
        say(target.sentence())
    if unit.name != "samples":
        say(unit.definition)
