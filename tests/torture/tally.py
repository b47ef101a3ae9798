"""Counts of cases and failures: one line per kind of case, and descriptions of the first few failures."""

from collections.abc import Iterable
from dataclasses import dataclass, field

EXAMPLES = 5


@dataclass
class Line:
    """One kind of case."""

    tried: int = 0
    failed: int = 0
    examples: list[str] = field(default_factory=list)


@dataclass
class Tally:
    """The lines of a part."""

    lines: dict[str, Line] = field(default_factory=dict)

    def add(self, what: str, tried: int = 1) -> None:
        """Count successful cases of one kind."""
        self.lines.setdefault(what, Line()).tried += tried

    def fail(self, what: str, example: str, tried: int = 0) -> None:
        """Count a failure, of a case that was counted as tried already unless `tried` says otherwise."""
        line = self.lines.setdefault(what, Line())
        line.tried += tried
        line.failed += 1
        if len(line.examples) < EXAMPLES:
            line.examples.append(example)

    def check(self, what: str, good: bool, example: str) -> bool:
        """Count a case, and its failure unless it is good."""
        self.add(what)
        if not good:
            self.fail(what, example)
        return good

    def merge(self, others: Iterable["Tally"]) -> "Tally":
        """Add the tally of another process."""
        for other in others:
            for what, line in other.lines.items():
                own = self.lines.setdefault(what, Line())
                own.tried += line.tried
                own.failed += line.failed
                own.examples = [*own.examples, *line.examples][:EXAMPLES]
        return self

    @property
    def failed(self) -> int:
        """Failures of all kinds."""
        return sum(line.failed for line in self.lines.values())
