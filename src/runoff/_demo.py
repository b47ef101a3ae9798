"""The demonstration: members trained on parts of the digits dataset that scikit-learn carries."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import runoff
from runoff import spreads

Arrays = tuple[NDArray[Any], NDArray[np.int64], NDArray[Any], NDArray[np.int64]]


def digits() -> Arrays:
    """Training images and labels, test images and labels: every fifth image is for testing."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    test = np.arange(len(labels)) % 5 == 0
    return images[~test].astype(np.uint8), labels[~test], images[test].astype(np.uint8), labels[test]


def bucket_of(image: NDArray[np.uint8], n_buckets: int) -> int:
    """A sample's bucket, from its own pixels alone: neither its label nor the other samples can move it."""
    return int.from_bytes(hashlib.blake2b(image.tobytes(), digest_size=8).digest(), "little") % n_buckets


def member_scores(
    data: Arrays, n_partitions: int, d: int = 1, offsets_seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores (n_test, n_partitions * d, 10) of ridge classifiers, and the spread of their buckets.

    A member sees its own samples alone, sorted by content. The model, its penalty and the number of partitions were
    chosen on a fifth of the training images, held out for that.
    """
    from sklearn.linear_model import RidgeClassifier

    train, labels, test, _ = data
    n = n_partitions * d
    spread = spreads.cyclic(n, np.random.default_rng(offsets_seed).permutation(n)[:d])
    buckets = np.array([bucket_of(image, n) for image in train])
    by_content = np.lexsort((labels, *train.T))
    scores = np.full((len(test), n, 10), -100, np.float32)  # a class that a member never saw comes last
    for member in range(n):
        reached_by = np.flatnonzero((spread == member).any(axis=1))
        own = by_content[np.isin(buckets[by_content], reached_by)]
        seen = np.unique(labels[own])
        if len(seen) == 1:
            scores[:, member, seen] = 0
        elif len(seen) > 1:
            decision = RidgeClassifier(alpha=100).fit(train[own], labels[own]).decision_function(test)
            scores[:, member, seen] = decision if len(seen) > 2 else np.stack([-decision, decision], axis=1)
    return scores, spread


def main(console: Console | None = None) -> None:
    """Certify four ensembles and show what an attacker cannot do."""
    console = console or Console()
    data = digits()
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
        scores, spread = member_scores(data, n_partitions, copies)
        for election in ("plurality", "runoff"):
            certificates = runoff.certify(scores, election=election, spread=spread)
            accuracy = runoff.certified_accuracy(certificates, data[3], budgets)
            kind = f"{scores.shape[1]}, {copies} a bucket" if copies > 1 else f"{n_partitions}"
            table.add_row(kind, election, *(f"{100 * a:.1f} %" for a in accuracy))
    console.print(table)
    console.print(f"Test image 7: {certificates.explain(7)}", highlight=False)
