"""Progress on standard error, with the remaining time: bars on terminals, else a plain line every 30 seconds."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from runoff._io.text import duration, size

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

Item = TypeVar("Item")
Received = Callable[[str, int, "int | None"], None]  # a file's name, the bytes received, and the total if known
LINE_SECONDS = 30.0  # between lines
log = logging.getLogger("runoff")


def with_progress(
    items: Iterable[Item],
    what: str,
    total: int,
    *,
    done: int = 0,
    show: bool | None = None,
    unit: str = "",
    note: Callable[[], str] = str,
) -> Generator[Item, None, None]:
    """Yield items and count them on standard error; by default only if warnings are enabled.

    If standard error is not a terminal, there is no bar but a line every 30 seconds, and with `show` one at the end. If
    `unit` names what is counted, an item counts as its length. `note` returns text to show after the numbers.
    """
    if not total or not (log.isEnabledFor(logging.WARNING) if show is None else show):
        yield from items
        return
    what = f"{what} ({done} already done)" if done else what
    if not sys.stderr.isatty():
        yield from _with_lines(items, what, total, bool(show), unit, note)
        return
    from rich.progress import MofNCompleteColumn, TextColumn

    count = TextColumn("{task.completed:,} of {task.total:,} " + unit) if unit else MofNCompleteColumn()
    with _progress_bars(count) as bars:
        task = bars.add_task(what, total=total)
        for item in items:
            yield item
            if words := note():
                bars.update(task, description=f"{what} ({words})")
            bars.advance(task, len(item) if unit else 1)  # type: ignore[arg-type]


def announce(text: str, show: bool | None = None) -> None:
    """Print a line on standard error where `with_progress` would show progress."""
    if log.isEnabledFor(logging.WARNING) if show is None else show:
        _say(text)


def _with_lines(
    items: Iterable[Item], what: str, total: int, at_end: bool, unit: str, note: Callable[[], str]
) -> Generator[Item, None, None]:
    started = last = time.monotonic()
    n = 0
    for item in items:
        yield item
        n += len(item) if unit else 1  # type: ignore[arg-type]
        now = time.monotonic()
        if (at_end and n >= total) or (now - last >= LINE_SECONDS and n < total):
            last = now
            left = f", {duration((now - started) / n * (total - n))} left" if n < total else ""
            words = f" ({words})" if (words := note()) else ""
            _say(f"{what}: {n:,} of {total:,}{f' {unit}' if unit else ''}{left}{words}")


@contextmanager
def with_downloads() -> Iterator[Received]:
    """Yield a function to call with the bytes of each file received so far."""
    if not sys.stderr.isatty():
        yield _download_lines()
        return
    from rich.progress import DownloadColumn, TransferSpeedColumn

    with _progress_bars(DownloadColumn(), TransferSpeedColumn()) as bars:
        tasks: dict[str, object] = {}

        def received(file: str, n: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=total)
            bars.update(tasks[file], completed=n, total=total)  # type: ignore[arg-type]

        yield received


def _download_lines() -> Received:
    last = time.monotonic()

    def received(file: str, n: int, total: int | None) -> None:
        nonlocal last
        if (now := time.monotonic()) - last >= LINE_SECONDS and log.isEnabledFor(logging.WARNING):
            last = now
            _say(f"{file}: {size(n)}" + ("" if total is None else f" of {size(total)}"))

    return received


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201


@contextmanager
def _progress_bars(*columns: ProgressColumn) -> Iterator[Progress]:
    """Show bars on standard error while the block runs, with these columns between the bar and the remaining time."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    first = (TextColumn("{task.description}"), BarColumn())
    quiet = not log.isEnabledFor(logging.WARNING)
    columns = (*first, *columns, TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bars:
        yield bars
