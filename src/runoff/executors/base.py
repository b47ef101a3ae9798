"""The interfaces of executors and of the work that they run.

A `Work` is a function that trains members, together with all its data. An `Executor` calls it with groups of members,
on this machine or on others, and yields the results as they finish, in any order. No other module depends on which
executor is used.

Executors may rely on this: a result depends only on its member and on the kind of machine. So any member can be trained
on any machine of that kind, together with any others, more than once, and again after a failure.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from runoff._io.progress import announce
from runoff._io.text import count, duration, size
from runoff.errors import MemberError

if TYPE_CHECKING:
    from runoff.executors.storage import Storage

Item = Any  # identifies one result: a member, or a member and a seed
Kind = dict[str, Any]  # facts that results depend on besides samples and settings: device, versions, code

# Environment variables that change the last bits; executors pass them to other processes.
SETTINGS_OF_BITS = (
    "ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "NPY_DISABLE_CPU_FEATURES",
    "ONEDNN_MAX_CPU_ISA", "OPENBLAS_CORETYPE",
)  # fmt: skip


@dataclass(frozen=True)
class Place:
    """The resources that one task may use: by default, those of the whole machine."""

    cpus: int | None = None
    gpu: bool | None = None


class Work(ABC):
    """A function that trains members, with all its data; it can be sent to another process."""

    kinds: tuple[Kind, ...] = ()  # expected by an executor that trains on other machines; see `Executor.kinds`

    @abstractmethod
    def train(self, items: Sequence[Item], place: Place) -> Iterator[tuple[Item, Any]]:
        """Train these members, and yield each result as soon as it is finished."""

    @abstractmethod
    def kind(self, place: Place) -> Kind:
        """Return the facts that results depend on, for the machine where this is called."""

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
        """Return an estimate of the seconds to train these items in one task, from a short measurement."""

    def basis(self, place: Place) -> str:  # noqa: ARG002
        """Return how `measure` estimates the time, as text. Start-up, such as imports, is not part of it."""
        return "from a short measurement"

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
    """A plan of the tasks that an executor will run."""

    results: int
    tasks: tuple[tuple[Item, ...], ...]
    workers: int  # tasks that can run at a time
    place: str  # description of the machines
    seconds: float  # total, estimated
    memory: int  # bytes per worker, including its data
    basis: str = "from a short measurement"  # of the time

    def __str__(self) -> str:
        per_worker = f"{size(self.memory)} per worker"
        tasks = f"{self.results:,} to train in {count(len(self.tasks), 'task')}"
        time = f"roughly {duration(self.seconds)} ({self.basis}; excluding the start of workers)"
        return f"{self.place}: {tasks}, {time}, {per_worker}"


@dataclass
class Watch:
    """Progress reports of an executor: its plan, and the number of results per machine."""

    show: bool | None = False  # as for `with_progress`
    nodes: Counter[str] = field(default_factory=Counter)

    def planned(self, plan: Plan) -> None:
        """Print the plan on standard error."""
        announce(str(plan), self.show)

    def note(self) -> str:
        """Return the number of results per machine, as text; empty if no machine was recorded."""
        most = [f"{node} {n:,}" for node, n in self.nodes.most_common(4)]
        more = [f"{len(self.nodes) - 4} more"] if len(self.nodes) > 4 else []
        return ", ".join(most + more)


class Executor(ABC):
    """A strategy for where and in which processes members are trained."""

    name: str
    here: bool = True  # whether members are trained on this machine, with its devices

    def kinds(self, describe: Callable[[Place], Kind]) -> tuple[Kind, ...]:
        """Return the kinds of machine that train members, as `describe` returns them on each.

        Member m is trained on `kinds[m % len(kinds)]`, a function of its index only, which no sample can change. More
        than one kind is used only if the user requests it.
        """
        return (describe(Place()),)

    def storage_for(self, default: str | None) -> Storage | None:
        """Return the storage of results until they are collected, or None if results do not pass through files."""
        from runoff.executors.storage import Storage

        return None if default is None else Storage(default, private=True)

    def plan(self, work: Work, items: Sequence[Item]) -> Plan | None:  # noqa: ARG002
        """Return the plan of `run`, or None if there is nothing to plan."""
        return None

    @abstractmethod
    def run(
        self, work: Work, items: Sequence[Item], storage: Storage | None = None, watch: Watch | None = None
    ) -> Generator[tuple[Item, Any]]:
        """Train all items, and yield each with its result: as `Work.train` yields it, or packed, as bytes.

        Packed results pass through `storage`, if given; the caller removes them from there. Closing the generator stops
        all work.
        """

    def results(
        self, work: Work, items: Sequence[Item], storage: Storage | None = None, watch: Watch | None = None
    ) -> Generator[tuple[Item, Any]]:
        """Yield what `run` yields, and raise an error unless that is each item exactly once.

        Else a member could stay as it was before an update, or vote by its class shares as if it could not be trained.
        """
        left = set(items)
        with closing(self.run(work, items, storage, watch)) as results:
            for item, result in results:
                if item not in left:
                    raise MemberError(
                        f"executor {self.name!r} must return each member once, got {work.name(item)} again"
                    )
                left.remove(item)
                yield item, result
        if left:
            raise MemberError(
                f"executor {self.name!r} must return each member once, and did not return {work.name(min(left))}"
            )
