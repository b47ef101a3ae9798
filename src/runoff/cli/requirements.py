"""Requirements on the share of certified inputs, for use in scripts, and verdicts on them."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from runoff._io.text import count
from runoff._io.units import unit_of
from runoff.cli.errors import NotMet
from runoff.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from runoff.certificates import Certificates


@dataclass(frozen=True)
class Requirement:
    """A minimum percentage of inputs that must be certified (and correct) at a number of edits."""

    edits: int
    percent: float
    correct: bool

    def needed(self, total: int) -> int:
        """Return the smallest number of inputs that meets the percentage.

        The tolerance absorbs rounding: 1.1 % of 3,000 is 33, although 1.1 * 3000 exceeds 3300 in floating point.
        """
        return math.ceil(self.percent * total / 100 - 1e-9)


@dataclass(frozen=True)
class Verdict(Requirement):
    """The result of checking a requirement: the number of inputs that satisfy it, and whether it is met."""

    inputs: int
    of: int
    met: bool
    unit: str = "samples"

    def __str__(self) -> str:
        """Return the shortfall as a sentence."""
        what, unit = "certified and correct" if self.correct else "certified", unit_of(self.unit)
        return (
            f"{self.inputs:,} of {count(self.of, 'input')} ({100 * self.inputs / self.of:.2f} %) are {what} at "
            f"{unit.count(self.edits)}{unit.caveat}, required {self.percent:g} % ({self.needed(self.of):,})"
        )


def parsed(_ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> list[Requirement]:
    """Parse required percentages, as in 10:45% for 45 % at 10 edits; reject numbers that could be fractions."""
    return [_parsed(value, correct=param.name == "required") for value in values]


def _parsed(value: str, *, correct: bool) -> Requirement:
    edits, _, share = value.partition(":")
    number, _, rest = share.partition("%")
    try:
        requirement = Requirement(int(edits), float(number), correct)
    except ValueError:
        requirement = Requirement(-1, 0.0, correct)
    percent = requirement.percent
    if requirement.edits < 0 or rest.strip() or not 0 <= percent <= 100:
        expected = "EDITS:PERCENT with edits from 0 and a percentage from 0 to 100, as in 10:45%"
        raise click.BadParameter(f"expected {expected}; got {value[:60]!r}.")
    if 0 < percent <= 1 and "%" not in share:
        raise click.BadParameter(
            f"{value!r} is ambiguous: write {edits}:{100 * percent:g}% if it is a fraction, or {edits}:{percent:g}% if "
            "it is a percentage."
        )
    return requirement


def check_labels(required: Sequence[Requirement], labels: Any) -> None:
    """Raise an error if a requirement counts correct predictions and labels are unknown."""
    if required and labels is None:
        raise InputError(
            "--require counts correct predictions, so it needs --labels FILE; to count all certified predictions, "
            "including wrong ones, use --require-certified"
        )


def verdicts(
    requirements: Sequence[Requirement], certificates: Certificates, labels: NDArray[Any] | None
) -> list[Verdict]:
    """Return a verdict on each requirement, in the given order."""
    results, n = [], len(certificates)
    for requirement in requirements:
        good = certificates.radius >= requirement.edits
        if requirement.correct:
            good = good & np.asarray(certificates.prediction == labels)
        inputs = int(good.sum())
        met = inputs >= requirement.needed(n)
        results.append(Verdict(**asdict(requirement), inputs=inputs, of=n, met=met, unit=certificates.unit))
    return results


def summary(results: Sequence[Verdict]) -> dict[str, Any]:
    """Return the verdicts for JSON, where `met` is None if there are no requirements."""
    return {
        "requirements": [asdict(result) for result in results],
        "met": all(result.met for result in results) if results else None,
    }


def must_be_met(results: Sequence[Verdict]) -> None:
    """Raise `NotMet` with one sentence that lists every unmet requirement."""
    if missed := [result for result in results if not result.met]:
        which = f"{len(missed)} of {count(len(results), 'requirement')} not met: " if len(results) > 1 else ""
        raise NotMet(which + "; ".join(map(str, missed)))
