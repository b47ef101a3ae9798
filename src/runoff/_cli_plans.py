"""How long the paper's rows would take, without their data."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from runoff import paper

if TYPE_CHECKING:
    from runoff.paper import Row


def seconds_for(
    row: Row, n_networks: int, network: str, recipe: str | None, device: str | None, in_flight: int | None
) -> float:
    """A rough guess for so many networks of a row."""
    if not n_networks:
        return 0.0
    chosen = recipe or paper.RECIPES[row.dataset]
    start, each = _pace(row.dataset, row.k, network, chosen, device, in_flight)
    return start + n_networks * each


@lru_cache
def _pace(
    dataset: str, k: int, network: str, recipe: str, device: str | None, in_flight: int | None
) -> tuple[float, float]:
    """Seconds to start, and for each network of average size; random images are as good as real ones for that."""
    import numpy as np

    from runoff.members import seeds_of
    from runoff.torch import Job, Trainer, networks, recipes, running

    n_samples, n_inputs, shape, n_classes = paper.SIZES[dataset]
    trainer = Trainer(networks.get(network), recipes.get(recipe), shape, n_classes, device=device, in_flight=in_flight)
    draws, n = np.random.default_rng(0), round(n_samples / k)
    images = draws.integers(0, 256, (n, *shape), dtype=np.uint8)
    labels = draws.integers(0, n_classes, n)
    job = Job(0, 0, seeds_of(0, 0, 1)[0], images, np.arange(n), labels)
    asked = np.broadcast_to(images[:1], (n_inputs, *shape))
    one = running.guess(trainer, job, [n], asked)
    start = 0.0 if trainer.device.type == "cpu" else running.START_SECONDS
    return start, one - start
