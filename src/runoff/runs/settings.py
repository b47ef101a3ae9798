"""The settings of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runoff import hashing, recipes
from runoff._io.text import count
from runoff.partition import Partition


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Everything but the samples that determines the members of a run. The number of seeds may grow."""

    dataset: str
    fingerprint: str  # of the dataset
    n_partitions: int
    spread: int = 1
    network: str = "nin"
    recipe: dict[str, Any]
    hash: str = "content"
    random_state: int = 0
    first_weights: dict[str, str] | None = None  # initial weights: "given" (a name or path) and "sha256"
    unit: str = "samples"  # what one edit is
    encoder: dict[str, Any] | None = None  # whose features heads are trained on: "given", "sha256", "flip"

    def describe(self) -> str:
        """Return a one-line description of the settings."""
        d = f", d = {self.spread}" if self.spread > 1 else ""
        start = f" from {Path(self.first_weights['given']).name} weights" if self.first_weights else ""
        by = "" if self.unit == "samples" else f", {self.unit} counted"
        if self.encoder is not None:
            members = f"{self.network} heads on {Path(self.encoder['given']).name}"
        else:
            name, epochs = recipes.named(self.recipe)
            members = f"{self.network}{start}, recipe {name or 'another'}"
            members += "" if epochs is None else f" with {count(epochs, 'epoch')}"
        return f"{self.dataset}, k = {self.n_partitions}{d}, {members}, hash {self.hash}{by}"

    def to_dict(self) -> dict[str, Any]:
        """Return the settings for a manifest, without later additions that have their default value."""
        off = (("unit", "samples"), ("encoder", None))
        return {name: value for name, value in asdict(self).items() if (name, value) not in off}

    def make_partition(self) -> Partition:
        """Return the partition that follows from these settings, with the key derived from the seed."""
        key = hashing.derived_key(self.random_state)
        return Partition.make(self.n_partitions, self.spread, self.random_state, key, self.hash, self.unit)
