"""Progress on stderr, with the time left."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def shown(items: Iterable[Item], what: str, total: int, done: int, wanted: bool | None) -> Iterator[Item]:
    """Pass items on while a bar tells how far they are; by default only where somebody watches."""
    if not total or not (sys.stderr.isatty() if wanted is None else wanted):
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(what if not done else f"{what} ({done} found)", total=total)
        for item in items:
            bar.advance(task)
            yield item
