"""Manifests: JSON files that list every file of a directory with its SHA-256."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from runoff._io.files import read_regular, sha256_of
from runoff._io.text import one_line
from runoff.errors import StorageError

LARGEST_MANIFEST = 2**28  # bytes
MOST_MEMBERS = 10**6  # maximum in a manifest


@dataclass(frozen=True)
class Kind:
    """A kind of directory with a manifest: its format, and the words for messages about it."""

    format: str
    version: int
    noun: str
    remedy: str


def sha256(data: bytes) -> str:
    """Return the SHA-256 of bytes, in hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sealed(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with the SHA-256 of its content, so that changes to the manifest itself are detected."""
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return {**rest, "digest": sha256(text.encode())}


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of a complete directory, with the SHA-256 of every file in it."""
    files = {str(f.relative_to(folder)): sha256_of(f) for f in sorted(folder.rglob("*")) if f.is_file()}
    (folder / "manifest.json").write_text(json.dumps(sealed({**manifest, "files": files}), indent=1))


def read_manifest(path: Path, kind: Kind) -> dict[str, Any]:
    """Read the manifest of a directory of this kind."""
    try:
        manifest = json.loads(read_regular(path / "manifest.json", LARGEST_MANIFEST))
    except OSError as error:
        raise StorageError(f"{path} is not a {kind.noun}: manifest.json cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise StorageError(f"{path} is damaged: manifest.json is not JSON; {kind.remedy}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != kind.format:
        raise StorageError(f"{path} is not a {kind.noun}: manifest.json describes something else")
    if manifest.get("version") != kind.version:
        raise StorageError(
            f"{path} has version {manifest.get('version')!r:.60}, this release reads version {kind.version}"
        )
    files = manifest.get("files")
    if not isinstance(files, dict) or any(Path(f).is_absolute() or ".." in Path(f).parts for f in files):
        raise StorageError(f"{path} has a manifest that names files outside the directory")
    return manifest


def check_file(path: Path, name: str, digest: str) -> None:
    """Raise StorageError for a file whose content does not match the manifest."""
    try:
        actual = sha256_of(path / name)
    except ValueError:  # it has NUL, or half of a surrogate pair
        raise StorageError(
            f"{path} lists {name!r:.100}, which is not a valid file name: its manifest was altered"
        ) from None
    except OSError as error:
        raise StorageError(f"{path} is incomplete: {one_line(name, 100)} cannot be read ({error.strerror})") from None
    if actual != digest:
        what = one_line(name, 100)
        raise StorageError(f"{path} was altered or damaged: {what} does not match the SHA-256 in the manifest")


def checked_bytes(path: Path, name: str, digest: str) -> bytes:
    """Return a file's content if it matches the manifest."""
    check_file(path, name, digest)
    data = read_regular(path / name)
    if sha256(data) != digest:
        what = one_line(name, 100)
        raise StorageError(f"{path} was altered while it was read: {what} does not match the SHA-256 in the manifest")
    return data


def read_array(path: Path, name: str, manifest: dict[str, Any]) -> Any:
    """Read an array file that the manifest lists."""
    return np.load(io.BytesIO(checked_bytes(path, name, manifest["files"][name])), allow_pickle=False)
