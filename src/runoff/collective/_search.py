"""Search for attacks on many inputs at once: exhaustive if there are few, else local."""

from __future__ import annotations

import math
from itertools import combinations, islice

import numpy as np
from numpy.typing import NDArray

from runoff.collective._clock import check
from runoff.collective._threats import Contested

ALL = 2**30  # maximum of attacks times rows for which all attacks are tried
STARTS = 12
MOST_SWAPS = 400  # per step


def can_try_all(contested: Contested, edits: int) -> bool:
    """Return whether all attacks of this size are few enough to try."""
    return math.comb(contested.spread.n_buckets, edits) * max(1, len(contested.gaps)) <= ALL


def best_of_all(contested: Contested, edits: int, deadline: float | None = None) -> NDArray[np.int64]:
    """Return the first attack that flips the most inputs, or raise `OutOfTime`."""
    n_buckets = contested.spread.n_buckets
    every = combinations(range(n_buckets), edits)
    best, most = np.arange(edits), -1
    while part := list(islice(every, 4096)):
        check(deadline)
        buckets = np.array(part, np.int64).reshape(len(part), edits)
        attacks = np.zeros((len(part), n_buckets), np.bool_)
        np.put_along_axis(attacks, buckets, True, axis=1)
        flipped = contested.count(attacks)
        at = int(flipped.argmax())
        if flipped[at] > most:
            best, most = buckets[at], int(flipped[at])
    return best


def best_found(contested: Contested, edits: int, starts: int = STARTS) -> NDArray[np.int64]:
    """Return the best attack found by a local search with swaps, with the same draws on every machine."""
    n_buckets = contested.spread.n_buckets
    draws = np.random.default_rng(0)
    best, most = np.arange(edits), -1
    for _ in range(starts):
        taken = np.zeros(n_buckets, np.bool_)
        taken[draws.permutation(n_buckets)[:edits]] = True
        now = int(contested.count(taken[None])[0])
        while True:
            swaps = [(a, b) for a in np.flatnonzero(taken) for b in np.flatnonzero(~taken)]
            improved = False
            order = draws.permutation(len(swaps))
            for start in range(0, len(swaps), MOST_SWAPS):
                some = [swaps[s] for s in order[start : start + MOST_SWAPS]]
                attacks = np.repeat(taken[None], len(some), axis=0)
                attacks[np.arange(len(some)), [a for a, _ in some]] = False
                attacks[np.arange(len(some)), [b for _, b in some]] = True
                flipped = contested.count(attacks)
                if flipped.max() > now:
                    at = int(flipped.argmax())
                    taken, now, improved = attacks[at], int(flipped[at]), True
                    break
            if not improved:
                break
        if now > most:
            best, most = np.flatnonzero(taken), now
    return best
