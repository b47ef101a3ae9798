"""Choosing the number of partitions: what each choice leaves to a member, before training them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import column_or_1d

from runoff import hashing, samples
from runoff.isolation import seeds_of, undisturbed
from runoff.members import Recipe, default_estimator, fit_member
from runoff.partition import Partition


@dataclass(frozen=True)
class Choice:
    """One number of partitions, and what it means."""

    n_partitions: int
    samples_per_member: float
    largest_radius: int
    member_accuracy: float

    def __str__(self) -> str:
        return (
            f"n_partitions={self.n_partitions}: {self.samples_per_member:.0f} samples a member, radius at most "
            f"{self.largest_radius}, members right on about {self.member_accuracy:.0%}"
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
    """Compare numbers of partitions on the training data, by training a few members of each; no test labels needed.

    A fifth of the samples, at most 2,000, is held out to judge them. More partitions allow for larger radii, up to
    about half their number, but leave fewer samples to each member. `spread` changes neither. Choosing by what the data
    say is outside the guarantee: do it once, on data you trust.

    Returns one `Choice` for each number of partitions that leaves a member two samples or more on average.
    """
    whole, y = samples.of(X), column_or_1d(y)
    order = np.random.default_rng(random_state).permutation(len(y))
    held_out = min(2000, max(1, len(y) // 5))
    test, train = order[:held_out], np.sort(order[held_out:])
    part, inputs, classes = whole.kept(train), whole.kept(test), np.unique(y)
    recipe = Recipe(default_estimator(whole.kind) if estimator is None else estimator)
    choices = []
    for k in n_partitions:
        if len(y) < 2 * k:
            continue
        partition = Partition.make(k, 1, random_state, hashing.derived_key(random_state))
        digests = partition.digests(part)
        rows = partition.rows(partition.buckets(part, digests), digests, np.searchsorted(classes, y[train]))
        right = []
        with undisturbed():
            for m in range(min(members, k)):
                member = fit_member(recipe, part, y[train], rows[m], m, seeds_of(random_state, m, 1))
                right.append(np.mean(classes[member.scores(inputs, classes).argmax(axis=1)] == y[test]))
        choices.append(Choice(int(k), len(y) / k, (int(k) - 1) // 2, float(np.mean(right))))
    return choices
