"""Checkpoints: one file per trained network, written atomically and reused only for an identical network.

The identity of a network is a digest of everything that it depends on: samples and labels, seeds, recipe, architecture,
device and versions.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import textwrap
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as parse
from safetensors.torch import save

from runoff._io.files import written_whole
from runoff._io.sources import canonical, code_digest
from runoff._version import __version__
from runoff.errors import CheckpointError
from runoff.torch import devices, starting
from runoff.torch.building import State, build, seeded_generators, tensors_of
from runoff.torch.heads import HeadTrainer
from runoff.torch.kernels import norm_relu_pool
from runoff.torch.networks import Factory
from runoff.torch.training.jobs import Job, array_digest
from runoff.torch.training.results import Trained
from runoff.torch.training.trainer import Trainer

FORMAT = "runoff network 1"
PACKAGE = Path(__file__).parent.parent
COMPUTING = tuple(  # changes of other files do not change identities
    PACKAGE / name
    for name in (
        "hashing.py", "recipes.py", "torch/building.py", "torch/devices.py", "torch/inputs.py", "torch/networks.py",
        "torch/starting.py", "torch/training", "torch/kernels",
    )
)  # fmt: skip
ARRIVING = ".arriving"  # folder next to the networks, for results of other processes
SCORES = "runoff:scores"  # stored with the weights, if inputs were scored
FILE = re.compile(r"member-(\d{6,})-seed-(\d{4,})\.safetensors")


def architecture(factory: Factory, shape: tuple[int, ...], n_classes: int) -> str:
    """Return a digest of the modules that a factory builds, the same on every machine.

    It covers the names, shapes and types of the tensors, which of them are trained, the module's repr, and the source
    of the factory and of all layers outside PyTorch.
    """
    factory = starting.plain(factory)
    module = build(factory, shape, n_classes, np.random.SeedSequence(0))
    trained = {name: parameter.requires_grad for name, parameter in module.named_parameters()}
    tensors = [(n, tuple(v.shape), str(v.dtype), trained.get(n)) for n, v in tensors_of(module).items()]
    kinds = sorted(
        {type(layer) for layer in module.modules()}, key=lambda kind: f"{kind.__module__}.{kind.__qualname__}"
    )
    sources = [
        _source(thing) for thing in (factory, *kinds) if not getattr(thing, "__module__", "").startswith("torch.")
    ]
    description = json.dumps([type(module).__qualname__, repr(module), tensors, sources])
    return hashlib.sha256(description.encode()).hexdigest()


def _source(thing: Any) -> str:
    try:
        return canonical(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError):
        return repr(type(thing))
    except SyntaxError:  # a lambda in the middle of an expression
        return inspect.getsource(thing)


def behaviour(factory: Factory, shape: tuple[int, ...], n_classes: int) -> str:
    """Return a digest of a network's initial weights, logits and gradients on this machine.

    It detects differences that are not visible in the source, such as a value that the factory reads from an outer
    scope.
    """
    module = build(factory, shape, n_classes, np.random.SeedSequence(0))
    hashed = hashlib.sha256(digest(tensors_of(module)).encode())
    draws = np.random.default_rng(0)
    torch_shape = (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape
    numbers = draws.standard_normal((2, *torch_shape), dtype=np.float32)
    plain = torch.autocast("cpu", enabled=False)
    with devices.repeatable("fp32", torch.device("cpu")), seeded_generators(0), torch.inference_mode(False), plain:
        x, y = torch.from_numpy(numbers), torch.tensor([0, n_classes - 1])
        with torch.enable_grad():
            logits = module.train()(x)
            torch.nn.functional.cross_entropy(logits.float(), y).backward()  # type: ignore[no-untyped-call]
        gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
        with torch.no_grad():
            eval_logits = module.eval()(x)
    hashed.update(digest({"logits": logits.detach(), "eval_logits": eval_logits, **gradients}).encode())
    return hashed.hexdigest()


@cache
def sources() -> str:
    """Return a digest of the code that determines the bits of networks."""
    return code_digest([*COMPUTING])


def conditions(trainer: Trainer) -> dict[str, Any]:
    """Return the facts that determine the bits of networks on this machine, besides samples and settings."""
    here = {
        "device": devices.describe(trainer.device),
        "precision": trainer.precision,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "runoff": __version__,
    }
    if isinstance(trainer, HeadTrainer):
        return {**here, "heads": trainer.identity()}
    return {
        **here,
        "kernels": norm_relu_pool.version() if trainer.device.type == "cuda" else None,
        "code": sources(),
        "behaviour": behaviour(trainer.network, trainer.shape, trainer.n_classes),
    }


def _network_identity(trainer: Any, kind: dict[str, Any]) -> list[Any]:
    """Return the parts of the identity of networks, without device and versions."""
    return [
        trainer.recipe.to_dict(),
        kind["kernels"],
        list(trainer.shape),
        trainer.n_classes,
        kind["code"],
        architecture(trainer.network, trainer.shape, trainer.n_classes),
        kind["behaviour"],
        None if (first := starting.first_weights_of(trainer.network)) is None else first.sha256,
    ]


class Identities:
    """The identities of the networks of a trainer, on this machine or on one of the given kind."""

    def __init__(self, trainer: Any, kind: dict[str, Any] | None = None) -> None:
        kind = conditions(trainer) if kind is None else kind
        names = ("device", "precision", "torch", "numpy", "runoff")
        self.trained_with: dict[str, str] = {name: kind[name] for name in names}
        self._common = [
            FORMAT,
            dict(self.trained_with),
            *(kind["heads"] if "heads" in kind else _network_identity(trainer, kind)),
        ]
        self.trained_with["code"] = hashlib.sha256(json.dumps(self._common, default=str).encode()).hexdigest()

    def identity(self, job: Job) -> str:
        """Return the identity of a network."""
        images = job.images()
        job_inputs = [
            job.member,
            job.seed,
            job.source.entropy,
            list(job.source.spawn_key),
            array_digest(images),
            array_digest(job.labels),
        ]
        return hashlib.sha256(json.dumps([self._common, job_inputs], default=str).encode()).hexdigest()


class Checkpoints:
    """Networks in a directory, one safetensors file each.

    `weights=False` stores scores only, for ensembles whose weights would fill a disk; `half=True` stores scores in half
    precision. Anyone who can write to the directory can change predictions, but no content of a file is executed.
    """

    def __init__(self, path: str | Path, *, weights: bool = True, half: bool = False, make: bool = True) -> None:
        self.path, self.weights, self.half = Path(path), weights, half
        if make:
            self.path.mkdir(parents=True, exist_ok=True)

    def file(self, member: int, seed: int) -> Path:
        """Return the path of a network's file."""
        return self.path / f"member-{member:06d}-seed-{seed:04d}.safetensors"

    def existing(self) -> dict[tuple[int, int], Path]:
        """Return the files of all stored networks, by member and seed."""
        files = list(self.path.iterdir()) if self.path.is_dir() else []
        named = [(FILE.fullmatch(file.name), file) for file in files]
        return {(int(match[1]), int(match[2])): file for match, file in named if match}

    def get(self, job: Job, identity: str | None, inputs: str | None) -> Trained | None:
        """Return the network if it is stored with this identity, and its scores if they are for these inputs.

        Without an identity, return any network of this member and seed, for callers that have checked the files.
        """
        file = self.file(job.member, job.seed)
        if not file.exists():
            return None
        metadata, state = read(file)
        if identity is not None and metadata.get("identity") != identity:
            return None
        trained = _trained(job, metadata, state)
        if trained.inputs != inputs:
            trained = replace(trained, scores=None)
        return None if not trained.state and trained.scores is None else trained

    def has(self, job: Job, identity: str, inputs: str | None) -> bool:
        """Return whether the network is stored, judged by the metadata of its file.

        With `inputs`, its scores for these must be stored; without, its weights.
        """
        file = self.file(job.member, job.seed)
        if not file.exists():
            return False
        try:
            with safe_open(file, framework="pt") as opened:
                metadata, names = opened.metadata() or {}, set(opened.keys())
        except (SafetensorError, OSError) as error:
            raise CheckpointError(_unreadable(file, error)) from None
        useful = bool(names - {SCORES}) if inputs is None else metadata.get("asked") == inputs
        return metadata.get("identity") == identity and useful

    def seconds(self, member: int, seed: int) -> float:
        """Return the training time of a stored network in seconds."""
        with safe_open(self.file(member, seed), framework="pt") as opened:
            return float((opened.metadata() or {}).get("seconds", 0))

    def put(self, trained: Trained, identity: str) -> Trained:
        """Write a network atomically, and return it as `get` would: with `half`, its scores are rounded."""
        if trained.scores is not None and self.half:
            trained = replace(trained, scores=torch.from_numpy(trained.scores).half().float().numpy())
        self._write(trained.member, trained.seed, encoded(trained, identity, weights=self.weights, half=self.half))
        return trained

    def accept(self, job: Job, data: bytes, identity: str) -> Trained:
        """Store a network that another process trained, from the content of its file."""
        trained = decoded(job, data, identity)
        self._write(job.member, job.seed, data)
        return trained

    def _write(self, member: int, seed: int, data: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with written_whole(self.file(member, seed), binary=True) as file:
            file.write(data)

    @property
    def arriving(self) -> str:
        """The folder to which other processes write networks for this store."""
        return str(self.path.absolute() / ARRIVING)

    def keep_only(self, identities: set[str]) -> None:
        """Delete nothing: another fit may need the files."""


def is_checkpoint(file: Path) -> bool:
    """Return whether a path is a regular file with the metadata of a checkpoint, so that it may be deleted."""
    if file.is_symlink() or not file.is_file():
        return False
    try:
        with safe_open(file, framework="pt") as opened:
            return str((opened.metadata() or {}).get("format", "")).startswith("runoff network")
    except (SafetensorError, OSError):
        return False


def digest(state: State) -> str:
    """Return a SHA-256 of the names, types, shapes and values of tensors."""
    hashed = hashlib.sha256()
    for name in sorted(state):
        value = state[name].detach().contiguous()
        hashed.update(f"{name} {value.dtype} {tuple(value.shape)} ".encode())
        hashed.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()


def encoded(trained: Trained, identity: str, *, weights: bool, half: bool) -> bytes:
    """Return the content of a checkpoint file."""
    state = dict(trained.state) if weights else {}
    if trained.scores is not None:
        scores = torch.from_numpy(trained.scores)
        state[SCORES] = scores.half() if half else scores
    metadata = {
        "format": FORMAT,
        "identity": identity,
        "asked": trained.inputs or "",
        "digest": digest(state),
        "refused": trained.refused or "",
        "seconds": f"{trained.seconds:.3f}",
    }
    return save(state, metadata)


def decoded(job: Job, data: bytes, identity: str) -> Trained:
    """Return the network in the content of a file, or raise an error if it has another identity."""
    try:
        length = int.from_bytes(data[:8], "little")
        metadata, state = json.loads(data[8 : 8 + length]).get("__metadata__", {}), parse(data)
    except (SafetensorError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(f"the result of member {job.member} cannot be read ({error}): retrain it") from None
    if metadata.get("identity") != identity or metadata.get("digest") != digest(state):
        raise CheckpointError(f"the result of member {job.member} is damaged or belongs to another network: retrain it")
    return _trained(job, metadata, state)


def _trained(job: Job, metadata: dict[str, str], state: State) -> Trained:
    scores = state.pop(SCORES, None)
    return Trained(
        job.member,
        job.seed,
        state,
        None if scores is None else scores.float().numpy(),
        metadata.get("asked") or None,
        metadata.get("refused") or None,
        float(metadata.get("seconds", 0)),
    )


def read(file: Path) -> tuple[dict[str, str], State]:
    """Return the metadata and the tensors of an intact checkpoint."""
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            state = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(_unreadable(file, error)) from None
    if metadata.get("format") != FORMAT:
        raise CheckpointError(f"{file} is not a checkpoint of this release: use another directory, or remove it")
    if metadata.get("digest") != digest(state):
        raise CheckpointError(f"{file} was altered or damaged: remove it, and its network will be retrained")
    return metadata, state


def _unreadable(file: Path, error: Exception) -> str:
    return f"{file} cannot be read ({error}): remove it, and its network will be retrained"
