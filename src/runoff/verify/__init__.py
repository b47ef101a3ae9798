"""Independent verification of run directories and saved classifiers.

This package shares no code with kernels, partitioner, elections or training: an import contract limits it to
`runoff.check` and the reader of array headers. It checks digests before it parses anything, recomputes keys, spreads
and training sets, ranks the stored scores again, and proves every radius by two other methods. Its reports list what
was not checked. docs/verify.md lists the claims, and the test of each.
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
from runoff.verify._run import RunVerifier
from runoff.verify._stored import Trainer
from runoff.verify.directory import MOST_MANIFEST, UnfitError, parsed, read

__all__ = ["CERTIFICATE", "FILES", "Failure", "Members", "Report", "Trainer", "classifier", "kind_of", "run"]

SAMPLE = 20
NO_TRAINING = "no training code was passed"


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return the format that the manifest of a directory names, or None if it cannot be read."""
    try:
        manifest = parsed(read(Path(path) / "manifest.json", MOST_MANIFEST))
    except UnfitError:
        return None
    return str(manifest["format"])[:60] if isinstance(manifest, dict) and "format" in manifest else None


def _draws(seed: int | None) -> tuple[int, np.random.Generator]:
    """Return the seed, by default an unpredictable one, and its random generator."""
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
    progress: Callable[[str], Any] = lambda _: None,
) -> Report:
    """Verify a run.

    Parameters
    ----------
    path : the run's directory
    dataset : the result of `runoff.datasets.load` for the dataset that the run was trained on; None if not available
    trainer : an object that scores and trains networks; without one, neither is repeated. `trainer` and `dataset` may
        be functions that return a pair: the object, or None, and the reason; they are called after checking all digests
    full : score every input again, and prove every radius by integer programming; by default `sample` inputs
    retrain : the number of networks, chosen at random, to retrain and compare bit for bit
    seed : the seed of an earlier verification, to repeat its random choices

    Returns
    -------
    report : Report, whose `exit_code` is 0, 3 (a certificate is wrong) or 4 (files do not match)

    """
    report = Report(str(path))
    seed, draws = _draws(seed)
    report.facts["seed"] = seed
    steps = RunVerifier(Path(path), report, draws, full=full, sample=sample, progress=progress)
    if steps.open():
        report.facts |= {"manifest_sha256": steps.directory.digest, **_facts(steps.directory.manifest)}
        dataset, why_no_dataset = _resolved(dataset, "the dataset is not available")
        resolved, why_no_trainer = _resolved(trainer, NO_TRAINING)
        if (encoder := steps.directory.manifest["settings"].get("encoder")) is not None:
            name = str(encoder.get("given"))[:200] if isinstance(encoder, dict) else "of this run"
            report.skipped(f"the encoder {name}", "it is trusted: nothing shows who could edit what it was trained on")
        _first_weights(report, steps.directory.manifest["settings"].get("first_weights"))
        progress("hashing the samples")
        if steps.compare_dataset(dataset, why_no_dataset):
            progress("ranking the stored scores")
            steps.compare_ballots(resolved, why_no_trainer)
            steps.prove_certificates()
            if retrain:
                steps.retrain(retrain, resolved, why_no_trainer)
            else:
                report.skipped("that retraining gives the same networks", "--retrain N checks N of them")
    return report


def _first_weights(report: Report, described: Any) -> None:
    """Report what is known of the weights that networks started from."""
    if described is None:
        return
    about = described if isinstance(described, dict) else {}
    given, sha256 = (str(about.get(key))[:200] for key in ("given", "sha256"))
    package = Path(__file__).parent.parent / "torch" / "weights" / "manifest.json"
    shipped = json.loads(package.read_text(encoding="utf-8")).values() if package.is_file() else ()
    if any(entry["sha256"] == sha256 for versions in shipped for entry in versions.values()):
        report.passed(f"networks started from weights of this package, trained on procedural images (SHA-256 {sha256})")
    else:
        report.skipped(
            f"the initial weights {given} (SHA-256 {sha256})",
            "they are trusted: nothing shows that they do not depend on the training samples",
        )


def _resolved(argument: Any, why: str) -> tuple[Any, str]:
    """Return an argument and the reason for its absence, from a function if it is one."""
    return argument() if isinstance(argument, FunctionType | MethodType | partial) else (argument, why)


def _facts(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about a run that an attestation records, without its certificates."""
    settings, dataset = manifest["settings"], manifest["dataset"]
    return {
        "dataset": {"name": str(dataset.get("name")), "fingerprint": settings.get("fingerprint")},
        "versions": manifest.get("versions"),
        "trained_by": manifest.get("trained_by"),  # with a digest of the training code
        "settings": json.loads(json.dumps(settings)),
        "election": manifest.get("election"),
        "edits": len(manifest.get("edits", ())),
    }


def classifier(
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    groups: Any = None,
    inputs: Any = None,
    members: Members | Callable[[], tuple[Members | None, str]] | None = None,
    full: bool = False,
    sample: int = SAMPLE,
    retrain: int = 0,
    seed: int | None = None,
    why_no_data: str = "the training data was not passed",
    progress: Callable[[str], Any] = lambda _: None,
) -> Report:
    """Verify a saved classifier with its training data: an array, a sparse matrix, a DataFrame, or strings.

    `groups` are the sources of the samples, for a classifier that was fitted with them. Radii are proven for `inputs`,
    by default the training samples. `members` is an object that scores and trains the members, as returned by
    `runoff.runs.retraining.members_of`. The other parameters are those of `run`.
    """
    report = Report(str(path))
    seed, draws = _draws(seed)
    report.facts["seed"] = seed
    steps = ClassifierVerifier(Path(path), report, draws, full=full, sample=sample, progress=progress)
    if steps.open():
        report.facts |= {"manifest_sha256": steps.directory.digest}
        resolved, why_no_members = _resolved(members, NO_TRAINING)
        if steps.compare_data(X, y, why_no_data, groups):
            steps.prove(X if inputs is None else inputs, resolved, why_no_members)
            if retrain:
                steps.retrain(retrain, resolved, why_no_members)
            else:
                report.skipped("that retraining gives the same members", "--retrain N checks N of them")
    return report
