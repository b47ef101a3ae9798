"""The Ray executor, which trains members on the nodes of a Ray cluster; the only module that imports Ray, when used.

The data is sent to the object store of the cluster once. A task is a group of members; it writes each result to the
storage, from which the driver collects it, and reports a digest. Only unfinished members of lost tasks are retrained.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runoff import errors
from runoff._io.text import count, one_line
from runoff.errors import ClusterError, DeviceError, InputError, MissingExtraError, check_whole
from runoff.executors import tasks
from runoff.executors.base import SETTINGS_OF_BITS, Executor, Item, Kind, Place, Plan, Watch, Work
from runoff.executors.grouping import Uncut, groups_for
from runoff.executors.recovery import FAILURES
from runoff.executors.scheduling import Schedule
from runoff.executors.storage import Storage
from runoff.executors.termination import code_kept, terminated

EVERY = 2.0  # seconds between two queries of the nodes
SHARE = 0.001  # share of a resource that only restricts where a task runs
PATIENCE = 60.0  # seconds for busy nodes to describe themselves; later answers are checked at the first task


@dataclass(frozen=True)
class Ray(Executor):
    """Train members on a Ray cluster, in tasks that each take one GPU or some CPUs.

    runoff must be installed in the same version on all nodes. Nodes must be of one kind (see `mixed`).

    Parameters
    ----------
    address : the address of the cluster, as for `ray.init`. Default: $RAY_ADDRESS, else a cluster on this machine for
        the lifetime of this process
    storage : a folder that all nodes share, or an address such as s3://bucket/folder, to which workers write results.
        Default: a folder of the run, or the object store if results are not kept on disk
    storage_options : settings of the file system, passed to fsspec
    cpus, gpus, memory, resources : the resources of each task, as for `ray.remote`; nodes without them get no task.
        Networks are trained on a GPU if gpus is not 0
    members_per_task : the number of members per task. Default: from a short measurement, for a few tasks per worker
    workers : the number of tasks that an autoscaling cluster can run at a time once it has grown. Default: as now
    mixed : names of custom resources, one per kind of machine, to use several kinds in a run: member m is trained on
        nodes with the resource mixed[m % len(mixed)], also when it is retrained
    wait : seconds to wait for a node with the resources of a task, such as one that is being started

    """

    address: str | None = None
    storage: str | None = field(default=None, repr=False)  # may hold a secret
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    cpus: int = 1
    gpus: float = 0
    memory: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    members_per_task: int | None = None
    workers: int | None = None
    mixed: tuple[str, ...] = ()
    wait: float = 120.0
    name = "ray"
    here = False

    def __post_init__(self) -> None:
        for name in ("cpus", "members_per_task", "workers", "memory"):
            if name == "cpus" or getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        if not isinstance(self.gpus, (int, float)) or isinstance(self.gpus, bool) or not 0 <= self.gpus <= 1:
            raise InputError(
                f"gpus must be a number from 0 to 1, since a network is trained on one GPU, got {self.gpus!r}"
            )
        if not isinstance(self.wait, (int, float)) or isinstance(self.wait, bool) or not 0 < self.wait < math.inf:
            raise InputError(f"wait must be a positive number of seconds, got {self.wait!r}")
        names = self.mixed
        texts = isinstance(names, tuple) and all(isinstance(name, str) and name for name in names)
        if not texts or len(names) == 1 or len(set(names)) < len(names):
            raise InputError(f"mixed must be a tuple of two or more different names of resources, got {names!r}")
        for name, amount in self.resources.items() if isinstance(self.resources, Mapping) else [("", 0)]:
            number = isinstance(amount, (int, float)) and not isinstance(amount, bool) and 0 < amount < math.inf
            if not name or not number or name in ("CPU", "GPU", "memory"):
                raise InputError(
                    "resources must map names of custom resources to positive numbers (cpus, gpus and memory have "
                    f"parameters of their own), got {self.resources!r}"
                )
        _require_member(self.address)

    @property
    def place(self) -> Place:
        """The resources that one task may use."""
        return Place(self.cpus, self.gpus > 0)

    def storage_for(self, default: str | None) -> Storage | None:
        """Return the storage to which workers write results, or None if they send them."""
        if self.storage is not None:
            storage = Storage(str(self.storage), dict(self.storage_options))
            return storage if storage.is_remote else Storage(str(Path(self.storage).expanduser().absolute()))
        return super().storage_for(default)

    def kinds(self, describe: Callable[[Place], Kind]) -> tuple[Kind, ...]:
        """Return the kinds of all nodes that can run tasks; raise an error if nodes of a kind differ."""
        ray = self._connected()
        with _failing(ray):
            return tuple(self._kind(ray, describe, i) for i in range(max(1, len(self.mixed))))

    def plan(self, work: Work, items: Sequence[Item]) -> Plan:
        """Measure briefly on a worker, and divide the items into tasks."""
        ray = self._connected()
        with _failing(ray):
            return self._planned(ray, _put(ray, work), work, items)[0]

    def run(
        self, work: Work, items: Sequence[Item], storage: Storage | None = None, watch: Watch | None = None
    ) -> Generator[tuple[Item, Any]]:
        """Train all items on the cluster and yield each with its result."""
        if not items:
            return
        ray = self._connected()
        with _failing(ray):
            yield from self._run(ray, work, items, storage, Watch() if watch is None else watch)

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _run(
        self, ray: Any, work: Work, items: Sequence[Item], storage: Storage | None, watch: Watch
    ) -> Generator[tuple[Item, Any]]:
        data = _put(ray, work)
        plan, uncut = self._planned(ray, data, work, items, storage)
        remote = ray.remote(tasks.train)

        def submit(group: Sequence[Item], kind: int) -> Any:
            options = self._options(kind)
            streaming = {"num_returns": "streaming", "_generator_backpressure_num_objects": 16}
            chosen = remote.options(**options, **streaming, name=f"runoff {work.name(group[0])} ({len(group)})")
            return chosen.remote(data, list(group), kind, self.place, storage)

        watch.planned(plan)
        counted = _Counted(lambda kind: self._workers(ray, kind))
        schedule = Schedule(ray, work, submit, uncut, counted, storage, watch.nodes)
        try:
            yield from schedule.results()
        finally:
            schedule.cancel()

    def _connected(self) -> Any:
        """Return the module of Ray, connected to the cluster."""
        try:
            import ray
        except ImportError:
            raise MissingExtraError("executor='ray' needs Ray. Install it with: pip install 'runoff[ray]'") from None
        if ray.is_initialized():
            if ray.util.client.ray.is_connected():
                _require_member("ray://...")
            return ray
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        variables = {name: os.environ[name] for name in SETTINGS_OF_BITS if name in os.environ}
        settings: dict[str, Any] = {"runtime_env": {"env_vars": variables}} if variables else {}
        address = self.address or os.environ.get("RAY_ADDRESS") or "local"  # not any running cluster
        _require_member(address)
        on_term = signal.getsignal(signal.SIGTERM)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                ray.init(address=address, logging_level="error", log_to_driver=False, **settings)
            except (ConnectionError, ValueError, RuntimeError) as error:
                raise InputError(
                    f"address must be that of a running Ray cluster with the versions of Python and Ray that are here, "
                    f"but connecting to {address} failed: {one_line(error, 300)}"
                ) from None
        if threading.current_thread() is threading.main_thread() and on_term is not None:
            # Slurm and Kubernetes end a job with this signal, for which Ray would print its stack and abort.
            signal.signal(signal.SIGTERM, terminated if on_term is signal.SIG_DFL else on_term)
        return ray

    def _needs(self, member: int) -> dict[str, float]:
        """Return the resources of a task, by the names that nodes use."""
        needs = {"CPU": self.cpus, "GPU": self.gpus, "memory": self.memory or 0, **self.resources}
        if self.mixed:
            needs[self.mixed[member % len(self.mixed)]] = SHARE
        return {name: amount for name, amount in needs.items() if amount}

    def _options(self, member: int) -> dict[str, Any]:
        needs = self._needs(member)
        named = {"num_cpus": needs.pop("CPU", 0), "num_gpus": needs.pop("GPU", 0), "memory": needs.pop("memory", None)}
        return {**named, "resources": needs, "max_retries": 0}

    def _nodes(self, ray: Any, member: int) -> list[tuple[str, int]]:
        """Return the nodes that can run tasks, and the number of tasks at a time on each."""
        needs = self._needs(member)
        return [
            (node["NodeID"], slots)
            for node in ray.nodes()
            if node["Alive"] and (slots := int(min(node["Resources"].get(r, 0) / n for r, n in needs.items()))) > 0
        ]

    def _kind(self, ray: Any, describe: Callable[[Place], Kind], member: int) -> Kind:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        remote, options = ray.remote(tasks.describe), self._options(member) | {"max_retries": FAILURES}
        versions = tasks.versions_here()
        with _sending(ray):
            first = remote.options(**options).remote(describe, self.place, versions)
        node, kind = self._answer(ray, first, member)  # an autoscaling cluster starts a node
        others = [
            remote.options(**options, scheduling_strategy=NodeAffinitySchedulingStrategy(name, soft=False)).remote(
                describe, self.place, versions
            )
            for name, _ in self._nodes(ray, member)
        ]
        answers, silent = ray.wait(others, num_returns=len(others), timeout=PATIENCE) if others else ([], [])
        for reference in silent:
            ray.cancel(reference, force=True)
        for reference in answers:
            with suppress(ray.exceptions.NodeDiedError, ray.exceptions.TaskUnschedulableError):
                other, its = self._answer(ray, reference, member)
                tasks.require_same(kind, its, node, other)
        return dict(kind)

    def _answer(self, ray: Any, reference: Any, member: int) -> Any:
        """Return the result of a short task."""
        ready, _ = ray.wait([reference], timeout=self.wait)
        if not ready:
            ray.cancel(reference, force=True)
            needs = ", ".join(f"{name} {amount:g}" for name, amount in self._needs(member).items())
            raise InputError(
                f"no node of the cluster has the resources of a task ({needs}) within {self.wait:g} seconds: request "
                "less, start such a node, or wait longer"
            )
        try:
            return ray.get(reference)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, errors.RunoffError):
                raise error.cause from None
            reason = f"{type(error.cause).__name__}: {error.cause}" if error.cause is not None else str(error)
            raise DeviceError(
                f"a node of the cluster cannot train members ({one_line(reason, 300)}): install the same "
                "version of runoff and its extras on all nodes"
            ) from None

    def _workers(self, ray: Any, kind: int) -> tuple[int, int]:
        """Return the number of tasks that nodes of a kind can run at a time: now, and expected."""
        now = sum(slots for _, slots in self._nodes(ray, kind))
        return now, max(1, now, self.workers or 0)

    def _planned(
        self, ray: Any, data: Any, work: Work, items: Sequence[Item], storage: Storage | None = None
    ) -> tuple[Plan, list[Uncut]]:
        """Return the plan, from a short measurement, and the items for each kind of node."""
        first = work.member(items[0])
        token = "" if storage is None else storage.mark()
        try:
            typical = sorted(items, key=work.weight)[len(items) // 2]  # the smallest may learn nothing
            options = self._options(work.member(typical)) | {"max_retries": FAILURES}
            remote = ray.remote(tasks.measure).options(**options)
            seconds, memory, sees = self._answer(ray, remote.remote(data, typical, self.place, storage, token), first)
        finally:
            if storage is not None:
                storage.unmark(token)
        if storage is not None and not sees:
            raise InputError(
                f"storage must be seen by all nodes, but a worker does not see {storage.location}: give a shared "
                "folder or an address such as s3://bucket/folder"
            )
        nodes = self._nodes(ray, first)
        workers = self._workers(ray, first)[1]
        weights = {item: work.weight(item) for item in items}
        each = seconds / max(weights[typical], 1e-9)
        total = each * sum(weights.values())
        n_kinds = max(1, len(self.mixed))
        settings = each, self.gpus > 0, self.members_per_task
        uncut, groups = [], []
        for kind in range(n_kinds):  # a task is for members of one kind of machine
            chosen = {item: weight for item, weight in weights.items() if work.member(item) % n_kinds == kind}
            uncut.append(Uncut(chosen, *settings))
            groups += groups_for(chosen, each, self._workers(ray, kind)[1], *settings[1:])
        place = f"Ray cluster of {count(len(nodes), 'node')} and {count(workers, 'worker')}"
        return Plan(
            len(items), tuple(map(tuple, groups)), workers, place, total / workers, memory, work.basis(self.place)
        ), uncut


def _require_member(address: str | None) -> None:
    """Raise an error for the address of a cluster to which this machine does not belong."""
    if address is not None and address.startswith("ray://"):
        raise InputError(
            f"address must be that of a cluster to which this machine belongs, got {address!r}: run the command on a "
            "node of the cluster, as with `ray job submit`"
        )


@contextmanager
def _failing(ray: Any) -> Iterator[None]:
    """Report errors of Ray itself in one sentence."""
    try:
        with code_kept():
            yield
    except (ray.exceptions.RayError, ConnectionError) as error:
        raise ClusterError(
            f"the Ray cluster failed ({type(error).__name__}: {one_line(error, 300)}): finished results are kept, so "
            "repeat the command when the cluster works again"
        ) from None


@contextmanager
def _sending(ray: Any) -> Iterator[None]:
    """Report in one sentence what cannot be sent; Ray's message has the whole object and several lines."""
    try:
        yield
    except ray.exceptions.RayError:
        raise
    except Exception as error:
        cause = error if error.__cause__ is None else error.__cause__
        raise InputError(
            "the estimator or network must be serializable, since it is sent to the workers of the cluster, but "
            f"serializing it failed: {type(cause).__name__}: {cause!s:.200}"
        ) from error


_SENT: dict[int, tuple[Any, tuple[str, str], Any]] = {}  # by id: the work, the session, the reference to the object


def _put(ray: Any, work: Work) -> Any:
    """Return a reference to the work in the cluster's object store, to which it is copied once."""
    context, key = ray.get_runtime_context(), id(work)
    session = context.get_node_id(), context.get_job_id()
    known = _SENT.get(key)
    if known is None or known[0]() is not work or known[1] != session:
        with _sending(ray):
            known = weakref.ref(work, lambda _: _SENT.pop(key, None)), session, ray.put(work)
        _SENT[key] = known
    return known[2]


class _Counted:
    """The numbers of workers, queried every few seconds."""

    def __init__(self, query: Callable[[int], tuple[int, int]]) -> None:
        self.query, self.known, self.queried = query, dict[int, tuple[int, int]](), dict[int, float]()

    def __call__(self, kind: int) -> tuple[int, int]:
        now = time.monotonic()
        if now - self.queried.get(kind, -EVERY) >= EVERY:
            self.queried[kind], self.known[kind] = now, self.query(kind)
        return self.known[kind]
