"""Storage of finished results, as content-addressed files, until the driver collects them.

The name of a file is the address of the result and the SHA-256 of its content. So a result may be written twice, an
incomplete or altered file is detected and ignored, and a restarted driver finds the results finished before.
"""

from __future__ import annotations

import re
import secrets
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runoff._io.files import leftovers, read_regular, written_whole
from runoff._io.manifests import sha256
from runoff._io.text import one_line
from runoff.errors import InputError, MissingExtraError, RunoffError, StorageError

FILE = re.compile(r"([0-9a-f]{64})-([0-9a-f]{64})\.result")
REMOTE = re.compile(r"[a-z][a-z0-9+.-]+(::|://)")  # an address that fsspec understands
PROBES = re.compile(r"probe-(\d+)-[0-9a-f]+")  # with the time when they were written
AT_A_TIME = 16  # requests to remote storage
LEFT = 3600.0  # seconds after which nobody needs a probe or an incomplete file


@dataclass(frozen=True)
class Storage:
    """A folder for results: a path, or an address that fsspec understands, such as s3://bucket/folder.

    Parameters
    ----------
    where : the path or address
    options : settings of the file system, passed to fsspec
    private : whether one run alone uses the folder, so that files of others cannot be there

    """

    where: str = field(repr=False)  # may hold a secret
    options: dict[str, Any] = field(default_factory=dict, repr=False)
    private: bool = False

    @property
    def location(self) -> str:
        """The path or address for messages, without keys, passwords and tokens in it."""
        return concealed(self.where)

    def __repr__(self) -> str:
        return f"Storage({self.location!r})"

    @property
    def is_remote(self) -> bool:
        """Whether `where` is an address for fsspec."""
        return bool(REMOTE.match(self.where))

    def put(self, address: str, data: bytes) -> str:
        """Store a result and return the SHA-256 of its content."""
        digest = sha256(data)
        self._write(f"{address}-{digest}.result", data)
        return digest

    def get(self, address: str, digest: str) -> bytes | None:
        """Return a result, or None if it is absent, incomplete or altered."""
        try:
            data = self._read(f"{address}-{digest}.result")
        except FileNotFoundError:
            return None
        return data if sha256(data) == digest else None

    def look(self, address: str, digest: str) -> tuple[bytes | None, bool]:
        """Return a result, or None if it is absent or damaged, and whether its file exists."""
        name = f"{address}-{digest}.result"
        if (data := self.get(address, digest)) is not None:
            return data, True
        if not self._exists(name):
            return None, False
        return self.get(address, digest), True  # it may have appeared since

    def existing(self) -> list[tuple[str, str]]:
        """Return the address and the digest of each stored result; copies of a result may record different times."""
        matches = [FILE.fullmatch(name) for name in sorted(self._names())]
        return [(match[1], match[2]) for match in matches if match]

    def remove(self, address: str, digest: str) -> None:
        """Delete a result."""
        self._delete(f"{address}-{digest}.result")

    def remove_all(self, results: Iterable[tuple[str, str]]) -> None:
        """Delete results, several at a time, since each may take a round trip."""
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for _ in pool.map(lambda result: self.remove(*result), results):
                pass

    def close(self) -> None:
        """Delete the files that killed processes left, and the folder if it is empty.

        If other runs may use the folder, only files older than an hour are deleted.
        """
        old = time.time() - (0 if self.private else LEFT)
        for name in self._names():
            if (match := PROBES.fullmatch(name)) and int(match[1]) <= old:
                self._delete(name)
        if self.is_remote:
            return
        for file in leftovers(self.where):
            with suppress(FileNotFoundError):
                if file.stat().st_mtime <= old:
                    file.unlink()
        with suppress(OSError):  # not empty, or it does not exist
            Path(self.where).rmdir()

    def mark(self) -> str:
        """Write a file by which other machines can verify that they see the same storage; return its token."""
        token = f"{int(time.time())}-{secrets.token_hex(8)}"
        self._write(f"probe-{token}", token.encode())
        return token

    def is_marked(self, token: str) -> bool:
        """Return whether this machine sees the file written by `mark`."""
        try:
            return self._read(f"probe-{token}") == token.encode()
        except OSError:
            return False  # also where a folder exists that only its owner can read

    def unmark(self, token: str) -> None:
        """Delete the file written by `mark`."""
        self._delete(f"probe-{token}")

    # -- local folders and file systems of fsspec ---------------------------------------------------------------------

    def _write(self, name: str, data: bytes) -> None:
        if self.is_remote:  # objects appear when complete; on other file systems, the digest detects partial ones
            with self._remote() as (system, root):
                try:
                    system.pipe_file(f"{root}/{name}", data)
                except FileNotFoundError:
                    if not root.startswith("/"):  # a bucket: never created, as its name may be mistyped
                        raise InputError(f"storage {self.location} must exist: create its bucket first") from None
                    system.makedirs(root, exist_ok=True)
                    system.pipe_file(f"{root}/{name}", data)
            return
        Path(self.where).mkdir(parents=True, exist_ok=True)
        with written_whole(Path(self.where) / name, binary=True, among_many=True) as file:
            file.write(data)

    def _read(self, name: str) -> bytes:
        if self.is_remote:
            with self._remote() as (system, root):
                return bytes(system.cat_file(f"{root}/{name}"))
        return read_regular(Path(self.where) / name)

    def _exists(self, name: str) -> bool:
        if self.is_remote:
            with self._remote() as (system, root):
                system.invalidate_cache()
                return bool(system.exists(f"{root}/{name}"))
        return (Path(self.where) / name).exists()

    def _delete(self, name: str) -> None:
        if self.is_remote:
            with self._remote() as (system, root), suppress(FileNotFoundError):
                system.rm_file(f"{root}/{name}")
            return
        (Path(self.where) / name).unlink(missing_ok=True)

    def _names(self) -> list[str]:
        if self.is_remote:
            with self._remote() as (system, root):
                system.invalidate_cache()
                try:
                    return [str(path).rsplit("/", 1)[-1] for path in system.ls(root, detail=False)]
                except FileNotFoundError:
                    return []
        folder = Path(self.where)
        return [path.name for path in folder.iterdir()] if folder.is_dir() else []

    @contextmanager
    def _remote(self) -> Iterator[tuple[Any, str]]:
        """Yield the file system and the folder on it; report its own errors as `StorageError`."""
        system, root = self._system()
        try:
            yield system, root
        except (FileNotFoundError, RunoffError):
            raise
        except Exception as error:  # its message may hold the address, with a secret in it
            reason = one_line(concealed(str(error)))
            raise StorageError(f"storage {self.location} cannot be used: {type(error).__name__}: {reason}") from None

    def _system(self) -> tuple[Any, str]:
        try:
            import fsspec
        except ImportError:
            raise MissingExtraError(
                f"storage {self.location!r} needs fsspec. Install it with: pip install 'runoff[ray]'"
            ) from None
        try:
            system, root = fsspec.core.url_to_fs(self.where, **self.options)
        except ImportError as error:
            raise MissingExtraError(f"storage {self.location!r} needs another package: {error}") from None
        except ValueError as error:
            raise InputError(
                f"storage must be a path or an address that fsspec knows, got {self.location!r}: "
                f"{concealed(str(error))}"
            ) from None
        return system, str(root).rstrip("/")


class Ahead:
    """Reads of remote results, some at a time and in advance, since each takes a round trip."""

    def __init__(self, storage: Storage) -> None:
        self.storage, self.pool = storage, ThreadPoolExecutor(AT_A_TIME)
        self.wanted: deque[tuple[str, str]] = deque()
        self.reads: dict[tuple[str, str], Future[tuple[bytes | None, bool]]] = {}

    def expect(self, results: Iterable[tuple[str, str]]) -> None:
        """Start to read these results; those expected before and not yet read are forgotten."""
        self.wanted = deque(dict.fromkeys(results))
        self.reads.clear()
        self._start()

    def look(self, address: str, digest: str) -> tuple[bytes | None, bool]:
        """Return a result, or None, and whether its file exists, as `Storage.look` does."""
        read = self.reads.pop((address, digest), None)
        self._start()
        return self.storage.look(address, digest) if read is None else read.result()

    def close(self) -> None:
        """End all reads."""
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        while self.wanted and len(self.reads) < AT_A_TIME:
            result = self.wanted.popleft()
            self.reads[result] = self.pool.submit(self.storage.look, *result)


def concealed(text: str) -> str:
    """Return an address or a message without the keys, passwords and tokens of addresses in it."""
    text = re.sub(r"//\S*@", "//***@", text)  # up to the last @, since a password may hold slashes and more of them
    return re.sub(r"(://[^\s?]*\?)[^\s]+", r"\1***", text)


def missing(name: str, storage: Storage) -> StorageError:
    """Return the error for a result that a worker stored and the driver cannot find."""
    return StorageError(
        f"{name} was stored, but {storage.location} does not have it: all machines must see the same storage; give a "
        "shared folder or an address such as s3://bucket/folder"
    )


def damaged(name: str, storage: Storage) -> StorageError:
    """Return the error for a result whose file does not match the digest in its name."""
    return StorageError(
        f"{name} was stored, but its file in {storage.location} is damaged: check the disk or the file system"
    )
