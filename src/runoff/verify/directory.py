"""Directories with a manifest, whose digests are checked before any other file is parsed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from runoff._io.files import read_header
from runoff.verify._report import SHOWN, Report, counted

RUN, CLASSIFIER, NETWORKS = "runoff run", "runoff classifier", "runoff torch classifier"
VERSIONS = {RUN: 1, CLASSIFIER: 2, NETWORKS: 2}
MOST_MANIFEST, MOST_FILES, MOST_FILE = 2**28, 10**7, 2**33  # bytes, files, bytes
CHUNK = 2**20
MOST_UNPACKED, RATIO = 2**28, 100  # bytes of a .npz file, and a compression ratio; runoff does not compress its own
HEX = re.compile(r"[0-9a-f]{64}")


class UnfitError(ValueError):
    """A file that cannot be used; the message says why."""


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """Open a regular file; links, pipes and devices are rejected without blocking."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        reason = "it is a symbolic link" if path.is_symlink() else error.strerror
        raise UnfitError(f"cannot be read ({reason})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnfitError("is not a regular file")
    if os.fstat(descriptor).st_size > MOST_FILE:
        os.close(descriptor)
        raise UnfitError(f"has more than {MOST_FILE:,} bytes")
    with os.fdopen(descriptor, "rb") as file:
        yield file


def read(path: Path, most: int) -> bytes:
    """Read a regular file of at most `most` bytes."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise UnfitError(f"has more than {most:,} bytes")
        return file.read(size)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file without holding it in memory."""
    hashed = hashlib.sha256()
    with opened(path) as file:
        while block := file.read(CHUNK):
            hashed.update(block)
    return hashed.hexdigest()


def parsed(data: bytes) -> Any:
    """Parse JSON without NaN, duplicate keys, or nesting that is too deep for the parser."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        unique = dict(pairs)
        if len(unique) < len(pairs):
            raise UnfitError("names a key twice")
        return unique

    def constant(name: str) -> None:
        raise UnfitError(f"holds {name}")

    try:
        return json.loads(data, object_pairs_hook=once, parse_constant=constant)
    except UnfitError:
        raise
    except (ValueError, RecursionError):
        raise UnfitError("is not JSON") from None


class Directory:
    """A run or a saved classifier whose files have the digests that its manifest lists."""

    def __init__(self, path: Path, manifest: dict[str, Any], digest: str) -> None:
        self.path, self.manifest, self.digest = path, manifest, digest
        self.present: set[str] = set()  # files that are listed and were checked

    @property
    def kind(self) -> str:
        """The format that the manifest names."""
        return str(self.manifest["format"])

    def data(self, name: str, most: int = MOST_FILE) -> bytes:
        """Return the bytes of a listed file, and check their digest again."""
        data = read(self.path / name, most)
        if name not in self.present or hashlib.sha256(data).hexdigest() != self.manifest["files"][name]:
            raise UnfitError("changed while it was being verified")
        return data

    def array(self, name: str) -> NDArray[Any]:
        """Return the array of a listed .npy file; nothing is unpickled."""
        return npy(self.data(name))

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of a listed .npz file."""
        return npz(self.data(name))


def npy(data: bytes) -> NDArray[Any]:
    """Parse the bytes of a .npy file, whose size must match its header."""
    file = io.BytesIO(data)
    try:
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject or not dtype.itemsize or 0 in shape:
            raise ValueError
        count = int(np.prod(shape, dtype=object))
        if len(data) - file.tell() != count * dtype.itemsize:
            raise ValueError
        array = np.frombuffer(data, dtype, count, file.tell())
        return array.reshape(shape, order="F" if fortran else "C")
    except (ValueError, OverflowError, MemoryError):
        raise UnfitError("is not a complete .npy file of plain numbers or strings") from None


def npz(data: bytes) -> dict[str, NDArray[Any]]:
    """Parse the bytes of a .npz file, and reject one that would take far more memory than the file has bytes."""
    arrays = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(info.file_size for info in archive.infolist()) > max(MOST_UNPACKED, RATIO * len(data)):
                raise ValueError
            for info in archive.infolist():
                arrays[info.filename.removesuffix(".npy")] = npy(archive.read(info))
    except (ValueError, OSError, EOFError, KeyError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error):
        raise UnfitError("is not a complete .npz file") from None
    return arrays


def open_directory(path: Path, report: Report) -> Directory | None:
    """Open a directory and check the digest of every file; return None if something does not match."""
    try:
        data = read(path / "manifest.json", MOST_MANIFEST)
        manifest = parsed(data)
        _check_form(manifest, data)
    except UnfitError as error:
        report.files("manifest.json", str(error))
        return None
    directory = Directory(path, manifest, hashlib.sha256(data).hexdigest())
    _check_files(directory, report)
    return None if report.failures else directory


def _check_form(manifest: Any, data: bytes) -> None:
    if not isinstance(manifest, dict) or str(manifest.get("format")) not in VERSIONS:
        raise UnfitError("describes neither a run nor a saved classifier")
    if manifest.get("version") != VERSIONS[manifest["format"]] or isinstance(manifest["version"], bool):
        raise UnfitError(f"has version {manifest.get('version')!r:.40}, which this release does not know")
    if manifest["format"] == RUN:
        _check_run(manifest)
    files = manifest.get("files")
    if not isinstance(files, dict) or len(files) > MOST_FILES:
        raise UnfitError("does not list files")
    for name, digest in files.items():
        parts = PurePosixPath(name).parts
        if (
            not parts
            or name.startswith("/")
            or ".." in parts
            or "\\" in name
            or "\0" in name
            or name != "/".join(parts)
        ):
            raise UnfitError(f"names a file outside the directory, {name!r:.60}")
        if not isinstance(digest, str) or not HEX.fullmatch(digest):
            raise UnfitError(f"has an invalid SHA-256 for {name!r:.60}")
    if data != json.dumps(manifest, indent=1).encode():
        raise UnfitError("is not formatted as runoff writes it: it was altered")
    name, last = next(reversed(manifest.items()))
    if (name, last) != ("digest", own_digest(manifest)):
        raise UnfitError("does not match its own SHA-256: it was altered")


def _check_run(manifest: dict[str, Any]) -> None:
    """Raise UnfitError if entries of a run's manifest have unexpected types."""
    dataset = manifest.get("dataset")
    classes = dataset.get("classes") if isinstance(dataset, dict) else None
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes) or len(classes) < 2:
        raise UnfitError("must name the classes of the dataset")
    for name in ("edits", "member_sizes"):
        if not isinstance(manifest.get(name, []), list):
            raise UnfitError(f"must have a list of {name.replace('_', ' ')}")


def own_digest(manifest: dict[str, Any]) -> str:
    """Return the SHA-256 of a manifest without its `digest` entry."""
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _check_files(directory: Directory, report: Report) -> None:
    path, files = directory.path, directory.manifest["files"]
    run = directory.kind == RUN
    root = path.resolve()
    slim = run and not any((path / "members").glob("member-*"))
    absent, wrong = [], []
    for name, digest in files.items():
        file = path / name
        if (
            not os.path.lexists(file)
            and run
            and (slim if name.startswith("members/") else name.startswith("certificates/"))
        ):
            absent.append(name)
            continue
        try:
            if not file.parent.resolve().is_relative_to(root):
                raise UnfitError("lies outside the directory, through a link")
            actual = sha256(file)
        except UnfitError as error:
            wrong.append((name, str(error)))
            continue
        except OSError as error:
            wrong.append((name, f"cannot be read ({error.strerror})"))
            continue
        if actual != digest:
            wrong.append((name, "does not match the SHA-256 in the manifest: it was altered or damaged"))
        directory.present.add(name)
    for name, what in wrong[:SHOWN]:
        report.files(name, what)
    if len(wrong) > SHOWN:
        report.files("manifest.json", f"{len(wrong) - SHOWN} more of the listed files do not match")
    if not wrong:
        report.passed(f"the SHA-256 of {counted(len(directory.present), 'file')}, before any of them was parsed")
    members = sum(name.startswith("members/") for name in absent)
    if members:
        report.skipped(counted(members, "network"), "members/ is not in the directory")
    if len(absent) > members:
        n_files = counted(len(absent) - members, "file")
        report.skipped(f"{n_files} of certificates", "listed in the manifest, but missing")
    unlisted = sorted(
        str(file.relative_to(path).as_posix())
        for file in path.rglob("*")
        if not file.is_dir() and file.name not in ("manifest.json", ".lock")
    )
    unlisted = [name for name in unlisted if name not in files]
    if unlisted:
        named = ", ".join(unlisted[:3]) + (", ..." if len(unlisted) > 3 else "")
        report.skipped(f"{counted(len(unlisted), 'file')} that the manifest does not list", named)
