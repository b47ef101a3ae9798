"""Verify a run directory or a saved classifier as an outsider would.

This package shares no code with the kernels, the partitioner, the elections or the training: a contract of imports
holds it to `runoff.check` and to the reading of array headers. It checks digests before it parses anything, derives
keys, spreads and training sets again, ranks the stored scores again, and proves every radius by two other routes. What
it cannot check, it lists. docs/verify.md has the claims, and the test of each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from runoff.verify._classifier import ClassifierVerifier, Members
from runoff.verify._report import CERTIFICATE, FILES, Failure, Report
from runoff.verify._run import RunVerifier, Trainer
from runoff.verify.directory import MOST_MANIFEST, UnfitError, parsed, read

__all__ = ["CERTIFICATE", "FILES", "Failure", "Members", "Report", "Trainer", "classifier", "kind_of", "run"]

SAMPLE = 20
NO_TRAINING = "no code that trains was given"


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return the format that a directory's manifest names, without trusting anything else in it."""
    try:
        manifest = parsed(read(Path(path) / "manifest.json", MOST_MANIFEST))
    except UnfitError:
        return None
    return str(manifest["format"])[:60] if isinstance(manifest, dict) and "format" in manifest else None


def _draws(seed: int | None) -> tuple[int, np.random.Generator]:
    """Return a seed that nobody could know beforehand, unless one was given, and its random numbers."""
    if seed is None:
        seed = int.from_bytes(os.urandom(8), "little")
    return seed, np.random.default_rng(seed)


def run(
    path: str | os.PathLike[str],
    dataset: Any = None,
    *,
    trainer: Trainer | Callable[[], tuple[Trainer | None, str]] | None = None,
    full: bool = False,
    sample: int = SAMPLE,
    retrain: int = 0,
    seed: int | None = None,
    why_no_dataset: str = "the dataset is not at hand",
    why_no_trainer: str = NO_TRAINING,
    progress: Callable[[str], Any] = lambda _: None,
) -> Report:
    """Verify a run.

    Parameters
    ----------
    path : the run's directory
    dataset : what `runoff.datasets.load` gives for the dataset that the run was trained on; None where it is missing
    trainer : scores and trains networks; without one, neither is done again. This and `dataset` may be functions that
        return them, or None and the reason; they are called when every digest is right
    full : score every input again, and solve every radius by integer programming; else `sample` inputs
    retrain : how many networks, chosen at random, to retrain and compare bit for bit
    seed : repeat the random choices of an earlier verification

    Returns
    -------
    report : Report, whose `exit_code` is 0, 3 (a certificate is wrong) or 4 (files do not match)

    """
    report = Report(str(path))
    seed, draws = _draws(seed)
    report.facts["seed"] = seed
    steps = RunVerifier(Path(path), report, draws, full=full, sample=sample, progress=progress)
    if steps.open():
        report.facts |= {"manifest_sha256": steps.directory.digest, **_described(steps.directory.manifest)}
        dataset, why_no_dataset = _given(dataset, why_no_dataset)
        by, why_no_trainer = _given(trainer, why_no_trainer)
        progress("hashing the samples")
        if steps.compare_dataset(dataset, why_no_dataset):
            progress("ranking the stored scores")
            steps.compare_ballots(by, why_no_trainer)
            steps.prove_certificates()
            if retrain:
                steps.retrain(retrain, by, why_no_trainer)
            else:
                report.skipped("that retraining gives the same networks", "--retrain N does it for N of them")
    return report


def _given(thing: Any, why: str) -> tuple[Any, str]:
    """Return what was passed, or what a function gives that was passed instead of it."""
    return thing() if isinstance(thing, FunctionType | MethodType | partial) else (thing, why)


def _described(manifest: dict[str, Any]) -> dict[str, Any]:
    """What an attestation says of a run, beside its certificates."""
    settings, dataset = manifest["settings"], manifest["dataset"]
    return {
        "dataset": {"name": str(dataset.get("name")), "fingerprint": settings.get("fingerprint")},
        "versions": manifest.get("versions"),
        "trained_by": manifest.get("trained_by"),  # with a digest of the code that trains
        "settings": json.loads(json.dumps(settings)),
        "election": manifest.get("election"),
        "edits": len(manifest.get("edits", ())),
    }


def classifier(
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    inputs: Any = None,
    members: Members | Callable[[], tuple[Members | None, str]] | None = None,
    full: bool = False,
    sample: int = SAMPLE,
    retrain: int = 0,
    seed: int | None = None,
    why_no_data: str = "the training data was not given",
    why_no_members: str = NO_TRAINING,
    progress: Callable[[str], Any] = lambda _: None,
) -> Report:
    """Verify a saved classifier with its training data: an array, a sparse matrix, a DataFrame, or texts.

    The radii that it gives are proven for `inputs`, or for training samples where there are none. `members` scores and
    trains the members, as `runoff.runs.retraining.members_of` does. For the rest see `run`.
    """
    report = Report(str(path))
    seed, draws = _draws(seed)
    report.facts["seed"] = seed
    steps = ClassifierVerifier(Path(path), report, draws, full=full, sample=sample, progress=progress)
    if steps.open():
        report.facts |= {"manifest_sha256": steps.directory.digest}
        by, why_no_members = _given(members, why_no_members)
        if steps.compare_data(X, y, why_no_data):
            steps.prove(X if inputs is None else inputs, by, why_no_members)
            if retrain:
                steps.retrain(retrain, by, why_no_members)
            else:
                report.skipped("that retraining gives the same members", "--retrain N does it for N of them")
    return report
