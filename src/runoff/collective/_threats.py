"""Threats of all inputs that an attack may flip, as arrays, and the evaluation of attacks on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from runoff.elections.base import Threat
    from runoff.spreads import Spread

CHUNK = 2**24  # numbers at a time when attacks are evaluated


def incidence(spread: Spread) -> NDArray[np.float32]:
    """Return the members that each bucket reaches, as 1 or 0, (n_buckets, n_members)."""
    reaches = np.zeros((spread.n_buckets, spread.n_members), np.float32)
    reaches[np.repeat(np.arange(spread.n_buckets), np.diff(spread.members_at)), spread.members] = 1
    return reaches


def by_bucket(powers: NDArray[Any], spread: Spread) -> NDArray[Any]:
    """Return the powers of buckets, the sums over their members, (rows, n_buckets)."""
    if spread.one_to_one is not None:
        sums: NDArray[Any] = powers[:, spread.members]
    else:
        sums = powers.astype(np.float32) @ incidence(spread).T
    return sums


def best_sums(powers: NDArray[Any], edits: int, spread: Spread) -> NDArray[Any]:
    """Return for each row the sum of the largest powers of `edits` buckets, which no attack exceeds (Lemma 3.7)."""
    cut = max(0, spread.n_buckets - edits)
    sums = np.partition(by_bucket(powers, spread), min(cut, spread.n_buckets - 1), axis=1)
    best: NDArray[Any] = sums[:, cut:].sum(axis=1)
    return best


@dataclass(frozen=True, eq=False)
class Contested:
    """The inputs that some attack on `edits` buckets may flip, with the threats that it may meet.

    Rows are grouped by threat, and threats by input: `rows_at[t]` is the first row of threat t, `threats_at[i]` the
    first threat of contested input i.
    """

    inputs: NDArray[np.int64]
    powers: NDArray[np.float32]  # (rows, n_members), small integers
    gaps: NDArray[np.float32]
    rows_at: NDArray[np.int64]
    threats_at: NDArray[np.int64]
    spread: Spread

    def __len__(self) -> int:
        return len(self.inputs)

    @classmethod
    def collect(cls, threats: Iterable[tuple[int, Iterable[Threat]]], edits: int, spread: Spread) -> Contested:
        """Collect the threats that `edits` buckets might meet, from pairs of an input and its threats."""
        inputs: list[int] = []
        powers: list[NDArray[Any]] = [np.empty((0, spread.n_members), np.float32)]
        gaps: list[NDArray[Any]] = [np.empty(0, np.float32)]
        rows: list[int] = []
        counts: list[int] = []
        for i, ways in threats:
            kept = 0
            seen: set[bytes] = set()
            for threat in ways:
                power, gap = threat.powers, threat.gaps
                if not len(gap):  # every attack meets it
                    power, gap = np.zeros((1, spread.n_members), np.int32), np.zeros(1, np.int32)
                key = gap.tobytes() + power.tobytes()
                if key in seen or (best_sums(power, edits, spread) < gap).any():
                    continue
                seen.add(key)
                powers.append(power.astype(np.float32))
                gaps.append(gap)
                rows.append(len(gap))
                kept += 1
            if kept:
                inputs.append(i)
                counts.append(kept)
        return cls(
            inputs=np.array(inputs, np.int64),
            powers=np.concatenate(powers).astype(np.float32),
            gaps=np.concatenate(gaps).astype(np.float32),
            rows_at=np.cumsum([0, *rows]),
            threats_at=np.cumsum([0, *counts]),
            spread=spread,
        )

    def within(self, edits: int, may_flip: NDArray[np.bool_]) -> Contested:
        """Return the inputs that `may_flip`, with the threats that fewer buckets might meet."""
        possible = best_sums(self.powers, edits, self.spread) >= self.gaps if len(self) else np.empty(0, np.bool_)
        keep = np.logical_and.reduceat(possible, self.rows_at[:-1]) if len(self) else possible
        keep &= np.repeat(may_flip, np.diff(self.threats_at))
        kept = np.add.reduceat(keep.astype(np.int64), self.threats_at[:-1]) if len(self) else np.empty(0, np.int64)
        rows = np.repeat(keep, np.diff(self.rows_at))
        return Contested(
            inputs=self.inputs[kept > 0],
            powers=self.powers[rows],
            gaps=self.gaps[rows],
            rows_at=np.concatenate([[0], np.cumsum(np.diff(self.rows_at)[keep])]),
            threats_at=np.concatenate([[0], np.cumsum(kept[kept > 0])]),
            spread=self.spread,
        )

    def flips(self, attacks: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the inputs that each attack flips, (n_attacks, n_inputs), for attacks (n_attacks, n_buckets)."""
        if not len(self):
            return np.zeros((len(attacks), 0), np.bool_)
        members = (attacks.astype(np.float32) @ incidence(self.spread)) > 0
        met = members.astype(np.float32) @ self.powers.T >= self.gaps
        ways = np.logical_and.reduceat(met, self.rows_at[:-1], axis=1)
        return np.logical_or.reduceat(ways, self.threats_at[:-1], axis=1)

    def count(self, attacks: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the number of inputs that each attack flips."""
        step = max(1, CHUNK // max(1, len(self.gaps)))
        parts = [self.flips(attacks[a : a + step]).sum(axis=1) for a in range(0, len(attacks), step)]
        return np.concatenate(parts).astype(np.int64)
