"""Many members on a Ray cluster: the overhead per member, and a model of large runs, checked on this machine.

    python -m benchmarks --only executors            # the overhead (part of `make bench`)
    python -m benchmarks.scaling                     # the same measurements, and the model with them

The model is a simulation: tasks are cut as the executor cuts them, workers take them in order, and the driver collects
results one by one. Its parameters are measured here, except the time per network and the start of a GPU.
"""

# ruff: noqa: ARG002

import argparse
import heapq
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table as Printed
from sklearn.linear_model import LogisticRegression

from benchmarks.table import ROOT, Table
from runoff import RunoffClassifier
from runoff._io.files import written_whole
from runoff._io.manifests import sha256
from runoff._io.text import duration, size
from runoff.executors import Ray, Storage, Work
from runoff.executors.grouping import groups_for
from runoff.torch.workload import START_SECONDS

MEMBERS = 1000
NETWORKS, MNIST = 19_200, 60_000 * 784  # FA with k = 1200 and d = 16
SCORES = 10_000 * 10 * 4  # bytes of one network's scores
WEIGHTS = 3_900_000  # bytes of Network-in-Network
GPUS, PER_NODE = (1, 8, 64), 8


@dataclass(frozen=True)
class Sleeping(Work):
    """Members that take a given time, with results of a given size."""

    seconds: float
    size: int

    def train(self, items, place):
        for item in items:
            time.sleep(self.seconds)
            yield item, item

    def kind(self, place):
        return {}

    def member(self, item):
        return item

    def weight(self, item):
        return 1.0

    def measure(self, items, place):
        return self.seconds * len(items)

    def address(self, item):
        return f"{item:064x}"

    def pack(self, item, result):
        return bytes([item % 256]) * self.size


def simulate(n, seconds, workers, *, start, collect, gpu=False):
    """Return the seconds that a run takes, and how much of it the driver and a worker are busy."""
    groups = groups_for(dict.fromkeys(range(n), 1.0), seconds, workers, gpu)
    free = [0.0] * workers
    arrivals, busy = [], 0.0
    for group in groups:
        begun = heapq.heappop(free) + start
        arrivals += [begun + (i + 1) * seconds for i in range(len(group))]
        heapq.heappush(free, begun + len(group) * seconds)
        busy += start + len(group) * seconds
    end = 0.0
    for arrival in sorted(arrivals):
        end = max(end, arrival) + collect
    return end, n * collect / end, busy / workers / end, len(groups)


def connected(cpus):
    """Start a cluster on this machine with some workers, which import what this module needs."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    ray.shutdown()
    ray.init("local", num_cpus=cpus, logging_level="error", log_to_driver=False, object_store_memory=200 * 2**20)
    return ray


def timed(work, n, folder):
    """Return the seconds for n members with stored results, which the caller collects as a run does."""
    storage = Storage(str(folder))
    started = time.perf_counter()
    collected = 0
    for _, data in Ray().run(work, list(range(n)), storage):
        sha256(data)  # of the tensors, as a run checks them
        with written_whole(Path(folder).parent / f"{collected}.collected", binary=True) as file:
            file.write(data)
        collected += 1
    assert collected == n
    return time.perf_counter() - started


def overhead(table):
    """Add the overhead per member; return the seconds of the driver per result, and before the first."""
    ray = connected(1)
    X = np.random.default_rng(0).normal(size=(20 * MEMBERS, 8))
    y = (X[:, 0] > 0).astype(int)
    settings = {"n_partitions": MEMBERS, "classes": range(2)}
    estimator = LogisticRegression(max_iter=20)
    RunoffClassifier(estimator, executor="ray", **settings).fit(X, y)  # starts a worker
    seconds = dict.fromkeys(("local", "ray"), float("inf"))
    for executor in ("local", "ray", "local", "ray"):  # the better of two, since other programs disturb
        started = time.perf_counter()
        RunoffClassifier(estimator, executor=executor, **settings).fit(X, y)
        seconds[executor] = min(seconds[executor], time.perf_counter() - started)
    each = 1000 * (seconds["ray"] - seconds["local"]) / MEMBERS
    table.add(f"{MEMBERS:,} tiny members on Ray, one worker: beside local", each, "ms a member", at_most=5)
    table.add("the same locally", 1000 * seconds["local"] / MEMBERS, "ms a member")
    with tempfile.TemporaryDirectory() as folder:
        few, many = (min(timed(Sleeping(0, SCORES), n, Path(folder) / f"{n}-{i}") for i in range(2)) for n in (20, 420))
    collect = (many - few) / 400
    table.add("a result of 400 kB by way of a folder", 1000 * collect, "ms a member")
    table.add("a run of 20 such results: plan, data, tasks", few, "s")
    ray.shutdown()
    collect = max(0.0, collect)  # where other programs disturb
    return collect, few - 20 * collect


def check(table, collect, start):
    """Compare the model with runs on this machine, of members that only wait, so that its cores are not the limit."""
    for workers, n, seconds in ((2, 200, 0.05), (4, 400, 0.05), (8, 400, 0.1)):
        ray = connected(workers)
        with tempfile.TemporaryDirectory() as folder:
            timed(Sleeping(0.2, 10), 2 * workers, Path(folder) / "arriving")  # starts the workers
            measured = timed(Sleeping(seconds, SCORES), n, Path(folder) / "arriving")
        expected = start + simulate(n, seconds, workers, start=0.0, collect=collect)[0]
        name = f"{n} members of {1000 * seconds:.0f} ms on {workers} workers: measured, to the model's"
        table.add(name, measured / expected, "x", at_least=0.6, at_most=1.6, seconds=measured)
        ray.shutdown()


def show(collect, start, seconds):
    """Print the model of 19,200 networks."""
    title = (
        f"Model: {NETWORKS:,} networks (FA, k = 1200, d = 16) of {1000 * seconds:.0f} ms on a GPU that starts in "
        f"{START_SECONDS:.0f} s; {1000 * collect:.1f} ms per result on the driver"
    )
    printed = Printed(
        "GPUs", "tasks", "time", "GPU hours", "GPUs busy", "driver busy", "data to nodes", "scores back",
        "with weights", "bottleneck", title=title,
    )  # fmt: skip
    for gpus in GPUS:
        end, driver, busy, n_tasks = simulate(NETWORKS, seconds, gpus, start=START_SECONDS, collect=collect, gpu=True)
        end += start
        nodes = -(-gpus // PER_NODE)
        shares = {"driver": driver, "networks": NETWORKS * seconds / gpus / end}
        shares["start of tasks"] = max(0.0, busy - shares["networks"])
        printed.add_row(
            str(gpus), str(n_tasks), duration(end), f"{end * gpus / 3600:.2f}", f"{busy:.0%}", f"{driver:.0%}",
            size(nodes * MNIST), size(NETWORKS * SCORES), size(NETWORKS * (SCORES + WEIGHTS)),
            max(shares, key=lambda name: shares[name]),
        )  # fmt: skip
    Console(width=150).print(printed)


def measure(table, _full):
    if find_spec("ray") is None:
        print("executors: skipped, since Ray is not installed: pip install 'runoff[ray]'", file=sys.stderr)
        return
    collect, start = overhead(table)
    check(table, collect, start)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--seconds", type=float, default=1800 / NETWORKS, help="per network on one GPU; default: %(default).3f"
    )
    parser.add_argument("--collect", type=float, help="seconds per result on the driver; default: measured")
    parser.add_argument("--start", type=float, help="seconds before the first task; default: measured")
    given = parser.parse_args()
    collect, start = given.collect, given.start
    if collect is None or start is None:
        table = Table()
        collect, start = overhead(table)
        check(table, collect, start)
        table.show()
    show(collect, start, given.seconds)


if __name__ == "__main__":
    main()
