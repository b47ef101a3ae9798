"""Executors on this machine: this process, and processes or threads of joblib."""

# ruff: noqa: ARG002

from __future__ import annotations

import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from runoff.executors.base import Executor, Item, Place, Watch, Work
from runoff.executors.termination import orderly

if TYPE_CHECKING:
    from runoff.executors.storage import Storage


@dataclass(frozen=True)
class Local(Executor):
    """Train members in this process: networks on its device, several at a time; estimators one by one."""

    name = "local"

    def run(
        self, work: Work, items: Sequence[Item], storage: Storage | None = None, watch: Watch | None = None
    ) -> Generator[tuple[Item, Any]]:
        """Train all items and yield each with its result."""
        yield from work.train(items, Place())


@dataclass(frozen=True)
class Joblib(Executor):
    """Train members with joblib, each in a separate call.

    Parameters
    ----------
    n_jobs : the number of members at a time, as joblib understands it; None follows `joblib.parallel_config`

    """

    n_jobs: int | None = None
    name = "joblib"

    def run(
        self, work: Work, items: Sequence[Item], storage: Storage | None = None, watch: Watch | None = None
    ) -> Generator[tuple[Item, Any]]:
        """Train all items and yield each with its result when it is finished, in any order."""
        yield from each_by_itself(work, items, self.n_jobs)


def each_by_itself(work: Work, items: Sequence[Item], n_jobs: int | None) -> Generator[tuple[Item, Any]]:
    """Train each item in a separate call, `n_jobs` at a time, and yield each result when it is finished.

    Closing the generator stops the calls that have not started.
    """
    from joblib import Parallel, delayed

    if len(items) == 1:
        yield from work.train(items, Place())
        return
    one_process = n_jobs in (None, 1)  # else only the data of each item is sent to its process
    calls = (delayed(_train)(work if one_process else work.part([item]), item) for item in items)
    exits_in_order = not one_process
    try:
        parallel = Parallel(n_jobs=n_jobs, return_as="generator_unordered")
    except (TypeError, ValueError):  # older versions and some backends return all results at the end
        # Backend "multiprocessing" ends its processes by SIGTERM. They are forks, which inherit a handler, and one that
        # waits for the lock of its queue might never run it. Without this program, they exit when their queue closes.
        parallel, exits_in_order = Parallel(n_jobs=n_jobs), False
    with orderly() if exits_in_order else nullcontext():
        yield from _each(parallel(calls))


def _each(results: Any) -> Iterator[tuple[Item, Any]]:
    """Yield what each call returns; closing the generator stops the calls that have not started."""
    try:
        for result in results:
            yield from result
    finally:
        if not isinstance(results, list):
            with warnings.catch_warnings():  # joblib warns of calls that are stopped, as they should be
                warnings.simplefilter("ignore")
                results.close()


def _train(work: Work, item: Item) -> list[tuple[Item, Any]]:
    return list(work.train([item], Place(cpus=1)))
