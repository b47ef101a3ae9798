"""Origin of a run: facts and commands, without the folders of the machine that wrote the report."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

from runoff import datasets, recipes
from runoff._io.text import count
from runoff._io.units import unit_of
from runoff.runs import Run, Settings

Facts = tuple[tuple[str, str], ...]
_ROOT = r"(?:~?/|[A-Za-z]:[\\/])"
QUOTED = re.compile(rf"(['\"]){_ROOT}[^'\"\n]*?([^/\\'\"\n]+)\1")
BARE = re.compile(rf"(?:^|(?<=[\s=('\":,\[])){_ROOT}(?:[^\s'\"/\\]+[/\\])+([^\s'\"/\\]*)")


def without_folders(text: Any) -> Any:
    """Return a text, or nested texts, with absolute paths reduced to their last part."""
    if isinstance(text, tuple):
        return tuple(without_folders(part) for part in text)
    return BARE.sub(r"\1", QUOTED.sub(r"\1\2\1", text))


def place(path: str | Path) -> str:
    """Return a path for commands: relative to the current folder if it is inside, else its last part."""
    path = Path(path)
    if not path.is_absolute():
        return str(path)
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) and path != here else path.name or str(path)


def facts(run: Run, n_seeds: int) -> Facts:
    """Return facts about a run, as pairs of a name and a value."""
    manifest, settings = run.manifest, run.settings
    edits = run.n_edits()
    return (
        ("Dataset", f"{settings.dataset}, {manifest['dataset']['n_train']:,} training samples"),
        ("Fingerprint of the dataset", settings.fingerprint),
        ("Fingerprint of the partition", manifest["partition"]["fingerprint"]),
        ("SHA-256 of the ballots", manifest["files"][f"ballots-{n_seeds}.npy"]),
        ("Network", settings.network),
        *_how_trained(settings),
        ("Hash of samples", settings.hash),
        *counted(settings.unit, manifest.get("sources")),
        ("Seed", str(settings.random_state)),
        ("Edits", f"{edits:,}" if edits else "none"),
        ("Device", f"{manifest.get('device', 'unknown')}, {manifest.get('precision', 'unknown')}"),
        ("Versions", ", ".join(f"{name} {version}" for name, version in sorted(manifest["versions"].items()))),
    )


def counted(unit: str, sources: Any) -> Facts:
    """Return the unit that radii count, unless it is samples."""
    if unit == "samples":
        return ()
    number = f", of {sources[0]:,}; the largest has {sources[1]:.1%} of the samples" if sources else ""
    return (("Radii count", f"{unit_of(unit).noun}s{unit_of(unit).caveat}{number}"),)


def _how_trained(settings: Settings) -> Facts:
    """Return the initial weights and the recipe of members, or their encoder."""
    if settings.encoder is not None:
        return (("Encoder", encoder(settings.encoder)),)
    name, epochs = recipes.named(settings.recipe)
    recipe = name or json.dumps(settings.recipe, sort_keys=True)
    recipe += "" if epochs is None else f" with {count(epochs, 'epoch')}"
    return ("Initial weights", first_weights(settings.first_weights) or "random"), ("Recipe", recipe)


def encoder(described: dict[str, Any]) -> str:
    """Return the name of an encoder and the SHA-256 by which it is identified."""
    name = place(str(described.get("name") or described.get("given")))
    sha256 = described["sha256"]
    return f"{name}, SHA-256 {sha256}" if sha256 else f"{name}, whose SHA-256 was not recorded"


def first_weights(described: dict[str, str] | None) -> str | None:
    """Return the name of initial weights and the SHA-256 by which they are identified; None if they are random."""
    return None if described is None else f"{place(described['given'])}, SHA-256 {described['sha256']}"


def train_command(run: Run, path: Path, n_seeds: int) -> str:
    """Return the command that reproduces a run."""
    settings = run.settings
    recipe, epochs = recipes.named(settings.recipe)
    options = [f"--k {settings.n_partitions}"]
    options += [f"--d {settings.spread}"] if settings.spread > 1 else []
    options += [f"--n-seeds {n_seeds}"] if n_seeds > 1 else []
    if settings.encoder is not None:
        options.append(f"--encoder {_quoted(settings.encoder['given'])}")
    elif settings.network != "nin":
        options.append(f"--network {_quoted(settings.network)}")
    weights = "random" if settings.first_weights is None else _quoted(settings.first_weights["given"])
    if settings.first_weights is not None or recipe in recipes.PROCEDURAL:
        options.append(f"--weights {weights}")
    options += [] if recipe is None else [f"--recipe {recipe}"]
    options += [] if epochs is None else [f"--epochs {epochs}"]
    options += _classes_option(run)
    options += [f"--hash {settings.hash}"] if settings.hash != "content" else []
    options += ["--threat labels"] if settings.unit == "labels" else []
    options += [f"--seed {settings.random_state}"] if settings.random_state else []
    given = _quoted(str(run.manifest["dataset"]["given"]))
    unnamed = "  # with the recipe above, which has no name" if settings.encoder is None and recipe is None else ""
    return f"runoff train {given} {' '.join(options)} --out {_quoted(path)}{unnamed}"


def _quoted(path: str | Path) -> str:
    return shlex.quote(place(path))


def _classes_option(run: Run) -> list[str]:
    """Return the option --classes for the user's own data."""
    names = [str(name) for name in run.manifest["dataset"]["classes"]]
    if run.manifest["dataset"]["given"] in datasets.NAMES or any("," in name for name in names):
        return []
    numbered = names == [str(c) for c in range(len(names))]
    return [f"--classes {len(names) if numbered else shlex.quote(','.join(names))}"]


def update_commands(run: Run, path: Path) -> list[str]:
    """Return one command per edit; the samples are stored in the run."""
    commands, before = [], ("", "")
    for name in run.manifest["edits"]:
        what = "add" if name.endswith("-add.npz") else "remove"
        digest = run.manifest["files"][name]
        again = " --again" if before == (what, digest) else ""
        before = what, digest
        commands.append(f"runoff update {_quoted(path)} --{what} {shlex.quote(f'{place(path)}/{name}')}{again}")
    return commands


def check_command(path: Path, n_seeds: int) -> str:
    """Return the command that certifies a run again."""
    return f"runoff certify {_quoted(path)} --use-seeds {n_seeds}"
