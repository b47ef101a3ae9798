"""What the manifest of a run may say, so that a damaged one is refused in one sentence."""

from __future__ import annotations

import re
from typing import Any

from runoff import elections
from runoff._io.manifests import MOST_MEMBERS

BALLOTS = re.compile(r"ballots-([1-9]\d{0,8})\.npy")
ROWS = re.compile(rf"certificates/({'|'.join(elections.NAMES)})-(tight|paper)-[1-9]\d{{0,8}}\.(csv|parquet)")
EDIT = re.compile(r"edits/\d{6,}-(add|remove)\.npz")


def odd(manifest: dict[str, Any]) -> str | None:
    """What in a manifest cannot be: a name, or nothing."""
    settings, dataset, files = manifest["settings"], manifest["dataset"], manifest["files"]

    def is_number(value: Any, least: int) -> bool:
        return isinstance(value, int) and not isinstance(value, bool) and value >= least

    numbers = {"spread": 1, "random_state": 0}
    offsets = manifest["partition"].get("offsets")
    sound = {
        "n_partitions": is_number(settings.get("n_partitions"), 1),
        **{name: is_number(settings.get(name), least) for name, least in numbers.items() if name in settings},
        "n_seeds": is_number(manifest.get("n_seeds", 1), 1),
        "stale": isinstance(manifest.get("stale", []), list)
        and all(isinstance(name, str) and is_made(name) for name in manifest.get("stale", [])),
        "given": isinstance(dataset.get("given"), str),
        "weights": isinstance(dataset.get("weights"), bool),
        "classes": isinstance(dataset.get("classes"), list) and all(isinstance(c, str) for c in dataset["classes"]),
        "file": all(isinstance(digest, str) for digest in files.values())
        and all(BALLOTS.fullmatch(name) for name in files if name.startswith("ballots")),
        "edit": all(isinstance(name, str) and EDIT.fullmatch(name) and name in files for name in manifest["edits"]),
        "election": manifest.get("election", "runoff") in elections.NAMES,
        "first_weights": _is_start(settings.get("first_weights")),
    }
    odd_one = next((name for name, good in sound.items() if not good), None)
    if odd_one is not None:
        return odd_one
    n_members = settings["n_partitions"] * settings.get("spread", 1)
    if n_members > MOST_MEMBERS:
        return "n_partitions"
    if not isinstance(offsets, list) or not all(is_number(offset, 0) and offset < n_members for offset in offsets):
        return "offsets"
    return None if len(offsets) == len({*offsets}) == settings.get("spread", 1) else "offsets"


def is_made(name: str) -> bool:
    """Return whether a name is one that commands give to ballots or certificates, which they may delete."""
    return bool(BALLOTS.fullmatch(name) or ROWS.fullmatch(name))


def _is_start(given: Any) -> bool:
    """Whether this may describe first weights."""
    known = isinstance(given, dict) and given.keys() == {"given", "sha256"}
    return given is None or (known and all(isinstance(value, str) for value in given.values()))
