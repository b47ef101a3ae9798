"""Spreads: the members that train on each bucket."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff.errors import InputError


def cyclic(n_buckets: int, offsets: ArrayLike) -> NDArray[np.int64]:
    """Return the spread of Finite Aggregation, in which bucket b reaches members (b + offset) mod n_buckets."""
    return (np.arange(n_buckets)[:, None] + np.asarray(offsets, dtype=np.int64)) % n_buckets


def disjoint(n_members: int) -> "Spread":
    """Return the spread in which bucket b reaches only member b."""
    return Spread.from_any(cyclic(n_members, [0]), n_members)


class Reach(NamedTuple):
    """A spread for kernels: the members of each bucket and the buckets of each member, as CSR arrays."""

    members_at: NDArray[np.int32]
    members: NDArray[np.int32]
    buckets_at: NDArray[np.int32]
    buckets: NDArray[np.int32]
    offsets: NDArray[np.int32]  # bucket b reaches (b + offset) mod n_buckets; empty if the spread is not cyclic
    largest: int  # number of members of the largest bucket
    n_unreached: int  # number of members that no bucket reaches


@dataclass(frozen=True, eq=False)
class Spread:
    """A validated spread, as CSR arrays of the members of each bucket and of the buckets of each member."""

    n_buckets: int
    n_members: int
    members_at: NDArray[np.int32]
    members: NDArray[np.int32]
    buckets_at: NDArray[np.int32]
    buckets: NDArray[np.int32]

    @classmethod
    def from_any(cls, spread: Any, n_members: int) -> "Spread":
        """Validate a spread for `n_members` members.

        `spread` is an integer array (n_buckets, d); a sequence with the members of each bucket, of any lengths; or a
        boolean array (n_buckets, n_members). In the last two, a bucket may reach no member.
        """
        if isinstance(spread, cls):
            if spread.n_members != n_members:
                raise InputError(
                    f"spread was made for {spread.n_members} members, but the scores have {n_members}: "
                    "use the spread that these members were trained with"
                )
            return spread
        sizes, members = _listed(spread, n_members)
        if not len(sizes):
            raise InputError("spread must have at least one bucket (one row per bucket), got none")
        outside = np.flatnonzero((members < 0) | (members >= n_members))
        rows: NDArray[np.int64] = np.repeat(np.arange(len(sizes)), sizes)
        if outside.size:
            at = outside[0]
            raise InputError(
                f"spread must name members 0 to {n_members - 1}, got {members[at]} in bucket {rows[at]}; for buckets "
                "that reach fewer members pass lists of different lengths or a boolean (n_buckets, n_members) array"
            )
        order = np.lexsort((members, rows))
        rows, members = rows[order], members[order]
        twice = np.flatnonzero((rows[1:] == rows[:-1]) & (members[1:] == members[:-1]))
        if twice.size:
            at = twice[0]
            raise InputError(
                "spread must name a member at most once per bucket, got member "
                f"{members[at]} twice in bucket {rows[at]}"
            )
        by_member = np.lexsort((rows, members))
        return cls(
            n_buckets=len(sizes),
            n_members=n_members,
            members_at=_starts(np.asarray(sizes)),
            members=members.astype(np.int32),
            buckets_at=_starts(np.bincount(members, minlength=n_members)),
            buckets=rows[by_member].astype(np.int32),
        )

    def reached(self, buckets: ArrayLike) -> NDArray[np.int64]:
        """Return the members that any of these buckets reaches, sorted and without duplicates."""
        chosen = [
            self.members[self.members_at[b] : self.members_at[b + 1]] for b in np.asarray(buckets, dtype=np.int64)
        ]
        return np.unique(np.concatenate([*chosen, np.empty(0, np.int32)])).astype(np.int64)

    @cached_property
    def largest(self) -> int:
        """Number of members of the largest bucket."""
        return int(np.diff(self.members_at).max())

    @cached_property
    def n_unreached(self) -> int:
        """Number of members that no bucket reaches."""
        return int((np.diff(self.buckets_at) == 0).sum())

    @cached_property
    def one_to_one(self) -> NDArray[np.int64] | None:
        """The bucket of each member if buckets and members correspond one to one, else None."""
        if self.n_buckets != self.n_members or self.largest != 1 or self.n_unreached:
            return None
        return self.buckets.astype(np.int64)

    @cached_property
    def offsets(self) -> NDArray[np.int32]:
        """The offsets of a cyclic spread; empty if the spread is not cyclic."""
        n, d = self.n_buckets, self.largest
        none = np.empty(0, np.int32)
        if n != self.n_members or len(self.members) != n * d or d == 0:
            return none
        offsets = self.members[:d]
        cycle = np.sort(cyclic(n, offsets), axis=1)
        return offsets if np.array_equal(cycle, self.members.reshape(n, d)) else none

    @cached_property
    def reach(self) -> Reach:
        """The spread in the form for kernels."""
        csr = (self.members_at, self.members, self.buckets_at, self.buckets)
        return Reach(*csr, self.offsets, self.largest, self.n_unreached)


def _starts(sizes: NDArray[Any]) -> NDArray[np.int32]:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)


def _listed(spread: Any, n_members: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the size of each bucket, and the members of all buckets in one array."""
    expected = "spread must be an integer array (n_buckets, d)"
    if not isinstance(spread, np.ndarray) and isinstance(spread, Sequence) and not isinstance(spread, str):
        if not all(isinstance(bucket, Iterable) and not isinstance(bucket, str) for bucket in spread):
            raise InputError(f"{expected} or a sequence of members per bucket, got {spread!r:.80}")
        buckets = []
        for b, bucket in enumerate(spread):
            try:
                buckets.append(np.asarray(bucket))
            except (ValueError, OverflowError):
                raise InputError(f"{expected} or a sequence of members per bucket, got {bucket!r:.80}") from None
            if buckets[b].ndim != 1 or (buckets[b].size and buckets[b].dtype.kind not in "iu"):
                got = f"shape {buckets[b].shape} and dtype {buckets[b].dtype}"
                raise InputError(f"{expected} or a boolean array (n_buckets, n_members), got bucket {b} of {got}")
        members = np.concatenate([np.empty(0, np.int64), *(b.astype(np.int64) for b in buckets)])
        return np.array([bucket.size for bucket in buckets], dtype=np.int64), members
    array = np.asarray(spread)
    if array.ndim != 2:
        raise InputError(f"{expected}, got shape {array.shape}")
    if array.dtype == np.bool_:
        names = list(getattr(spread, "columns", range(n_members)))
        if names != list(range(len(names))):
            raise InputError(
                "a boolean spread takes members by position, and the columns of this table must be named 0, 1, ..., "
                f"got {names!s:.60}: order them as the scores' members and pass spread.to_numpy()"
            )
        if array.shape[1] != n_members:
            raise InputError(
                f"a boolean spread must have one column for each of the {n_members} members, got shape {array.shape}"
            )
        return array.sum(axis=1, dtype=np.int64), np.nonzero(array)[1].astype(np.int64)
    if array.dtype.kind not in "iu":
        raise InputError(f"{expected}, got dtype {array.dtype}")
    return np.full(array.shape[0], array.shape[1], dtype=np.int64), array.reshape(-1).astype(np.int64)
