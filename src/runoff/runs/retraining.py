"""Scoring and retraining for `runoff.verify`, which contains no code for either."""

from __future__ import annotations

import hashlib
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff._io.text import one_line
from runoff.verify.networks import Tensor


class RunTrainer:
    """A trainer for the networks of a run."""

    def __init__(self, manifest: dict[str, Any], shape: tuple[int, ...], device: Any = None) -> None:
        from runoff.runs.settings import Settings
        from runoff.runs.work import trainer_settings
        from runoff.torch.identities import Identities

        settings = Settings(**manifest["settings"])
        self.seed = int(settings.random_state)
        example = np.zeros((1, *shape, 1) if len(shape) == 2 else (1, *shape), np.uint8)
        n_classes = len(manifest["dataset"]["classes"])
        self.trainer = trainer_settings(settings, example, n_classes, device=device).trainer()
        self.here = Identities(self.trainer).trained_with
        self.recorded = manifest.get("trained_by")

    def unlike(self) -> str | None:
        """Return the reason why retraining on this machine would give different networks, or None."""
        return _difference("run", self.recorded, self.here)

    def scores(self, tensors: dict[str, Tensor], inputs: NDArray[Any]) -> NDArray[Any]:
        """Return a network's scores."""
        from runoff.torch.training.jobs import compact

        [(_, scores)] = self.trainer.score([(0, _state(tensors))], compact(inputs))
        return np.asarray(scores)

    def retrained(
        self, member: int, seed: int, x: NDArray[Any], rows: list[int], codes: NDArray[np.int64], inputs: NDArray[Any]
    ) -> tuple[dict[str, Tensor], NDArray[Any] | None]:
        """Retrain a network on these rows; return its tensors, and its scores for the inputs if it can be used."""
        from runoff.isolation import seeds_of
        from runoff.torch.training.jobs import Job, compact

        source = seeds_of(self.seed, member, seed + 1)[seed]
        job = Job(member, seed, source, x, np.array(rows, np.int64), codes)
        [trained] = self.trainer.train([job], compact(inputs))
        return _tensors(trained.state), trained.scores if trained.refused is None else None


def _difference(what: str, recorded: Any, here: dict[str, str]) -> str | None:
    """Return the first recorded fact that is different here, as a sentence, or None."""
    if not isinstance(recorded, dict):
        return f"the {what} does not record what it was trained with"
    for name, value in recorded.items():
        if here.get(name) != value:
            if name == "code":
                return (
                    f"the {what} was trained with another version of the code, or with another recipe, network or "
                    "other setting than its manifest names"
                )
            trained = f"{one_line(name, 40)} {value!s:.80}"
            return f"the {what} was trained with {trained}, but this machine has {here.get(name)!s:.80}"
    return None


def _state(tensors: dict[str, Tensor]) -> Any:
    import torch

    from runoff.verify.networks import SIZES

    names = ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool")
    types = {short: getattr(torch, name) for short, name in zip(SIZES, names, strict=True)}
    return {
        name: torch.frombuffer(bytearray(t.data), dtype=types[t.dtype]).reshape(t.shape)
        if t.data
        else torch.empty(t.shape, dtype=types[t.dtype])
        for name, t in tensors.items()
    }


def _tensors(state: Any) -> dict[str, Tensor]:
    from safetensors.torch import save

    from runoff.verify.networks import tensors

    return tensors(save({name: value.detach().contiguous() for name, value in state.items()}))[1]


def members_of(path: Path, manifest_format: str, trusted: tuple[str, ...] = (), device: Any = None) -> Any:
    """Return an object that scores and retrains the members of a saved classifier."""
    if manifest_format == "runoff torch classifier":
        from runoff.torch import TorchClassifier

        return NetworkMembers(TorchClassifier.load(path, device=device), path)
    from runoff import RunoffClassifier

    return EstimatorMembers(RunoffClassifier.load(path, trusted=trusted), path)


class _Loaded:
    """A loaded classifier with its manifest."""

    def __init__(self, classifier: Any, path: Path) -> None:
        self.classifier, self.path = classifier, path
        self.manifest = json.loads((path / "manifest.json").read_bytes())

    def unlike(self) -> str | None:
        """Return the reason why retraining on this machine would give different members, or None."""
        return _difference("classifier", self.manifest.get("versions"), self._versions())

    def _versions(self) -> dict[str, str]:
        from runoff.saving import classifiers, trusted

        recorded = self.manifest.get("versions") or {}
        return classifiers.versions(name for name in trusted.MODULES.values() if name in recorded)

    def _labels(self, y: Any) -> NDArray[Any]:
        """Return labels with the dtype of the classes."""
        from runoff.fitting import labels

        classes = self.classifier.classes_
        return np.asarray(classes[labels.codes(np.asarray(y).tolist(), classes)])

    def scores(self, inputs: Any) -> NDArray[Any]:
        """Return the members' scores."""
        return np.asarray(self.classifier.scores(inputs).values)

    def certify(self, inputs: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return the classifier's predictions, runners-up and radii."""
        certificates = self.classifier.certify(inputs)
        return certificates.prediction, certificates.runner_up, certificates.radius


class EstimatorMembers(_Loaded):
    """Members that are scikit-learn estimators."""

    def retrained(self, member: int, X: Any, y: Any, rows: list[int]) -> tuple[dict[str, str], dict[str, str]]:
        """Retrain a member on these rows; return digests of the stored and of the retrained one."""
        from runoff.isolation import seeds_of, undisturbed
        from runoff.members import MemberEstimator, default_estimator, fit_member
        from runoff.saving import classifiers

        classifier = self.classifier
        samples = classifier.samples_of(X)
        state, shared = classifier.fitted_state(), self._shared_parts(samples)
        samples = classifier.features_of(samples, classifier.partition_.digests(samples))
        estimator = default_estimator(samples.kind) if classifier.estimator is None else classifier.estimator
        seeds = seeds_of(state.seed, member, state.n_seeds)
        with undisturbed():
            unfitted, labels = MemberEstimator(estimator), self._labels(y)
            fitted = fit_member(unfitted, samples, labels, np.array(rows, np.int64), member, seeds)
        stored = (self.path / "members" / f"{member:06d}.skops").read_bytes()
        return _skops_parts(stored) | shared[0], _skops_parts(classifiers.member_bytes(fitted)) | shared[1]

    def _shared_parts(self, samples: Any) -> tuple[dict[str, str], dict[str, str]]:
        """Refit the shared transformer; return digests of the features from the stored and from the refitted one."""
        from runoff.members import Shared

        classifier, digests = self.classifier, self.classifier.partition_.digests(samples)
        if classifier.shared_ is None:
            return {}, {}
        again = Shared.fit(classifier.shared, samples, digests, classifier.fitted_state().seed)

        def digest(shared: Any) -> dict[str, str]:
            hashed = hashlib.sha256()
            for row in shared.transform(samples).content():
                hashed.update(bytes(row))
            return {"the shared transformer": hashed.hexdigest()}

        return digest(classifier.shared_), digest(again)


def _skops_parts(data: bytes) -> dict[str, str]:
    """Return digests of the parts of a skops file, with memory addresses replaced by running numbers."""
    numbers: dict[Any, int] = {}
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        schema = json.loads(archive.read("schema.json"))
        parts = {}

        def plain(value: Any) -> Any:
            if isinstance(value, dict):
                copy: dict[str, Any] = {}
                for name, item in value.items():
                    if name == "__id__":
                        copy[name] = numbers.setdefault(item, len(numbers))
                    elif name == "file" and isinstance(item, str):
                        copy[name] = hashlib.sha256(archive.read(item)).hexdigest()
                    else:
                        copy[name] = plain(item)
                return copy
            return [plain(item) for item in value] if isinstance(value, list) else value

        content = schema.get("content", {})
        for name, item in content.items() if isinstance(content, dict) else ():
            parts[str(name)] = hashlib.sha256(json.dumps(plain(item), sort_keys=True).encode()).hexdigest()
    return parts


class NetworkMembers(_Loaded):
    """Members that are networks."""

    def unlike(self) -> str | None:
        """Return the reason why retraining on this machine would give different networks, or None."""
        try:  # only training needs the initial weights
            self.classifier.restore_first_weights()
        except ValueError as error:
            return str(error)
        return super().unlike()

    def _versions(self) -> dict[str, str]:
        from runoff.torch.identities import Identities

        return Identities(self.classifier.trainer()).trained_with

    def retrained(self, member: int, X: Any, y: Any, rows: list[int]) -> tuple[dict[str, str], dict[str, str]]:
        """Retrain a member's networks on these rows; return digests of the stored and of the retrained ones."""
        from runoff.torch.members import NetworkMember
        from runoff.torch.pipeline import network_jobs
        from runoff.verify.networks import tensors

        classifier = self.classifier
        samples = classifier.samples_of(X)
        codes, state = np.searchsorted(classifier.classes_, self._labels(y)), classifier.fitted_state()
        by_member = {member: np.array(rows, np.int64)}
        jobs = network_jobs(samples.data, codes, by_member, [member], state.seed, state.n_seeds)
        networks = list(classifier.trainer().train(jobs)) if jobs else []
        result = NetworkMember.from_networks(member, np.zeros(0), networks)
        stored: dict[str, str] = {}
        retrained: dict[str, str] = {}
        for s in range(self.manifest["networks"][member]):
            state = tensors((self.path / "members" / f"{member:06d}-{s:04d}.safetensors").read_bytes())[1]
            stored |= {f"seed {s}, {name}": _digest(tensor) for name, tensor in state.items()}
        for s, weights in enumerate(result.fitted):
            retrained |= {f"seed {s}, {name}": _digest(tensor) for name, tensor in _tensors(weights).items()}
        return stored, retrained


def _digest(tensor: Tensor) -> str:
    return hashlib.sha256(f"{tensor.dtype} {tensor.shape} ".encode() + tensor.data).hexdigest()
