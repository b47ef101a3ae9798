"""Bounded reading of files inside archives, by exact name, without extracting anything to disk."""

from __future__ import annotations

import bz2
import errno
import gzip
import os
import struct
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from lzma import LZMAError
from pathlib import Path
from typing import IO, Any, cast

from runoff._io.files import open_regular
from runoff.errors import InputError

# The errors that reading a damaged or hostile archive can raise.
BROKEN = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,  # includes NotImplementedError: a compression method that zipfile does not support
    MemoryError,
    OverflowError,
    struct.error,
    zlib.error,
    LZMAError,
    zipfile.BadZipFile,
)

HEADERS = 2**20  # maximum bytes of the headers between two files of a tar archive
SLACK = 2**16  # maximum bytes that compression may add to a file
LARGER = "it contains more than the official archive"


def is_refusal(error: OSError) -> bool:
    """Return whether the system denies access. EINVAL does not count: a damaged file leads to invalid offsets."""
    return error.errno not in (None, errno.EINVAL)


def read_bounded(path: Path, most: int) -> bytes:
    """Return the content of a file of at most `most` bytes, decompressed if the name ends in .gz."""
    with open_regular(path) as plain:
        if os.fstat(plain.fileno()).st_size > most + SLACK:  # gzip would read trailing zeros one by one
            raise InputError(f"{path.name} has more than {most} bytes")
        with cast(IO[bytes], gzip.open(plain) if path.suffix == ".gz" else plain) as file:
            return _read_at_most(file, most, path.name)


def _read_at_most(file: IO[bytes], most: int, name: str) -> bytes:
    data = file.read(most + 1)
    if len(data) > most:
        raise InputError(f"{name} has more than {most} bytes")
    return data


def tar_members(path: Path, most: Mapping[str, int]) -> dict[str, bytes]:
    """Return the named regular files of a .tar.gz, each with at most its number of bytes in `most`.

    The archive is read as a stream, so no offset can point backwards; links, devices and sparse files are skipped.
    """
    contents: dict[str, bytes] = {}
    budget = 2 * sum(most.values()) + 2**24  # including skipped files
    for name, data in tar_stream(path, budget, lambda name: None if name in contents else most.get(name)):
        contents[name] = data
        if len(contents) == len(most):
            break
    if missing := [name for name in most if name not in contents]:
        raise InputError(f"it has no {missing[0]}")
    return contents


def tar_stream(path: Path, budget: int, most: Callable[[str], int | None]) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the regular files for which `most` returns a number of bytes.

    The archive is a .tar.gz or, by its name, a .tar.bz2.

    It is an error if a file is larger than its number, or if all files, including skipped ones, exceed `budget` bytes.
    """
    try:
        limited = _LimitedBz2 if path.suffix == ".bz2" else _LimitedGzip
        with limited(path) as file, tarfile.open(fileobj=file, mode="r|") as archive:
            while (member := archive.next()) is not None:
                name, size = member.name, member.size
                budget -= tarfile.BLOCKSIZE + size
                if size < 0 or budget < 0:
                    raise InputError(LARGER if budget < 0 else f"{name} has a negative size")
                file.left = size + HEADERS
                plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse()
                if plain and (limit := most(name)) is not None:
                    if size > limit:
                        raise InputError(f"{name} has more than {limit} bytes")
                    yield name, cast(IO[bytes], archive.extractfile(member)).read()
    except tarfile.TarError as error:
        raise InputError(f"it is truncated or damaged ({error})") from None


class _Limited:
    """A stream with a limit, because tarfile keeps extended headers of any size in memory."""

    left = HEADERS  # bytes

    def read(self, size: int | None = -1) -> bytes:
        data: bytes = super().read(-1 if size is None else size)  # type: ignore[misc]
        self.left -= len(data)
        if self.left < 0:
            raise InputError(LARGER)
        return data


class _LimitedGzip(_Limited, gzip.GzipFile):
    pass


class _LimitedBz2(_Limited, bz2.BZ2File):
    pass


class Files(ABC):
    """A collection of files by name: a folder or an archive."""

    where: Path

    @abstractmethod
    def read(self, name: str, most: int) -> bytes:
        """Return the content of a file of at most `most` bytes."""

    def __enter__(self) -> Files:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027 - a folder has nothing to close
        """Close the archive."""


class Folder(Files):
    """The files in a folder."""

    def __init__(self, where: Path) -> None:
        self.where = where

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a file of at most `most` bytes."""
        with (self.where / name).open("rb") as file:
            return _read_at_most(file, most, name)


class Zip(Files):
    """The files in a zip archive."""

    def __init__(self, where: Path) -> None:
        self.where = where
        self._zip = zipfile.ZipFile(where)

    def read(self, name: str, most: int) -> bytes:
        """Return the content of a file of at most `most` bytes."""
        try:
            info = self._zip.getinfo(name)
        except KeyError:
            raise InputError(f"it has no {name}") from None
        with self._zip.open(info) as file:
            return _read_at_most(file, most, name)

    def close(self) -> None:
        """Close the archive."""
        self._zip.close()
