"""Progress bars on standard error, with the remaining time."""

from __future__ import annotations

import logging
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

Item = TypeVar("Item")
log = logging.getLogger("runoff")


def with_progress(
    items: Iterable[Item], what: str, total: int, *, done: int = 0, show: bool | None = None, unit: str = ""
) -> Generator[Item, None, None]:
    """Yield items while a bar counts them; by default only if standard error is a terminal and warnings are on.

    If `unit` names what is counted, an item counts as its length.
    """
    if not total or not (sys.stderr.isatty() and log.isEnabledFor(logging.WARNING) if show is None else show):
        yield from items
        return
    from rich.progress import MofNCompleteColumn, TextColumn

    count = TextColumn("{task.completed:,} of {task.total:,} " + unit) if unit else MofNCompleteColumn()
    with progress_bars(count) as bars:
        task = bars.add_task(f"{what} ({done} already done)" if done else what, total=total)
        for item in items:
            yield item
            bars.advance(task, len(item) if unit else 1)  # type: ignore[arg-type]


@contextmanager
def progress_bars(*columns: ProgressColumn) -> Iterator[Progress]:
    """Show bars on standard error while the block runs, with these columns between the bar and the remaining time."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    first = (TextColumn("{task.description}"), BarColumn())
    quiet = not log.isEnabledFor(logging.WARNING)
    columns = (*first, *columns, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bars:
        yield bars
