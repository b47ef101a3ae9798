"""Identities: a digest of everything that a network depends on.

These are samples and labels, seeds, recipe, architecture, device and versions.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import textwrap
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from runoff._io.sources import canonical, code_digest
from runoff._version import __version__
from runoff.hashing import plain_floats
from runoff.torch import devices, starting
from runoff.torch.building import build, build_once, check_scores, seeded_generators, tensors_of
from runoff.torch.checkpoints import FORMAT, digest
from runoff.torch.heads import HeadTrainer
from runoff.torch.kernels import norm_relu_pool
from runoff.torch.networks import Factory
from runoff.torch.training.jobs import Job, array_digest
from runoff.torch.training.trainer import Trainer

PACKAGE = Path(__file__).parent.parent
COMPUTING = tuple(  # changes of other files do not change identities
    PACKAGE / name
    for name in (
        "hashing.py", "recipes.py", "torch/building.py", "torch/devices.py", "torch/inputs.py", "torch/networks.py",
        "torch/starting.py", "torch/training", "torch/kernels",
    )
)  # fmt: skip


def architecture(factory: Factory, shape: tuple[int, ...], n_classes: int, *, scored: bool = True) -> str:
    """Return a digest of the modules that a factory builds, the same on every machine.

    It covers the names, shapes and types of the tensors, which of them are trained, the module's repr, and the source
    of the factory and of all layers outside PyTorch. Unless `scored` is False, the module must score two inputs.
    """
    factory = starting.plain(factory)
    module = build(factory, shape, n_classes, np.random.SeedSequence(0))
    if scored:
        check_scores(module, shape, n_classes)
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
    """Return the source of a function or a class; that of the package is read once."""
    ours = getattr(thing, "__module__", "").startswith("runoff.")
    return _read_once(thing) if ours else _read_source(thing)


def _read_source(thing: Any) -> str:
    try:
        return canonical(textwrap.dedent(inspect.getsource(thing)))
    except (OSError, TypeError):
        return repr(type(thing))
    except SyntaxError:  # a lambda in the middle of an expression
        return inspect.getsource(thing)


_read_once = cache(_read_source)


def behaviour(factory: Factory, shape: tuple[int, ...], n_classes: int) -> str:
    """Return a digest of a network's initial weights, logits and gradients on this machine.

    It detects differences that are not visible in the source, such as a value that the factory reads from an outer
    scope.
    """
    module = build(factory, shape, n_classes, np.random.SeedSequence(0))
    check_scores(build_once(factory, shape, n_classes, np.random.SeedSequence(0)), shape, n_classes)
    hashed = hashlib.sha256(digest(tensors_of(module)).encode())
    draws = np.random.default_rng(0)
    torch_shape = (shape[2], shape[0], shape[1]) if len(shape) == 3 else shape
    numbers = draws.standard_normal((2, *torch_shape), dtype=np.float32)
    plain = torch.autocast("cpu", enabled=False)
    with devices.repeatable("fp32"), seeded_generators(0), torch.inference_mode(False), plain:
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
        self._encoded = "heads" in kind
        self.trained_with["code"] = hashlib.sha256(json.dumps(self._common, default=str).encode()).hexdigest()

    def identity(self, job: Job) -> str:
        """Return the identity of a network."""
        images = job.images()
        if self._encoded and images.dtype != np.uint8:  # an encoder gets numbers that float32 may not distinguish
            images = plain_floats(job.samples[job.rows])
        job_inputs = [
            job.member,
            job.seed,
            job.source.entropy,
            list(job.source.spawn_key),
            array_digest(images),
            array_digest(job.labels),
        ]
        return hashlib.sha256(json.dumps([self._common, job_inputs], default=str).encode()).hexdigest()
