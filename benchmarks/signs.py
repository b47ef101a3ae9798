"""Find out why plurality can certify more than run-off on GTSRB, with members that train on a CPU in minutes.

python -m benchmarks.signs gtsrb48.npz [--k 100] [--budgets 0 5 15 20 25 30]

Members are ridge heads on histograms of gradient directions. The first table compares the elections on all test images,
the others by how frequent their class is among the training samples. The last line says which of two finalists idle
members prefer, by whether they have a sample of the true class. Then the same with members that all have one: every
member also gets two copies of each class's first training image. Nothing is guaranteed then, because one image reaches
all members, but it shows what the absence of a class costs.
"""

import argparse
import warnings

import numpy as np

import runoff
from benchmarks.elections import RULES, by_knowledge, certified, print_head, print_row
from runoff.errors import FittedInFrontWarning
from runoff.heads import RidgeHead

NAMES = ("plurality", "runoff", "maximin")
CELL, BINS = 8, 9  # side of a cell in pixels; directions of a histogram
THIRDS = ("the rarest third of the classes", "the middle third", "the most frequent third")


def histograms(images, piece=2000):
    """Return histograms of gradient directions by cell, normalised over the image: (n, cells * BINS)."""
    return np.concatenate([_histograms(images[i : i + piece]) for i in range(0, len(images), piece)])


def _histograms(images):
    gray = images.astype(np.float32).mean(axis=3)
    dy, dx = np.gradient(gray, axis=(1, 2))
    size = np.hypot(dx, dy)
    bins = np.minimum((np.arctan2(dy, dx) % np.pi * (BINS / np.pi)).astype(np.int64), BINS - 1)
    n, height, width = gray.shape
    cells = (np.arange(height) // CELL)[:, None] * (width // CELL) + np.arange(width) // CELL
    n_cells = (height // CELL) * (width // CELL)
    at = (np.arange(n)[:, None, None] * n_cells + cells) * BINS + bins
    sums = np.bincount(at.ravel(), weights=size.ravel(), minlength=n * n_cells * BINS).reshape(n, -1)
    return np.sqrt(sums / np.maximum(1e-9, sums.sum(axis=1, keepdims=True)))


def judge(ballots, y, counts, seen, budgets):
    """Print the tables for these ballots of the test images."""
    print_head("all test images, edits", budgets)
    for name in NAMES:
        print_row(name, certified(RULES[name], ballots, y, np.array(budgets)))
    third = np.argsort(np.argsort(counts, kind="stable"), kind="stable") * len(THIRDS) // len(counts)
    for i, title in enumerate(THIRDS):
        among = third[y] == i
        least, most = counts[third == i].min(), counts[third == i].max()
        print_head(f"{title} ({least:,} to {most:,} samples, {among.sum():,} test images), edits", budgets)
        for name in NAMES:
            print_row(name, certified(RULES[name], ballots[among], y[among], np.array(budgets)))
    shares = by_knowledge(ballots, y, seen)
    told = [
        f"{s:.1f} % if {what}" for s, what in zip(shares, ("they have seen it", "not"), strict=True) if not np.isnan(s)
    ]
    print(f"\nIdle members that rank the true class above the other finalist: {', '.join(told)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--k", type=int, default=100)
    parser.add_argument("--budgets", type=int, nargs="+", default=[0, 5, 15, 20, 25, 30])
    given = parser.parse_args()
    with np.load(given.data, allow_pickle=False) as file:
        data = {name: file[name] for name in ("x_train", "y_train", "x_test", "y_test")}
    y, y_test = data["y_train"].astype(np.int64), data["y_test"].astype(np.int64)
    train, test = histograms(data["x_train"]), histograms(data["x_test"])
    counts = np.bincount(y)
    classes = np.arange(len(counts))
    warnings.simplefilter("ignore", FittedInFrontWarning)  # histograms are fixed rules
    classifier = runoff.RunoffClassifier(RidgeHead(), n_partitions=given.k, classes=classes, random_state=0)
    classifier.fit(train, y)
    seen = np.stack([np.isin(classes, member.classes) for member in classifier.members_])
    print(f"{given.k} members; {100 * seen.mean():.1f} % of the pairs of a member and a class have a sample")
    judge(runoff.rank(classifier.scores(test).values), y_test, counts, seen, given.budgets)

    print("\n## Members with a sample of each class")
    first = np.array([np.flatnonzero(y == c)[0] for c in classes])
    extra = np.repeat(first, 2)
    heads = []
    for member in range(given.k):
        rows = np.concatenate([np.flatnonzero(classifier._buckets == member), extra])
        heads.append(RidgeHead().fit(train[rows], y[rows]).decision_function(test))
    judge(runoff.rank(np.stack(heads, axis=1)), y_test, counts, np.ones_like(seen), given.budgets)


if __name__ == "__main__":
    main()
