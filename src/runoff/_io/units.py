"""Units of edits, with the words that explanations, reports and commands print."""

from __future__ import annotations

from dataclasses import dataclass

from runoff._io.text import count
from runoff.errors import InputError


@dataclass(frozen=True)
class Unit:
    """The unit that a radius counts; `name` is the value of `certificates.unit`."""

    name: str
    noun: str  # of one edit
    definition: str
    axis: str  # of a chart
    limits: str = ""  # what the radius does not cover, printed with every radius

    @property
    def caveat(self) -> str:
        """The limits in brackets, with a leading space, or an empty string."""
        return f" ({self.limits})" if self.limits else ""

    @property
    def columns(self) -> dict[str, str]:
        """Columns of a table with a radius per row: the unit and what is not covered, none if radii count samples."""
        unit = {} if self.name == "samples" else {"unit": self.name}
        return unit | ({"limits": self.limits} if self.limits else {})

    def count(self, n: int) -> str:
        """Return a number of edits, as in 1 source or 2 sources."""
        return count(n, self.noun)

    def proven(self, radius: int, effect: str = "change this") -> str:
        """Return a sentence that states what a radius proves; `effect` is what no attack within it can do."""
        if not radius:
            return f"Nothing is proven: one {self.noun} might {effect}."
        which = f"single {self.noun}" if radius == 1 else f"{radius} {self.noun}s"
        return f"Proven: no {which}{self._scope(radius)} can {effect}{self.caveat}."

    def _scope(self, radius: int) -> str:
        if self.name == "sources":
            return ", whatever it contributes," if radius == 1 else " together, whatever they contribute,"
        return " of the training data" if self.name == "samples" else ""


UNITS = {
    unit.name: unit
    for unit in (
        Unit(
            "samples",
            "edit",
            "An edit inserts, deletes or relabels one training sample.",
            "edits of the training data",
        ),
        Unit(
            "sources",
            "source",
            "An edit is one source: all that it contributes may change, and sources may appear or vanish.",
            "corrupt sources",
        ),
        Unit(
            "labels",
            "changed label",
            "An edit changes the label of one training sample. Inserted and deleted samples are not covered.",
            "changed labels (inserted and deleted samples are not covered)",
            limits="inserted and deleted samples are not covered",
        ),
    )
}


def unit_of(name: str) -> Unit:
    """Return the unit of this name."""
    try:
        return UNITS[name]
    except (KeyError, TypeError):
        raise InputError(f"unit must be one of {', '.join(map(repr, UNITS))}, got {name!r}") from None
