"""First weights: initial weights shared by all networks of an ensemble.

Weights that do not depend on the training samples are a constant, like the architecture: no edit of the training data
can change them. `runoff pretrain` computes such weights from procedural images; `"procedural"` are those in the
package, and `"procedural-1"` earlier ones, with which published results were measured.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as parse
from torch import Tensor, nn

from runoff._io.files import read_given
from runoff._io.text import one_line
from runoff.errors import InputError, StorageError
from runoff.torch import networks
from runoff.torch.building import State, tensors_of
from runoff.torch.networks import Factory, Shape

PROCEDURAL, EARLIER = "procedural", ("procedural-1",)
FOLDER, MANIFEST = "weights", "manifest.json"  # in this package


@dataclass(frozen=True, eq=False)
class Weights:
    """First weights by name, with their source."""

    given: str  # "procedural", "procedural-1", or the path of a file
    sha256: str  # of the file
    state: State = field(repr=False)

    def described(self) -> dict[str, str]:
        """Return the source as recorded in manifests."""
        return {"given": self.given, "sha256": self.sha256}


@dataclass(frozen=True, eq=False)
class Starting:
    """A network factory whose networks start from given weights; all other tensors are random."""

    network: Factory
    weights: Weights

    def __call__(self, shape: Shape, n_classes: int) -> nn.Module:
        """Build a network with new tensors."""
        module = self.network(shape, n_classes)
        tensors = tensors_of(module)
        with torch.no_grad():
            for name, value in self.weights.state.items():
                if name not in tensors:
                    raise InputError(f"{self._tensor_text(name)}, which the network does not have: use other weights")
                tensors[name].copy_(self._fitted(name, value, tensors[name]))
        return module

    def _tensor_text(self, name: str) -> str:
        return f"weights {self.weights.given!r} have a tensor {one_line(name, 60)!r}"

    def _fitted(self, name: str, value: Tensor, like: Tensor) -> Tensor:
        """Return the tensor for the input channels of the network, so that gray images give the same output."""
        if value.ndim == 4 and value.shape[1] == 3 != like.shape[1] and name == self._first_convolution():
            value = (value.sum(1, keepdim=True) / like.shape[1]).expand(-1, like.shape[1], -1, -1)
        if value.shape != like.shape:
            shape = one_line(tuple(value.shape), 60)
            raise InputError(
                f"{self._tensor_text(name)} of shape {shape}, but the network's has {tuple(like.shape)}: "
                "use other weights, or the network that they were made for"
            )
        return value

    def _first_convolution(self) -> str:
        """Return the name of the first convolution."""
        return next(name for name, value in self.weights.state.items() if value.ndim == 4)


def get(weights: str | Path | None, network: str | Factory) -> Weights | None:
    """Read first weights: None for random weights, "procedural" for those of the package, or a safetensors file."""
    if weights is None:
        return None
    if isinstance(weights, str) and weights in (PROCEDURAL, *EARLIER):
        return _procedural(weights, network)
    if not isinstance(weights, (str, Path)):
        raise InputError(f"weights must be None, {PROCEDURAL!r} or the path of a file, got {type(weights).__name__}")
    path, data = read_given(weights, f"weights must be None, {PROCEDURAL!r} or a safetensors file")
    path = path.resolve()
    try:
        return Weights(str(path), hashlib.sha256(data).hexdigest(), _ordered(parse(data)))
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:  # RuntimeError: types and shapes of PyTorch
        raise InputError(f"weights must be a safetensors file, but {path} is invalid: {one_line(error)}") from None


def start(network: str | Factory, weights: str | Path | None) -> Factory:
    """Return the factory of a network, with first weights if given."""
    first = get(weights, network)
    return networks.get(network) if first is None else Starting(networks.get(network), first)


def recorded(network: str | Factory, described: dict[str, str] | None) -> Factory:
    """Return the factory of a network with the first weights recorded in a manifest, after checking their SHA-256."""
    if described is None:
        return networks.get(network)
    given = described["given"]
    if given == PROCEDURAL and isinstance(network, str):  # which ones, depends on the version that trained the run
        versions = available().get(network, {})
        given = next((name for name, about in versions.items() if about["sha256"] == described["sha256"]), given)
    first = get(given, network)
    if first is None or first.sha256 != described["sha256"]:
        raise StorageError(
            f"first weights {given!r:.300} have another SHA-256 than those that the run was trained with: "
            "restore the original file, or train a new run"
        )
    return Starting(networks.get(network), first)


def plain(network: Factory) -> Factory:
    """Return a factory without its first weights."""
    return network.network if isinstance(network, Starting) else network


def first_weights_of(network: Factory) -> Weights | None:
    """Return the first weights of a factory, or None if its networks start from random weights."""
    return network.weights if isinstance(network, Starting) else None


def available() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the manifest of the package's procedural weights, by network and name."""
    manifest = resources.files("runoff.torch") / FOLDER / MANIFEST
    entries: dict[str, dict[str, dict[str, Any]]] = json.loads(manifest.read_text()) if manifest.is_file() else {}
    return entries


def _procedural(weights: str, network: str | Factory) -> Weights:
    known = available()
    if not known:
        raise InputError(
            f"weights={weights!r} are not part of this package: train some with `runoff pretrain`, and pass their path"
        )
    if not isinstance(network, str) or network not in known:
        name = network if isinstance(network, str) else getattr(network, "__name__", type(network).__name__)
        suited = " or ".join(map(repr, known))
        raise InputError(
            f"weights={weights!r} are for network {suited}, got {name!r}: use weights=None, or train some with "
            "`runoff pretrain`"
        )
    about = known[network][weights]
    data = (resources.files("runoff.torch") / FOLDER / about["file"]).read_bytes()
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        raise StorageError(f"the weights in {about['file']} were altered or damaged: reinstall runoff")
    return Weights(weights, about["sha256"], _ordered(parse(data)))


def _ordered(state: State) -> State:
    """Return the tensors in float32, sorted by name, after checking that they are finite."""
    if not state:
        raise InputError("it holds no tensors")
    for name, value in state.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(f"{name} is not finite")
    return {name: state[name].float() if state[name].is_floating_point() else state[name] for name in sorted(state)}
