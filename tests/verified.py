"""Runs and classifiers for tests of the verifier, written within milliseconds: networks are tables of numbers."""

import csv
import io
import json
from types import SimpleNamespace

import numpy as np

import runoff
from helpers import rehash
from runoff import hashing, samples
from runoff.partition import Partition
from runoff.verify import networks

CLASSES = ["cat", "dog", "bird"]
DRAWS = np.random.default_rng(3)
Y = np.arange(30) % 3
IMAGES = DRAWS.integers(0, 90, (38, 2, 2), dtype=np.uint8)
IMAGES[:30, 0, 0] += (60 * Y).astype(np.uint8)
IMAGES[30:, 0, 0] += (60 * (np.arange(8) % 3)).astype(np.uint8)
TENSOR = networks.Tensor


def dataset(**changes):
    """Return a dataset of 30 training images and 8 inputs."""
    known = {
        "x_train": IMAGES[:30], "y_train": Y, "x_test": IMAGES[30:], "y_test": np.arange(8) % 3,
        "original_digests": None, "original_sums": None, "groups": None, "classes": CLASSES,
    }  # fmt: skip
    return SimpleNamespace(**known | changes)


def safetensors(tensors, **metadata):
    """Return the bytes of a safetensors file."""
    header, at = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        header[name] = {
            "dtype": tensor.dtype, "shape": list(tensor.shape), "data_offsets": [at, at + len(tensor.data)],
        }  # fmt: skip
        at += len(tensor.data)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + b"".join(tensor.data for tensor in tensors.values())


def floats(array, dtype="F32"):
    """Return an array of floats as a tensor."""
    return TENSOR(dtype, array.shape, array.astype({"F64": "<f8", "F32": "<f4", "F16": "<f2"}[dtype]).tobytes())


class Trainer:
    """Trains and scores networks: their weights are a function of the member, the seed, the rows and the labels."""

    why = None

    def unlike(self):
        return self.why

    def retrained(self, member, seed, x, rows, codes, inputs):
        content = x[rows].astype(np.float64).reshape(len(rows), -1)
        sums = np.stack([content[codes == c].sum(axis=0) for c in range(3)], axis=1)
        draws = np.random.default_rng((member, seed))
        weights = {"weight": floats(sums / 500 + draws.normal(size=sums.shape) / 3), "bias": floats(np.arange(3.0))}
        return weights, self.scores(weights, inputs)

    def scores(self, tensors, inputs):
        weight, bias = (tensors[name].numbers().astype(np.float64) for name in ("weight", "bias"))
        return (inputs.reshape(len(inputs), -1) / 255 @ weight + bias / 10).astype(np.float32)


def network_file(member, seed):
    """Return the name of a network in a run."""
    return f"members/member-{member:06d}-seed-{seed:04d}.safetensors"


def rows_text(certificates, labels, unit="samples"):
    """Return certificates as CSV."""
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator="\n")
    about = {"unit": unit} if unit != "samples" else {}
    about |= {"limits": "inserted and deleted samples are not covered"} if unit == "labels" else {}
    writer.writerow(["input", "prediction", "radius", "runner_up", *about, "label"])
    columns = (certificates.prediction, certificates.radius, certificates.runner_up, labels)
    for i, (*numbers, label) in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
        writer.writerow([i, *numbers, *about.values(), label])
    return file.getvalue()


def a_run(path, *, k=3, d=2, seeds=(1, 2), unit="samples", data=None, trainer=None, hashed_by="content", edited=None):
    """Write a run on a dataset; `edited` are its samples after edits, if there are any."""
    data, trainer = data or dataset(), trainer or Trainer()
    x, y, groups = edited or (data.x_train, data.y_train, data.groups)
    key = hashing.derived_key(5)
    partition = Partition.make(k, d, 5, key, hashed_by, unit)
    x, inputs = networks.arranged(x), networks.arranged(data.x_test)
    some = samples.from_any(x)
    digests = partition.digests(some)
    sources = None if groups is None else partition.sources(list(groups), len(x))
    rows = partition.rows(partition.buckets(some, digests, sources), digests, y)
    (path / "members").mkdir(parents=True)
    (path / "certificates").mkdir()
    (path / "key").write_bytes(key)
    np.save(path / "spread.npy", partition.spread)
    np.save(path / "labels.npy", data.y_test)
    scores = np.empty((len(inputs), k * d, max(seeds), 3), np.float32)
    for m in range(k * d):
        for s in range(max(seeds)):
            weights, scores[:, m, s] = trainer.retrained(m, s, x, rows[m].tolist(), y[rows[m]], inputs)
            stored = {**weights, "runoff:scores": floats(scores[:, m, s])}
            name = path / network_file(m, s)
            name.write_bytes(safetensors(stored, asked=networks.inputs_digest(inputs)))
    for n in seeds:
        mean = scores[:, :, :n].astype(np.float64).mean(axis=2).astype(np.float32)
        np.save(path / f"ballots-{n}.npy", runoff.rank(mean))
        certify(path, "runoff", "tight", n, partition.spread, data.y_test, unit)
    settings = {
        "dataset": "small", "fingerprint": networks.dataset_fingerprint(data), "n_partitions": k, "spread": d,
        "random_state": 5, "hash": hashed_by, **({} if unit == "samples" else {"unit": unit}),
    }  # fmt: skip
    manifest = {
        "format": "runoff run", "version": 1, "settings": settings,
        "dataset": {"name": "small", "classes": CLASSES, "weights": True},
        "partition": {"offsets": list(partition.offsets), "fingerprint": partition.fingerprint},
        "versions": {"numpy": "9"}, "trained_by": {"code": "c" * 8}, "election": "runoff",
        "member_sizes": [len(own) for own in rows],
        "training_sets": partition.training_sets(rows, digests, y),
        "files": {},
    }  # fmt: skip
    (path / "manifest.json").write_text(json.dumps(manifest))
    listed(path)
    return path


def certify(path, election, bound, seeds, spread, labels, unit="samples"):
    """Write the certificates of a run."""
    ballots = np.load(path / f"ballots-{seeds}.npy")
    certificates = runoff.certify(ballots, election=election, bound=bound, spread=spread)
    (path / "certificates" / f"{election}-{bound}-{seeds}.csv").write_text(rows_text(certificates, labels, unit))


def listed(path, change=None):
    """List every file of a directory in its manifest, with its digest, after a change of the manifest."""

    def refreshed(manifest):
        names = sorted(f.relative_to(path).as_posix() for f in path.rglob("*") if f.is_file())
        manifest["files"] = {name: "" for name in names if name != "manifest.json"}
        if change is not None:
            change(manifest)

    rehash(path, refreshed)


class Members:
    """Scores and trains the members of a classifier: each ranks classes by a table."""

    why = None

    def __init__(self, partition, classes, bound="tight", boast=0):
        self.partition, self.classes, self.bound, self.boast = partition, np.array(classes), bound, boast

    def unlike(self):
        return self.why

    def scores(self, inputs):
        n = inputs.shape[0] if hasattr(inputs, "shape") else len(inputs)
        return np.random.default_rng(n).normal(size=(n, self.partition.n_members, 3)) + np.array([1, 0, 0])

    def certify(self, inputs):
        found = runoff.certify(runoff.rank(self.scores(inputs)), spread=self.partition.spread, bound=self.bound)
        return self.classes[found.prediction], self.classes[found.runner_up], found.radius + self.boast

    def retrained(self, member, X, y, rows):  # noqa: ARG002
        told = f"{member} {np.asarray(y)[rows].tolist()}"
        return {"state": told}, {"state": told}


def a_classifier(
    path, X, y, *, k=3, d=2, classes=("bird", "cat", "dog"), unit="samples", groups=None, networks_of=None
):
    """Write a saved classifier of samples; with `networks_of`, the number of networks of each member."""
    key = bytes(range(32))
    partition = Partition.make(k, d, 5, key, "content", unit)
    some = samples.from_any(X)
    digests = partition.digests(some)
    sources = None if groups is None else partition.sources(groups, len(some))
    codes = np.searchsorted(np.array(classes), np.asarray(y))
    rows = partition.rows(partition.buckets(some, digests, sources), digests, codes)
    (path / "members").mkdir(parents=True)
    (path / "key").write_bytes(key)
    np.save(path / "classes.npy", np.array(classes))
    np.save(path / "member_sizes.npy", np.array([len(own) for own in rows]))
    for m in range(k * d):
        for s in range(1 if networks_of is None else networks_of[m]):
            name = f"{m:06d}.skops" if networks_of is None else f"{m:06d}-{s:04d}.safetensors"
            (path / "members" / name).write_bytes(b"member")
    manifest = {
        "format": "runoff classifier", "version": 2, "members": k * d, "unit": unit,
        "settings": {"n_partitions": k, "spread": d, "random_state": 5, "hash": "content", "election": "runoff",
                     "bound": "tight"},
        "partition": [k, d, list(partition.offsets), "content"], "fingerprint": partition.fingerprint,
        "training_sets": partition.training_sets(rows, digests, codes), "files": {},
    }  # fmt: skip
    if networks_of is not None:
        manifest |= {"format": "runoff torch classifier", "networks": networks_of}
        counts = [np.bincount(codes[own], minlength=len(classes)) for own in rows]
        np.save(path / "shares.npy", np.array([count / max(1, count.sum()) for count in counts]))
    (path / "manifest.json").write_text(json.dumps(manifest))
    listed(path)
    return path, partition
