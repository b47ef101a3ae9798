"""`runoff demo`: certified predictions on the digits dataset that comes with scikit-learn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from runoff.cli.errors import writing
from runoff.elections import BASELINE, DEFAULT

if TYPE_CHECKING:
    from sklearn.linear_model import RidgeClassifier

    import runoff

Arrays = tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], NDArray[np.int64]]


def digits() -> Arrays:
    """Return training images and labels, and test images and labels: every fifth image is a test image."""
    from runoff import datasets

    data = datasets.load("digits")
    x_train, x_test = (x.reshape(len(x), -1).astype(np.float64) for x in (data.x_train, data.x_test))
    return x_train, data.y_train, x_test, data.y_test


def fitted(data: Arrays, n_partitions: int, spread: int) -> runoff.RunoffClassifier:
    """Fit ridge classifiers on parts of the training images.

    The model, its penalty and the number of partitions were chosen on a held-out fifth of the training images.
    """
    import runoff

    return runoff.RunoffClassifier(member(), n_partitions=n_partitions, spread=spread, classes=range(10)).fit(*data[:2])


def member() -> RidgeClassifier:
    """Return the untrained model that every member is a copy of."""
    from sklearn.linear_model import RidgeClassifier

    return RidgeClassifier(alpha=100)


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runoff-demo.html"), show_default=True,
    help="Write the report to this file.",
)  # fmt: skip
def demo(out: Path) -> None:
    """Train members on parts of the digits dataset, certify them and write a report, in less than a minute.

    Example: runoff demo --out digits.html
    """
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    certify_digits(out, Console())


def certify_digits(out: Path, console: Console) -> None:
    """Certify two ensembles with two elections each, and write a report."""
    import runoff
    from runoff import report

    data = digits()
    sources = []
    n_partitions, d, budgets = 20, 4, [0, 2, 4, 6, 8]
    console.print(
        f"{len(data[1]):,} training images of digits are hashed into buckets, and each member learns from its buckets "
        f"only. The members elect a class for each of {len(data[3])} test images. An edit inserts, deletes or relabels "
        "one training image.",
        highlight=False,
    )
    table = Table(title="Certified accuracy by number of edits", title_justify="left")
    table.add_column("members")
    table.add_column("election")
    for budget in budgets:
        table.add_column(str(budget), justify="right")
    undefended = member().fit(*data[:2]).predict(data[2])
    clean = f"{100 * float((undefended == data[3]).mean()):.1f} %"
    table.add_row("1, on all images", "undefended", clean, *("–" for _ in budgets[1:]))
    for copies in (1, d):
        source = _source(fitted(data, n_partitions, copies), data, undefended)
        sources.append(source)
        for election in (BASELINE, DEFAULT):
            certificates = runoff.certify(source.ballots, election=election, spread=source.spread)
            accuracy = runoff.certified_accuracy(certificates, data[3], budgets)
            kind = f"{n_partitions * copies}, {copies} per bucket" if copies > 1 else f"{n_partitions}"
            table.add_row(kind, election, *(f"{100 * a:.1f} %" for a in accuracy))
    console.print(table)
    console.print(f"Test image 7: {certificates.explain(7)}", highlight=False)
    with writing(out):
        report.write(out, report.collect(sources, budgets=budgets))
    console.print(f"\nThe report is in {out}: open it in a browser.", highlight=False, soft_wrap=True)


def _source(classifier: runoff.RunoffClassifier, data: Arrays, undefended: NDArray[np.int64]) -> Any:
    """Return a classifier with its test images as a source of the report."""
    from runoff.report import Source

    k, d = classifier.n_partitions, classifier.spread
    return Source.from_classifier(
        classifier,
        *data[2:],
        name=f"{k * d} members, {d} per bucket" if d > 1 else f"{k} members",
        dataset="digits",
        picture_shape=(8, 8),
        undefended=undefended,
        made=("runoff demo",),
        checked=("runoff demo --out again.html", "cmp runoff-demo.html again.html"),
    )
