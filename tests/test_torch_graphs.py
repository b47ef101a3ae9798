"""The slots of a GPU, with graphs replaced by the plain step, give the bits of the CPU's: packing, loading, ending.

Checks that need a GPU are in benchmarks/isolation.py.
"""

import dataclasses
import os
from contextlib import contextmanager, nullcontext

import numpy as np
import pytest
import torch

from runoff.torch import Trainer, devices, networks
from runoff.torch.kernels import norm_relu_pool
from runoff.torch.training import graphs
from runoff.torch.training.slots import Slot
from tests.test_torch_isolation import ALL, PLAIN, TEST_X, Dropping, jobs, same, trained

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are first imported, which only a GPU does otherwise

LEFTOVER = dataclasses.replace(ALL, leftover=True)


class Stream:
    def __init__(self, *_):
        pass

    def synchronize(self):
        pass

    def record_event(self):
        return self

    def query(self):
        return True


class Graph:
    """Replay the calls that were last captured."""

    def __init__(self):
        self.work = None

    def replay(self):
        self.work()


class Generator:
    """Random numbers of a GPU, separate from those of the host."""

    def __init__(self):
        self.drawn = torch.Generator()

    def get_state(self):
        return self.drawn.get_state()

    def set_state(self, state):
        self.drawn.set_state(state)

    def manual_seed(self, seed):
        self.drawn.manual_seed(seed)


class Eager(graphs.GraphSlot):
    """A device whose graphs are plain calls."""

    def run(self, size):
        self.step(size)

    def score_block(self, block):
        if self._scoring is None:
            return super().score_block(block)
        _, inputs, _ = self._scoring
        inputs.copy_(block)
        return Slot.score_block(self, inputs)


@pytest.fixture
def faked(monkeypatch):
    @contextmanager
    def graph(*_, **__):
        yield

    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, **k: empty(*a, **k))  # noqa: ARG005
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())
    for name, value in {
        "Stream": Stream,
        "CUDAGraph": Graph,
        "graph": graph,
        "stream": lambda _: nullcontext(),
        "device": lambda _: nullcontext(),
        "synchronize": lambda *_: None,
        "mem_get_info": lambda _: (2**40, 2**40),
        "default_generators": [Generator()],
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)
    monkeypatch.setattr(graphs, "GraphSlot", Eager)
    monkeypatch.setitem(graphs.INPUTS, "cuda", 64)


def on_slots(members, network, recipe, in_flight):
    trainer = Trainer(network, recipe, (8, 8, 1), 10, device="cpu", in_flight=in_flight)
    trainer.device = torch.device("cpu", 0)
    with devices.repeatable("fp32"):
        return trainer, {(t.member, t.seed): t for t in trainer._on_gpu(jobs(members), TEST_X[..., None])}


@pytest.mark.parametrize("recipe", [ALL, PLAIN, LEFTOVER])
@pytest.mark.parametrize("network", [networks.small, networks.network_in_network])
def test_slots_that_are_used_again_give_the_same_bits(faked, network, recipe):  # noqa: ARG001
    expected = trained(range(8), network, recipe)
    for members, in_flight in ((range(8), 3), (range(7, -1, -1), 1), ([5, 2], 2)):
        trainer, given = on_slots(members, network, recipe, in_flight)
        for key, network_ in given.items():
            assert same(network_, expected[key]), key
    states = [(key, network_.state) for key, network_ in expected.items()]
    with devices.repeatable("fp32"):
        for key, scores in trainer._scored_on_gpu(states, TEST_X[..., None]):
            np.testing.assert_array_equal(scores, expected[key].scores)


@pytest.mark.parametrize("recipe", [ALL, PLAIN, dataclasses.replace(PLAIN, crop=1, flip=True, leftover=True)])
def test_batches_of_the_kernel_give_the_same_bits(faked, recipe, monkeypatch):  # noqa: ARG001
    pytest.importorskip("triton")
    expected = trained([0, 1, 2, 5], networks.small, recipe)
    monkeypatch.setattr(norm_relu_pool, "available", lambda _: True)
    for members, in_flight in (([1, 0, 5], 2), ([2, 5], 1)):
        _, given = on_slots(members, networks.small, recipe, in_flight)
        for key, network_ in given.items():
            assert same(network_, expected[key]), key


class Replacing(torch.nn.Module):
    def __init__(self, shape, n_classes):
        super().__init__()
        self.layer = torch.nn.Linear(int(np.prod(shape)), n_classes)
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen = self.seen + 1
        return self.layer(x.flatten(1))


@pytest.mark.parametrize(
    ("network", "told"), [(Replacing, "buffer 'seen' in place"), (Dropping, "must not draw random numbers on the host")]
)
def test_what_a_captured_step_cannot_do_is_refused(faked, network, told):  # noqa: ARG001
    with pytest.raises(ValueError, match=told):
        on_slots([0], network, PLAIN, 1)
