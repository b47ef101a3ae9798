"""Try to break runoff: one table of what was tried and what failed.

    python -m tests.torture [--part NAME ...] [--scale F] [--seed N] [--jobs N] [--write docs/trust.md]

The parts, and in parentheses those that a long part consists of:

    elections   radii against a brute force that shares no code with the package; attacks carried out
    targets     the same for radii and attacks with a target
    readers     files of every kind, damaged on purpose (readers-scores, readers-runs, readers-models,
                readers-weights, readers-datasets, readers-evidence)
    kills       processes killed while they write, then the same command again
    refits      members refitted for real after hostile edits
    processes   two commands at once on the same files

At scale 1 the campaign takes an hour on two idle cores, and refits several more; --scale 0.01 takes a few minutes.
Exits with code 1 when anything failed.
"""

import argparse
import os
import sys
import time
from importlib import import_module

from tests.torture import table
from tests.torture.tally import Tally

PARTS = ("elections", "targets", "readers", "kills", "refits", "processes")
PIECES = {  # of long parts: each can be run alone, and has a table of its own
    "readers": tuple(f"readers-{group}" for group in ("scores", "runs", "models", "weights", "datasets", "evidence"))
}


def main() -> int:
    """Run the parts one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=[*PARTS, *PIECES["readers"]], help="default: all")
    parser.add_argument("--scale", type=float, default=1.0, help="a fraction of the number of cases")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--write", metavar="PAGE", help="put the table into a page, between its marks")
    given = parser.parse_args()
    found: dict[str, tuple[Tally, float]] = {}
    for name in [piece for part in given.part or PARTS for piece in PIECES.get(part, (part,))]:
        started = time.monotonic()
        print(f"{name} ...", file=sys.stderr, flush=True)
        module, _, group = name.partition("-")
        tally = import_module(f"tests.torture.{module}").run(given.scale, given.seed, given.jobs, *group.split())
        found[name] = tally, time.monotonic() - started
        print("\n".join(table.plain(name, *found[name])), flush=True)
        if given.write:  # after each part: an interrupted campaign keeps what it found
            table.write(given.write, {name: found[name]}, given.seed, given.scale)
    failed = sum(tally.failed for tally, _ in found.values())
    tried = sum(line.tried for tally, _ in found.values() for line in tally.lines.values())
    print(f"{tried:,} tried, {failed:,} failed")
    return 1 if failed or not tried else 0


if __name__ == "__main__":
    raise SystemExit(main())
