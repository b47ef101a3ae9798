"""Recovery from failures: the items to retrain, and the failures that stop the run.

A task can end without results for some of its items in three ways (`Failure.cause`):

- "node": the node was lost. No member is suspected: the remaining items are retrained together, unless three nodes
  were lost with the same first item. Then this item is trained next, in a separate task.
- "worker": the process died, but not its node. The first remaining item is suspected, since tasks train their items in
  order.
- "error": the work raised an exception. The item that the message names is suspected, else the first remaining one.

A suspect is trained next, in a separate task. The others follow at the end, as one group: if one member is faulty, only
this member is repeated, and if all are, the run stops before the others are retried. After three suspects in a row that
were not the cause, the group is halved each time.

An item that fails three times in the same way stops the run, with the error and the name of the member. An error counts
for the suspect. The death of a worker counts only for an item in a separate task, and that of a node never, unless ten
nodes were lost with the same item in a separate task.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from runoff import errors
from runoff.errors import InputError, MemberError, StorageError
from runoff.executors.base import Item, Work

FAILURES = 3  # of one item in the same way, before the run stops
NODES = 10  # nodes lost with one item in a separate task, before the run stops
NAMED = re.compile(r"member (\d+)\b")


@dataclass(frozen=True)
class Failure:
    """An event that ended a task."""

    node: str
    kind: str  # the name of the type of the error
    message: str
    cause: Literal["error", "worker", "node"] = "error"


@dataclass(frozen=True)
class Group:
    """Items to train in one task."""

    items: tuple[Item, ...]
    innocent: int = 0  # suspects in a row that were not the cause


class Recovery:
    """The failures of one run."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.failures: Counter[tuple[Item, str]] = Counter()
        self.lost: Counter[Item] = Counter()  # nodes, with this item in a separate task
        self.lost_first: Counter[Item] = Counter()  # nodes, with this item as the first remaining one of several

    def again(self, group: Group, left: Sequence[Item], failure: Failure) -> tuple[list[Group], list[Group]]:
        """Return the groups to train next and those to train last, for the items left by a task, or raise an error."""
        if failure.cause == "node":
            return self._after_loss(group, left, failure), []
        kind = getattr(errors, failure.kind, None)
        if isinstance(kind, type) and issubclass(kind, InputError):  # every machine would raise it
            raise kind(failure.message)
        suspect, others = self._suspect(left, failure)
        if failure.cause == "error" or len(group.items) == 1:
            self._count(suspect, failure)
        if not others:
            return [Group((suspect,))], []
        size = len(others) if group.innocent < FAILURES else (len(others) + 1) // 2
        parts = [tuple(part) for part in (others[:size], others[size:]) if part]
        return [Group((suspect,))], [Group(part, group.innocent + 1) for part in parts]

    def _after_loss(self, group: Group, left: Sequence[Item], failure: Failure) -> list[Group]:
        """Return the groups to train next after the loss of a node; a member that takes its nodes down is separated."""
        first, others = left[0], tuple(left[1:])
        if not others:
            self.lost[first] += 1
            if self.lost[first] >= NODES:
                reason = f"{failure.kind}: {failure.message}"
                raise MemberError(f"{self.work.name(first)} was lost with its node {NODES} times ({reason})")
            return [Group((first,))]
        self.lost_first[first] += 1
        if self.lost_first[first] < FAILURES:
            return [Group(tuple(left), group.innocent)]
        return [Group((first,)), Group(others, group.innocent)]

    def _suspect(self, left: Sequence[Item], failure: Failure) -> tuple[Item, list[Item]]:
        """Return the suspected item, and the others."""
        named = NAMED.match(failure.message) if failure.kind == MemberError.__name__ else None
        members = [item for item in left if named and self.work.member(item) == int(named[1])]
        suspect = (members or left)[0]
        return suspect, [item for item in left if item != suspect]

    def _count(self, item: Item, failure: Failure) -> None:
        self.failures[item, failure.kind] += 1
        if self.failures[item, failure.kind] < FAILURES:
            return
        name, times = self.work.name(item), f"{FAILURES} times in the same way"
        for kind in (MemberError, StorageError):
            if failure.kind == kind.__name__:
                raise kind(f"{failure.message} ({times})")
        where = f" on {failure.node}" if failure.node else ""
        raise MemberError(f"{name} failed {times}{where}: {failure.kind}: {failure.message}")
