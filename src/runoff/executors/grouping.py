"""Grouping of members into tasks.

A group is cut when its task is submitted, so that its size suits the current workers of the cluster: large at the start
of a long run, small towards its end, and smaller when nodes have joined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping

from runoff.executors.base import Item

# The duration of a task in seconds. A GPU captures graphs for about 12 seconds before its first network, so its tasks
# are longer. Groups below the shortest are cut only if some workers would get none.
SHORTEST = {"cpu": 2.0, "gpu": 60.0}
LONGEST = {"cpu": 60.0, "gpu": 600.0}
PER_WORKER = 2  # groups per worker into which the remaining items would be cut


class Uncut:
    """Items that are not yet in a task, the heaviest first.

    Parameters
    ----------
    weights : the weight of each item
    seconds : seconds per unit of weight
    gpu : whether tasks run on GPUs
    most : the largest number of items per group; by default, groups follow from the times

    """

    def __init__(self, weights: Mapping[Item, float], seconds: float, gpu: bool, most: int | None = None) -> None:
        self.weights, self.each, self.most = weights, seconds, most
        kind = "gpu" if gpu else "cpu"
        self.shortest, self.longest = SHORTEST[kind], LONGEST[kind]
        self._items = deque(sorted(weights, key=lambda item: (-weights[item], item)))
        self._total = self._left = self.seconds(weights)

    def __len__(self) -> int:
        return len(self._items)

    def seconds(self, items: Iterable[Item]) -> float:
        """Return the training time of these items in seconds, one after the other."""
        return self.each * sum(self.weights[item] for item in items)

    def cut(self, workers: int) -> list[Item]:
        """Remove and return the next group, of at least one item, for one of this many workers."""
        wanted = max(min(self.shortest, self._total / workers), self._left / (PER_WORKER * workers))
        wanted = min(wanted, self.longest)
        group: list[Item] = []
        load = 0.0
        while self._items and len(group) != self.most:
            its = self.each * self.weights[self._items[0]]
            if group and self.most is None and load + its / 2 > wanted:
                break
            group.append(self._items.popleft())
            load += its
        self._left = max(0.0, self._left - load)
        return group


def groups_for(
    weights: Mapping[Item, float], seconds: float, workers: int, gpu: bool, most: int | None = None
) -> list[list[Item]]:
    """Return all groups for a constant number of workers; the parameters are those of `Uncut` and `cut`."""
    uncut, groups = Uncut(weights, seconds, gpu, most), []
    while len(uncut):
        groups.append(uncut.cut(workers))
    return groups
