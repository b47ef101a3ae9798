"""Partitions: which bucket a sample falls into, and which members learn from a bucket."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff import hashing, spreads
from runoff.errors import InputError
from runoff.samples import Samples

HASHES = ("content", "pixel-sum")


@dataclass(frozen=True)
class Partition:
    """k * d buckets, each spread to d of k * d members: (bucket + offset) mod k * d for d fixed offsets.

    `d = 1` is DPA: every member has one bucket of its own. `d > 1` is FA: a member sees d buckets, as many samples as
    with d = 1, in d times as many members.
    """

    n_partitions: int
    d: int
    offsets: tuple[int, ...]
    key: hashing.Key = field(repr=False)
    hash: str | Callable[[Any], Any] = "content"

    @classmethod
    def make(
        cls, n_partitions: int, d: int, seed: int, key: hashing.Key, hash: str | Callable[[Any], Any] = "content"
    ) -> Partition:
        """Offsets are drawn once from the seed and kept: they are part of what the members are."""
        draw = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
        offsets = sorted(int(o) for o in draw.permutation(n_partitions * d)[:d]) if d > 1 else [0]
        return cls(n_partitions, d, tuple(offsets), key, hash)

    @property
    def n_members(self) -> int:
        """As many as there are buckets."""
        return self.n_partitions * self.d

    @cached_property
    def spread(self) -> NDArray[np.int64]:
        """Which members learn from each bucket, (n_members, d)."""
        return spreads.cyclic(self.n_members, self.offsets)

    @cached_property
    def fingerprint(self) -> str:
        """Stands for the whole partition, the key included (as a digest). It travels with scores and certificates."""
        name = self.hash if isinstance(self.hash, str) else f"{self.hash.__module__}.{self.hash.__qualname__}"
        key = hashlib.sha256(b"runoff fingerprint" + self.key).hexdigest()
        told = json.dumps([self.n_partitions, self.d, list(self.offsets), name, key])
        return hashlib.sha256(told.encode()).hexdigest()

    def balance(self, sizes: NDArray[np.int64]) -> str:
        """How evenly samples fall on members, in words."""
        return (
            f"{self.n_members} members, each bucket in {self.d}: {sizes.min()} to {sizes.max()} samples a member, "
            f"{sizes.mean():.1f} on average, {np.count_nonzero(sizes == 0)} without any"
        )

    def digests(self, samples: Samples) -> hashing.Digests:
        """Each sample's content in 128 bits: what members' samples are sorted by."""
        return hashing.digests(samples.content(), self.key)

    def buckets(self, samples: Samples, digests: hashing.Digests) -> NDArray[np.int64]:
        """Each sample's bucket, a function of its own content."""
        if self.hash == "content":
            values = digests[:, 0]
        elif self.hash == "pixel-sum":
            values = samples.pixel_sums()[:, 0]
        elif callable(self.hash):
            given = np.asarray(self.hash(samples.data))
            if given.shape != (len(samples),) or given.dtype.kind not in "iu" or (given < 0).any():
                raise InputError(
                    f"hash must give one whole number, not negative, for each of {len(samples)} samples, got shape "
                    f"{given.shape} and dtype {given.dtype}"
                )
            values = given.astype(np.uint64)
        else:
            raise InputError(f"hash must be one of {', '.join(map(repr, HASHES))} or a function, got {self.hash!r}")
        return (values % np.uint64(self.n_members)).astype(np.int64)

    def rows(
        self, buckets: NDArray[np.int64], digests: hashing.Digests, labels: NDArray[np.int64]
    ) -> list[NDArray[np.int64]]:
        """Each member's samples, sorted by content, then by label.

        Equal samples are interchangeable, so the order is a function of the set.
        """
        order = np.lexsort((labels, digests[:, 1], digests[:, 0])).astype(np.int64)
        by_bucket = np.argsort(buckets[order], kind="stable")
        ends = np.searchsorted(buckets[order][by_bucket], np.arange(self.n_members + 1))
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        own = []
        for member in range(self.n_members):
            sources = (member - np.array(self.offsets)) % self.n_members
            mine = np.concatenate([order[by_bucket[ends[b] : ends[b + 1]]] for b in sources])
            own.append(mine[np.argsort(place[mine], kind="stable")])
        return own

    @staticmethod
    def training_sets(rows: list[NDArray[np.int64]], digests: hashing.Digests, codes: NDArray[np.int64]) -> list[str]:
        """Return a SHA-256 of each member's training set: its samples' digests and class codes, in their order.

        It says nothing about the samples to those who do not know the key.
        """
        packed = np.empty((len(codes), 3), "<u8")
        packed[:, :2], packed[:, 2] = digests, codes.astype(np.int64).view(np.uint64)
        return [hashlib.sha256(packed[own].tobytes()).hexdigest() for own in rows]
