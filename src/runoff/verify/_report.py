"""Reports of a verification: what was checked, what was not, and what is wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from runoff._io.text import one_line

CERTIFICATE, FILES = 3, 4  # exit codes
SHOWN = 5  # failures of one kind that are listed
LONGEST = 600  # characters of each half of an entry, which may quote names from hostile files


def counted(n: int, noun: str) -> str:
    """Return a number with its noun, as in 1 member or 2 members."""
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


@dataclass(frozen=True)
class Failure:
    """A claim that does not hold: `where` names the file, the member or the input."""

    code: int
    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


@dataclass
class Report:
    """The result of a verification."""

    subject: str
    checked: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)  # recorded in an attestation

    @property
    def exit_code(self) -> int:
        """Exit code: 0 if nothing is wrong, 4 if files do not match, 3 if a certificate is wrong."""
        return max((failure.code for failure in self.failures), default=0)

    def passed(self, what: str) -> None:
        """Record a check that passed."""
        self.checked.append(what)

    def skipped(self, what: str, why: str) -> None:
        """Record a check that was skipped, and the reason."""
        self.not_checked.append(f"{one_line(what, LONGEST)}: {one_line(why, LONGEST)}")

    def failed(self, code: int, where: str, what: str) -> None:
        """Record a failure."""
        self.failures.append(Failure(code, one_line(where, LONGEST), one_line(what, LONGEST)))

    def files(self, where: str, what: str) -> None:
        """Record a file that does not match."""
        self.failed(FILES, where, what)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        return {
            "subject": self.subject,
            "exit_code": self.exit_code,
            "checked": self.checked,
            "not_checked": self.not_checked,
            "failures": [{"exit_code": f.code, "where": f.where, "what": f.what} for f in self.failures],
            **self.facts,
        }
