"""Files inside archives, read by exact name and up to a bound; nothing is ever unpacked to a path."""

from __future__ import annotations

import errno
import gzip
import os
import struct
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from lzma import LZMAError
from pathlib import Path
from typing import IO, Any, cast

from runoff._io.files import open_regular
from runoff.errors import InputError

# Whatever reading a damaged or hostile archive may bring about.
BROKEN = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,  # NotImplementedError too: a compression that zipfile does not know
    MemoryError,
    OverflowError,
    struct.error,
    zlib.error,
    LZMAError,
    zipfile.BadZipFile,
)

BLOCK = 512  # of a tar file
CHUNK = 2**20
SLACK = 2**16  # bytes by which a file may be larger compressed than it is uncompressed


def is_refusal(error: OSError) -> bool:
    """Whether the system keeps the file back. A place that no file has (EINVAL) is what a damaged one asks for."""
    return error.errno not in (None, errno.EINVAL)


def read_bounded(path: Path, most: int) -> bytes:
    """A file's content, uncompressed where its name ends in .gz, if that has at most so many bytes."""
    with open_regular(path) as plain:
        if os.fstat(plain.fileno()).st_size > most + SLACK:  # gzip would read zeros behind the end one by one
            raise InputError(f"{path.name} has more than {most} bytes")
        with cast(IO[bytes], gzip.open(plain) if path.suffix == ".gz" else plain) as file:
            return _at_most(file, most, path.name)


def _at_most(file: IO[bytes], most: int, name: str) -> bytes:
    data = file.read(most + 1)
    if len(data) > most:
        raise InputError(f"{name} has more than {most} bytes")
    return data


def tar_members(path: Path, most: Mapping[str, int]) -> dict[str, bytes]:
    """The named regular files of a .tar.gz, each with at most so many bytes.

    It is read as a stream and by its plain headers alone. Links, devices and extended headers are passed over, so a
    name is what it says, and no size can be negative or lead back.
    """
    found: dict[str, bytes] = {}
    budget = 2 * sum(most.values()) + 2**24  # what is passed over counts too
    with gzip.open(path) as file:
        while len(found) < len(most):
            header = file.read(BLOCK)
            if len(header) < BLOCK or not header.rstrip(b"\0"):
                break
            name, size = _name(header), _octal(header[124:136])
            padded = -(-size // BLOCK) * BLOCK
            budget -= BLOCK + padded
            if budget < 0:
                raise InputError("it holds more than the official archive")
            if name in most and name not in found and header[156:157] in (b"0", b"\0"):
                if size > most[name]:
                    raise InputError(f"{name} has more than {most[name]} bytes")
                found[name] = file.read(size)
                padded -= size
                if len(found[name]) < size:
                    raise InputError(f"{name} is cut short")
            while padded > 0:
                passed = len(file.read(min(padded, CHUNK)))
                if not passed:
                    raise InputError("it is cut short")
                padded -= passed
    absent = [name for name in most if name not in found]
    if absent:
        raise InputError(f"it has no {absent[0]}")
    return found


def _name(header: bytes) -> str:
    parts = [header[345:500], header[:100]] if header[257:263] == b"ustar\0" else [header[:100]]
    return "/".join(part.split(b"\0")[0].decode("utf-8", "replace") for part in parts).removeprefix("/")


def _octal(field: bytes) -> int:
    digits = field.strip(b" \0")
    if not digits or not set(digits) <= set(b"01234567"):
        raise InputError("a header has no size")
    return int(digits, 8)


class Files(ABC):
    """Files by name, in a folder or in an archive."""

    where: Path

    @abstractmethod
    def read(self, name: str, most: int) -> bytes:
        """A file's content, if it has at most so many bytes."""

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - there is nothing to close in a folder
        """Let go of the archive."""


class Folder(Files):
    """Files below a folder."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def read(self, name: str, most: int) -> bytes:
        """A file's content, if it has at most so many bytes."""
        with (self.where / name).open("rb") as file:
            return _at_most(file, most, name)


class Zip(Files):
    """Files in a zip archive."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self._zip = zipfile.ZipFile(where)

    def read(self, name: str, most: int) -> bytes:
        """A file's content, if it has at most so many bytes."""
        try:
            info = self._zip.getinfo(name)
        except KeyError:
            raise InputError(f"it has no {name}") from None
        with self._zip.open(info) as file:
            return _at_most(file, most, name)

    def close(self) -> None:
        """Let go of the archive."""
        self._zip.close()
