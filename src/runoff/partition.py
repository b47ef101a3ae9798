"""Partitions, which assign samples to buckets and buckets to members."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runoff import hashing, spreads
from runoff._io.text import count
from runoff.errors import InputError
from runoff.samples import Rows, Samples

HASHES = ("content", "pixel-sum")
PROBES = 8  # samples of each block that are also passed separately to a user's hash


def distinct(digests: hashing.Digests) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return one row per distinct content, sorted by digest, and the rank of the content of each sample among them."""
    _, rows, ranks = np.unique(digests, axis=0, return_index=True, return_inverse=True)
    return rows.astype(np.int64), ranks.reshape(-1).astype(np.int64)


@dataclass(frozen=True)
class Partition:
    """A division of samples into k * d buckets, each used by d of k * d members: (bucket + offset) mod k * d.

    `d = 1` is DPA, with one bucket per member. `d > 1` is FA: there are d times as many members, and a member trains on
    d buckets, with as many samples as for d = 1.
    """

    n_partitions: int
    d: int
    offsets: tuple[int, ...]
    key: hashing.Key = field(repr=False)
    hash: str | Callable[[Any], Any] = "content"
    unit: str = "samples"  # what one edit is

    @classmethod
    def make(
        cls,
        n_partitions: int,
        d: int,
        seed: int,
        key: hashing.Key,
        hash: str | Callable[[Any], Any] = "content",
        unit: str = "samples",
    ) -> Partition:
        """Return a partition whose offsets are drawn from the seed."""
        if unit != "samples" and hash != "content":
            raise InputError(f"hash must be 'content' if {unit} are counted, got {hash!r}: leave it out")
        n_partitions, d = int(n_partitions), int(d)  # NumPy's integers would be part of the fingerprint
        draw = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
        offsets = sorted(int(o) for o in draw.permutation(n_partitions * d)[:d]) if d > 1 else [0]
        return cls(n_partitions, d, tuple(offsets), key, hash, unit)

    @property
    def n_members(self) -> int:
        """Number of members, which equals the number of buckets."""
        return self.n_partitions * self.d

    @cached_property
    def spread(self) -> NDArray[np.int64]:
        """The members that learn from each bucket, (n_members, d)."""
        return spreads.cyclic(self.n_members, self.offsets)

    @cached_property
    def fingerprint(self) -> str:
        """The SHA-256 of the partition, including its key, recorded with scores and certificates."""
        name = self.hash if isinstance(self.hash, str) else f"{self.hash.__module__}.{self.hash.__qualname__}"
        key = hashlib.sha256(b"runoff fingerprint" + self.key).hexdigest()
        unit = [] if self.unit == "samples" else [self.unit]
        settings = json.dumps([self.n_partitions, self.d, list(self.offsets), name, key, *unit])
        return hashlib.sha256(settings.encode()).hexdigest()

    def balance(self, sizes: NDArray[np.int64], sources: tuple[int, float] | None = None, single: int = 0) -> str:
        """Return a sentence on how evenly samples are divided among members.

        `sources` is the number of sources, and the share of samples of the largest; `single` is the number of members
        with samples of one class.
        """
        by_source = (
            "" if sources is None else f"; {sources[0]:,} sources, the largest with {sources[1]:.1%} of the samples"
        )
        return (
            f"{count(self.n_members, 'member')}, each bucket in {self.d}: {sizes.min():,} to {sizes.max():,} samples "
            f"per member, {sizes.mean():,.1f} on average, {np.count_nonzero(sizes == 0):,} without any"
            f"{f', {single:,} with one class only' if single else ''}{by_source}"
        )

    @staticmethod
    def single_class(rows: list[NDArray[np.int64]], codes: NDArray[np.int64]) -> int:
        """Return the number of members whose samples all have the same class."""
        return sum(len(part) > 0 and bool((codes[part] == codes[part[0]]).all()) for part in rows)

    def digests(self, samples: Samples) -> hashing.Digests:
        """Return a 128-bit digest of the content of each sample, by which the samples of a member are sorted."""
        return hashing.digests(samples.content(), self.key)

    def sources(self, groups: Any, n: int) -> hashing.Digests:
        """Return the digest of the source of each of n samples."""
        return hashing.sources(groups, n, self.key)

    def buckets(
        self, samples: Samples, digests: hashing.Digests, sources: hashing.Digests | None = None
    ) -> NDArray[np.int64]:
        """Return the bucket of each sample, which depends only on its content or only on its source.

        If labels are counted, the samples must be all training samples: their distinct contents are sorted by digest
        and assigned to the buckets in turn, so that buckets have equal sizes. Labels are not used, and copies of a
        sample share a bucket.
        """
        if self.unit == "labels":
            ranks = distinct(digests)[1]
            return ranks % self.n_members
        if self.unit == "sources":
            if sources is None:
                raise InputError("buckets need the source of each sample here: pass groups, as in fit")
            values = sources[:, 0]
        elif self.hash == "content":
            values = digests[:, 0]
        elif self.hash == "pixel-sum":
            values = samples.pixel_sums()[:, 0]
        elif callable(self.hash):
            values = _hashed_by(self.hash, samples)
        else:
            raise InputError(f"hash must be one of {', '.join(map(repr, HASHES))} or a function, got {self.hash!r}")
        return (values % np.uint64(self.n_members)).astype(np.int64)

    def rows(
        self, buckets: NDArray[np.int64], digests: hashing.Digests, labels: NDArray[np.int64]
    ) -> list[NDArray[np.int64]]:
        """Return the rows of each member, sorted by content, then by label, an order that depends on the set only."""
        order = np.lexsort((labels, digests[:, 1], digests[:, 0])).astype(np.int64)
        by_bucket = np.argsort(buckets[order], kind="stable")
        ends = np.searchsorted(buckets[order][by_bucket], np.arange(self.n_members + 1))
        position = np.empty(len(order), np.int64)
        position[order] = np.arange(len(order))
        member_rows = []
        for member in range(self.n_members):
            sources = (member - np.array(self.offsets)) % self.n_members
            rows = np.concatenate([order[by_bucket[ends[b] : ends[b + 1]]] for b in sources])
            member_rows.append(rows[np.argsort(position[rows], kind="stable")])
        return member_rows

    @staticmethod
    def training_sets(rows: list[NDArray[np.int64]], digests: hashing.Digests, codes: NDArray[np.int64]) -> list[str]:
        """Return a SHA-256 of the training set of each member: digests and class codes of its samples, in order.

        It reveals nothing about the samples without the key.
        """
        packed = np.empty((len(codes), 3), "<u8")
        packed[:, :2], packed[:, 2] = digests, codes.astype(np.int64).view(np.uint64)
        return [hashlib.sha256(packed[member_rows].tobytes()).hexdigest() for member_rows in rows]


def _hashed_by(function: Callable[[Any], Any], samples: Samples) -> NDArray[np.uint64]:
    """Return a user's hash of each sample, which must depend on nothing but the sample.

    The function gets blocks of samples in a form that no other sample can change, and a few samples also separately.
    """
    values = np.empty(len(samples), np.uint64)
    for rows, form in samples.plain():
        found = np.asarray(function(form))
        if found.shape != (len(rows),) or found.dtype.kind not in "iu" or (found < 0).any():
            raise InputError(
                f"hash must return a non-negative integer for each of {len(rows)} samples, got shape {found.shape} "
                f"and dtype {found.dtype}"
            )
        values[rows] = found
        for at in rows[:: max(1, len(rows) // PROBES)].tolist():
            [(_, form)] = samples.select(np.array([at])).plain()
            alone = np.asarray(function(form))
            if alone.shape != (1,) or int(alone[0]) != int(values[at]):
                raise InputError(
                    f"hash must return an integer that depends on the sample alone, but sample {at} has {values[at]} "
                    f"among others, and {alone.tolist()!r:.60} alone"
                )
    return values


class Hashed(NamedTuple):
    """Training samples, with their digests, sources and buckets for a key."""

    samples: Samples
    labels: NDArray[Any]
    digests: hashing.Digests
    sources: hashing.Digests | None
    buckets: NDArray[np.int64]

    def select(self, rows: Rows) -> Hashed:
        """Return these rows."""
        sources = None if self.sources is None else self.sources[rows]
        return Hashed(self.samples.select(rows), self.labels[rows], self.digests[rows], sources, self.buckets[rows])

    def joined(self, other: Hashed) -> Hashed:
        """Return these samples followed by others."""

        def both(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([a, b])

        sources = None if self.sources is None or other.sources is None else both(self.sources, other.sources)
        return Hashed(
            self.samples.joined(other.samples),
            both(self.labels, other.labels),
            both(self.digests, other.digests),
            sources,
            both(self.buckets, other.buckets),
        )
