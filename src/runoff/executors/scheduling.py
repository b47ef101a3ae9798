"""Schedule of a cluster: running tasks, arriving results, and items that are retrained.

The driver submits one group at a time, and a few more tasks than there are workers, so that other users of the cluster
get their turn and an autoscaling cluster sees the demand. There are three cases for an item:

- its result arrives: it is yielded once, from the first task that reports it;
- its task ends without it: results in storage are yielded, and `Recovery` decides what is retrained;
- no group is left to start, and workers are idle: they take over a part of the remaining items of slow, silent or long
  tasks, from the other end. The first result is used, and tasks without remaining items are cancelled.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from runoff._io.text import one_line
from runoff.errors import StorageError
from runoff.executors.base import Item, Work
from runoff.executors.grouping import Uncut
from runoff.executors.recovery import Failure, Group, Recovery
from runoff.executors.storage import Ahead, Storage, damaged, missing
from runoff.executors.tasks import Report

AHEAD = 8  # tasks that wait for a worker, besides one per worker
SETTLING = 10.0  # seconds for a file to be visible on another machine, and for cancelled tasks to end
SILENT = 20.0  # seconds for a worker to start a task before it counts as silent
SLOW = 3.0  # times the usual time between reports of a task
OF_A_WORKER = ("WorkerCrashedError", "OutOfMemoryError")  # other losses are due to the node


@dataclass(eq=False)
class _Task:
    """A group of items that was submitted."""

    group: Group
    kind: int
    generator: Any
    last: float = field(default_factory=time.monotonic)  # the last report, or the submission
    started: bool = False
    reported: int = 0  # results
    helped: bool = False  # other tasks train its remaining items

    def drop(self, item: Item) -> None:
        """Remove an item that was reported and is retrained elsewhere: the end of this task is no failure of it."""
        self.group = Group(tuple(other for other in self.group.items if other != item), self.group.innocent)
        self.reported -= 1


class Schedule:
    """The tasks of one run on a cluster.

    Parameters
    ----------
    ray : the module of Ray
    work : the work of the tasks
    submit : start a task on a group of items, on nodes of a kind, and return the generator of its reports
    uncut : the items of each kind of node
    workers : returns the number of tasks that nodes of a kind can run at a time, now and expected
    storage : where tasks store results, if they do
    nodes : counts results by machine

    """

    def __init__(
        self,
        ray: Any,
        work: Work,
        submit: Callable[[Sequence[Item], int], Any],
        uncut: Sequence[Uncut],
        workers: Callable[[int], tuple[int, int]],
        storage: Storage | None,
        nodes: Counter[str],
    ) -> None:
        self.ray, self.work, self.submit, self.uncut, self.workers = ray, work, submit, uncut, workers
        self.storage, self.nodes = storage, nodes
        self.ahead = Ahead(storage) if storage is not None and storage.is_remote else None
        self.unfinished = {item for items in uncut for item in items.weights}
        self.recovery = Recovery(work)
        self.first: list[deque[Group]] = [deque() for _ in uncut]  # groups to retrain before all others
        self.last: list[deque[Group]] = [deque() for _ in uncut]
        self.tasks: dict[Any, _Task] = {}
        self.late: dict[Item, tuple[str, float, _Task, str]] = {}  # reported, not yet visible: digest, since when, node
        self.starts: deque[float] = deque(maxlen=1000)  # seconds from the start of a task to its first result
        self.gaps: deque[float] = deque(maxlen=1000)  # seconds between two of its reports
        self.doubtful = False  # a task has failed, and no result has arrived since

    def results(self) -> Iterator[tuple[Item, Any]]:
        """Yield each item with its result, once."""
        while self.unfinished:
            for kind in range(len(self.uncut)):
                self._fill(kind)
                self._relieve(kind)
            # All reports are taken first, so that a failure does not recall a task that has already started.
            arrivals = [(task, self._report(task)) for task in self._ready()]
            if self.ahead is not None:
                self.ahead.expect(self._reported(arrivals))
            for task, report in arrivals:
                yield from self._next(task, report)
            yield from self._arrived()
            self._end_useless()

    def cancel(self) -> None:
        """Cancel all tasks, including those that wait for a worker."""
        if self.ahead is not None:
            self.ahead.close()
        for task in list(self.tasks.values()):
            if task.reported == len(task.group.items):  # it ends by itself, and its worker can be used again
                with suppress(Exception):
                    if self.ray.wait([task.generator], timeout=1.0)[0] and next(task.generator, None) is None:
                        del self.tasks[task.generator]
        live, self.tasks = list(self.tasks), {}
        for generator in live:
            with suppress(Exception):  # the cluster may no longer exist
                self.ray.cancel(generator, force=True)
        until = time.monotonic() + SETTLING
        for generator in live:
            with suppress(Exception):
                while time.monotonic() < until:
                    ready, _ = self.ray.wait([generator], timeout=1.0)
                    if ready:
                        self.ray.get(next(generator))

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _fill(self, kind: int) -> None:
        """Submit tasks until enough of them wait."""
        expected = max(self.workers(kind))
        running = sum(task.kind == kind for task in self.tasks.values())
        for _ in range(2 * expected + AHEAD - running):
            if self.first[kind]:
                group = self.first[kind].popleft()
            elif self.doubtful and any(task.kind == kind for task in self.tasks.values()):
                return  # the cause may be everywhere
            elif len(self.uncut[kind]):
                group = Group(tuple(self.uncut[kind].cut(expected)))
            elif self.last[kind]:
                group = self.last[kind].popleft()
            else:
                return
            if left := self._left(group.items):  # another task may have finished them
                self._start(Group(tuple(left), group.innocent), kind)

    def _start(self, group: Group, kind: int) -> None:
        generator = self.submit(group.items, kind)
        self.tasks[generator] = _Task(group, kind, generator)

    def _ready(self) -> list[_Task]:
        """Return all tasks with a report, without waiting for any other task."""
        tasks, seconds = list(self.tasks), 0.2 if self.late else 1.0
        if not tasks:
            time.sleep(seconds)
            return []
        ready, _ = self.ray.wait(tasks, num_returns=1, timeout=seconds)
        if ready:
            ready, _ = self.ray.wait(tasks, num_returns=len(tasks), timeout=0)
        return [self.tasks[generator] for generator in ready]

    def _report(self, task: _Task) -> Report | Failure:
        """Take the next report of a task, or its end."""
        report: Report | Failure
        try:
            report = self.ray.get(next(task.generator))
        except StopIteration:
            report = Failure("", "NoResult", "no result")  # ignored if no item is left
        except self.ray.exceptions.RayError as error:  # the worker, its node or the result is lost
            report = self._lost(error)
            self.ray.cancel(task.generator, force=True)  # if only the result is lost, the task still runs
        if isinstance(report, Failure):
            del self.tasks[task.generator]
            return report
        now = time.monotonic()
        if report.stored or report.sent:
            (self.gaps if task.reported else self.starts).append(now - task.last)
        task.last, task.started = now, True
        task.reported += len(report.stored) + len(report.sent)
        return report

    def _next(self, task: _Task, report: Report | Failure) -> Iterator[tuple[Item, Any]]:
        """Yield the results of a report, or deal with a failure."""
        if isinstance(report, Failure):
            yield from self._failed(task, report)
            return
        for item, digest in report.stored:
            if item in self.unfinished:
                self.late[item] = digest, time.monotonic(), task, report.node
                yield from self._collected(item)
        for item, result in report.sent:
            if item in self.unfinished:
                yield item, result
                self._done(item, report.node)

    def _done(self, item: Item, node: str) -> None:
        self.unfinished.remove(item)
        self.late.pop(item, None)
        self.doubtful = False
        self.nodes[node] += 1

    def _left(self, items: Sequence[Item]) -> list[Item]:
        return [item for item in items if item in self.unfinished and item not in self.late]

    def _end_useless(self) -> None:
        """Cancel tasks whose items other tasks have finished."""
        for task in list(self.tasks.values()):
            if task.reported < len(task.group.items) and not any(item in self.unfinished for item in task.group.items):
                del self.tasks[task.generator]
                self.ray.cancel(task.generator, force=True)

    def _reported(self, arrivals: Sequence[tuple[_Task, Report | Failure]]) -> list[tuple[str, str]]:
        """Return the addresses and digests of the results in storage that these reports name."""
        stored = [pair for _, report in arrivals if isinstance(report, Report) for pair in report.stored]
        return [(str(self.work.address(item)), digest) for item, digest in stored if item in self.unfinished]

    # -- results in storage --------------------------------------------------------------------------------------------

    def _collected(self, item: Item) -> Iterator[tuple[Item, bytes]]:
        """Yield a reported result if it is visible and intact; if it is damaged, retrain it."""
        digest, since, task, node = self.late[item]
        storage, address = self.storage, self.work.address(item)
        assert storage is not None  # noqa: S101 (results were stored)
        assert address is not None  # noqa: S101
        data, seen = (storage if self.ahead is None else self.ahead).look(address, digest)
        if data is not None:
            yield item, data
            self._done(item, node)
        elif seen or time.monotonic() - since > SETTLING:
            if seen:
                storage.remove(address, digest)
            del self.late[item]
            task.drop(item)
            name = self.work.name(item)
            error = damaged(name, storage) if seen else missing(name, storage)
            self._repeat(Group((item,)), [item], task.kind, Failure(node, StorageError.__name__, str(error)))

    def _arrived(self) -> Iterator[tuple[Item, Any]]:
        """Yield results whose files were not visible when they were reported."""
        for item in list(self.late):
            yield from self._collected(item)

    def _found(self, items: Sequence[Item]) -> Iterator[tuple[Item, bytes]]:
        """Yield results that a task stored but did not report before it ended."""
        addresses = {self.work.address(item): item for item in items}
        if self.storage is None or None in addresses:
            return
        for address, digest in self.storage.existing():
            item = addresses.get(address)
            if item not in self.unfinished:
                continue
            data, _ = self.storage.look(address, digest)
            if data is None:
                self.storage.remove(address, digest)
            else:
                yield item, data
                self._done(item, "recovered")

    # -- failures ------------------------------------------------------------------------------------------------------

    def _lost(self, error: Any) -> Failure:
        """Return the failure of a task that an error of Ray describes."""
        nested = isinstance(error, self.ray.exceptions.RayTaskError) and error.cause is not None
        lost = error.cause if nested else error
        worker = type(lost).__name__ in OF_A_WORKER
        return Failure("", type(lost).__name__, one_line(lost), "error" if nested else "worker" if worker else "node")

    def _failed(self, task: _Task, failure: Failure) -> Iterator[tuple[Item, Any]]:
        """Yield the results that a failed task had stored, and retrain the rest."""
        if left := self._left(task.group.items):
            yield from self._found(left)
        if left := self._left(task.group.items):
            self._repeat(task.group, left, task.kind, failure)

    def _repeat(self, group: Group, left: Sequence[Item], kind: int, failure: Failure) -> None:
        first, last = self.recovery.again(group, left, failure)
        self.first[kind].extend(first)
        self.last[kind].extend(last)
        if failure.cause != "node" and not self.doubtful:
            self.doubtful = True
            self._recall()

    def _recall(self) -> None:
        """Recall waiting tasks, so that failed items are retrained before them."""
        for task in list(self.tasks.values()):
            if not task.started:
                del self.tasks[task.generator]
                self.ray.cancel(task.generator, force=False)
                self.last[task.kind].append(task.group)

    # -- slow tasks ----------------------------------------------------------------------------------------------------

    def _relieve(self, kind: int) -> None:
        """Let idle workers help tasks that are slow, silent or long, so that these do not hold up the end."""
        if self.first[kind] or self.last[kind] or len(self.uncut[kind]):
            return
        now = time.monotonic()
        tasks = [task for task in self.tasks.values() if task.kind == kind]
        waiting = [task for task in tasks if not task.started and now - task.last < SILENT]
        started = [task for task in tasks if task.started]
        idle = self.workers(kind)[0] - len(started) - len(waiting)
        candidates = [task for task in tasks if task not in waiting and not task.helped and self._needs_help(task, now)]
        for i, task in enumerate(candidates[: max(0, idle)]):
            helpers = 1 + (idle - len(candidates)) // len(candidates) if idle > len(candidates) else 1
            left = self._left(task.group.items)
            helpers = min(helpers + (i < (idle - len(candidates)) % len(candidates)), max(1, len(left) - 1))
            task.helped = True
            size = -(-len(left) // (helpers + 1))
            # The first helper works towards the current item of the task; the others take the items after that.
            starts = [0, *range(2 * size, len(left), size)]
            for a, b in zip(starts, [*starts[1:], len(left)], strict=True):
                self._start(Group(tuple(left[a:b][::-1])), kind)

    def _needs_help(self, task: _Task, now: float) -> bool:
        """Return whether a task is slow or silent, or has many items left."""
        left = self._left(task.group.items)
        if not left:
            return False
        if not task.started:
            return True
        usual = sorted(self.gaps if task.reported else self.starts)
        if usual and now - task.last > max(1.0, SLOW * usual[int(0.9 * len(usual))]):
            return True
        uncut = self.uncut[task.kind]
        return len(left) > 1 and uncut.seconds(left) > 2 * uncut.shortest
