"""Tables of the paper: certified accuracy in percent, and the settings of each row."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field, replace
from importlib import resources

from runoff.recipes import PAPERS

BASES = ("DPA", "DPA*", "FA")
# A mirrored digit or sign may be another class, so only CIFAR-10 is flipped.
RECIPES = {"cifar10": "paper", "mnist": "paper-no-flip", "gtsrb": "paper-no-flip"}


def recipe_for(dataset: str, recipe: str | None) -> str:
    """Return the recipe for a dataset, by default that of the paper; without flips if the dataset has none."""
    chosen = recipe or RECIPES[dataset]
    unflipped = f"{chosen}-no-flip"
    return unflipped if RECIPES[dataset].endswith("-no-flip") and unflipped in PAPERS else chosen


@dataclass(frozen=True)
class Row:
    """A row of a table, with `percent` and `std` by number of edits; only table 6, with repeated trials, has `std`.

    The last column of table 6 is headed 22 edits, but its numbers are those of 20 edits in the other tables.
    """

    table: str
    dataset: str
    k: int
    method: str
    d: int
    percent: dict[int, float] = field(hash=False)
    std: dict[int, float] = field(hash=False)
    printed_d: int | None = None  # d of the printed numbers, if it differs

    def at(self, d: int) -> Row:
        """Return the row with another d than in the paper, to train fewer networks."""
        return self if self.base == "DPA" or self.d == d else replace(self, d=d, printed_d=self.d)

    @property
    def base(self) -> str:
        """Method without the election."""
        return self.method.removesuffix("+ROE")

    @property
    def election(self) -> str:
        """Name of the election: run-off for ROE, else plurality."""
        return election_of(self.method)

    @property
    def spread(self) -> int:
        """Number of members per bucket."""
        return self.d if self.base == "FA" else 1

    @property
    def n_seeds(self) -> int:
        """Number of networks per member."""
        return self.d if self.base == "DPA*" else 1

    @property
    def n_networks(self) -> int:
        """Number of networks of the ensemble."""
        return self.k * self.d

    @property
    def trials(self) -> int:
        """Number of ensembles that are averaged: table 6 has 16 for DPA and 4 for FA."""
        return 1 if self.table != "T6" else 16 if self.base == "DPA" else 4

    @property
    def run(self) -> str:
        """Name of the run, which rows with the same members share."""
        return f"{self.dataset}-k{self.k}-d{self.spread}"


def election_of(method: str) -> str:
    """Return the name of the election of a method."""
    return "runoff" if method.endswith("+ROE") else "plurality"


def rows(
    table: str | None = None, dataset: str | None = None, k: int | None = None, method: str | None = None
) -> list[Row]:
    """Return the matching rows, those with the fewest networks first."""
    by_key: dict[tuple[str, str, int, str, int], Row] = {}
    text = resources.files("runoff.paper").joinpath("tables.csv").read_text(encoding="utf-8")
    for line in csv.DictReader(text.splitlines()):
        key = (line["table"], line["dataset"], int(line["k"]), line["method"], int(line["d"]))
        row = by_key.setdefault(key, Row(*key, percent={}, std={}))
        row.percent[int(line["budget"])] = float(line["percent"])
        if line["std"]:
            row.std[int(line["budget"])] = float(line["std"])
    wanted = {"table": table, "dataset": dataset, "k": k, "method": method}
    matching = [r for r in by_key.values() if all(v is None or getattr(r, name) == v for name, v in wanted.items())]
    return sorted(
        matching, key=lambda r: (r.n_networks * RELATIVE[r.dataset] // r.k, r.dataset, r.k, r.method, r.table)
    )


RELATIVE = {"mnist": 1, "cifar10": 2, "gtsrb": 3}  # rough cost of a network on the same share of the data
