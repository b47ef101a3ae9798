"""One table of measurements: what was measured, the target, and whether it was met."""

import json
import operator
import platform
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table as Printed

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Row:
    """A measurement. `at_most` and `at_least` are targets; without either, the number is only shown."""

    name: str
    measured: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    seconds: float | None = None  # if `measured` is a ratio of times

    @property
    def target(self) -> str:
        if self.at_most is not None:
            return f"at most {self.at_most:g}"
        return "" if self.at_least is None else f"at least {self.at_least:g}"

    @property
    def verdict(self) -> str:
        for limit, met in ((self.at_most, operator.le), (self.at_least, operator.ge)):
            if limit is not None:
                return "ok" if met(self.measured, limit) else "MISSED"
        return ""

    @property
    def number(self) -> str:
        return f"{self.measured:.3g} {self.unit}"


@dataclass
class Table:
    """Rows as they are measured; each is also printed at once, since a whole benchmark takes minutes."""

    rows: list[Row] = field(default_factory=list)

    def add(self, name, measured, unit, *, at_most=None, at_least=None, seconds=None):
        self.rows.append(Row(name, float(measured), unit, at_most, at_least, seconds))
        Console(stderr=True).print(f"{name}: {self.rows[-1].number} {self.rows[-1].verdict}", highlight=False)

    def show(self):
        printed = Printed("what", "measured", "target", "verdict", "seconds")
        for row in self.rows:
            seconds = "" if row.seconds is None else f"{row.seconds:.3f}"
            printed.add_row(row.name, row.number, row.target, row.verdict, seconds)
        Console(width=150).print(printed)
        missed = sum(row.verdict == "MISSED" for row in self.rows)
        print(f"{missed} of {sum(bool(row.verdict) for row in self.rows)} targets missed")

    def write(self, path):
        """Write the table as JSON, with the commit and the machine."""
        about = {"commit": commit(), "machine": platform.machine(), "python": platform.python_version()}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(about | {"rows": [asdict(row) for row in self.rows]}, indent=1) + "\n")


def read(path):
    return {row["name"]: Row(**row) for row in json.loads(path.read_text())["rows"]}


def commit():
    run = subprocess.run(
        ["git", "describe", "--always", "--dirty"],  # noqa: S607
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    return run.stdout.strip() or "unknown"
