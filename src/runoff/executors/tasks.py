"""Tasks for the workers of a cluster, in functions that do not need Ray."""

from __future__ import annotations

import platform
import sys
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from runoff._version import __version__
from runoff.errors import DeviceError
from runoff.executors.base import Item, Kind, Place, Work
from runoff.executors.recovery import Failure
from runoff.executors.storage import Storage

EVERY = 0.1  # seconds between two reports of a task; many tiny members share one
WRITERS, WAITING = 4, 16  # files written at a time, and results that wait, so that storage does not delay training

_checked: set[str] = set()  # kinds of work for which this process has been checked


@dataclass(frozen=True)
class Report:
    """Finished results of a task: each item with the digest of its file, or with the result itself."""

    node: str
    stored: tuple[tuple[Item, str], ...] = ()
    sent: tuple[tuple[Item, Any], ...] = ()


def describe(kind: Any, place: Place, versions: dict[str, str]) -> tuple[str, Kind]:
    """Return the name of this machine and its kind; refuse to work for a driver of other versions."""
    here = versions_here()
    for name, version in versions.items():
        if here[name] != version:
            raise DeviceError(
                f"node {platform.node()} of the cluster has {name} {here[name]}, and the driver has {version}: install "
                "the same on all machines"
            )
    return platform.node(), kind(place)


def versions_here() -> dict[str, str]:
    """Return the versions that drivers and workers must share, besides what the bits of members depend on."""
    return {"runoff": __version__, "Python": ".".join(platform.python_version_tuple()[:2])}


def require_same(expected: Kind, actual: Kind, one: str, other: str) -> None:
    """Raise an error for machines of different kinds."""
    for name in expected.keys() | actual.keys():
        if expected.get(name) != actual.get(name):
            values = " and ".join(f"{value!s:.80}" for value in (expected.get(name), actual.get(name)))
            raise DeviceError(
                f"nodes {one} and {other} of the cluster differ in {name} ({values}): a member trained on both would "
                "have different bits, so a retrained one could differ without any edit, and no radius would hold; "
                "restrict tasks to nodes of one kind by their resources, or name one resource for each kind (mixed)"
            )


def measure(work: Work, item: Item, place: Place, storage: Storage | None, token: str) -> tuple[float, int, bool]:
    """Return the seconds for an item, the bytes of memory that this process needed, and whether it sees the storage."""
    _check(work, work.member(item), place)
    return work.measure([item], place), _memory(), storage is None or storage.is_marked(token)


def train(work: Work, items: list[Item], member: int, place: Place, storage: Storage | None) -> Iterator[Any]:
    """Train a group of items, store their results and report them."""
    node = platform.node()
    yield Report(node)  # before any call that could hang
    try:
        _check(work, member, place)
        yield from _trained(work, items, place, storage, node)
    except Exception as error:
        yield Failure(node, type(error).__name__, str(error))


def _trained(work: Work, items: list[Item], place: Place, storage: Storage | None, node: str) -> Iterator[Report]:
    waiting: deque[tuple[Item, Future[str]]] = deque()
    stored: list[tuple[Item, str]] = []
    sent: list[tuple[Item, Any]] = []
    last = 0.0

    def collect(most: int) -> None:
        while waiting and (len(waiting) > most or waiting[0][1].done()):
            item, future = waiting.popleft()
            stored.append((item, future.result()))

    with ThreadPoolExecutor(WRITERS) as pool:
        try:
            for item, result in work.train(items, place):
                address = work.address(item)
                if address is None:
                    sent.append((item, result))
                elif storage is None:
                    sent.append((item, work.pack(item, result)))
                else:
                    waiting.append((item, pool.submit(_store, work, item, result, storage, address)))
                    collect(WAITING)
                if (stored or sent) and time.monotonic() - last >= EVERY:
                    yield Report(node, tuple(stored), tuple(sent))
                    stored, sent, last = [], [], time.monotonic()
            collect(0)
        except Exception:
            yield Report(node, tuple(stored), tuple(sent))  # keep the finished results
            raise
    if stored or sent:
        yield Report(node, tuple(stored), tuple(sent))


def _store(work: Work, item: Item, result: Any, storage: Storage, address: str) -> str:
    return storage.put(address, work.pack(item, result))


def _check(work: Work, member: int, place: Place) -> None:
    """Raise an error on machines whose results would differ from the expected ones."""
    if not work.kinds:
        return
    expected = work.kinds[member % len(work.kinds)]
    if (key := repr((expected, place))) not in _checked:
        require_same(expected, work.kind(place), "the first", platform.node())
        _checked.add(key)


def _memory() -> int:
    """Return the peak memory of this process."""
    if sys.platform == "win32":
        return 0
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
