"""Optimisers for captured steps, which update tensors in place and read the learning rate from the device.

They call PyTorch's fused kernels directly, because `torch.optim` imports PyTorch's compiler, which takes seconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from runoff.recipes import Recipe


class Optimizer(ABC):
    """An optimiser that updates parameters in place from their gradients."""

    def __init__(self, parameters: Sequence[Tensor], recipe: Recipe) -> None:
        self.parameters = list(parameters)
        self.recipe = recipe
        self.lr = torch.zeros((), device=self.parameters[0].device)

    def _zeros(self) -> list[Tensor]:
        return [torch.zeros_like(parameter) for parameter in self.parameters]

    @property
    @abstractmethod
    def state(self) -> list[Tensor]:
        """The tensors that the optimiser keeps between steps, all zero for a new network."""

    def step(self, loss: Tensor) -> None:
        """Compute the gradients of the loss and update the parameters."""
        for parameter in self.parameters:
            parameter.grad = None
        # Not autograd.grad: its gradients may differ from the parameters in memory layout, which fused kernels ignore.
        loss.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            self.update([torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters])

    @abstractmethod
    def update(self, gradients: list[Tensor]) -> None:
        """Update the parameters and the state."""


class SGD(Optimizer):
    """An equivalent of torch.optim.SGD with momentum."""

    def __init__(self, parameters: Sequence[Tensor], recipe: Recipe) -> None:
        super().__init__(parameters, recipe)
        self.momenta = self._zeros()

    @property
    def state(self) -> list[Tensor]:
        return self.momenta

    def update(self, gradients: list[Tensor]) -> None:
        torch._fused_sgd_(
            self.parameters,
            gradients,
            self.momenta if self.recipe.momentum else [],
            weight_decay=self.recipe.weight_decay,
            momentum=self.recipe.momentum,
            lr=self.lr,
            dampening=0.0,
            nesterov=self.recipe.nesterov and self.recipe.momentum > 0,
            maximize=False,
            is_first_step=False,  # momenta of zero have the same effect
        )


class AdamW(Optimizer):
    """An equivalent of torch.optim.AdamW."""

    def __init__(self, parameters: Sequence[Tensor], recipe: Recipe) -> None:
        super().__init__(parameters, recipe)
        self.means, self.squares = self._zeros(), self._zeros()
        self.steps = [torch.zeros((), device=self.lr.device) for _ in self.parameters]

    @property
    def state(self) -> list[Tensor]:
        return [*self.means, *self.squares, *self.steps]

    def update(self, gradients: list[Tensor]) -> None:
        torch._foreach_add_(self.steps, 1)
        torch._fused_adamw_(
            self.parameters,
            gradients,
            self.means,
            self.squares,
            [],
            self.steps,
            lr=self.lr,
            beta1=0.9,
            beta2=0.999,
            weight_decay=self.recipe.weight_decay,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )


def make(parameters: Sequence[Tensor], recipe: Recipe) -> Optimizer:
    """Return the recipe's optimiser for these parameters."""
    return (SGD if recipe.optimizer == "sgd" else AdamW)(parameters, recipe)
