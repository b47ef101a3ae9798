"""Background threads that compute a bounded number of tasks ahead of the caller."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any


def prefetch(pool: ThreadPoolExecutor, work: Any, tasks: Iterable[Any], most: int) -> Generator[Any]:
    """Yield results in order, with up to `most` tasks computed in advance."""
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


def as_completed(pool: ThreadPoolExecutor, work: Any, tasks: Iterable[Any], most: int) -> Iterator[Any]:
    """Yield results as they finish, with up to `most` tasks submitted; finished results come before an error."""
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
