"""Overhead of RunoffClassifier on top of the time spent in its members.

python -m benchmarks.classifier
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


def overhead(name, work, limit=None, times=3):
    """Print the smallest ratio, over a few runs, of the total time to the time spent in members."""
    ratios = []
    for _ in range(times):
        Timed.spent = 0.0
        start = time.perf_counter()
        work()
        ratios.append(((time.perf_counter() - start) / Timed.spent, Timed.spent))
    ratio, in_members = min(ratios)
    verdict = "" if limit is None else f" (at most {limit:.0%}: {'ok' if ratio - 1 <= limit else 'MISSED'})"
    print(f"{name}: members {in_members:.2f} s, overhead {ratio - 1:.1%}{verdict}", flush=True)


def main():
    pixels = np.random.default_rng(0).integers(0, 256, (50_000, 3072), dtype=np.uint8)
    whole = samples.from_any(pixels)
    partition = Partition.make(50, 1, 0, hashing.new_key())
    spent = best_of(lambda: partition.digests(whole))
    print(f"hashing 50,000 rows of 3,072 bytes: {spent:.2f} s (at most 0.5: {'ok' if spent <= 0.5 else 'MISSED'})")
    del pixels, whole
    for classes in (2, 10):
        X, y = make_classification(50_000, 50, n_informative=20, n_classes=classes, random_state=0)
        classifier = runoff.RunoffClassifier(Timed(max_iter=1000), n_partitions=200)
        limit = 0.1 if classes == 10 else None
        name = f"fit, 200 logistic regressions on 50,000 x 50, {classes} classes"
        overhead(name, lambda: classifier.fit(X, y), limit)  # noqa: B023
        classifier.certify(X[:10])
        overhead(f"certify 10,000 inputs, {classes} classes", lambda: classifier.certify(X[:10_000]))  # noqa: B023
    tracemalloc.start()
    classifier.fit(X, y)
    peak = tracemalloc.get_traced_memory()[1]
    print(f"memory while fitting: {peak / 2**20:.0f} MB for {X.nbytes / 2**20:.0f} MB of samples")


if __name__ == "__main__":
    main()
