"""A slot on a GPU: its step is one captured graph, on a stream of its own."""

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
    """Tensors with room for the largest network of a group, and the step as a graph that is replayed."""

    _fresh: Tensor | None = None  # the first weights of the next network, packed

    def __init__(self, *settings: Any) -> None:
        super().__init__(*settings)
        self.stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        self.graph = torch.cuda.CUDAGraph()
        self._asking: tuple[torch.cuda.CUDAGraph, Tensor, Tensor] | None = None  # with its question and its answer

    def reseed(self, seed: int) -> None:
        torch.cuda.default_generators[self.device.index].manual_seed(seed)

    def try_out(self, batch: int) -> None:
        """Warm up, and refuse what a captured step cannot do."""
        tensors = {name: value.data_ptr() for name, value in tensors_of(self.module).items()}
        generator = torch.cuda.default_generators[self.device.index]
        before = generator.get_state()
        super().try_out(batch)
        if self.draws_numbers:
            raise InputError(
                f"network must not draw random numbers on the host while it is trained on {self.device}: a captured "
                "step would repeat them; use layers of PyTorch, or device='cpu'"
            )
        self.draws_numbers = not torch.equal(before, generator.get_state())
        if self.draws_numbers:
            generator.set_state(before)
        for name, value in tensors_of(self.module).items():
            if tensors.get(name) != value.data_ptr():
                raise InputError(
                    f"network must change its buffer {name!r} in place (copy_, add_) to be trained on {self.device}, "
                    "but its forward puts a new tensor there; or use device='cpu'"
                )

    def capture(self, batch: int, n_samples: int, dtype: torch.dtype) -> None:
        """Prepare for networks of this batch size with at most so many samples."""
        with torch.cuda.stream(self.stream):
            self.try_out(batch)
            steps = self.recipe.epochs * n_samples // batch + 2
            self.images = torch.zeros((n_samples, *self._padded_shape()), dtype=dtype, device=self.device)
            self.labels = torch.zeros(n_samples, dtype=torch.int64, device=self.device)
            self.tables = {name: table.new_zeros((steps, *table.shape[1:])) for name, table in self.tables.items()}
            for _ in range(2):  # libraries set themselves up in the first steps, which a graph must not contain
                self.clock.zero_()
                self.step()
        self.stream.synchronize()
        with torch.cuda.graph(self.graph, stream=self.stream, capture_error_mode="thread_local"):
            self.step()

    def capture_answer(self, like: Tensor) -> None:
        """Prepare for scoring inputs of this type."""
        with torch.cuda.stream(self.stream):
            self.try_asking()
        question = torch.zeros((INPUTS["cuda"], *self.shape), dtype=like.dtype, device=self.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            super().answer(question)
        self.stream.synchronize()
        with torch.cuda.graph(graph, stream=self.stream, capture_error_mode="thread_local"):
            answer = super().answer(question)
        self._asking = graph, question, answer

    def answer(self, question: Tensor) -> Tensor:
        if self._asking is None:
            return super().answer(question)
        graph, place, answer = self._asking
        place.copy_(question)
        graph.replay()
        return answer

    def run(self) -> None:
        self.graph.replay()

    def batch(self) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        if not norm_relu_pool.there(self.images) or not batch_and_head.plain(self.recipe, self.images):
            return super().batch()
        settings = self.tables, self.recipe, self.mean, self.std
        return *batch_and_head.batch(self.images, self.labels, self.clock, *settings), None

    def prepare(self, job: Job) -> Prepared:
        """In pinned memory, from which copies run beside everything else."""
        plain = super().prepare(job)
        tensors = {name: value.pin_memory() for name, value in plain.tensors.items()}
        tensors[FRESH] = _packed(self.state, tensors_of(plain.module)).pin_memory()
        return Prepared(plain.job, plain.course, tensors, plain.module)

    def _fill(self, arrays: dict[str, Tensor]) -> None:
        fixed = {"images": self.images, "labels": self.labels, "mean": self.mean, "std": self.std, **self.tables}
        self._fresh = arrays.pop(FRESH)
        for name, value in arrays.items():
            fixed[name][: len(value)].copy_(value, non_blocking=True)

    def install(self, module: torch.nn.Module) -> None:
        """The first network is captured; those that follow are copied into its tensors."""
        if self._fresh is None:
            super().install(module)
            return
        packed = self._fresh.to(self.device, non_blocking=True)
        with torch.no_grad():
            torch._foreach_copy_(list(self.state.values()), _unpacked(self.state, packed))
            for value in (*self.optimizer.state, *self.averages.values()):
                value.zero_()
        self._fresh = None

    def get_state(self) -> State:
        """A packed copy on the host, there once the stream has come so far; then `unpacked` gives it by name."""
        named = dict(self._named())
        packed = _packed(named, named)
        return {"": torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True).copy_(packed, non_blocking=True)}

    def unpacked(self, state: State) -> State:
        """By name, in memory of its own: there is little pinned memory."""
        named = dict(self._named())
        return {name: part.clone() for name, part in zip(named, _unpacked(named, state[""]), strict=True)}


FRESH = "runoff:fresh"
WIDTH = 16  # bytes: every tensor begins at a multiple, as vectorised copies like it


def _packed(names: State, state: State) -> Tensor:
    """Tensors as bytes, one after the other."""
    parts = [state[name].detach().contiguous().reshape(-1).view(torch.uint8) for name in names]
    return torch.cat([F.pad(part, (0, -len(part) % WIDTH)) for part in parts])


def _unpacked(like: State, packed: Tensor) -> list[Tensor]:
    """The inverse of `_packed`, as views."""
    parts, start = [], 0
    for value in like.values():
        size = value.numel() * value.element_size()
        parts.append(packed[start : start + size].view(value.dtype).view(value.shape))
        start += size + -size % WIDTH
    return parts
