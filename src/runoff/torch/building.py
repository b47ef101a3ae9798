"""Networks with first weights from a source, and global random numbers that are one's own for a while."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from runoff.errors import InputError
from runoff.torch.networks import Factory

State = dict[str, Tensor]
ATTEMPTS = 5  # to build a network undisturbed
_drawing = threading.RLock()  # one at a time takes global random numbers for its own


def tensors_of(module: nn.Module) -> State:
    """Everything that a network learns or keeps, also buffers that its state_dict leaves out; shared ones once."""
    return {name: value.detach() for name, value in (*module.named_parameters(), *module.named_buffers())}


def build(factory: Factory, shape: tuple[int, ...], n_classes: int, source: np.random.SeedSequence) -> nn.Module:
    """A network with first weights from a source.

    Weights are drawn from global random numbers, from which others may draw at the same time in other threads. So it is
    built twice, until both are equal; which also finds functions that give different networks, or the same one twice.
    """
    for _ in range(ATTEMPTS):
        first, second = (built(factory, shape, n_classes, source) for _ in range(2))
        one, other = tensors_of(first), tensors_of(second)
        places = {value.untyped_storage().data_ptr() for value in one.values() if value.numel()}
        if shared := [
            n for n, value in other.items() if value.numel() and value.untyped_storage().data_ptr() in places
        ]:
            raise InputError(
                f"network must make every tensor anew, but two of its networks share {shared[0]!r}: copy the module "
                "(copy.deepcopy) inside the function"
            )
        if one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one):
            return first
    raise InputError(
        "network must give the same weights for the same random numbers, got different ones: it draws from a source of "
        "its own, or another thread draws from the global one at the same time"
    )


def built(factory: Factory, shape: tuple[int, ...], n_classes: int, source: np.random.SeedSequence) -> nn.Module:
    """The same, once: for where nothing rests on its weights."""
    torch_shape = (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape
    with own_numbers(int(source.generate_state(1, np.uint64)[0] >> 1)), torch.inference_mode(False):
        module = factory(torch_shape, n_classes)
    if not isinstance(module, nn.Module):
        raise InputError(f"network must give an nn.Module, got {type(module).__name__}")
    return module


@contextmanager
def own_numbers(seed: int) -> Iterator[None]:
    """Global random numbers of PyTorch (on the CPU), numpy and Python from a seed, and afterwards as they were."""
    with _drawing:
        before = torch.default_generator.get_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
        try:
            seed_all(seed)
            yield
        finally:
            torch.default_generator.set_state(before[0])
            np.random.set_state(before[1])  # noqa: NPY002
            random.setstate(before[2])


def draws_numbers(work: Callable[[], object]) -> bool:
    """Whether some work draws from global random numbers on the host: each time, since others may draw, too."""
    for _ in range(ATTEMPTS):
        with own_numbers(0):
            before = _numbers()
            work()
            if _numbers() == before:
                return False
    return True


def seed_all(seed: int) -> None:
    """Start all global random numbers on the host."""
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def _numbers() -> tuple[Any, ...]:
    """Where global random numbers on the host are at."""
    numpy_: Any = np.random.get_state()  # noqa: NPY002
    return torch.default_generator.get_state().numpy().tobytes(), numpy_[1].tobytes(), numpy_[2:], random.getstate()
