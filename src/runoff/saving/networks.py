"""Directories of a fitted TorchClassifier: safetensors files and a manifest with the SHA-256 of each file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load as parse
from safetensors.torch import save as dump

from runoff._io.files import write_array
from runoff._io.manifests import Kind, checked_bytes, read_array
from runoff._io.text import one_line
from runoff.errors import StorageError
from runoff.recipes import Recipe
from runoff.saving.common import NOUN, REMEDY, load_directory, restore, saved_directory, settings_of
from runoff.torch import networks
from runoff.torch.building import State, build, build_once, tensors_of
from runoff.torch.classifier import TorchClassifier
from runoff.torch.identities import Identities, architecture
from runoff.torch.members import NetworkMember
from runoff.torch.networks import Factory
from runoff.torch.starting import plain
from runoff.torch.training.slots import MEAN, fits
from runoff.torch.training.trainer import Trainer

MOST_UNSTORED = 2**28  # bytes of the weights of a network, for a classifier that contains none
SEED = np.random.SeedSequence(0)
KIND = Kind("runoff torch classifier", 2, NOUN, REMEDY)


def save(classifier: TorchClassifier, path: Path) -> None:
    """Write a fitted classifier to a new directory, completely or not at all."""
    trainer = classifier.trainer()
    # Possibly those of other machines, where the last bits may differ.
    trained_with = classifier.__dict__.get("_trained_with") or Identities(trainer).trained_with
    with saved_directory(classifier, path, KIND) as (folder, manifest):
        write_array(folder / "shares.npy", np.stack([member.shares for member in classifier.members_]))
        for member in classifier.members_:
            for s, state in enumerate(member.fitted):
                (folder / "members" / _name(member.index, s)).write_bytes(dump(state))
        first_weights = classifier.first_weights_
        manifest |= {
            "versions": dict(trained_with),
            "network": classifier.network if isinstance(classifier.network, str) else None,
            "architecture": architecture(trainer.network, trainer.shape, trainer.n_classes),
            "recipe": trainer.recipe.to_dict(),
            **({} if first_weights is None else {"weights": first_weights}),
            "precision": trained_with["precision"],
            "torch": torch.__version__,
            "networks": [len(member.fitted) for member in classifier.members_],
        }


def load(kind: type[TorchClassifier], path: Path, network: Factory | None, device: Any) -> TorchClassifier:
    """Check every file and assemble the classifier."""
    return load_directory(path, KIND, lambda path, manifest: _assemble(kind, path, manifest, network, device))


def _assemble(
    kind: type[TorchClassifier], path: Path, manifest: dict[str, Any], network: Factory | None, device: Any
) -> TorchClassifier:
    if network is None and manifest["network"] not in networks.NETWORKS:
        raise StorageError(f"{path} contains custom networks: pass their function as load(path, network=...)")
    recipe = Recipe.from_dict(manifest["recipe"])
    settings = {"network": network or manifest["network"], "recipe": recipe, "device": device}
    first = {name: str(manifest["weights"][name]) for name in ("given", "sha256")} if "weights" in manifest else None
    settings["weights"] = None if first is None else first["given"]
    classifier = kind(**settings, **settings_of(path, manifest))
    restore(classifier, path, manifest)
    classifier.restore_networks(recipe, networks.get(classifier.network), first)
    trainer = classifier.trainer()
    if network is None:
        _check_shape(trainer, path, manifest)
    if architecture(trainer.network, trainer.shape, trainer.n_classes, scored=False) != manifest["architecture"]:
        raise StorageError(f"{path} was saved with a different network: names, shapes or code differ")
    shares = read_array(path, "shares.npy", manifest)
    counts = manifest["networks"]
    n_members = classifier.partition_.n_members
    if shares.shape != (n_members, len(classifier.classes_)) or len(counts) != n_members:
        raise StorageError(
            f"{path} has shares of shape {shares.shape} for {n_members} members: the manifest was altered"
        )
    files = [name for name in manifest["files"] if name.startswith("members/")]
    if sum(map(int, counts)) != len(files) or not np.isfinite(shares).all():
        raise StorageError(f"{path} has {len(files)} networks, but its manifest lists another number: it was altered")
    like = tensors_of(build(trainer.network, trainer.shape, trainer.n_classes, SEED))
    classifier.members_ = [
        NetworkMember(m, shares[m], tuple(_state(path, _name(m, s), manifest, like) for s in range(int(counts[m]))))
        for m in range(n_members)
    ]
    return classifier


def _check_shape(trainer: Trainer, path: Path, manifest: dict[str, Any]) -> None:
    """Raise StorageError if the networks are not for samples of the shape that the manifest claims.

    Networks are built without memory first: those for samples of a forged shape could take gigabytes.
    """
    with torch.device("meta"):
        claimed = tensors_of(build_once(plain(trainer.network), trainer.shape, trainer.n_classes, SEED))
    name = next((name for name in sorted(manifest["files"]) if name.startswith("members/")), None)
    if name is None:
        fit = sum(value.nbytes for value in claimed.values()) <= MOST_UNSTORED
    else:
        state = parse(checked_bytes(path, name, manifest["files"][name]))
        fit = all(n in state and state[n].shape == value.shape for n, value in claimed.items())
    if not fit:
        shape = one_line(trainer.shape, 60)
        raise StorageError(f"{path} has networks for samples of another shape than {shape}: it was altered")


def _name(member: int, seed: int) -> str:
    return f"{member:06d}-{seed:04d}.safetensors"


def _state(path: Path, name: str, manifest: dict[str, Any], like: State) -> State:
    name = f"members/{name}"
    state: State = parse(checked_bytes(path, name, manifest["files"][name]))
    try:
        fits(state, like, len(state[MEAN]) if MEAN in state else 0)
    except ValueError as error:
        raise StorageError(f"{path / name} is not one of these networks: {one_line(error, 400)}") from None
    return state
