"""The schedule of a cluster: tasks that run, results that arrive, and what is trained again."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from runoff import errors
from runoff.errors import InputError, MemberError
from runoff.executors.base import Item, Plan, Work
from runoff.executors.storage import Storage, missing
from runoff.executors.tasks import Failure, Report

FAILURES = 3  # of the same kind, of one item, before the run stops
SETTLING = 10.0  # seconds for a file to be seen on another machine, and for cancelled tasks to end
SLOW = 3.0  # times the usual time since its last result: then others take over what a task has left
NAMED = re.compile(r"member (\d+)\b")


@dataclass(eq=False)
class _Task:
    """A group of items on its way."""

    items: list[Item]
    generator: Any
    last: float = field(default_factory=time.monotonic)  # when it last reported, or was submitted
    started: bool = False
    doubled: bool = False  # others work on the same items


class Schedule:
    """The tasks of one run on a cluster.

    Parameters
    ----------
    ray : the module
    work : what the tasks do
    submit : start a task on a group of items and return the generator of its reports
    plan : the first groups
    storage : where tasks store results, if they do
    nodes : counts results by machine

    """

    def __init__(
        self,
        ray: Any,
        work: Work,
        submit: Callable[[Sequence[Item]], Any],
        plan: Plan,
        storage: Storage | None,
        nodes: Counter[str],
    ) -> None:
        self.ray, self.work, self.submit, self.plan = ray, work, submit, plan
        self.storage, self.nodes = storage, nodes
        self.unfinished = {item: None for group in plan.tasks for item in group}  # in order
        self.failures: Counter[tuple[Item, str]] = Counter()
        self.tasks: dict[Any, _Task] = {}
        self.pace: list[float] = []  # seconds between the results of a task

    def results(self) -> Iterator[tuple[Item, Any]]:
        """Yield each item with its result, once."""
        for group in self.plan.tasks:
            self._start(group)
        while self.unfinished:
            ready, _ = self.ray.wait(list(self.tasks), num_returns=1, timeout=1.0)
            for generator in ready:
                yield from self._next(self.tasks[generator])
            self._relieve()

    def cancel(self) -> None:
        """End all tasks, also those that still wait for a place."""
        live, self.tasks = list(self.tasks), {}
        for generator in live:
            with suppress(Exception):  # a cluster that is gone has no tasks
                self.ray.cancel(generator, force=True)
        until = time.monotonic() + SETTLING
        for generator in live:
            with suppress(Exception):
                while time.monotonic() < until:
                    ready, _ = self.ray.wait([generator], timeout=1.0)
                    if ready:
                        self.ray.get(next(generator))

    def _start(self, items: Sequence[Item]) -> None:
        generator = self.submit(items)
        self.tasks[generator] = _Task(list(items), generator)

    def _next(self, task: _Task) -> Iterator[tuple[Item, Any]]:
        """Take the next report of a task, or its end."""
        try:
            report = self.ray.get(next(task.generator))
        except StopIteration:
            del self.tasks[task.generator]
            if left := self._left(task):  # cannot happen, unless work yields too little
                self._failed(left, Failure("", "NoResult", "no result"))
            return
        except self.ray.exceptions.RayError as error:  # the worker, its node or its result is lost
            del self.tasks[task.generator]
            lost = error.cause if isinstance(error, self.ray.exceptions.RayTaskError) and error.cause else error
            message = str(lost).strip().split("\n")[0][:200]
            self._failed(self._left(task), Failure("", type(lost).__name__, message))
            return
        if isinstance(report, Failure):
            del self.tasks[task.generator]
            self._failed(self._left(task), report)
            return
        now = time.monotonic()
        if task.started:
            self.pace.append((now - task.last) / max(1, len(report.stored) + len(report.sent)))
        task.last, task.started = now, True
        yield from self._taken(report)

    def _taken(self, report: Report) -> Iterator[tuple[Item, Any]]:
        for item, digest in report.stored:
            if item in self.unfinished:
                yield item, self._collected(item, digest)
                self._done(item, report.node)
        for item, result in report.sent:
            if item in self.unfinished:
                yield item, result
                self._done(item, report.node)

    def _done(self, item: Item, node: str) -> None:
        del self.unfinished[item]
        self.nodes[node] += 1

    def _collected(self, item: Item, digest: str) -> bytes:
        """Return a stored result; file systems over a network may show it a little later."""
        storage, address = cast("Storage", self.storage), cast("str", self.work.address(item))
        until = time.monotonic() + SETTLING
        while (data := storage.get(address, digest)) is None:
            if time.monotonic() > until:
                raise missing(self.work.name(item), storage.where)
            time.sleep(0.1)
        return data

    def _left(self, task: _Task) -> list[Item]:
        return [item for item in task.items if item in self.unfinished]

    # -- failures ------------------------------------------------------------------------------------------------------

    def _failed(self, left: list[Item], failure: Failure) -> None:
        """Train again what a task has left, in smaller groups, so that a failure that repeats finds its member."""
        if not left:
            return
        kind = getattr(errors, failure.kind, None)
        if isinstance(kind, type) and issubclass(kind, InputError):  # it would fail everywhere
            raise kind(failure.message)
        named = NAMED.match(failure.message) if failure.kind == MemberError.__name__ else None
        culprits = [item for item in left if named and self.work.member(item) == int(named[1])] or left
        if len(culprits) == 1:
            item = culprits[0]
            self.failures[item, failure.kind] += 1
            if self.failures[item, failure.kind] >= FAILURES:
                raise self._error(item, failure)
        rest = [item for item in left if item not in set(culprits)]
        half = (len(culprits) + 1) // 2
        for group in (rest, culprits[:half], culprits[half:]):
            if group:
                self._start(group)

    def _error(self, item: Item, failure: Failure) -> Exception:
        name, times = self.work.name(item), f"{FAILURES} times in the same way"
        if failure.kind == MemberError.__name__:
            return MemberError(f"{failure.message} ({times})")
        where = f" on {failure.node}" if failure.node else ""
        return MemberError(f"{name} failed {times}{where}: {failure.kind}: {failure.message}")

    def _relieve(self) -> None:
        """Let idle workers take over what the slowest task has left, so that it does not hold up the rest."""
        if not self.pace or len(self.tasks) >= self.plan.workers:
            return
        usual = sorted(self.pace)[len(self.pace) // 2]
        now = time.monotonic()
        for task in list(self.tasks.values()):
            slow = task.started and now - task.last > max(1.0, SLOW * usual)
            if slow and not task.doubled and (left := self._left(task)):
                task.doubled = True
                self._start(left[::-1])  # from the other end: whoever is first counts
                return
