"""Schema of a run's manifest, so that an altered manifest is rejected with one sentence."""

from __future__ import annotations

import re
from typing import Any

from runoff import elections
from runoff._io.manifests import MOST_MEMBERS
from runoff._io.units import UNITS

BALLOTS = re.compile(r"ballots-([1-9]\d{0,8})\.npy")
ROWS = re.compile(rf"certificates/({'|'.join(elections.NAMES)})-(tight|paper)-[1-9]\d{{0,8}}\.(csv|parquet)")
EDIT = re.compile(r"edits/\d{6,}-(add|remove)\.npz")


def invalid_field(manifest: dict[str, Any]) -> str | None:
    """Return the name of a field whose value is invalid, or None."""
    settings, dataset, files = manifest["settings"], manifest["dataset"], manifest["files"]

    def is_number(value: Any, least: int) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    numbers = {"spread": 1, "random_state": 0}
    offsets = manifest["partition"].get("offsets")
    valid = {
        "n_partitions": is_number(settings.get("n_partitions"), 1),
        **{name: is_number(settings.get(name), least) for name, least in numbers.items() if name in settings},
        "n_seeds": is_number(manifest.get("n_seeds", 1), 1),
        "stale": isinstance(manifest.get("stale", []), list)
        and all(isinstance(name, str) and is_derived(name) for name in manifest.get("stale", [])),
        "given": isinstance(dataset.get("given"), str),
        "weights": isinstance(dataset.get("weights"), bool),
        "classes": isinstance(dataset.get("classes"), list) and all(isinstance(c, str) for c in dataset["classes"]),
        "file": all(isinstance(digest, str) for digest in files.values())
        and all(BALLOTS.fullmatch(name) for name in files if name.startswith("ballots")),
        "edit": all(isinstance(name, str) and EDIT.fullmatch(name) and name in files for name in manifest["edits"]),
        "election": manifest.get("election", "runoff") in elections.NAMES,
        "unit": settings.get("unit", "samples") in tuple(UNITS),
        "first_weights": _is_record(settings.get("first_weights"), given=str, sha256=str),
        "encoder": _is_record(settings.get("encoder"), given=str, sha256=str, flip=bool),
    }
    if (invalid := next((name for name, good in valid.items() if not good), None)) is not None:
        return invalid
    n_members = settings["n_partitions"] * settings.get("spread", 1)
    if n_members > MOST_MEMBERS:
        return "n_partitions"
    if not isinstance(offsets, list) or not all(is_number(offset, 0) and offset < n_members for offset in offsets):
        return "offsets"
    return None if len(offsets) == len({*offsets}) == settings.get("spread", 1) else "offsets"


def is_derived(name: str) -> bool:
    """Return whether a file name is that of ballots or certificates, which commands may delete."""
    return bool(BALLOTS.fullmatch(name) or ROWS.fullmatch(name))


def _is_record(value: Any, **types: type) -> bool:
    """Return whether a value is None, or has exactly these entries, of these types."""
    same_names = isinstance(value, dict) and value.keys() == types.keys()
    return value is None or (same_names and all(isinstance(value[name], kind) for name, kind in types.items()))
