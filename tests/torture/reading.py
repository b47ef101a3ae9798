"""Readers under test: files, how they are damaged and read. First those of scores, runs and saved classifiers."""

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import runoff
from runoff._io.files import open_array
from runoff.errors import RunoffError
from runoff.spreads import Spread
from tests.torture import bases, damage
from tests.torture.damage import Random, pick
from tests.torture.guard import guarded, sentence

Files = dict[str, bytes]


class NotHereError(Exception):
    """A reader that this version does not have."""


class Reader:
    """Files, how they are damaged, and how they are read. `strict`: what is read must be what was saved."""

    allowed: tuple[type[BaseException], ...] = (RunoffError,)
    about: tuple[str, ...] = ()
    strict = True
    by_path = True  # it opens the files itself
    patch = pytest.MonkeyPatch()  # undone after the cases of a reader

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.files: Files = {}
        self.make()
        self.expected = self.read() if self.strict else None

    def make(self) -> None:
        """Write good files to the folder, and keep them in `files`."""

    def read(self) -> Any:
        """Read them, as far as that can go."""

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        """Some files, changed, and whether a read must still give what was saved."""
        name = pick(rng, sorted(self.files))
        return {name: damage.in_bytes(rng, self.files[name])}, self.strict

    def put(self, files: Files) -> None:
        """Write files to the folder."""
        for name, data in files.items():
            path = self.folder / name
            try:
                path.write_bytes(data)
            except FileNotFoundError:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)

    def move(self, folder: Path) -> None:
        """Use another folder from now on."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.put(self.files)

    def given_files(self) -> Files:
        """The files of the folder that are not as they were made: in a process that died, those of its last case."""
        found = bases.contents(self.folder)
        return {name: data for name, data in found.items() if self.files.get(name) != data}

    def case(self, rng: Random) -> str | None:
        """One case; what went wrong, if anything."""
        changed, strict = self.damaged(rng)
        self.put(changed)
        try:
            outcome = guarded(self.read)
        finally:
            self.put({name: self.files[name] for name in changed if name in self.files})
            for name in changed.keys() - self.files.keys():
                (self.folder / name).unlink(missing_ok=True)
        told = {name: data[:300] for name, data in changed.items()} or getattr(self, "given", None)
        if outcome.excess:
            return f"{outcome.excess}: {told!r:.600}"
        if outcome.error is not None:
            wrong = sentence(outcome.error, self.allowed, (*self.about, self.folder.name))
            return wrong and f"{wrong} for {told!r:.600}"
        if strict and outcome.result != self.expected:
            return f"read as something else than was saved: {told!r:.600}"
        return None


class Scores(Reader):
    """`runoff certify scores.npy`."""

    strict = False
    about = ("scores",)
    bases = staticmethod(bases.score_files)

    def make(self) -> None:
        self.all = self.bases()
        for data in self.all:  # compiled before anything is timed
            self.put({"scores.npy": data})
            self.read()

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        return {"scores.npy": damage.in_npy(rng, pick(rng, self.all))}, False

    def read(self) -> Any:
        array = open_array(self.folder / "scores.npy")
        try:
            theirs = np.load(self.folder / "scores.npy", allow_pickle=False)
        except ValueError:
            raise AssertionError("an array was read that NumPy itself does not read") from None
        if array.dtype != theirs.dtype or array.shape != theirs.shape or array.tobytes() != theirs.tobytes():
            raise AssertionError("an array was read that differs from the file's")
        return runoff.certify(array).radius.tolist() if array.size < 10**5 else None


class BallotFiles(Scores):
    """The same of ballots."""

    bases = staticmethod(bases.ballot_files)


class Spreads(Reader):
    """Spreads as objects of every sort; a spread that is taken must be the one that was given."""

    strict = False
    by_path = False
    about = ("spread",)

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        base = [rng.choice(6, int(rng.integers(0, 4)), replace=False).tolist() for _ in range(int(rng.integers(1, 6)))]
        even = rng.integers(0, 6, (int(rng.integers(0, 5)), int(rng.integers(0, 4))))
        how = int(rng.integers(8))
        if how == 0:
            base[int(rng.integers(len(base)))] = damage.odd_values(rng)
        elif how == 1:
            base[int(rng.integers(len(base)))].append(damage.odd_values(rng))
        elif how == 2:
            base = even.astype(pick(rng, ["u1", "i8", "f8", "f4", "c8", "U1", "O", "?", ">i4", "u8", "M8[s]"]))  # type: ignore[assignment]
        elif how == 3:
            base = damage.odd_values(rng)
        elif how == 4:
            base = np.isin(np.arange(6), even[:1] if even.size else [])[None]  # type: ignore[assignment]
        elif how == 5:
            base = tuple(map(pick(rng, [tuple, set, np.array, iter, str]), base))  # type: ignore[assignment]
        elif how == 6:
            bad = pick(rng, [[7], [-1], [2**40], [2**63], [-(2**63) - 1], [0, 0], [1.0], ["1"], [True]])
            base = [*even.tolist(), bad]
        self.given = base
        return {}, False

    def read(self) -> Any:
        given = self.given
        plain = [list(b) for b in given] if isinstance(given, (list, tuple)) and _plain(given) else None
        spread = Spread.from_any(given, 6)
        members = [spread.members[a:b].tolist() for a, b in zip(spread.members_at, spread.members_at[1:], strict=False)]
        if plain is not None and members != [sorted(bucket) for bucket in plain]:
            raise AssertionError(f"{given} was read as {members}")
        return members


def _plain(given: Any) -> bool:
    return all(isinstance(b, (list, tuple)) and all(type(j) is int for j in b) for b in given)


class RunManifest(Reader):
    """A run with a changed manifest.json."""

    def make(self) -> None:
        path = bases.a_run(self.folder)
        self.files = {f"run/{name}": data for name, data in bases.contents(path).items()}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        data = self.files["run/manifest.json"]
        change = damage.in_bytes if rng.random() < 0.1 else damage.in_json
        return {"run/manifest.json": change(rng, data)}, False

    def read(self) -> Any:
        from runoff.runs import Run

        run = Run.open(self.folder / "run")
        run.verify()
        found = [run.ballots(n).tobytes() for n in run.seeds()] + [run.labels().tobytes(), run.spread().tobytes()]
        return [*found, *((what, x.tobytes(), y.tobytes()) for what, x, y in run.edits()), run.n_seeds]


class RunFiles(RunManifest):
    """A run in which a file with a digest in the manifest is replaced."""

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        listed = [f"run/{name}" for name in json.loads(self.files["run/manifest.json"])["files"]]
        name = pick(rng, listed)
        data = self.files[name]
        kinds: list[Callable[[Random, bytes], bytes]] = [damage.in_bytes]
        if name.endswith(".npy"):
            kinds.append(damage.in_npy)
        if name.endswith(".npz"):
            kinds.append(damage.in_npz)
        changed = pick(rng, kinds)(rng, data)
        if rng.random() < 0.1:
            changed = self.files[pick(rng, listed)]
        changed = changed if changed != data else data + b"\0"
        if rng.random() < 0.3:  # by an attacker who knows the format: a complete read or one sentence
            short = {n.removeprefix("run/"): d for n, d in self.files.items()}
            forged = bases.rehashed({**short, name.removeprefix("run/"): changed})
            return {name: changed, "run/manifest.json": forged["manifest.json"]}, False
        return {name: changed}, True


class Models(Reader):
    """A saved classifier: manifest, arrays and skops members."""

    allowed = (ValueError,)  # scikit-learn's, for inputs of another width than the manifest says
    about = ("member", "X must", "X has")
    base = staticmethod(bases.a_model)

    def make(self) -> None:
        path, self.inputs = self.base(self.folder)
        self.files = {f"model/{name}": data for name, data in bases.contents(path).items()}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        name = pick(rng, sorted(self.files))
        data = self.files[name]
        if name.endswith("manifest.json"):
            return {name: damage.in_json(rng, data)}, False
        if rng.random() < 0.5:
            return {name: damage.in_bytes(rng, data)}, True
        change = damage.in_npy if name.endswith(".npy") else damage.in_bytes
        if name.endswith(".safetensors"):
            changed = damage.in_safetensors(rng, data)
        elif name.endswith(".skops"):
            changed = damage.in_npz(
                rng,
                data,
                lambda rng, inner: damage.in_json(rng, inner) if inner[:1] == b"{" else damage.in_bytes(rng, inner),
            )
        else:
            changed = change(rng, data)
        short = {n.removeprefix("model/"): d for n, d in self.files.items()}
        forged = bases.rehashed({**short, name.removeprefix("model/"): changed})
        return {name: changed, "model/manifest.json": forged["manifest.json"]}, False

    def read(self) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # members that vote by shares
            return runoff.RunoffClassifier.load(self.folder / "model").predict(self.inputs).tolist()


class NetworkModels(Models):
    """A saved classifier of networks: manifest, arrays and safetensors members."""

    base = staticmethod(bases.a_network_model)

    def make(self) -> None:
        try:
            import torch  # noqa: F401
        except ImportError:
            raise NotHereError from None
        super().make()

    def read(self) -> Any:
        from runoff.torch import TorchClassifier

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return TorchClassifier.load(self.folder / "model", device="cpu").predict(self.inputs).tolist()
