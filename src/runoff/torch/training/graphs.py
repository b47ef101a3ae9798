"""Slots on a GPU, each with its step as one captured CUDA graph and with a separate stream."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from runoff.errors import InputError
from runoff.torch.building import State, tensors_of
from runoff.torch.kernels import batch_and_head, norm_relu_pool
from runoff.torch.training.jobs import Job
from runoff.torch.training.slots import INPUTS, Prepared, Slot


class GraphSlot(Slot):
    """A slot with tensors for the largest network of a group, and a step that is captured once and replayed."""

    _initial_weights: Tensor | None = None  # of the next network, packed

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self.graph = torch.cuda.CUDAGraph()
        self._scoring: tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None = None  # a graph with its inputs and logits

    def reseed(self, seed: int) -> None:
        torch.cuda.default_generators[self.device.index].manual_seed(seed)

    def try_out(self, batch: int) -> None:
        """Warm up, and reject networks that a captured step cannot train."""
        addresses = {name: value.data_ptr() for name, value in tensors_of(self.module).items()}
        generator = torch.cuda.default_generators[self.device.index]
        before = generator.get_state()
        super().try_out(batch)
        if self.uses_rng:
            raise InputError(
                f"network must not draw random numbers on the host while it is trained on {self.device}, because a "
                "captured step would repeat them: use PyTorch's layers, or device='cpu'"
            )
        self.uses_rng = not torch.equal(before, generator.get_state())
        if self.uses_rng:
            generator.set_state(before)
        for name, value in tensors_of(self.module).items():
            if addresses.get(name) != value.data_ptr():
                raise InputError(
                    f"network must change its buffer {name!r} in place (copy_, add_) to be trained on {self.device}, "
                    "but its forward replaces the tensor: change it in place, or use device='cpu'"
                )

    def capture(self, batch: int, n_samples: int, dtype: torch.dtype) -> None:
        """Capture the step for networks with this batch size and at most `n_samples` samples."""
        with torch.cuda.stream(self.stream):
            self.try_out(batch)
            steps = self.recipe.steps_of(n_samples) + 2
            self.images = torch.zeros((n_samples, *self._padded_shape()), dtype=dtype, device=self.device)
            self.labels = torch.zeros(n_samples, dtype=torch.int64, device=self.device)
            self.tables = {name: table.new_zeros((steps, *table.shape[1:])) for name, table in self.tables.items()}
            for _ in range(2):  # libraries initialise themselves in the first steps, which must not be captured
                self.clock.zero_()
                self.step()
        self.stream.synchronize()
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
            self.step()

    def capture_scoring(self, like: Tensor) -> None:
        """Capture the scoring of a block of inputs with the type of `like`."""
        with torch.cuda.stream(self.stream):
            self.reject_random_scoring()
        inputs = torch.zeros((INPUTS["cuda"], *self.shape), dtype=like.dtype, device=self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            super().score_block(inputs)
        self.stream.synchronize()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            logits = super().score_block(inputs)
        self._scoring = graph, inputs, logits

    def score_block(self, block: Tensor) -> Tensor:
        if self._scoring is None:
            return super().score_block(block)
        graph, inputs, logits = self._scoring
        inputs.copy_(block)
        graph.replay()
        return logits

    def run(self, size: int | None) -> None:
        if size is None:
            self.graph.replay()
        else:  # what is left of an epoch differs between members
            self.step(size)

    def batch(self, size: int | None = None) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        if size is not None:
            return super().batch(size)
        if not norm_relu_pool.available(self.images) or not batch_and_head.supports(self.recipe, self.images):
            return super().batch()
        settings = self.tables, self.recipe, self.mean, self.std
        return *batch_and_head.batch(self.images, self.labels, self.clock, *settings), None

    def prepare(self, job: Job) -> Prepared:
        """Prepare the training of a network in pinned memory, from which copies are asynchronous."""
        prepared = super().prepare(job)
        tensors = {name: value.pin_memory() for name, value in prepared.tensors.items()}
        tensors[INITIAL_WEIGHTS] = _packed(self.state, tensors_of(prepared.module)).pin_memory()
        return Prepared(prepared.job, prepared.draws, tensors, prepared.module)

    def _fill(self, arrays: dict[str, Tensor]) -> None:
        captured = {"images": self.images, "labels": self.labels, "mean": self.mean, "std": self.std, **self.tables}
        self._initial_weights = arrays.pop(INITIAL_WEIGHTS)
        for name, value in arrays.items():
            captured[name][: len(value)].copy_(value, non_blocking=True)

    def install(self, module: torch.nn.Module) -> None:
        """Install the first network, which is captured; copy later ones into its tensors."""
        if self._initial_weights is None:
            super().install(module)
            return
        packed = self._initial_weights.to(self.device, non_blocking=True)
        with torch.no_grad():
            torch._foreach_copy_(list(self.state.values()), _unpacked(self.state, packed))
            for value in (*self.optimizer.state, *self.averages.values()):
                value.zero_()
        self._initial_weights = None

    def get_state(self) -> State:
        """Return a packed copy on the host, complete when the stream has finished; `unpacked` splits it by name."""
        named = dict(self._named())
        packed = _packed(named, named)
        return {"": torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True).copy_(packed, non_blocking=True)}

    def unpacked(self, state: State) -> State:
        """Return the tensors by name, copied from pinned memory, which is scarce."""
        named = dict(self._named())
        return {name: part.clone() for name, part in zip(named, _unpacked(named, state[""]), strict=True)}


INITIAL_WEIGHTS = "runoff:initial-weights"
ALIGNMENT = 16  # bytes: tensors start at multiples of this, for vectorised copies


def _packed(names: State, state: State) -> Tensor:
    """Return the bytes of all tensors as one tensor."""
    parts = [state[name].detach().contiguous().reshape(-1).view(torch.uint8) for name in names]
    return torch.cat([F.pad(part, (0, -len(part) % ALIGNMENT)) for part in parts])


def _unpacked(like: State, packed: Tensor) -> list[Tensor]:
    """Return views of packed tensors with the shapes and types of `like`."""
    parts, start = [], 0
    for value in like.values():
        size = value.numel() * value.element_size()
        parts.append(packed[start : start + size].view(value.dtype).view(value.shape))
        start += size + -size % ALIGNMENT
    return parts
