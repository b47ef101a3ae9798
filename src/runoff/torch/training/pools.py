"""Work in the background, a little ahead of whoever takes the results."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any


def ahead(pool: ThreadPoolExecutor, work: Any, tasks: Iterable[Any], most: int) -> Generator[Any]:
    """Results in order, with a few made in the background before they are asked for."""
    pending = deque[Future[Any]]()
    try:
        for task in tasks:
            pending.append(pool.submit(work, task))
            if len(pending) > most:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def as_done(pool: ThreadPoolExecutor, work: Any, tasks: Iterable[Any], most: int) -> Iterator[Any]:
    """Results as they come, with a bounded number of tasks waiting. What is done is given before an error is raised."""
    pending: set[Future[Any]] = set()
    waiting = iter(tasks)
    while True:
        for task in waiting:
            pending.add(pool.submit(work, task))
            if len(pending) >= most:
                break
        if not pending:
            return
        done, pending = wait(pending, return_when=FIRST_COMPLETED)
        failed = [future for future in done if future.exception() is not None]
        for future in done:
            if future not in failed and (result := future.result()) is not None:
                yield result
        for future in failed:
            future.result()
