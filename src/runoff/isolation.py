"""Isolation: what a member must not share with anything that runs beside it.

A member is trained and scored on one thread, since sums in another order have other last bits, and with global random
numbers that follow from its own seed alone.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from joblib import parallel_config
from threadpoolctl import ThreadpoolController

# Threads of one process share the global random numbers and the limits on threads: one member at a time has them.
_alone = threading.RLock()

# What goes wrong with the machine rather than with the samples. No sample may bring a member to vote by its fixed rule
# on one machine and not on another, so these stop the work.
ABSURD = 2**40  # bytes of one array
ENVIRONMENT = (MemoryError, OSError, ImportError)


def seeds_of(random_state: int, member: int, n_seeds: int) -> list[np.random.SeedSequence]:
    """Return one source of seeds for each fit of a member, from the member's index alone."""
    return [np.random.SeedSequence(random_state, spawn_key=(1, member, s)) for s in range(n_seeds)]


@lru_cache(maxsize=1)
def _libraries(_n_modules: int) -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> Any:
    """Return a context in which numerical libraries use one thread.

    Looking for libraries is slow, so it is done again only after imports.
    """
    return _libraries(len(sys.modules)).limit(limits=1)


def _torch() -> Any:
    """Return PyTorch if something has loaded it, else None: it is never imported from here."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_rng_state") else None


def generators() -> int:
    """Return how many libraries with global random numbers are loaded; it grows when a fit imports one."""
    return 2 + (_torch() is not None)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Use one thread throughout, and put the global random numbers back afterwards."""
    legacy, python, torch = np.random.get_state(), random.getstate(), _torch()  # noqa: NPY002
    on_host = None if torch is None else torch.get_rng_state()
    on_gpus = torch.cuda.get_rng_state_all() if torch is not None and torch.cuda.is_initialized() else None
    try:
        with one_thread():
            yield
    finally:
        np.random.set_state(legacy)  # noqa: NPY002
        random.setstate(python)
        if torch is not None:
            torch.set_rng_state(on_host)
        if on_gpus is not None:
            torch.cuda.set_rng_state_all(on_gpus)


@contextmanager
def alone(source: np.random.SeedSequence) -> Iterator[None]:
    """Give one member all global random numbers, seeded from `source`, and one thread.

    `undisturbed` puts the random numbers back when all members are done.
    """
    state = source.generate_state(4)
    with _alone, one_thread(), parallel_config(backend="sequential"):  # for an n_jobs that is left at None
        np.random.seed(state)  # noqa: NPY002
        random.seed(int(state[0]))
        torch = _torch()
        if torch is not None:
            torch.manual_seed(int(state[1]) << 31 | int(state[2]) >> 1)  # on every device
        yield


def is_environment(error: Exception) -> bool:
    """Return whether an error says something about the machine, not about the samples.

    An array that no machine could hold is asked for because of a sample, such as a category with the number 10**12.
    """
    if isinstance(error, MemoryError) and getattr(error, "_total_size", 0) >= ABSURD:  # NumPy says how much
        return False
    return isinstance(error, ENVIRONMENT) or type(error).__name__ == "OutOfMemoryError"  # PyTorch's
