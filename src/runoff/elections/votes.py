"""Counts of the ballots of one input in NumPy, for attacks and explanations; ties go to the lower class index."""

import numpy as np
from numpy.typing import NDArray

from runoff.ballots import Ballots

Votes = NDArray[np.int64]


def first_choices(ballots: Ballots) -> NDArray[np.int64]:
    """Return the first choice of each member."""
    first: NDArray[np.int64] = ballots.argmax(axis=1)
    return first


def count_votes(ballots: Ballots) -> Votes:
    """Return N_c, the number of members that rank each class first."""
    return np.bincount(first_choices(ballots), minlength=ballots.shape[1]).astype(np.int64)


def top_two(votes: Votes) -> tuple[int, int]:
    """Return the two classes with the most votes."""
    a, b = np.argsort(-votes, kind="stable")[:2]
    return int(a), int(b)


def gap(votes: Votes, a: int, b: int) -> int:
    """Return the gap N_a - N_b + [b > a] (Definition 3.1); a beats b when it is positive."""
    return int(votes[a] - votes[b] + (b > a))


def pass_power(ballots: Ballots, a: int, b: int) -> NDArray[np.int32]:
    """Return the amount by which each member can lower gap(a, b): 2 if it votes for a, 0 if it votes for b, else 1."""
    first = first_choices(ballots)
    power: NDArray[np.int32] = (1 + (first == a) - (first == b)).astype(np.int32)
    return power


def ranks_above(ballots: Ballots, a: int, b: int) -> NDArray[np.bool_]:
    """Return a mask of the members that rank class a above class b."""
    above: NDArray[np.bool_] = ballots[:, a] > ballots[:, b]
    return above


def vote_bars(votes: Votes) -> dict[int, int]:
    """Return the number of votes of each class that has any."""
    return {int(c): int(votes[c]) for c in np.flatnonzero(votes)}


def describe_votes(votes: Votes) -> tuple[str, tuple[int, ...]]:
    """Return a sentence about the votes, with a {} for each class, and these classes by falling votes."""
    order = [int(c) for c in np.argsort(-votes, kind="stable") if votes[c]]
    parts = [f"{votes[c]} for class {{}}" for c in order[:4]]
    if len(order) > 4:
        parts.append(f"{votes[order[4:]].sum()} for others")
    return f"of {votes.sum()} votes, {', '.join(parts)}", tuple(order[:4])
