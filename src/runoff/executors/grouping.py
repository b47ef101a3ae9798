"""Grouping of members into tasks."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping

from runoff.executors.base import Item

# The minimum duration of a task in seconds. A GPU captures graphs for about 12 seconds before its first network.
SHORTEST = {"cpu": 2.0, "gpu": 60.0}
PER_WORKER = 4  # tasks, so that fast workers run more of them


def groups_for(
    weights: Mapping[Item, float], seconds: float, workers: int, gpu: bool, most: int | None = None
) -> list[list[Item]]:
    """Divide items into groups of about equal weight, the heaviest items first.

    Parameters
    ----------
    weights : the weight of each item
    seconds : per unit of weight
    workers : the number of tasks that run at a time
    gpu : whether tasks run on GPUs
    most : the number of items per group; by default, groups follow from the times

    """
    if not weights:
        return []
    total = seconds * sum(weights.values())
    if most is not None:
        n = math.ceil(len(weights) / most)
    else:
        n = min(PER_WORKER * workers, max(workers, math.ceil(total / SHORTEST["gpu" if gpu else "cpu"])))
    n = min(n, len(weights))
    cap = math.ceil(len(weights) / n) if most is not None else len(weights)
    groups: list[list[Item]] = [[] for _ in range(n)]
    lightest = [(0.0, i) for i in range(n)]
    for item in sorted(weights, key=lambda item: (-weights[item], item)):
        load, i = heapq.heappop(lightest)
        groups[i].append(item)
        if len(groups[i]) < cap:
            heapq.heappush(lightest, (load + weights[item], i))
    return groups
