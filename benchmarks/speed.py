"""Speed and memory of `runoff.certify`, each as a ratio to one `scores.argmax(-1)` pass in the same run.

    python -m benchmarks --only speed [--full]

Without --full the GTSRB-sized arrays hold fewer inputs; cost is linear in inputs.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import runoff
from runoff import spreads

RNG = np.random.default_rng(0)


def ensemble(n, members, classes, temperature=1.0):
    """Return scores like those of a trained ensemble: inputs from easy to hard, members that agree on easy ones."""
    scores = np.empty((n, members, classes), np.float32)
    for start in range(0, n, 64):
        part = scores[start : start + 64]
        RNG.standard_normal(out=part, dtype=np.float32)
        truth = np.exp(RNG.normal(size=(len(part), 1, classes))) * RNG.uniform(0.1, 1.2, size=(len(part), 1, 1))
        part += truth.astype(np.float32) * temperature
    return scores


def cycle(k, d):
    return spreads.cyclic(k * d, np.random.default_rng(1).permutation(k * d)[:d])


def scattered(k, d):
    """Return a spread from each bucket to d random members: no structure to exploit."""
    rng = np.random.default_rng(2)
    return np.stack([rng.choice(k * d, d, replace=False) for _ in range(k * d)])


def best_of(function, times=3, clock=time.perf_counter):
    """Return the least time of a call; with `time.process_time`, over all threads, which other processes lengthen less.

    With two threads, processor time is about twice the wall time of an idle machine.
    """
    spent = []
    for _ in range(times):
        start = clock()
        function()
        spent.append(clock() - start)
    return min(spent)


def close_scores(n, members, classes):
    """Return scores of a first class, a second, and many that are equally far behind: the hard case for a spread."""
    scores = RNG.standard_normal((n, members, classes), dtype=np.float32)
    scores[..., 3] += 2
    scores[..., 7] += 1
    return scores


def compare(table, name, scores, limits, slower=None, clock=time.perf_counter, **settings):
    """Add rows for elections and bounds; with `slower`, also maximin's time by run-off's, which may be that much."""
    base = best_of(lambda: scores.argmax(-1), clock=clock)
    for (election, bound), limit in limits.items():
        run = lambda: runoff.certify(scores, election=election, bound=bound, **settings)  # noqa: B023, E731
        runoff.certify(scores[:2], election=election, bound=bound, **settings)
        spent = best_of(run, clock=clock)
        table.add(f"{name}, {election}, {bound}", spent / base, "argmax", at_most=limit, seconds=spent)
    if slower is not None:
        maximin, run_off = (
            best_of(lambda: runoff.certify(scores, election=election, **settings), clock=time.process_time)  # noqa: B023
            for election in ("maximin", "runoff")
        )
        ratio = maximin / run_off
        table.add(f"{name}, maximin / run-off, processor time", ratio, "x", at_most=slower)


def speed(table, full):
    tight, paper = {("plurality", "tight"): None}, {("plurality", "paper"): None}
    alone = tight | {("runoff", "tight"): 1.5, ("maximin", "tight"): 4.5}
    compare(table, "10,000 x 250 x 10", ensemble(10_000, 250, 10), alone, slower=3)
    scores = ensemble(10_000, 800, 10)
    limits = paper | tight | {("runoff", "paper"): 5, ("runoff", "tight"): 10, ("maximin", "tight"): None}
    compare(table, "10,000 x 800 x 10, k=50 d=16", scores, limits, slower=3, spread=cycle(50, 16))
    compare(table, "10,000 x 800 x 10, k=50 d=16, not cyclic", scores, limits, spread=scattered(50, 16))
    eight = {("runoff", "paper"): 8, ("runoff", "tight"): 16}
    scores = ensemble(12_630 if full else 1500, 1600, 43)
    compare(table, f"{len(scores):,} x 1,600 x 43, k=100 d=16", scores, paper | tight | eight, spread=cycle(100, 16))
    either = tight | {("runoff", "tight"): None}
    for classes in (125, 250, 500, 1000):
        compare(table, f"1,000 x 200 x {classes:,}", ensemble(1000, 200, classes), either)
    for classes in (125, 250, 500, 1000):
        no_limits = paper | either | {("runoff", "paper"): None}
        compare(table, f"200 x 400 x {classes:,}, d=2", ensemble(200, 400, classes), no_limits, spread=cycle(200, 2))


def close(table, _full):
    """Measure spreads with many close classes, in processor time."""
    for n, classes in ((400, 43), (20, 1000)):
        name = f"{n} x 1,600 x {classes:,}, close classes, k=100 d=16"
        limits = {("runoff", "paper"): 8, ("runoff", "tight"): 16}
        scores = close_scores(n, 1600, classes)
        compare(table, f"{name}, processor time", scores, limits, clock=time.process_time, spread=cycle(100, 16))


MEMORY = """
import sys, numpy as np, runoff
def peak():  # not ru_maxrss, which includes the parent's peak
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
scores = np.load(sys.argv[1], mmap_mode="r")
spread = np.load(sys.argv[2])
runoff.certify(scores[:2], spread=spread)
before = peak()
runoff.certify(scores, spread=spread)
print(peak() - before)
"""


def memory(table, full):
    n = 12_630 if full else 1500
    with tempfile.TemporaryDirectory() as folder:
        path, where = Path(folder, "scores.npy"), Path(folder, "spread.npy")
        scores = np.lib.format.open_memmap(path, "w+", np.float32, (n, 3200, 43))
        for start in range(0, n, 256):
            scores[start : start + 256] = ensemble(len(scores[start : start + 256]), 3200, 43)
        scores.flush()
        np.save(where, cycle(100, 32))
        extra = subprocess.run([sys.executable, "-c", MEMORY, path, where], capture_output=True, check=True, text=True)
        size = path.stat().st_size / 2**30
    name = f"{n:,} x 3,200 x 43 mapped ({size:.1f} GB), memory beyond the first call"
    table.add(name, float(extra.stdout), "MB", at_most=200)


START = """
import time, numpy as np
import runoff
scores = np.random.default_rng(0).standard_normal((10, 20, 5)).astype(np.float32)
spread = (np.arange(20)[:, None] + [0, 3]) % 20
start = time.perf_counter()
runoff.certify(scores, spread=spread)
print(time.perf_counter() - start)
"""


def start_up(table, _full):
    def run(code, **extra):
        done = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | extra, capture_output=True, check=True, text=True
        )
        return float(done.stdout)

    importing = min(
        run("import time; s = time.perf_counter(); import runoff; print(time.perf_counter() - s)") for _ in range(3)
    )
    table.add("import runoff", importing, "s", at_most=0.5)
    with tempfile.TemporaryDirectory() as folder:
        cold = run(START, NUMBA_CACHE_DIR=folder)
        warm = min(run(START, NUMBA_CACHE_DIR=folder) for _ in range(3))
    table.add("first call, run-off with a spread, compiled", cold, "s", at_most=10)
    table.add("first call, the same from the cache", warm, "s", at_most=1)
