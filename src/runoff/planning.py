"""Planning: what each number of partitions means for a member, before training all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from runoff import hashing, samples
from runoff.isolation import seeds_of, undisturbed
from runoff.members import MemberEstimator, default_estimator, fit_member
from runoff.partition import Partition


@dataclass(frozen=True)
class Choice:
    """A number of partitions, and what follows from it."""

    n_partitions: int
    samples_per_member: float
    largest_radius: int
    member_accuracy: float

    def __str__(self) -> str:
        return (
            f"n_partitions={self.n_partitions}: {self.samples_per_member:.0f} samples per member, radius at most "
            f"{self.largest_radius}, member accuracy about {self.member_accuracy:.0%}"
        )


def plan(
    X: Any,
    y: Any,
    estimator: Any = None,
    *,
    n_partitions: Sequence[int] = (10, 20, 50, 100, 200, 500),
    members: int = 5,
    random_state: int = 0,
) -> list[Choice]:
    """Compare numbers of partitions on the training data by training a few members of each; no test labels needed.

    A fifth of the samples, at most 2,000, is held out to measure accuracy. More partitions allow larger radii, up to
    about half their number, but leave fewer samples to each member. `spread` changes neither. A choice based on the
    data is outside the guarantee: choose once, on data you trust.

    Returns one `Choice` for each number of partitions that leaves a member at least two samples on average.
    """
    all_samples, y = samples.from_any(X), column_or_1d(y)
    order = np.random.default_rng(random_state).permutation(len(y))
    held_out = min(2000, max(1, len(y) // 5))
    test, train = order[:held_out], np.sort(order[held_out:])
    part, inputs, classes = all_samples.select(train), all_samples.select(test), np.unique(y)
    unfitted = MemberEstimator(default_estimator(all_samples.kind) if estimator is None else estimator)
    choices = []
    for k in n_partitions:
        if len(y) < 2 * k:
            continue
        partition = Partition.make(k, 1, random_state, hashing.derived_key(random_state))
        digests = partition.digests(part)
        rows = partition.rows(partition.buckets(part, digests), digests, np.searchsorted(classes, y[train]))
        accuracies = []
        with undisturbed():
            for m in range(min(members, k)):
                member = fit_member(unfitted, part, y[train], rows[m], m, seeds_of(random_state, m, 1))
                accuracies.append(np.mean(classes[member.scores(inputs, classes).argmax(axis=1)] == y[test]))
        choices.append(Choice(int(k), len(y) / k, (int(k) - 1) // 2, float(np.mean(accuracies))))
    return choices
