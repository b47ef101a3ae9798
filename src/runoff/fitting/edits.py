"""Edits of the training samples of a fitted ensemble."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff import hashing, samples
from runoff.errors import InputError
from runoff.partition import Hashed
from runoff.samples import Rows

Edit = tuple[Any, ...]  # X, y and, if fitted with them, groups


def check_edit(name: str, edit: Any, with_groups: bool) -> None:
    """Raise InputError unless an edit is a tuple of X, y and, if the ensemble was fitted with them, groups."""
    if not isinstance(edit, (tuple, list)) or len(edit) != 2 + with_groups:
        expected = "(X, y, groups), as fit was called with groups" if with_groups else "(X, y), as in fit"
        got = f"{len(edit)} values" if isinstance(edit, (tuple, list)) else f"a {type(edit).__name__}"
        raise InputError(f"{name} must be {expected}, got {got}")


def edited(data: Hashed, removed: Hashed | None, added: Hashed | None, unit: str) -> Hashed:
    """Return training samples after an edit, which can only relabel if labels are counted."""
    keep = np.ones(len(data.labels), bool)
    if removed is not None:
        keep[_rows_of(removed, data)] = False
    after = data.select(np.flatnonzero(keep))
    if added is not None:
        after = after.joined(added)
    if unit == "labels" and not _same_contents(after.digests, data.digests):
        raise InputError(
            "update can only relabel with threat='labels', where samples are fixed: remove and add the same X with "
            "old and new labels, or fit again"
        )
    if not len(after.labels):
        raise InputError("update must leave at least one training sample, got none")
    return after


def buckets_of_known(
    wanted: hashing.Digests, digests: hashing.Digests, buckets: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the buckets of training samples, found by digest among all of them."""
    known = dict(zip(map(tuple, digests.tolist()), buckets.tolist(), strict=True))
    try:
        return np.array([known[tuple(digest)] for digest in wanted.tolist()], np.int64)
    except KeyError:
        raise InputError(
            "X must hold training samples only with threat='labels', where samples are fixed: fit again with others"
        ) from None


def _rows_of(wanted: Hashed, data: Hashed) -> Rows:
    """Return the rows of these samples among the training samples, each copy once."""

    def keys(some: Hashed) -> list[tuple[Any, ...]]:
        parts = [some.digests.tolist(), some.labels.tolist()]
        parts += [] if some.sources is None else [[tuple(source) for source in some.sources.tolist()]]
        return [(*digest, *rest) for digest, *rest in zip(*parts, strict=True)]

    rows = samples.find_copies(keys(wanted), keys(data))
    if (missing := np.flatnonzero(rows < 0)).size:
        with_what = "labels" if wanted.sources is None else "labels and sources"
        raise InputError(
            f"remove must name training samples with their {with_what}, but sample {missing[0]} (label "
            f"{wanted.labels.tolist()[missing[0]]!r:.60}) is not one of them, or occurs less often: nothing was changed"
        )
    return rows


def _same_contents(a: hashing.Digests, b: hashing.Digests) -> bool:
    """Return whether two sets of samples are equal in any order, including the number of copies."""
    return len(a) == len(b) and all(
        np.array_equal(x, y) for x, y in zip(*(d[np.lexsort((d[:, 1], d[:, 0]))].T for d in (a, b)), strict=True)
    )
