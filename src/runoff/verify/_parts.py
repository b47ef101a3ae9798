"""Buckets, spread and training sets, derived from data, key and settings.

A sample's bucket is the first 8 bytes of its keyed digest, read as a little-endian number, modulo the number of
buckets, k * d. If sources are counted, the digest is that of the source. If labels are counted, distinct digests are
sorted and assigned to the buckets in turn. Bucket b reaches the members (b + offset) mod k * d, for d offsets drawn
once from the seed.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.verify import _content

HASHES = ("content", "pixel-sum")
UNITS = ("samples", "sources", "labels")


@dataclass(frozen=True)
class Parts:
    """The division of samples among members."""

    n_partitions: int
    d: int
    seed: int
    hash: str
    key: bytes
    unit: str = "samples"

    @property
    def n_members(self) -> int:
        """Number of members, which equals the number of buckets."""
        return self.n_partitions * self.d

    @property
    def offsets(self) -> list[int]:
        """The offsets of the spread, which follow from the seed."""
        if self.d == 1:
            return [0]
        draws = np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(0,)))
        return sorted(draws.permutation(self.n_members)[: self.d].tolist())

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of hash, key and spread."""
        key = hashlib.sha256(b"runoff fingerprint" + self.key).hexdigest()
        text = json.dumps(
            [self.n_partitions, self.d, self.offsets, self.hash, key, *([self.unit] if self.unit != "samples" else [])]
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def spread(self) -> list[list[int]]:
        """Return the members of each bucket."""
        return [[(b + offset) % self.n_members for offset in self.offsets] for b in range(self.n_members)]

    def divide(
        self, X: Any, codes: NDArray[Any], original_digests: Any = None, original_sums: Any = None, groups: Any = None
    ) -> Divided:
        """Return the training rows of each member, in training order."""
        digests = _content.digests(X, self.key, original_digests)
        if self.unit == "sources":
            sources = _content.source_digests(groups, len(digests), self.key)
            values = [int.from_bytes(digest[:8], "little") for digest in sources]
        elif self.unit == "labels":
            halves = {d: (int.from_bytes(d[:8], "little"), int.from_bytes(d[8:], "little")) for d in digests}
            ranks = {digest: i for i, digest in enumerate(sorted(halves, key=halves.__getitem__))}
            values = [ranks[digest] for digest in digests]
        elif self.hash == "content":
            values = [int.from_bytes(digest[:8], "little") for digest in digests]
        else:
            values = _content.pixel_sums(X, original_sums)
        members: list[list[int]] = [[] for _ in range(self.n_members)]
        # Training order: by the two halves of the digest as numbers, then by class.
        keys = [
            (int.from_bytes(d[:8], "little"), int.from_bytes(d[8:], "little"), int(c))
            for d, c in zip(digests, codes, strict=True)
        ]
        for i in sorted(range(len(digests)), key=keys.__getitem__):
            for offset in self.offsets:
                members[(values[i] + offset) % self.n_members].append(i)
        return Divided(members, digests, [int(code) for code in codes])


@dataclass(frozen=True)
class Divided:
    """The training rows of every member."""

    rows: list[list[int]]
    digests: list[bytes]
    codes: list[int]

    def training_set(self, member: int) -> str:
        """Return the SHA-256 of the samples of a member, each as 16 bytes of digest and 8 of class code, in order."""
        hashed = hashlib.sha256()
        for i in self.rows[member]:
            hashed.update(self.digests[i] + self.codes[i].to_bytes(8, "little", signed=True))
        return hashed.hexdigest()

    def shares(self, member: int, n_classes: int) -> NDArray[np.float64]:
        """Return the share of each class among the samples of a member, its scores if it has no network."""
        counts = np.zeros(n_classes)
        for i in self.rows[member]:
            counts[self.codes[i]] += 1
        return counts / max(1, len(self.rows[member]))


def derived_key(seed: int) -> bytes:
    """Return the key of a run, which follows from its seed."""
    return hashlib.blake2b(f"runoff hash key {seed}".encode(), digest_size=32).digest()
