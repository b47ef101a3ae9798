"""Building of networks from seeds, and temporary seeding of the global random number generators."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from runoff.errors import InputError, RunoffError
from runoff.isolation import is_environment
from runoff.torch.networks import Factory

State = dict[str, Tensor]
ATTEMPTS = 5  # to get a result that no other thread disturbed by drawing global random numbers
_rng_lock = threading.RLock()


def tensors_of(module: nn.Module) -> State:
    """Return all parameters and buffers by name, including non-persistent buffers, and shared ones once."""
    return {name: value.detach() for name, value in (*module.named_parameters(), *module.named_buffers())}


def build(factory: Factory, shape: tuple[int, ...], n_classes: int, source: np.random.SeedSequence) -> nn.Module:
    """Return a network whose initial weights are drawn from `source`.

    Weights come from global random number generators, which other threads may use at the same time. So two networks are
    built until both are equal. This also detects factories that are not reproducible or return shared tensors.
    """
    for _ in range(ATTEMPTS):
        first, second = (build_once(factory, shape, n_classes, source) for _ in range(2))
        one, other = tensors_of(first), tensors_of(second)
        storages = {value.untyped_storage().data_ptr() for value in one.values() if value.numel()}
        if shared := [
            n for n, value in other.items() if value.numel() and value.untyped_storage().data_ptr() in storages
        ]:
            raise InputError(
                f"network must create new tensors on every call, but two of its networks share {shared[0]!r}: copy the "
                "module (copy.deepcopy) inside the function"
            )
        if one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one):
            return first
    raise InputError(
        "network must give the same weights for the same random numbers, got different ones: it uses another random "
        "number generator, or another thread draws from the global one at the same time"
    )


def build_once(factory: Factory, shape: tuple[int, ...], n_classes: int, source: np.random.SeedSequence) -> nn.Module:
    """Return a network without the checks of `build`, for callers that replace its weights."""
    torch_shape = (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape
    with seeded_generators(int(source.generate_state(1, np.uint64)[0] >> 1)), torch.inference_mode(False):
        try:
            module = factory(torch_shape, n_classes)
        except Exception as error:
            if is_environment(error) or isinstance(error, RunoffError):
                raise
            raise InputError(
                f"network must build for shape {torch_shape} and {n_classes} classes, but it raised "
                f"{type(error).__name__}: {error!s:.200}"
            ) from error
    if not isinstance(module, nn.Module):
        raise InputError(f"network must return an nn.Module, got {type(module).__name__}")
    return module


def check_scores(module: nn.Module, shape: tuple[int, ...], n_classes: int) -> None:
    """Raise InputError unless a network gives one score per class for inputs of this shape."""
    torch_shape = (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape
    with seeded_generators(0), torch.inference_mode():
        try:
            scores = module.eval()(torch.zeros(2, *torch_shape))
        except Exception as error:
            if is_environment(error):
                raise
            raise InputError(
                f"network must score inputs of shape {torch_shape}, but it raised {type(error).__name__}: "
                f"{error!s:.200}"
            ) from error
    got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
    if got != (2, n_classes):
        raise InputError(
            f"network must return one score per class, (2, {n_classes}) for 2 inputs, got {got}: its last layer needs "
            f"n_classes outputs"
        )


@contextmanager
def seeded_generators(seed: int) -> Iterator[None]:
    """Seed the global generators of PyTorch (on the CPU), NumPy and Python; restore their states afterwards."""
    with _rng_lock:
        before = torch.default_generator.get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
        try:
            seed_all(seed)
            yield
        finally:
            torch.default_generator.set_state(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
            random.setstate(before[2])


def draws_random_numbers(work: Callable[[], object]) -> bool:
    """Return whether a call draws global random numbers on the host.

    The result is True only if every attempt does, because other threads may also draw.
    """
    for _ in range(ATTEMPTS):
        with seeded_generators(0):
            before = _generator_states()
            work()
            if _generator_states() == before:
                return False
    return True


def seed_all(seed: int) -> None:
    """Seed all global random number generators on the host."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def _generator_states() -> tuple[Any, ...]:
    """Return the states of all global random number generators on the host."""
    numpy_: Any = np.random.get_state()  # noqa: NPY002
    return torch.default_generator.get_state().numpy().tobytes(), numpy_[1].tobytes(), numpy_[2:], random.getstate()
