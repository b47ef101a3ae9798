"""Break the package one expression at a time: do the tests notice?

    python -m tests.mutants [--part NAME ...] [--changed BASE] [--sample N] [--again] [--jobs N] [--write]

Each mutant has one change in one function. It is run uncompiled, in a fork of an interpreter that has everything
imported, against the tests that run the changed function. `--changed` takes only lines that differ from a commit,
`--sample` a number of mutants of a part, the same ones each time, and `--again` only what the last run did not notice.
A survivor is either a gap in the tests or a change that cannot matter: tests/equivalent_mutants.toml gives the reason.
Exits with code 1 if less than 95 % of a part's mutants are noticed, or with --changed if any is not.
"""

import os
import sys

if os.environ.get("NUMBA_DISABLE_JIT") != "1":  # before numba is imported
    os.environ |= {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1"}  # a fork of a process with threads would hang
    os.execv(sys.executable, [sys.executable, "-m", "tests.mutants", *sys.argv[1:]])  # noqa: S606

import argparse
import hashlib
import re
import subprocess
import tempfile
from pathlib import Path

from tests.mutants import report
from tests.mutants.operators import Mutant, mutants
from tests.mutants.parts import PACKAGE, PARTS, ROOT
from tests.mutants.running import SURVIVED, UNCOVERED, Results, campaign


def changed_lines(base: str) -> dict[str, set[int]]:
    """The lines of each file of the package that differ from a commit."""
    command = ["git", "diff", "-U0", base, "--", str(PACKAGE)]
    text = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found: dict[str, set[int]] = {}
    file = ""
    for line in text.splitlines():
        if line.startswith("+++ "):
            file = line[6:].removeprefix("src/runoff/")
        elif match := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(match[1]), int(match[2] or 1)
            found.setdefault(file, set()).update(range(start, start + count))
    return found


def one_part(name: str, lines: dict[str, set[int]] | None, given: argparse.Namespace) -> Results:
    """The mutants of one part, in a process of its own: pytest collects once in a process."""
    part = PARTS[name]
    files = [f for f in part.present() if lines is None or f in lines]
    every = [m for file in files for m, _ in mutants(file, (PACKAGE / file).read_text())]
    kept = report.last(name, every) if given.again else {}
    noticed = {mutant for mutant, verdict in kept.items() if verdict not in (SURVIVED, UNCOVERED)}
    sample = {*sorted(every, key=lambda m: _draw(m, given.seed))[: given.sample or None]}

    def wanted(mutant: Mutant) -> bool:
        if mutant not in sample or mutant in noticed or (given.match and given.match not in str(mutant)):
            return False
        return lines is None or not lines[mutant.file].isdisjoint(range(mutant.line, mutant.end + 1))

    known = report.equivalents()

    def told(text: str) -> None:
        print(f"{name}: {text}", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as folder:
        results = campaign(
            files,
            part.tests,
            jobs=given.jobs,
            wanted=wanted,
            explained=lambda mutant: not given.recheck and mutant.key in known,
            seconds=given.seconds,
            told=told,
            folder=Path(folder, "tests"),
        )
    results.total = len(every)
    results.seconds += report.spent(name) if given.again else 0  # so that the time is that of all verdicts
    results.verdicts = {m: results.verdicts.get(m, kept.get(m)) for m in every if m in results.verdicts or m in kept}
    report.remember(name, results)
    return results


def _draw(mutant: Mutant, seed: int) -> bytes:
    """A number of each mutant's own, so that a change of the code changes the sample there only."""
    return hashlib.sha256(f"{seed}{mutant.key}".encode()).digest()


def main() -> int:
    """Run the parts one after the other."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all that are here")
    parser.add_argument("--changed", metavar="BASE", help="only lines that differ from this commit")
    parser.add_argument("--seconds", type=float, help="start no more mutants after so many seconds a part")
    parser.add_argument("--sample", type=int, metavar="N", help="only so many mutants of a part")
    parser.add_argument("--again", action="store_true", help="only what the last run did not notice")
    parser.add_argument("--match", help="only mutants whose description contains this")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--recheck", action="store_true", help="try those, too, that are known not to matter")
    parser.add_argument("--write", action="store_true", help="put the results into docs/mutants.md")
    given = parser.parse_args()
    lines = None if given.changed is None else changed_lines(given.changed)
    enough = True
    for name in given.part or PARTS:
        files = PARTS[name].present()
        if not files or (lines is not None and not any(f in lines for f in files)):
            print(f"{name}: nothing to do")
            continue
        results = one_part(name, lines, given)
        gaps, _ = report.split(results)
        for mutant in gaps:
            print(f"not noticed  {mutant}")
        print(report.row(name, results) + (f" {results.untried} untried" if results.untried else ""), flush=True)
        if given.write:
            report.write({name: results})
        enough &= not gaps if lines is not None else report.share(results) >= report.ENOUGH
    return 0 if enough else 1


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]
    raise SystemExit(main())
