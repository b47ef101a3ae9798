"""Readers of weights and features under test: networks, encoders, caches, carried scores."""

import hashlib
import io
from types import SimpleNamespace
from typing import Any

import numpy as np

from runoff._io.state_dicts import StateDictError
from runoff.encoders import Encoder
from runoff.errors import StorageError
from tests.torture import bases, damage
from tests.torture.damage import Random, pick
from tests.torture.reading import Files, NotHereError, Reader


class _Torch(Reader):
    """A reader that needs PyTorch."""

    strict = False

    def make(self) -> None:
        try:
            import torch
        except ImportError:
            raise NotHereError from None
        torch.set_num_threads(1)
        self.files = self.built()
        self.put(self.files)
        self.read()

    def built(self) -> Files:
        """The files."""
        raise NotImplementedError


class StateDicts(_Torch):
    """Files of PyTorch's older format: pickles that are interpreted, never unpickled."""

    allowed = (StateDictError,)
    by_path = False
    about = ("it ", "its ")

    def built(self) -> Files:
        from test_state_dicts import example, older

        return {"weights.pth": older(example())}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        return {name: damage.in_pickles(rng, data) for name, data in self.files.items()}, False

    def read(self) -> Any:
        from runoff._io import state_dicts

        found = state_dicts.read((self.folder / "weights.pth").read_bytes())
        return {name: array.sum() for name, array in found.items()}


class EncoderPackages(StateDicts):
    """The weights of a package, whose digest is forged: what is converted must be the published weights."""

    allowed = (StorageError,)
    strict = True
    about = ("weights",)

    def built(self) -> Files:
        from safetensors.torch import save

        from runoff.torch import published
        from test_state_dicts import older

        state = bases.encoder_state(self.patch)
        self.package = published.Package("tiny", "tiny.pth", "", hashlib.sha256(save(state)).hexdigest())
        return {"weights.pth": older(state)}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        return super().damaged(rng)[0], True

    def read(self) -> Any:
        from dataclasses import replace

        from runoff.torch import published

        data = (self.folder / "weights.pth").read_bytes()
        return published.convert(data, replace(self.package, sha256=hashlib.sha256(data).hexdigest()))


class EncoderWeights(_Torch):
    """A safetensors file as an encoder."""

    def built(self) -> Files:
        from safetensors.torch import save

        return {"encoder.safetensors": save(bases.encoder_state(self.patch))}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        change = damage.in_safetensors if rng.random() < 0.8 else damage.in_bytes
        return {name: change(rng, data) for name, data in self.files.items()}, False

    def read(self) -> Any:
        import torch

        from runoff.torch import efficientnet, published

        found = published.get(self.folder / "encoder.safetensors")
        network = efficientnet.EfficientNetLite(found.architecture, found.state, torch.device("cpu"), torch.float32)
        return len(network.blocks)


class FirstWeights(EncoderWeights):
    """A safetensors file as the first weights of networks."""

    about = ("first weights", "weights must be", "weights '")

    def built(self) -> Files:
        from safetensors.torch import save

        from runoff.torch import networks
        from runoff.torch.building import tensors_of

        module = networks.get("small")((1, 4, 4), 3)
        state = {name: value.detach() for name, value in tensors_of(module).items() if value.ndim != 2}
        return {"first.safetensors": save(state)}

    def read(self) -> Any:
        from runoff.torch import starting

        module = starting.start("small", self.folder / "first.safetensors")((1, 4, 4), 3)
        return sum(float(value.double().sum()) for value in module.state_dict().values())


class Networks(EncoderWeights):
    """A trained network in a folder of checkpoints: what is read must be what was stored."""

    about = ("member",)

    def built(self) -> Files:
        import torch

        from runoff.torch.checkpoints import encoded
        from runoff.torch.training.jobs import Job
        from runoff.torch.training.results import Trained

        draws = torch.Generator().manual_seed(0)
        self.state = {name: torch.randn(3, 4, generator=draws) for name in ("a", "b")}
        self.state["count"] = torch.tensor(7)
        self.scores = np.arange(6, dtype=np.float32).reshape(2, 3)
        self.job = Job(0, 0, np.random.SeedSequence(0), np.zeros((2, 4, 4, 1)), np.arange(2), np.arange(2))
        trained = Trained(0, 0, self.state, self.scores, "1" * 64, None, 0.5)
        return {"members/member-000000-seed-0000.safetensors": encoded(trained, "2" * 64, weights=True, half=False)}

    def read(self) -> Any:
        from runoff.torch.checkpoints import Checkpoints

        store = Checkpoints(self.folder / "members", make=False)
        listed = store.has(self.job, "2" * 64, "1" * 64)
        found = store.get(self.job, "2" * 64, "1" * 64)
        if found is None:
            return listed
        same = found.state.keys() == self.state.keys() or not found.state
        same = same and all(bool((value == self.state[name]).all()) for name, value in found.state.items())
        if not same or (found.scores is not None and not np.array_equal(found.scores, self.scores)):
            raise AssertionError("a network was read that was not stored")
        return listed


class Features(Reader):
    """Cached features: damaged files are computed again, others are as good as their name, which is their digest."""

    def make(self) -> None:
        self.X = np.arange(20, dtype=np.float64).reshape(5, 4)
        self.features(self.X[:2])
        self.features(self.X[2:4])
        self.files = bases.contents(self.folder)

    def features(self, X: Any) -> Any:
        """Features of inputs, from the cache where they are."""
        made = Encoder(lambda x: x[:, :3] / 7, "sevenths", sha256="3" * 64, cache=self.folder / "cache")
        return made.features(X, show=False)

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        name = pick(rng, sorted(self.files))
        change = damage.in_npy if rng.random() < 0.7 else damage.in_bytes
        data = change(rng, self.files[name])
        if rng.random() < 0.4:  # forged: under the name that such a file has
            named = f"{name.rpartition('/')[0]}/{hashlib.sha256(data).hexdigest()}.npy"
            return {name: b"", named: data}, False
        return {name: data}, True

    def read(self) -> Any:
        try:
            return self.features(self.X).tobytes()
        finally:
            for path in (self.folder / "cache").rglob("*.npy"):  # what was computed again
                if str(path.relative_to(self.folder)) not in self.present:
                    path.unlink()

    def put(self, files: Files) -> None:
        super().put(files)
        self.present = {*files, *self.files}

    present: set[str] = set()  # noqa: RUF012


class CarriedScores(_Torch):
    """The mean scores that `runoff reproduce --carry` continues from."""

    about = ("sums.npz",)

    def built(self) -> Files:
        from runoff.paper.carrying import Carried
        from runoff.runs import Settings

        recipe: dict[str, Any] = {"epochs": 1}
        self.settings = Settings(
            dataset="pets", fingerprint="0" * 64, n_partitions=3, network="small", recipe=recipe, random_state=0
        )
        jobs = [SimpleNamespace(member=m, seed=s, key=(m, s)) for m in range(3) for s in range(2)]
        self.work = SimpleNamespace(
            rows=[np.arange(4)] * 3,
            inputs=np.zeros((2, 4, 4, 1), np.uint8),
            n_classes=3,
            labels=np.arange(4) % 3,
            pipeline=SimpleNamespace(jobs=jobs),
        )
        carried = Carried.open(self.folder / "sums.npz", self.settings, self.work)  # type: ignore[arg-type]
        for job in jobs[:-1]:
            scores = np.random.default_rng(job.key).normal(size=(2, 3)).astype(np.float32)
            carried.add(SimpleNamespace(**vars(job), refused=None, scores=scores))  # type: ignore[arg-type]
        carried.write()
        return {"sums.npz": (self.folder / "sums.npz").read_bytes()}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        data = self.files["sums.npz"]
        how = rng.random()
        if how < 0.2:
            return {"sums.npz": damage.in_bytes(rng, data)}, False
        if how < 0.4:
            with np.load(io.BytesIO(data)) as file:
                arrays = {name: file[name] for name in file.files}
            arrays["about"] = np.array(damage.in_json(rng, str(arrays["about"]).encode()).decode("utf-8", "replace"))
            out = io.BytesIO()
            np.savez(out, **arrays)  # type: ignore[arg-type]
            return {"sums.npz": out.getvalue()}, False
        return {"sums.npz": damage.in_npz(rng, data)}, False

    def read(self) -> Any:
        from runoff.paper import carrying

        carried = carrying.Carried.open(self.folder / "sums.npz", self.settings, self.work)  # type: ignore[arg-type]
        assert carrying.count(self.folder / "sums.npz") == carried.n_networks
        if any(np.isinf(piece.values).any() for piece in carried.pieces):
            raise AssertionError("scores were read that are infinite")
        return len(carried.missing(self.work.pipeline.jobs)), carried.seconds
