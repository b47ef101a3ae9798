"""First weights: tensors that all networks of an ensemble start from.

Weights that no training sample has touched are a constant of the program, as the architecture is: an edit of the
training data cannot change them. `runoff pretrain` makes such weights from images that a formula draws; `"procedural"`
names those that come with the package, where it has some.
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

from runoff.errors import InputError, StorageError
from runoff.torch import networks
from runoff.torch.building import State, tensors_of
from runoff.torch.networks import Factory, Shape

PROCEDURAL = "procedural"
FOLDER, MANIFEST = "weights", "manifest.json"  # in this package


@dataclass(frozen=True, eq=False)
class Weights:
    """Tensors by name, and where they come from."""

    given: str  # "procedural", or the path of a file
    sha256: str  # of the file
    state: State = field(repr=False)

    def described(self) -> dict[str, str]:
        """Return what manifests say of the weights."""
        return {"given": self.given, "sha256": self.sha256}


@dataclass(frozen=True, eq=False)
class Starting:
    """A network factory whose networks start from given weights; tensors that these do not have stay random."""

    network: Factory
    weights: Weights

    def __call__(self, shape: Shape, n_classes: int) -> nn.Module:
        """Build a network with tensors of its own."""
        module = self.network(shape, n_classes)
        tensors = tensors_of(module)
        with torch.no_grad():
            for name, value in self.weights.state.items():
                if name not in tensors:
                    raise InputError(f"{self._which(name)}, which the network does not have: use other weights")
                tensors[name].copy_(self._fitted(name, value, tensors[name]))
        return module

    def _which(self, name: str) -> str:
        return f"weights {self.weights.given!r} have a tensor {name!r}"

    def _fitted(self, name: str, value: Tensor, like: Tensor) -> Tensor:
        """Return the tensor with as many input channels as the network has: equal channels give what gray images gave.

        With one channel that is the sum over the colours.
        """
        if value.ndim == 4 and value.shape[1] == 3 != like.shape[1] and name == self._first():
            value = (value.sum(1, keepdim=True) / like.shape[1]).expand(-1, like.shape[1], -1, -1)
        if value.shape != like.shape:
            raise InputError(
                f"{self._which(name)} of shape {tuple(value.shape)}, but the network's has {tuple(like.shape)}: "
                "use other weights, or the network that they are of"
            )
        return value

    def _first(self) -> str:
        """Return the name of the first convolution."""
        return next(name for name, value in self.weights.state.items() if value.ndim == 4)


def get(weights: str | Path | None, network: str | Factory) -> Weights | None:
    """Read first weights: None for random ones, "procedural" for those of the package, else a safetensors file."""
    if weights is None:
        return None
    if weights == PROCEDURAL:
        return _procedural(network)
    if not isinstance(weights, (str, Path)):
        raise InputError(f"weights must be None, {PROCEDURAL!r} or the path of a file, got {type(weights).__name__}")
    path = Path(weights).expanduser().resolve()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"weights must be None, {PROCEDURAL!r} or a safetensors file, but {path} cannot be read: {error.strerror}"
        ) from None
    try:
        return Weights(str(path), hashlib.sha256(data).hexdigest(), _ordered(parse(data)))
    except (SafetensorError, ValueError, KeyError) as error:
        raise InputError(f"weights must be a safetensors file, but {path} is invalid: {error}") from None


def start(network: str | Factory, weights: str | Path | None) -> Factory:
    """Return the factory of a network, with first weights if any are given."""
    found = get(weights, network)
    return networks.get(network) if found is None else Starting(networks.get(network), found)


def recorded(network: str | Factory, described: dict[str, str] | None) -> Factory:
    """Return the same for weights that a manifest describes; they must be those that it means."""
    if described is None:
        return networks.get(network)
    found = get(described["given"], network)
    if found is None or found.sha256 != described["sha256"]:
        raise StorageError(
            f"first weights {described['given']!r} have another SHA-256 than those that the run was trained with: put "
            "the original file there, or train a new run"
        )
    return Starting(networks.get(network), found)


def plain(network: Factory) -> Factory:
    """Return a factory without first weights: what its networks are apart from them."""
    return network.network if isinstance(network, Starting) else network


def of(network: Factory) -> Weights | None:
    """Return the first weights of a factory's networks."""
    return network.weights if isinstance(network, Starting) else None


def available() -> dict[str, dict[str, Any]]:
    """Return what the package says of its procedural weights, by network."""
    manifest = resources.files("runoff.torch") / FOLDER / MANIFEST
    found: dict[str, dict[str, Any]] = json.loads(manifest.read_text()) if manifest.is_file() else {}
    return found


def _procedural(network: str | Factory) -> Weights:
    known = available()
    if not known:
        raise InputError(
            f"weights={PROCEDURAL!r} are not part of this package: train some with `runoff pretrain`, "
            "and give their path"
        )
    if not isinstance(network, str) or network not in known:
        name = network if isinstance(network, str) else getattr(network, "__name__", type(network).__name__)
        suited = " or ".join(map(repr, known))
        raise InputError(
            f"weights={PROCEDURAL!r} are for network {suited}, got {name!r}: use weights=None, or train some with "
            "`runoff pretrain`"
        )
    about = known[network]
    data = (resources.files("runoff.torch") / FOLDER / about["file"]).read_bytes()
    if hashlib.sha256(data).hexdigest() != about["sha256"]:
        raise StorageError(f"the weights in {about['file']} were altered or damaged: install runoff again")
    return Weights(PROCEDURAL, about["sha256"], _ordered(parse(data)))


def _ordered(state: State) -> State:
    """Sort tensors by name, in float32, and check that they are finite numbers."""
    if not state:
        raise InputError("it holds no tensors")
    for name, value in state.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            raise InputError(f"{name} is not finite")
    return {name: state[name].float() if state[name].is_floating_point() else state[name] for name in sorted(state)}
