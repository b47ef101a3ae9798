"""The demonstration: certified predictions on the digits dataset that scikit-learn carries."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import runoff

Arrays = tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], NDArray[np.int64]]


def digits() -> Arrays:
    """Training images and labels, test images and labels: every fifth image is for testing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    test = np.arange(len(labels)) % 5 == 0
    return images[~test], labels[~test], images[test], labels[test]


def fitted(data: Arrays, n_partitions: int, spread: int) -> "runoff.RunoffClassifier":
    """Ridge classifiers on parts of the training images.

    The model, its penalty and the number of partitions were chosen on a held-out fifth of the training images.
    """
    from sklearn.linear_model import RidgeClassifier

    members = RidgeClassifier(alpha=100)
    return runoff.RunoffClassifier(members, n_partitions=n_partitions, spread=spread, classes=range(10)).fit(*data[:2])


def main(out: Path, console: Console | None = None) -> None:
    """Certify four ensembles, show what an attacker cannot do, and write a report on them."""
    from runoff import report

    console = console or Console()
    data = digits()
    sources = []
    n_partitions, d, budgets = 20, 4, [0, 2, 4, 6, 8]
    console.print(
        f"{len(data[1]):,} training images of digits are hashed into buckets; each member learns from its own buckets "
        f"alone. {len(data[3])} test images are predicted by election. An edit inserts, deletes or relabels one "
        "training image.",
        highlight=False,
    )
    table = Table(title="Predicted right, and proven to stay so, by number of edits", title_justify="left")
    table.add_column("members")
    table.add_column("election")
    for budget in budgets:
        table.add_column(str(budget), justify="right")
    for copies in (1, d):
        classifier = fitted(data, n_partitions, copies)
        scores = classifier.scores(data[2])
        sources.append(_source(classifier, data))
        for election in ("plurality", "runoff"):
            certificates = runoff.certify(scores, election=election)
            accuracy = runoff.certified_accuracy(certificates, data[3], budgets)
            kind = f"{scores.values.shape[1]}, {copies} a bucket" if copies > 1 else f"{n_partitions}"
            table.add_row(kind, election, *(f"{100 * a:.1f} %" for a in accuracy))
    console.print(table)
    console.print(f"Test image 7: {certificates.explain(7)}", highlight=False)
    report.write(out, report.collect(sources, budgets=budgets))
    console.print(f"\nThe report is in {out}: open it in a browser.", highlight=False, soft_wrap=True)


def _source(classifier: "runoff.RunoffClassifier", data: Arrays) -> Any:
    """What the report needs."""
    from runoff.report import Source

    k, d = classifier.n_partitions, classifier.spread
    return Source.from_classifier(
        classifier,
        *data[2:],
        name=f"{k * d} members, {d} a bucket" if d > 1 else f"{k} members",
        dataset="digits",
        picture_shape=(8, 8),
        made=("runoff demo",),
        checked=("runoff demo --out again.html", "cmp runoff-demo.html again.html"),
    )
