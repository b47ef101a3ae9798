"""One table of measurements: what was measured, the target, and whether it was met; and two tables side by side."""

import json
import math
import operator
import platform
import subprocess
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from rich.console import Console
from rich.table import Table as Printed

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Row:
    """A measurement. `at_most` and `at_least` are targets; without either, the number is only shown.

    Where the benchmark failed, `measured` is None and `error` says why.
    """

    name: str
    measured: float | None
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    seconds: float | None = None  # if `measured` is a ratio of times
    error: str | None = None

    @property
    def target(self) -> str:
        limits = (("at least", self.at_least), ("at most", self.at_most))
        return ", ".join(f"{word} {limit:g}" for word, limit in limits if limit is not None)

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "FAILED"
        limits = ((self.at_most, operator.le), (self.at_least, operator.ge))
        met = [holds(self.measured, limit) for limit, holds in limits if limit is not None]
        return "" if not met else "ok" if all(met) else "MISSED"

    @property
    def number(self) -> str:
        return self.error or "failed" if self.measured is None else f"{self.measured:.3g} {self.unit}"


@dataclass
class Table:
    """Rows as they are measured; each is also printed at once, since a whole benchmark takes minutes."""

    rows: list[Row] = field(default_factory=list)

    def add(self, name, measured, unit, *, at_most=None, at_least=None, seconds=None):
        self._append(Row(name, float(measured), unit, at_most, at_least, seconds))

    def fail(self, name, error):
        """Record a benchmark that raised an error."""
        self._append(Row(name, None, "", error=f"{type(error).__name__}: {error}".splitlines()[0]))

    def _append(self, row):
        self.rows.append(row)
        Console(stderr=True).print(f"{row.name}: {row.number} {row.verdict}", highlight=False)

    @property
    def failed(self) -> bool:
        return any(row.measured is None for row in self.rows)

    def show(self):
        printed = Printed("what", "measured", "target", "verdict", "seconds")
        for row in self.rows:
            seconds = "" if row.seconds is None else f"{row.seconds:.3f}"
            printed.add_row(row.name, row.number, row.target, row.verdict, seconds)
        Console(width=150).print(printed)
        missed = sum(row.verdict == "MISSED" for row in self.rows)
        failed = sum(row.measured is None for row in self.rows)
        with_target = sum(bool(row.target) for row in self.rows)
        print(f"{missed} of {with_target} targets missed" + (f", {failed} benchmarks FAILED" if failed else ""))

    def write(self, path):
        """Write the table as JSON, with the commit and the machine."""
        about = {"commit": commit(), "machine": platform.machine(), "python": platform.python_version()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(about | {"rows": [asdict(row) for row in self.rows]}, indent=1) + "\n")


def read(path):
    """Return the rows of a table by name. What another version of this file wrote besides is not read."""
    known = {each.name for each in fields(Row)}
    rows = json.loads(Path(path).read_text())["rows"]
    return {row["name"]: Row(**{name: value for name, value in row.items() if name in known}) for row in rows}


@dataclass(frozen=True)
class Line:
    """A benchmark on two commits. `ratio` is this / base, or None where there is nothing to divide."""

    name: str
    base: str
    this: str
    ratio: float | None
    note: str


def compared(base, this):
    """Return a `Line` for every benchmark of either table: those of `this` in their order, then those of base only."""
    lines = []
    for name in [*this, *(name for name in base if name not in this)]:
        before, after = base.get(name), this.get(name)
        note = "only in base" if after is None else after.verdict if before is not None else "new"
        if before is not None and after is not None and before.verdict not in ("", after.verdict):
            note = f"{note}, was {before.verdict}"
        lines.append(
            Line(
                name,
                "" if before is None else before.number,
                "" if after is None else after.number,
                _ratio(before, after),
                note,
            )
        )
    return lines


def _ratio(before, after):
    if before is None or after is None or before.unit != after.unit:
        return None
    if before.measured is None or after.measured is None or not before.measured > 0 or not after.measured >= 0:
        return None
    ratio = after.measured / before.measured
    return ratio if math.isfinite(ratio) else None


def show_compared(base, lines):
    printed = Printed("what", str(base), "this", "this / base", "verdict")
    for line in lines:
        printed.add_row(line.name, line.base, line.this, "" if line.ratio is None else f"{line.ratio:.2f}", line.note)
    Console(width=150).print(printed)


def write_compared(path, base, lines):
    """Write the comparison as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"base": str(base), "commit": commit(), "machine": platform.machine()}
    path.write_text(json.dumps(about | {"rows": [asdict(line) for line in lines]}, indent=1) + "\n")


def commit():
    run = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    return run.stdout.strip() or "unknown"
