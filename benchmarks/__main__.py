"""Measure speed and memory on this machine: one table with targets and verdicts.

    python -m benchmarks [--only NAME ...] [--full] [--out build/bench.json]
    python -m benchmarks --compare BASE [--only NAME ...] [--out build/bench-compare.json]

`--compare` runs the same benchmarks on the source of another commit, one after the other, and prints both numbers; or
it compares with the JSON file of an earlier run. Compare ratios, not seconds: machines are noisy. A benchmark that
fails, on either side, is a row of the table and does not stop the others.
"""

import argparse
import os
import subprocess
import sys
import tarfile
import tempfile
import traceback
from importlib import import_module
from io import BytesIO
from pathlib import Path

from benchmarks.table import ROOT, Row, Table, compared, read, show_compared, write_compared

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
    """Run these benchmarks and write the table. One that fails becomes a row with its error; the others still run."""
    table = Table()
    for name in parts:
        module, function = PARTS[name]
        try:
            getattr(import_module(module), function)(table, full)
        except Exception as error:
            traceback.print_exc()
            table.fail(name, error)
    table.show()
    table.write(out)
    return table


def compare(base, parts, out):
    """Run each benchmark on the source of `base`, then on this one, and print both.

    `base` is a commit, or the JSON file of an earlier run, which is then only read.
    """
    if Path(base).suffix == ".json":
        before, after = read(base), _apart("this", ROOT / "src", parts)
    else:
        before, after = {}, {}
        with tempfile.TemporaryDirectory() as folder:
            _extract(base, folder)
            for part in parts:  # one after the other, so that both see about the same load of a busy machine
                before |= _apart("base", Path(folder, "src"), [part])
                after |= _apart("this", ROOT / "src", [part])
    lines = compared(before, after)
    show_compared(base, lines)
    write_compared(out, base, lines)
    return lines


def _extract(base, folder):
    """Extract the source of a commit."""
    archive = subprocess.run(["git", "archive", base, "src"], capture_output=True, check=False, cwd=ROOT)  # noqa: S607
    if archive.returncode:
        sys.exit(f"error: {base} must be a commit or a .json file of an earlier run: {archive.stderr.decode().strip()}")
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")


def _apart(name, source, parts):
    """Return the rows of these benchmarks on one source, each in its own process; one that dies is a failed row."""
    rows = {}
    for part in parts:
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "bench.json")
            command = [sys.executable, "-m", "benchmarks", "--only", part, "--out", str(out)]
            path = os.pathsep.join([str(source), str(ROOT)])
            print(f"{name}: {part}", file=sys.stderr, flush=True)
            done = subprocess.run(command, check=False, cwd=ROOT, env=os.environ | {"PYTHONPATH": path}, stdout=2)
            if out.exists():
                rows |= read(out)
            else:
                rows[part] = Row(part, None, "", error=f"exited with code {done.returncode}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--full", action="store_true", help="all 12,630 inputs of GTSRB's size, 7 GB on disk")
    parser.add_argument(
        "--out", type=Path, help="the table as JSON. Default: bench.json or bench-compare.json in build"
    )
    parser.add_argument("--compare", metavar="BASE", help="a commit, or the JSON file of an earlier run")
    given = parser.parse_args()
    parts = given.only or list(PARTS)
    if given.compare:
        compare(given.compare, parts, given.out or ROOT / "build" / "bench-compare.json")
    elif measure(parts, given.full, given.out or ROOT / "build" / "bench.json").failed:
        sys.exit(1)


if __name__ == "__main__":
    main()
