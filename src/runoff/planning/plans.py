"""A plan: estimates of certified accuracy for each choice of a number of partitions and an election."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from runoff import elections
from runoff._io.units import Unit, unit_of
from runoff.errors import InputError, MissingExtraError
from runoff.planning.estimates import Estimate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Choice:
    """A number of partitions with an election, and what to expect of it.

    Attributes
    ----------
    n_partitions, election : settings for `RunoffClassifier`
    samples_per_member : the mean number of training samples of a member
    largest_radius : the radius of an input on which all members agree, whatever the tie rule
    estimate : the `Estimate` of certified accuracy by number of edits, with standard errors
    balance : a sentence on how evenly the samples are divided among members, and among sources
    unit : what one edit is, as in `Certificates`

    """

    n_partitions: int
    election: str
    samples_per_member: float
    largest_radius: int
    estimate: Estimate
    balance: str = ""
    unit: str = "samples"

    def certified(self, budget: int) -> tuple[float, float]:
        """Return the estimated certified accuracy for a number of edits, and its standard error."""
        at = np.flatnonzero(self.estimate.budgets == budget)
        if not at.size:
            known = ", ".join(map(str, self.estimate.budgets))
            raise InputError(f"budget must be one of those planned for ({known}), got {budget}: pass it to plan")
        return float(self.estimate.certified[at[0]]), float(self.estimate.errors[at[0]])

    def __str__(self) -> str:
        return f"n_partitions={self.n_partitions}, election={self.election!r}: {self.estimate}"


@dataclass(frozen=True, eq=False)
class Plan(Sequence[Choice]):
    """Choices of a number of partitions and an election, to be printed, compared, or turned into a DataFrame.

    Attributes
    ----------
    choices : a `Choice` for each number of partitions and election
    left_out : why other numbers of partitions were not tried

    """

    choices: tuple[Choice, ...]
    left_out: dict[int, str]

    @property
    def _unit(self) -> Unit:
        return unit_of(self.choices[0].unit)

    def __len__(self) -> int:
        return len(self.choices)

    def __getitem__(self, i: Any) -> Any:
        return self.choices[i]

    def __iter__(self) -> Iterator[Choice]:
        return iter(self.choices)

    def best(self, budget: int) -> Choice:
        """Return the choice with the largest estimate for a number of edits.

        Of equal ones, that with fewer partitions, and the default election.
        """

        def merit(choice: Choice) -> tuple[float, int, bool]:
            return choice.certified(budget)[0], -choice.n_partitions, choice.election == elections.DEFAULT

        best = max(self.choices, key=merit)
        if not best.certified(budget)[0]:
            raise InputError(
                f"no choice certifies any training sample for {self._unit.count(budget)}: try more partitions (at "
                f"least {2 * budget + 1}), which need more samples or members that learn from fewer"
            )
        return best

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each number of partitions, election and number of edits.

        `attrs["unit"]` is what one edit is.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError("to_frame needs pandas. Install it with: pip install pandas") from None
        rows = [
            {
                "n_partitions": choice.n_partitions,
                "election": choice.election,
                "budget": int(budget),
                "certified_accuracy": certified,
                "standard_error": error,
                "samples_per_member": choice.samples_per_member,
                "member_accuracy": choice.estimate.members,
            }
            for choice in self.choices
            for budget, certified, error in zip(
                choice.estimate.budgets, choice.estimate.certified, choice.estimate.errors, strict=True
            )
        ]
        frame = pd.DataFrame(rows)
        frame.attrs["unit"] = self._unit.name
        return frame

    def __str__(self) -> str:
        first = self.choices[0].estimate
        edits = first.budgets.tolist()
        best = {e: max(choice.certified(e)[0] for choice in self.choices) for e in edits}
        mean = ", mean of the classes," if first.balanced else ""
        lines = [
            f"Estimated certified accuracy in %{mean} by number of {self._unit.noun}s, on {first.n_samples:,} training "
            "samples, each without the members that have seen it",
            *([] if self._unit.name == "samples" else [self._unit.definition]),
            "",
            f"{'n_partitions':>12}  {'samples':>7}  {'member':>6}  {'election':9}"
            + "".join(f"{e:>7} " for e in edits).rstrip(),
        ]
        for i, choice in enumerate(self.choices):
            new = i == 0 or self.choices[i - 1].n_partitions != choice.n_partitions
            head = (
                f"{choice.n_partitions:>12}  {choice.samples_per_member:>7.0f}  {100 * choice.estimate.members:>6.1f}"
            )
            cells = [
                f"{100 * value:>7.1f}{'*' if value == best[e] > 0 else ' '}"
                for e, value in zip(edits, choice.estimate.certified.tolist(), strict=True)
            ]
            lines.append(f"{head if new else '':<29}  {choice.election:9}{''.join(cells)}".rstrip())
        largest = max(float(choice.estimate.errors.max()) for choice in self.choices)
        lines.append("")
        lines.append("samples: per member. member: a member's accuracy in %. *: the best for that number of edits.")
        lines.append(f"Standard errors are at most {100 * largest:.1f} points.")
        lines += [self._advice(e) for e in edits if e]
        if self._unit.name == "sources":
            by_number = {choice.n_partitions: choice.balance for choice in self.choices}
            lines += [f"n_partitions={k}: {balance}" for k, balance in by_number.items()]
        lines += [f"n_partitions={k} is left out: {why}" for k, why in self.left_out.items()]
        return "\n".join(lines)

    def _advice(self, edits: int) -> str:
        try:
            best = self.best(edits)
        except InputError:
            return (
                f"{self._unit.count(edits)}: nothing is certified; try more partitions, more samples or better members"
            )
        certified, error = best.certified(edits)
        return (
            f"{self._unit.count(edits)}: n_partitions={best.n_partitions}, election={best.election!r} "
            f"({100 * certified:.1f} % ± {100 * error:.1f})"
        )
