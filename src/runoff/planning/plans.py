"""Plans: estimates of certified accuracy for each choice of a number of partitions and an election."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from runoff import elections
from runoff._io.text import count
from runoff._io.units import Unit, unit_of
from runoff.errors import InputError, MissingExtraError
from runoff.fitting.checking import IDLE
from runoff.planning import baseline
from runoff.planning.estimates import Estimate

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Choice:
    """A number of partitions and an election, with an estimate of certified accuracy.

    Attributes
    ----------
    n_partitions, election : settings for `RunoffClassifier`
    samples_per_member : the mean number of training samples of a member
    largest_radius : the radius of an input on which all members agree, for the less favourable tie
    estimate : the `Estimate` of certified accuracy by number of edits, with standard errors
    balance : a sentence on how evenly the samples are divided among members, and among sources
    unit : what one edit is, as in `Certificates`
    n_members, n_idle : the number of members, and of those that learn nothing: without samples, or with one class

    """

    n_partitions: int
    election: str
    samples_per_member: float
    largest_radius: int
    estimate: Estimate
    balance: str = ""
    unit: str = "samples"
    n_members: int = 0
    n_idle: int = 0

    @property
    def learns(self) -> bool:
        """Whether at least half of the members have samples of two classes or more."""
        return self.n_idle <= IDLE * self.n_members

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
    left_out : the reason for each number of partitions that was not tried
    undefended : the accuracy of one undefended model without an attack, and its standard error; NaN if unknown
    constant : the accuracy of always predicting the most frequent class, which few edits hardly change
    two_classes : whether there are two classes, so that all elections have the same winner

    """

    choices: tuple[Choice, ...]
    left_out: dict[int, str]
    undefended: tuple[float, float] = (np.nan, np.nan)
    constant: float = np.nan
    two_classes: bool = False

    @property
    def _unit(self) -> Unit:
        return unit_of(self.choices[0].unit)

    def __len__(self) -> int:
        return len(self.choices)

    def __getitem__(self, i: Any) -> Any:
        return self.choices[i]

    def best(self, budget: int) -> Choice:
        """Return the choice with the largest estimate for a number of edits.

        Ties go to fewer partitions, then to the default election. Choices for which most members learn nothing
        are excluded: their votes follow a fixed rule, and large radii mean little.
        """

        def merit(choice: Choice) -> tuple[float, int, bool]:
            return choice.certified(budget)[0], -choice.n_partitions, choice.election == elections.DEFAULT

        learning = [choice for choice in self.choices if choice.learns]
        if not learning:
            raise InputError(
                "no choice can be recommended, since most members learn nothing (no samples, or one class): use fewer "
                f"partitions than {min(choice.n_partitions for choice in self.choices):,}"
            )
        best = max(learning, key=merit)
        if not best.certified(budget)[0]:
            which = " whose members learn" if len(learning) < len(self.choices) else ""
            raise InputError(
                f"no choice{which} certifies any training sample for {self._unit.count(budget)}: try more partitions "
                f"(at least {2 * budget + 1}), which need more samples or members that learn from fewer"
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
                "idle_members": choice.n_idle,
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
        best = {e: max((c.certified(e)[0] for c in self.choices if c.learns), default=0) for e in edits}
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
                f"{100 * value:>7.1f}{'*' if choice.learns and value == best[e] > 0 else ' '}"
                for e, value in zip(edits, choice.estimate.certified.tolist(), strict=True)
            ]
            lines.append(f"{head if new else '':<29}  {choice.election:9}{''.join(cells)}".rstrip())
        largest = max(float(choice.estimate.errors.max()) for choice in self.choices)
        lines.append("")
        lines.append("samples: per member. member: a member's accuracy in %. *: the best for that number of edits.")
        lines.append(f"Standard errors are at most {100 * largest:.1f} points.")
        if self.two_classes:
            lines.append("Of two classes all elections elect the same one, so one of them stands for all.")
        lines += self._baselines()
        lines += self._idle()
        lines += [self._advice(e) for e in edits if e]
        if self._unit.name == "sources":
            by_number = {choice.n_partitions: choice.balance for choice in self.choices}
            lines += [f"n_partitions={k}: {balance}" for k, balance in by_number.items()]
        for why in dict.fromkeys(self.left_out.values()):
            numbers = [str(k) for k, reason in self.left_out.items() if reason == why]
            lines.append(f"n_partitions={', '.join(numbers)} {'is' if len(numbers) == 1 else 'are'} left out: {why}")
        return "\n".join(lines)

    def _baselines(self) -> list[str]:
        """Return the baselines of the table, as sentences."""
        accuracy, error = self.undefended
        lines = []
        if not np.isnan(accuracy):
            lines.append(f"{baseline.sentence(accuracy, error)}.")
        if not np.isnan(self.constant):
            what = (
                "Always predicting one class" if self.choices[0].estimate.balanced else "The most frequent class alone"
            )
            lines.append(f"{what}: {100 * self.constant:.1f} %.")
        return lines

    def _idle(self) -> list[str]:
        """Return a line for each number of partitions with members that learn nothing."""
        by_number = {choice.n_partitions: choice for choice in self.choices if choice.n_idle}
        lines = []
        for k, choice in by_number.items():
            verb = "learns" if choice.n_idle == 1 else "learn"
            of = f"{choice.n_idle:,} of {count(choice.n_members, 'member')} {verb}"
            end = "" if choice.learns else "; not recommended"
            lines.append(f"n_partitions={k}: {of} nothing (no samples, or one class){end}")
        return lines

    def _advice(self, edits: int) -> str:
        try:
            best = self.best(edits)
        except InputError as refusal:
            if not any(choice.learns for choice in self.choices):
                return f"{self._unit.count(edits)}: {refusal}"
            return (
                f"{self._unit.count(edits)}: nothing is certified; try more partitions, more samples or better members"
            )
        certified, error = best.certified(edits)
        advice = (
            f"{self._unit.count(edits)}: n_partitions={best.n_partitions}, election={best.election!r} "
            f"({100 * certified:.1f} % ± {100 * error:.1f})"
        )
        if certified - error <= self.constant:
            return f"{advice}, not clearly more than always predicting one class"
        return advice
