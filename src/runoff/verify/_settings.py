"""Verification steps shared by runs and saved classifiers: directory, partition, and training sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.verify._parts import HASHES, UNITS, Divided, Parts, derived_key
from runoff.verify._report import Report, counted
from runoff.verify.directory import RUN, Directory, UnfitError, open_directory

MOST_MEMBERS, MOST_SEED = 10**6, 2**63


class Verification:
    """Base class of verifications, whose steps record in the report what they checked."""

    def __init__(
        self, path: Path, report: Report, draws: np.random.Generator, *, full: bool, sample: int,
        progress: Callable[[str], Any] = lambda _: None,
    ) -> None:  # fmt: skip
        self.path, self.report, self.draws, self.full, self.sample, self.progress = (
            path, report, draws, full, sample, progress,
        )  # fmt: skip
        self.directory: Directory
        self.parts: Parts
        self.divided: Divided | None = None

    def open_parts(self, *, run: bool) -> bool:
        """Check the digests and recompute the partition; return whether both match."""
        directory = open_directory(self.path, self.report)
        if directory is None:
            return False
        if (directory.kind == RUN) != run:
            kinds = ("a saved classifier", "a run") if run else ("a run", "a saved classifier")
            self.report.files("manifest.json", f"describes {kinds[0]}, not {kinds[1]}")
            return False
        parts = parts_of(directory, self.report)
        if parts is None:
            return False
        self.directory, self.parts = directory, parts
        return True

    def sampled(self, n: int) -> NDArray[np.int64]:
        """Return the sorted indices of the inputs to check, out of n: all of them, or a random sample."""
        return np.arange(n) if self.full else np.sort(self.draws.permutation(n)[: self.sample])


def bounded(value: Any, what: str, least: int, most: int) -> int:
    """Return an integer, or raise an error if it is not within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise UnfitError(f"must have {what} from {least} to {most}, got {value!r:.40}")
    return value


def parts_of(directory: Directory, report: Report) -> Parts | None:
    """Return the partition that follows from key and settings, or None if the manifest records another one."""
    manifest, before = directory.manifest, len(report.failures)
    try:
        settings = manifest.get("settings")
        if not isinstance(settings, dict):
            raise UnfitError("has no settings")
        k = bounded(settings.get("n_partitions"), "n_partitions", 1, MOST_MEMBERS)
        d = bounded(settings.get("spread"), "spread", 1, MOST_MEMBERS // k)
        seed = bounded(settings.get("random_state"), "random_state", 0, MOST_SEED)
        if settings.get("hash") not in HASHES:
            raise UnfitError(f"must have a hash from {', '.join(HASHES)}, got {settings.get('hash')!r:.40}")
        unit = (settings if directory.kind == RUN else manifest).get("unit", "samples")
        if unit not in UNITS:
            raise UnfitError(f"must count one of {', '.join(UNITS)}, got {unit!r:.40}")
        if "key" not in directory.present:
            raise UnfitError("does not list the key")
        key = directory.data("key", 64)
        if not 16 <= len(key) <= 64:
            raise UnfitError("must have a key of 16 to 64 bytes")
    except UnfitError as error:
        report.files("manifest.json", str(error))
        return None
    parts = Parts(k, d, seed, settings["hash"], key, unit)
    recorded: Any = manifest.get("partition")
    if directory.kind == RUN:
        recorded = recorded if isinstance(recorded, dict) else {}
        offsets, fingerprint = recorded.get("offsets"), recorded.get("fingerprint")
        if key != derived_key(seed):
            report.files("key", f"is not the key that follows from the seed {seed}")
    else:
        fits = isinstance(recorded, list) and len(recorded) == 4
        fits = fits and [recorded[0], recorded[1], recorded[3]] == [k, d, parts.hash]
        offsets, fingerprint = recorded[2] if fits else None, manifest.get("fingerprint")
    if offsets != parts.offsets:
        report.files(
            "manifest.json", f"records the offsets {offsets!r:.60}, but {parts.offsets!r:.60} follow from the seed"
        )
    if fingerprint != parts.fingerprint:
        report.files(
            "manifest.json", "records a fingerprint of the partition that does not follow from key and settings"
        )
    if len(report.failures) > before:
        return None
    key_too = "the key, " if directory.kind == RUN else ""
    report.passed(f"{key_too}the spread and the fingerprint of the partition, derived again from key and settings")
    return parts


def compare_members(manifest: dict[str, Any], sizes: Any, divided: Any, report: Report) -> None:
    """Compare the training sets of the members with those recorded at training."""
    n = len(divided.rows)
    actual = [len(rows) for rows in divided.rows]
    if sizes is None:
        report.skipped("the sizes of the training sets", "they are not recorded")
    elif list(sizes) != actual:
        at = next((m for m in range(n) if m >= len(sizes) or sizes[m] != actual[m]), n)
        got = sizes[at] if at < len(sizes) else "none"
        report.files(f"member {at}", f"has {actual[at] if at < n else 'no'} training samples, {got} are recorded")
    recorded = manifest.get("training_sets")
    if recorded is None:
        report.skipped("the SHA-256 of the training sets", "they are not recorded")
        return
    if not isinstance(recorded, list) or len(recorded) != n:
        report.files("manifest.json", f"must record the training sets of {n} members")
        return
    wrong = [m for m in range(n) if divided.training_set(m) != recorded[m]]
    for m in wrong[:5]:
        report.files(f"member {m}", "was not trained on the samples that follow from data, key and spread")
    if not wrong:
        rows = counted(sum(actual), "row")
        report.passed(f"the training sets of {counted(n, 'member')}, {rows} in total, hashed and divided again")
