"""Overhead of RunoffClassifier on top of the time spent in its members.

python -m benchmarks --only classifier
"""

import time
import tracemalloc

import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression

import runoff
from benchmarks.speed import best_of
from runoff import hashing, samples
from runoff.partition import Partition


class Timed(LogisticRegression):
    """A logistic regression that adds up the time spent inside it."""

    spent = 0.0

    def fit(self, X, y):
        start = time.perf_counter()
        fitted = super().fit(X, y)
        Timed.spent += time.perf_counter() - start
        return fitted

    def predict_proba(self, X):
        start = time.perf_counter()
        scores = super().predict_proba(X)
        Timed.spent += time.perf_counter() - start
        return scores


def overhead(table, name, work, limit=None, times=3):
    """Add the smallest share, over a few runs, of time that is not spent in members."""
    shares = []
    for _ in range(times):
        Timed.spent = 0.0
        start = time.perf_counter()
        work()
        shares.append((time.perf_counter() - start) / Timed.spent - 1)
    table.add(f"{name}: time beside members", 100 * min(shares), "%", at_most=limit)


def measure(table, _full):
    pixels = np.random.default_rng(0).integers(0, 256, (50_000, 3072), dtype=np.uint8)
    whole = samples.from_any(pixels)
    partition = Partition.make(50, 1, 0, hashing.new_key())
    table.add("hashing 50,000 rows of 3,072 bytes", best_of(lambda: partition.digests(whole)), "s", at_most=0.5)
    del pixels, whole
    for classes in (2, 10):
        X, y = make_classification(50_000, 50, n_informative=20, n_classes=classes, random_state=0)
        classifier = runoff.RunoffClassifier(Timed(max_iter=1000), n_partitions=200, classes=range(classes))
        limit = 10 if classes == 10 else None
        name = f"fit, 200 logistic regressions on 50,000 x 50, {classes} classes"
        overhead(table, name, lambda: classifier.fit(X, y), limit)  # noqa: B023
        classifier.certify(X[:10])
        overhead(table, f"certify 10,000 inputs, {classes} classes", lambda: classifier.certify(X[:10_000]))  # noqa: B023
    tracemalloc.start()
    classifier.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    table.add("memory while fitting, to that of the samples", peak / X.nbytes, "x")
