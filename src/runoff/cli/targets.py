"""Radii towards one target class, for the options `--to` and `--from`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from runoff._io.text import count
from runoff._io.units import unit_of
from runoff.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runoff.certificates import Certificates


@dataclass(frozen=True, eq=False)
class Target:
    """A target class, the inputs that count, and their proven radii.

    Attributes
    ----------
    to, source : class indices; `source` is None for all classes but `to`
    names : the printed names of both
    radius : `radius_to` of every input
    counted : which inputs count: those of the source by their labels, or without labels those not predicted as `to`
    labelled : whether `counted` follows from labels

    """

    to: int
    source: int | None
    names: tuple[str, str | None]
    radius: NDArray[np.int64]
    counted: NDArray[np.bool_]
    labelled: bool
    unit: str

    @classmethod
    def compute(
        cls,
        certificates: Certificates,
        array: NDArray[Any],
        labels: NDArray[Any] | None,
        classes: Sequence[str] | None,
        to: str,
        source: str | None,
    ) -> Target:
        """Compute the radii towards a class given by name or index."""
        n_classes = certificates.n_classes
        wanted = index_of(to, "--to", classes, n_classes)
        start = None if source is None else index_of(source, "--from", classes, n_classes)
        if start is not None and labels is None:
            raise InputError("--from selects inputs by their true class, so it needs --labels FILE")
        if start == wanted:
            raise InputError(f"--to and --from must be two classes, got {to!r} twice")
        counted = certificates.prediction != wanted
        if labels is not None:
            counted = labels != wanted if start is None else labels == start
            if start is not None and not counted.any():
                raise InputError(f"--from must be the class of at least one input, got {source!r}, which has no inputs")
        radius = certificates.radius_to(wanted, array)

        def name(index: int) -> str:
            return str(index) if classes is None else classes[index]

        names = (name(wanted), None if start is None else name(start))
        return cls(wanted, start, names, radius, counted, labels is not None, certificates.unit)

    def rates(self, budgets: Sequence[int]) -> list[float]:
        """Return the share of the inputs that count that might be predicted as `to`, for each number of edits."""
        if not self.counted.any():
            return [0.0 for _ in budgets]
        return [float((self.radius[self.counted] < budget).mean()) for budget in budgets]

    def summary(self, budgets: Sequence[int]) -> dict[str, Any]:
        """Return the target and its rates for JSON."""
        return {
            "to": self.names[0],
            "from": self.names[1],
            "inputs": int(self.counted.sum()),
            "might_become": self.rates(budgets),
            "median_radius": float(np.median(self.radius[self.counted])) if self.counted.any() else None,
        }

    def title(self) -> str:
        """Return the heading of the column of rates."""
        return f"might become {self.names[0]}"

    def sentence(self) -> str:
        """Return a sentence that explains the rates."""
        inputs = count(int(self.counted.sum()), "input")
        which = f"{inputs} of class {self.names[1]}" if self.source is not None else f"{inputs} of other classes"
        if not self.labelled:
            which = f"{inputs} predicted as another class"
        unit = unit_of(self.unit)
        return (
            f"Might become {self.names[0]}: the share of {which} for which it is not proven that this many "
            f"{unit.noun}s cannot make the ensemble predict {self.names[0]}{unit.caveat}."
        )


def index_of(given: str, option: str, classes: Sequence[str] | None, n_classes: int) -> int:
    """Return the index of a class given by name, or by index if the classes have no names."""
    if classes is not None and given in classes:
        return list(classes).index(given)
    if classes is None and given.isascii() and given.isdigit() and len(given) < 9 and int(given) < n_classes:
        return int(given)
    what = f"one of {', '.join(classes)!s:.200}" if classes is not None else f"a class index from 0 to {n_classes - 1}"
    raise InputError(f"{option} must be {what}; got {given[:60]!r}")
