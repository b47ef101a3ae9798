"""Executors on this machine: this process, and processes or threads of joblib."""

# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from runoff.executors.base import Executor, Item, Place, Watch, Work
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
        """Train all items and yield each with its result."""
        from joblib import Parallel, delayed

        if len(items) == 1:
            yield from work.train(items, Place())
            return
        one_process = self.n_jobs in (None, 1)  # else only the data of each item is sent to its process
        parts = ((work if one_process else work.part([item]), item) for item in items)
        for results in Parallel(n_jobs=self.n_jobs)(delayed(_train)(part, item) for part, item in parts):
            yield from results


def _train(work: Work, item: Item) -> list[tuple[Item, Any]]:
    return list(work.train([item], Place(cpus=1)))
