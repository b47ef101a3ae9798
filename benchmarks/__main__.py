"""Measure speed and memory on this machine: one table with targets and verdicts.

    python -m benchmarks [--only NAME ...] [--full] [--out build/bench.json]
    python -m benchmarks --compare COMMIT [--only NAME ...]

`--compare` runs the same benchmarks on the source of another commit, one after the other, and prints both numbers.
Compare ratios, not seconds: machines are noisy.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
from importlib import import_module
from io import BytesIO
from pathlib import Path

from rich.console import Console
from rich.table import Table as Printed

from benchmarks.table import ROOT, Table, read

PARTS = {
    "start": ("benchmarks.speed", "start_up"),
    "speed": ("benchmarks.speed", "speed"),
    "close": ("benchmarks.speed", "close"),
    "memory": ("benchmarks.speed", "memory"),
    "classifier": ("benchmarks.classifier", "measure"),
    "networks": ("benchmarks.networks", "cpu"),
    "executors": ("benchmarks.scaling", "measure"),
}


def measure(parts, full, out):
    table = Table()
    for name in parts:
        module, function = PARTS[name]
        getattr(import_module(module), function)(table, full)
    table.show()
    table.write(out)


def compare(base, parts):
    """Run the benchmarks on the source of `base`, then on this one, and print both."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["git", "archive", base, "src"]
        archive = subprocess.run(command, capture_output=True, check=True, cwd=ROOT).stdout
        with tarfile.open(fileobj=BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        tables = []
        for name, source in (("base", Path(folder, "src")), ("this", ROOT / "src")):
            out = Path(folder, f"{name}.json")
            only = [word for part in parts for word in ("--only", part)]
            command = [sys.executable, "-m", "benchmarks", *only, "--out", str(out)]
            path = os.pathsep.join([str(source), str(ROOT)])
            subprocess.run(command, check=True, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, stdout=2)
            tables.append(read(out))
    printed = Printed("what", base, "this", "this / base")
    for name, row in tables[1].items():
        before = tables[0].get(name)
        change = "" if before is None or not before.measured else f"{row.measured / before.measured:.2f}"
        printed.add_row(name, "" if before is None else before.number, row.number, change)
    Console(width=150).print(printed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--full", action="store_true", help="all 12,630 inputs of GTSRB's size, 7 GB on disk")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench.json", help="the table as JSON")
    parser.add_argument("--compare", metavar="COMMIT")
    given = parser.parse_args()
    if given.compare:
        compare(given.compare, given.only or PARTS)
    else:
        measure(given.only or PARTS, given.full, given.out)


if __name__ == "__main__":
    main()
