"""Members that are networks, and their scores, the mean over the networks of a member."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from runoff.torch.building import State
from runoff.torch.pipeline import member_scores
from runoff.torch.training.results import Trained


@dataclass(frozen=True, eq=False)
class NetworkMember:
    """A member: `n_seeds` networks, or none if its samples have fewer than two classes."""

    index: int
    shares: NDArray[np.float64]  # of each class among the member's samples
    fitted: tuple[State, ...] = field(default=(), repr=False)
    scores: tuple[NDArray[np.float32] | None, ...] = field(default=(), repr=False)  # for the inputs given to `fit`
    refused: str | None = None

    @classmethod
    def from_networks(cls, index: int, shares: NDArray[np.float64], trained: list[Trained]) -> NetworkMember:
        """Return a member with these networks, except those that cannot be used."""
        usable = sorted((network for network in trained if network.refused is None), key=lambda network: network.seed)
        states, scores = tuple(network.state for network in usable), tuple(network.scores for network in usable)
        refused = next((network.refused for network in trained if network.refused is not None), None)
        return cls(index, shares, states, scores, None if usable else refused)


def scores_by_member(
    members: Sequence[NetworkMember], scored: Iterable[tuple[tuple[int, int], NDArray[np.float32]]], n_inputs: int
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield the index and the scores of each member, from the scores of networks by member and seed, in any order."""
    n_missing = {m.index: len(m.fitted) for m in members}
    parts: dict[int, dict[int, NDArray[np.float32]]] = {m.index: {} for m in members}
    for m in members:
        if not m.fitted:
            yield m.index, member_scores((), m.shares, n_inputs)
    for (index, seed), scores in scored:
        parts[index][seed] = scores
        n_missing[index] -= 1
        if not n_missing[index]:
            by_seed = parts.pop(index)  # summed in the order of seeds, whatever the order of the results
            yield index, member_scores([by_seed[s] for s in sorted(by_seed)], members[index].shares, n_inputs)
