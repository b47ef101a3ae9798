"""Helpers of the tests: commands, and finished runs without training."""

import hashlib
import json

import numpy as np
from click.testing import CliRunner

import runoff
from runoff import cli, recipes, spreads
from runoff._io import manifests
from runoff._io.files import write_array
from runoff.runs import Run, Settings

SIGNS = tuple(f"sign {c}" for c in range(43))
SMALL = ("--k", 5, "--network", "small", "--recipe", "quick", "--device", "cpu")  # options of `runoff train`
COMMAND = "from runoff.cli import main; main()"


def run(*arguments):
    """Run a command as on the command line."""
    return CliRunner().invoke(cli.main, [str(a) for a in arguments])


def files(folder):
    """Return the content of all files below a folder."""
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def write_manifest(path, manifest):
    """Write the manifest of a directory with the right digest of itself."""
    (path / "manifest.json").write_text(json.dumps(manifests.sealed(manifest), indent=1))


def rehash(path, change=None):
    """Change the manifest and recompute every digest, like an attacker who can write to the directory."""
    manifest = json.loads((path / "manifest.json").read_text())
    if change is not None:
        change(manifest)
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((path / name).read_bytes()).hexdigest()
    write_manifest(path, manifest)


def scores(n, n_members, n_classes, seed=0, clear=1.5):
    """Return scores of members that are often right, and labels."""
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, n_classes, n)
    values = draws.normal(size=(n, n_members, n_classes)).astype(np.float32)
    values[np.arange(n), :, labels] += clear * draws.uniform(0, 2, (n, 1)).astype(np.float32)
    return values, labels


def a_run(
    path,
    *,
    n=60,
    k=9,
    d=1,
    classes=("cat", "dog", "bird"),
    seeds=(1,),
    name="pets",
    images=None,
    seed=0,
    network="small",
    recipe=None,
):
    """Write a finished run. With `images`, its dataset is a .npz file of these images beside the run."""
    from runoff import datasets

    given, fingerprint = name if name in datasets.NAMES else f"{name}-is-nowhere.npz", "0" * 64
    labels = scores(n, k * d, len(classes), seed)[1]
    if images is not None:
        given = str(path.parent / f"{name}.npz")
        np.savez(given, x_train=images[:1], y_train=labels[:1], x_test=images, y_test=labels, classes=np.array(classes))
        fingerprint = datasets.load(given).fingerprint
    known = {"epochs": 1} if recipe is None else recipes.get(recipe).to_dict()
    settings = Settings(dataset=name, fingerprint=fingerprint, n_partitions=k, spread=d, network=network, recipe=known)
    about = {"name": name, "n_train": 500, "n_test": n, "classes": list(classes), "weights": False, "given": given}
    run = Run.create(path, settings, about)
    n_members = k * d
    for s in seeds:
        more, _ = scores(n, n_members, len(classes), seed, clear=1 + s)
        write_array(path / f"ballots-{s}.npy", runoff.rank(more))
    write_array(path / "labels.npy", labels)
    write_array(path / "spread.npy", spreads.cyclic(n_members, run.manifest["partition"]["offsets"]))
    times = {f"{m}-{s}": 0.5 for m in range(n_members) for s in range(max(seeds, default=0))}
    (path / "timings.json").write_text(json.dumps({"networks": times, "training": 1.0}))
    run.manifest |= {"member_sizes": [50] * n_members, "device": "cpu", "precision": "fp32"}
    run.record(*(f"ballots-{s}.npy" for s in seeds), "labels.npy", "spread.npy")
    return path
