"""Edits of a training set, bucket by bucket, by an attacker who knows the key, the members and the inputs."""

from dataclasses import dataclass

import numpy as np

from runoff import samples


@dataclass(frozen=True, eq=False)
class Edits:
    """Samples to delete, to relabel and to insert, each with its bucket."""

    deleted: np.ndarray  # rows of the training set
    relabelled: np.ndarray  # rows of the training set
    labels: np.ndarray  # the new labels of those
    inserted: np.ndarray  # new samples
    inserted_labels: np.ndarray
    buckets: tuple  # of the deleted, the relabelled and the inserted

    def __len__(self):
        return len(self.deleted) + len(self.relabelled) + len(self.inserted)

    def only(self, buckets):
        """Return the edits in these buckets."""
        a, b, c = (np.isin(of_kind, buckets) for of_kind in self.buckets)
        return Edits(
            self.deleted[a],
            self.relabelled[b],
            self.labels[b],
            self.inserted[c],
            self.inserted_labels[c],
            tuple(of_kind[kept] for of_kind, kept in zip(self.buckets, (a, b, c), strict=True)),
        )

    def applied(self, X, y):
        """Return the edited training set."""
        labels = y.copy()
        labels[self.relabelled] = self.labels
        X, y = np.delete(X, self.deleted, axis=0), np.delete(labels, self.deleted)
        if not len(self.inserted):
            return X, y
        return np.concatenate([X, self.inserted]), np.concatenate([y, self.inserted_labels])


class Attacker:
    """An attacker on one partition of one training set. All choices are drawn from `rng`."""

    def __init__(self, partition, X, y, classes, rng):
        self.partition, self.X, self.y, self.classes, self.rng = partition, X, y, np.asarray(classes), rng
        self.sample_buckets = self.buckets(X)
        self.all = np.arange(partition.n_members)

    def buckets(self, rows):
        kind = samples.from_any(rows)
        return self.partition.buckets(kind, self.partition.digests(kind))

    def edits(self, deleted=(), relabelled=(), labels=(), inserted=None, inserted_labels=()):
        """Return edits with the buckets that the hash assigns."""
        deleted, relabelled = np.array(deleted, np.int64), np.array(relabelled, np.int64)
        inserted = self.X[:0] if inserted is None else np.asarray(inserted)
        buckets = self.buckets(inserted) if len(inserted) else np.empty(0, np.int64)
        return Edits(
            deleted,
            relabelled,
            np.array(labels, self.y.dtype),
            inserted,
            np.array(inserted_labels, self.y.dtype),
            (self.sample_buckets[deleted], self.sample_buckets[relabelled], buckets),
        )

    # -- whole buckets -------------------------------------------------------------------------------------------------

    def next_class(self):
        """Relabel every sample to the next class."""
        after = self.classes[(np.searchsorted(self.classes, self.y) + 1) % len(self.classes)]
        return self.edits(relabelled=np.arange(len(self.y)), labels=after)

    def one_label(self, label):
        """Relabel every sample to this label."""
        rows = np.flatnonzero(self.y != label)
        return self.edits(relabelled=rows, labels=np.full(len(rows), label))

    # -- one edit per bucket -------------------------------------------------------------------------------------------

    def nth(self, n):
        """Return the n-th sample of each bucket with more than n samples."""
        order = np.argsort(self.sample_buckets, kind="stable")
        starts = np.searchsorted(self.sample_buckets[order], self.all)
        sizes = np.bincount(self.sample_buckets, minlength=len(self.all))
        return order[(starts + n)[sizes > n]]

    def delete_nth(self, n):
        return self.edits(deleted=self.nth(n))

    def relabel_nth(self, n, shift):
        """Relabel the n-th sample of each bucket to the class `shift` places after its own."""
        rows = self.nth(n)
        codes = np.searchsorted(self.classes, self.y[rows])
        return self.edits(relabelled=rows, labels=self.classes[(codes + shift) % len(self.classes)])

    def extreme(self, label):
        """Insert a sample with values of about a million into each bucket."""
        return self.insert(np.zeros(self.X.shape[1]), label, self.all, 1, scale=1e6)

    # -- aimed at one input --------------------------------------------------------------------------------------------

    def insert(self, near, label, buckets, count, scale=1e-3):
        """Insert `count` samples close to an input into each of these buckets, by drawing noise until the hash fits."""
        missing = {int(b): count for b in buckets}
        rows = []
        while missing:
            candidates = near + self.rng.normal(scale=scale, size=(4 * len(self.all), near.size))
            for row, bucket in zip(candidates, self.buckets(candidates).tolist(), strict=True):
                if bucket in missing:
                    rows.append(row)
                    missing[bucket] -= 1
                    if not missing[bucket]:
                        del missing[bucket]
        return self.edits(inserted=np.array(rows), inserted_labels=np.full(len(rows), label))

    def at_random(self, n, near, label, buckets):
        """Return `n` edits of random kinds in these buckets, which are repeated if there are fewer."""
        parts = [self.edits()]
        free = np.ones(len(self.y), bool)  # a sample is deleted or relabelled once
        for bucket in np.resize(self.rng.permutation(buckets), n):
            rows = np.flatnonzero((self.sample_buckets == bucket) & free)
            kind = self.rng.integers(4) if len(rows) else 3
            if kind < 2:
                row = self.rng.choice(rows, 1)
                free[row] = False
                parts.append(self.edits(deleted=row) if kind else self.edits(relabelled=row, labels=[label]))
            else:
                parts.append(self.insert(near, label, [bucket], 1, scale=1e-3 if kind == 2 else 1e6))
        return joined(parts)


def joined(parts):
    """Return several sets of edits as one."""
    arrays = [
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("deleted", "relabelled", "labels", "inserted", "inserted_labels")
    ]
    buckets = zip(*(part.buckets for part in parts), strict=True)
    return Edits(*arrays, tuple(np.concatenate(of_kind) for of_kind in buckets))
