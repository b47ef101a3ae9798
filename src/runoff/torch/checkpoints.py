"""Checkpoints: one file per trained network, written atomically and reused only for an identical network."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as parse
from safetensors.torch import save

from runoff._io.files import LARGEST, written_whole
from runoff._io.text import one_line
from runoff.errors import CheckpointError
from runoff.torch.building import State
from runoff.torch.training.jobs import Job
from runoff.torch.training.results import Trained

FORMAT = "runoff network 1"
ARRIVING = ".arriving"  # folder next to the networks, for results of other processes
SCORES = "runoff:scores"  # stored with the weights, if inputs were scored
FILE = re.compile(r"member-(\d{6,})-seed-(\d{4,})\.safetensors")


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
        if not _exists(file):
            return None
        metadata, state = read(file)
        if identity is not None and metadata.get("identity") != identity:
            return None
        trained = _trained(job, metadata, state)
        if trained.inputs != inputs:
            trained = replace(trained, scores=None)
        empty = not trained.state and trained.scores is None and trained.refused is None
        return None if empty else trained

    def has(self, job: Job, identity: str, inputs: str | None) -> bool:
        """Return whether the network is stored, judged by the metadata of its file.

        With `inputs`, its scores for these must be stored; without, its weights.
        """
        file = self.file(job.member, job.seed)
        if not _exists(file):
            return False
        try:
            with safe_open(file, framework="pt") as opened:
                metadata, names = opened.metadata() or {}, set(opened.keys())
        except (SafetensorError, OSError) as error:
            raise CheckpointError(_unreadable(file, error)) from None
        useful = metadata.get("asked") == inputs
        if inputs is None:
            useful = bool(names - {SCORES}) or bool(metadata.get("refused"))
        return metadata.get("identity") == identity and useful

    def seconds(self, member: int, seed: int) -> float:
        """Return the training time of a stored network in seconds."""
        with safe_open(self.file(member, seed), framework="pt") as opened:
            return _seconds(member, opened.metadata() or {})

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
        with written_whole(self.file(member, seed), binary=True, among_many=True) as file:
            file.write(data)

    @property
    def arriving(self) -> str:
        """The folder to which other processes write networks for this store."""
        return str(self.path.absolute() / ARRIVING)

    def keep_only(self, identities: set[str]) -> None:
        """Delete nothing: another fit may need the files."""


def _exists(file: Path) -> bool:
    """Return whether a network's file exists; opening a named pipe in its place would block forever."""
    if not file.exists():
        return False
    if not file.is_file() or file.stat().st_size > LARGEST:
        raise CheckpointError(f"{file} is not the file of a network: remove it, and its network will be retrained")
    return True


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
        state = parse(data)  # first, since it rejects headers that are no JSON or nested deeply
        metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")]).get("__metadata__") or {}
        float(metadata.get("seconds", 0))
    except (SafetensorError, ValueError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"the result of member {job.member} cannot be read ({one_line(error)}): retrain it"
        ) from None
    expected = {"format": FORMAT, "identity": identity, "digest": digest(state)}
    if any(metadata.get(name) != value for name, value in expected.items()):
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
        _seconds(job.member, metadata),
    )


def _seconds(member: int, metadata: dict[str, str]) -> float:
    try:
        return float(metadata.get("seconds", 0))
    except ValueError:
        raise CheckpointError(f"the network of member {member} was altered: remove its file") from None


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
    return f"{file} cannot be read ({one_line(error)}): remove it, and its network will be retrained"
