"""Counting one input's ballots in plain numpy: what attacks and explanations read. Ties go to the lower class index."""

import numpy as np
from numpy.typing import NDArray

from runoff.ballots import Ballots

Votes = NDArray[np.int64]


def first_choices(ballots: Ballots) -> NDArray[np.int64]:
    """Each member's first choice."""
    first: NDArray[np.int64] = ballots.argmax(axis=1)
    return first


def count_votes(ballots: Ballots) -> Votes:
    """N_c: how many members rank each class first."""
    return np.bincount(first_choices(ballots), minlength=ballots.shape[1]).astype(np.int64)


def top_two(votes: Votes) -> tuple[int, int]:
    """The two classes with the most votes."""
    a, b = np.argsort(-votes, kind="stable")[:2]
    return int(a), int(b)


def gap(votes: Votes, a: int, b: int) -> int:
    """Definition 3.1: N_a - N_b + [b > a]; a beats b when it is positive."""
    return int(votes[a] - votes[b] + (b > a))


def pass_power(ballots: Ballots, a: int, b: int) -> NDArray[np.int32]:
    """By how much taking over each member can lower gap(a, b): 2 for those that vote a, 0 for b, 1 for the others."""
    first = first_choices(ballots)
    power: NDArray[np.int32] = 1 + (first == a) - (first == b).astype(np.int32)
    return power


def ranks_above(ballots: Ballots, a: int, b: int) -> NDArray[np.bool_]:
    """Which members rank class a above class b."""
    above: NDArray[np.bool_] = ballots[:, a] > ballots[:, b]
    return above


def told(votes: Votes) -> tuple[str, tuple[int, ...]]:
    """The votes in words, most first, with {} for the name of each class; and these classes."""
    order = [int(c) for c in np.argsort(-votes, kind="stable") if votes[c]]
    shown = [f"{votes[c]} for class {{}}" for c in order[:4]]
    if len(order) > 4:
        shown.append(f"{votes[order[4:]].sum()} for others")
    return f"of {votes.sum()} votes, {', '.join(shown)}", tuple(order[:4])
