"""What a manifest says of the partition, checked for its form before anything is computed from it."""

from __future__ import annotations

from typing import Any

from runoff.verify._parts import HASHES, Parts, derived_key
from runoff.verify._report import Report
from runoff.verify.directory import Directory, UnfitError

MOST_MEMBERS, MOST_SEED = 10**6, 2**63


def whole(value: Any, what: str, least: int, most: int) -> int:
    """Return a whole number within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise UnfitError(f"must have {what} from {least} to {most}, got {value!r:.40}")
    return value


def parts_of(directory: Directory, report: Report) -> Parts | None:
    """Return the partition that follows from key and settings, compared with what the manifest records."""
    manifest, before = directory.manifest, len(report.failures)
    try:
        settings = manifest.get("settings")
        if not isinstance(settings, dict):
            raise UnfitError("has no settings")
        k = whole(settings.get("n_partitions"), "n_partitions", 1, MOST_MEMBERS)
        d = whole(settings.get("spread"), "spread", 1, MOST_MEMBERS // k)
        seed = whole(settings.get("random_state"), "random_state", 0, MOST_SEED)
        if settings.get("hash") not in HASHES:
            raise UnfitError(f"must have a hash out of {', '.join(HASHES)}, got {settings.get('hash')!r:.40}")
        if "key" not in directory.present:
            raise UnfitError("does not list the key")
        key = directory.data("key", 64)
        if not 16 <= len(key) <= 64:
            raise UnfitError("must have a key of 16 to 64 bytes")
    except UnfitError as error:
        report.files("manifest.json", str(error))
        return None
    parts = Parts(k, d, seed, settings["hash"], key)
    recorded: Any = manifest.get("partition")
    if directory.kind == "runoff run":
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
        report.files("manifest.json", "records another fingerprint of the partition than follows from key and settings")
    if len(report.failures) > before:
        return None
    own_key = "the key, " if directory.kind == "runoff run" else ""
    report.passed(f"{own_key}the spread and the fingerprint of the partition, derived again from key and settings")
    return parts


def compare_members(manifest: dict[str, Any], sizes: Any, divided: Any, report: Report) -> None:
    """Compare the members' training sets with what was recorded when they were trained."""
    n = len(divided.rows)
    own = [len(rows) for rows in divided.rows]
    if sizes is None:
        report.skipped("the sizes of the training sets", "they are not recorded")
    elif list(sizes) != own:
        at = next((m for m in range(n) if m >= len(sizes) or sizes[m] != own[m]), n)
        got = sizes[at] if at < len(sizes) else "none"
        report.files(f"member {at}", f"has {own[at] if at < n else 'no'} training samples, {got} are recorded")
    recorded = manifest.get("training_sets")
    if recorded is None:
        report.skipped("the SHA-256 of the training sets", "they are not recorded")
        return
    if not isinstance(recorded, list) or len(recorded) != n:
        report.files("manifest.json", f"must record the training sets of {n} members")
        return
    wrong = [m for m in range(n) if divided.training_set(m) != recorded[m]]
    for m in wrong[:5]:
        report.files(f"member {m}", "was trained on other samples than the data, the key and the spread give it")
    if not wrong:
        report.passed(f"the training sets of {n:,} members, {sum(own):,} rows in all, hashed and divided again")
