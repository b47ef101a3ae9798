"""The interface of executors, and of the work that they do.

A `Work` is a function that trains members, together with all its data. An `Executor` calls it with some of the members
at a time, here or elsewhere, and yields the results as they finish, in any order. Nothing else in the program knows
which executor is in use.

What an executor may rely on: a result depends on its member alone and on the kind of machine, so any member can be
trained anywhere of that kind, in any company, twice, or again after a failure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from runoff._io.progress import announce
from runoff._io.text import count, duration, size
from runoff.executors.storage import Storage

Item = Any  # names one result: a member, or a member and a seed
Kind = dict[str, Any]  # all that results depend on besides samples and settings: device, versions, code


@dataclass(frozen=True)
class Place:
    """What one task may use: by default, all that the machine has."""

    cpus: int | None = None
    gpu: bool | None = None


class Work(ABC):
    """A function that trains members, with all its data. It must be possible to send it to another process."""

    kinds: tuple[Kind, ...] = ()  # expected by an executor that trains elsewhere; see `Executor.kinds`

    @abstractmethod
    def train(self, items: Sequence[Item], place: Place) -> Iterator[tuple[Item, Any]]:
        """Train these members and yield each result when it is finished."""

    @abstractmethod
    def kind(self, place: Place) -> Kind:
        """Return what results depend on where this is called."""

    @abstractmethod
    def member(self, item: Item) -> int:
        """Return the member of an item."""

    def name(self, item: Item) -> str:
        """Return the name of an item for messages."""
        return f"member {self.member(item)}"

    def part(self, items: Sequence[Item]) -> Work:  # noqa: ARG002
        """Return work with the data of these items only, if that is cheaper to send."""
        return self

    @abstractmethod
    def weight(self, item: Item) -> float:
        """Return the training time of an item, in any unit."""

    @abstractmethod
    def measure(self, items: Sequence[Item], place: Place) -> float:
        """Return roughly how many seconds it takes to train these items in one task, by a short measurement."""

    def address(self, item: Item) -> str | None:  # noqa: ARG002
        """Return the name under which the result is stored, or None if results are not files.

        Two results have the same address only if they are the same.
        """
        return None

    def pack(self, item: Item, result: Any) -> bytes:
        """Return a result as the content of a file."""
        raise NotImplementedError


@dataclass(frozen=True)
class Plan:
    """What an executor is about to do."""

    results: int
    tasks: tuple[tuple[Item, ...], ...]
    workers: int  # tasks that can run at a time
    place: str  # where, in words
    seconds: float  # in all, roughly
    memory: int  # bytes per worker, with its data

    def __str__(self) -> str:
        per_worker = f"{size(self.memory)} per worker"
        tasks = f"{self.results:,} to train in {count(len(self.tasks), 'task')}"
        return f"{self.place}: {tasks}, roughly {duration(self.seconds)}, {per_worker}"


@dataclass
class Watch:
    """What an executor reports while it works: its plan, and how many results came from which machine."""

    show: bool | None = False  # as for `with_progress`
    nodes: Counter[str] = field(default_factory=Counter)

    def planned(self, plan: Plan) -> None:
        """Print the plan on standard error."""
        announce(str(plan), self.show)

    def note(self) -> str:
        """Return the number of results per machine, in words; empty if there is only this one."""
        most = [f"{node} {n:,}" for node, n in self.nodes.most_common(4)]
        more = [f"{len(self.nodes) - 4} more"] if len(self.nodes) > 4 else []
        return ", ".join(most + more)


class Executor(ABC):
    """A place to train members."""

    name: str
    here: bool = True  # whether members are trained on this machine, with its devices

    def kinds(self, describe: Callable[[Place], Kind]) -> tuple[Kind, ...]:
        """Return the kinds of machine that train members, each described by `describe` where it is.

        Member m is trained on `kinds[m % len(kinds)]`. That is a function of its index alone, which no sample can
        change. More than one kind must be asked for.
        """
        return (describe(Place()),)

    def storage_for(self, default: str | None) -> Storage | None:
        """Return where results are stored until they are collected, if results may come from other processes."""
        return None if default is None else Storage(default)

    def plan(self, work: Work, items: Sequence[Item]) -> Plan | None:  # noqa: ARG002
        """Return what `run` will do, or None if there is nothing to plan."""
        return None

    @abstractmethod
    def run(
        self, work: Work, items: Sequence[Item], storage: Storage | None = None, watch: Watch | None = None
    ) -> Generator[tuple[Item, Any]]:
        """Train all items and yield each with its result: as `train` yields it, or packed, as bytes.

        Packed results come by way of `storage`, if given; the caller removes them from there. Closing the generator
        stops all work.
        """
