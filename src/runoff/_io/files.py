"""Files: reading of untrusted arrays, digests, and atomic writes."""

import errno
import hashlib
import os
import re
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from runoff._io.locks import try_lock
from runoff._io.text import one_line, size
from runoff.errors import InputError

VERSIONS = ((1, 0), (2, 0), (3, 0))  # of the .npy format

LOCKED = os.name == "posix"  # elsewhere, a locked file can be neither renamed nor removed
LARGEST = 2**33  # bytes of one file; larger ones are rejected as damaged or hostile
CHUNK = 2**20

UNFINISHED = ".runoff-tmp"  # suffix of temporary files and directories
_TEMPORARY = re.compile(rf"\..+\.[a-z0-9_]{{8}}{re.escape(UNFINISHED)}", re.DOTALL)
_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789_"

# Errors of systems that cannot sync directories, which are ignored.
_CANNOT_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EBADF, errno.EACCES, errno.EPERM)


def open_regular(path: str | Path, most: int | None = None) -> IO[bytes]:
    """Open a regular file of at most `most` bytes for reading.

    Anything else is an OSError, since opening a named pipe could block forever.
    """
    nonblocking = getattr(os, "O_NONBLOCK", 0)
    descriptor = os.open(path, os.O_RDONLY | nonblocking | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0))
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    if most is not None and status.st_size > most:
        os.close(descriptor)
        raise OSError(errno.EFBIG, f"{size(status.st_size)}, more than the limit of {size(most)}", os.fspath(path))
    return os.fdopen(descriptor, "rb")


def read_regular(path: str | Path, most: int = LARGEST) -> bytes:
    """Return the content of a regular file of at most `most` bytes."""
    with open_regular(path, most) as file:
        return file.read()


def read_given(given: str | Path, expected: str) -> tuple[Path, bytes]:
    """Return the path that a user or a manifest names, and the content of its file.

    `expected` is the first half of the error if it cannot be read, as in "weights must be None or a file".
    """
    try:
        path = Path(given).expanduser()
        return path, read_regular(path)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: the home directory of an unknown user
        reason = (error.strerror if isinstance(error, OSError) else None) or one_line(error, 100)
        raise InputError(f"{expected}, but {one_line(given, 300)} cannot be read: {reason}") from None


def sha256_of(path: str | Path) -> str:
    """Return the SHA-256 of a regular file, in hexadecimal, without holding the file in memory."""
    hashed = hashlib.sha256()
    with open_regular(path, LARGEST) as file:
        while part := file.read(CHUNK):
            hashed.update(part)
    return hashed.hexdigest()


def open_array(path: str | Path) -> NDArray[Any]:
    """Memory-map a .npy file of plain numbers after checking that it is complete, without unpickling anything."""
    path = Path(path)
    got = "an archive of arrays" if path.suffix == ".npz" else "something else"
    not_npy = f"{path} must be a .npy file as numpy.save writes it, got {got}"
    try:
        with open_regular(path) as file:
            shape, _, dtype = read_header(file)
            start, size = file.tell(), os.fstat(file.fileno()).st_size
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise InputError(not_npy) from None
    if dtype.hasobject:
        raise InputError(f"{path} must hold numbers, got pickled objects, which are never loaded: save a plain array")
    if dtype.subdtype is not None or dtype.names is not None:
        raise InputError(f"{path} must hold numbers, got records ({one_line(dtype, 60)}): save a plain array")
    if not dtype.itemsize:
        raise InputError(f"{path} must hold numbers, got values of zero bytes: save a plain array")
    expected = start + dtype.itemsize * int(np.prod(shape, dtype=object))
    if size < expected:
        raise InputError(
            f"{path} is truncated: its header promises {expected} bytes, the file has {size}; copy it again"
        )
    try:
        mapped: NDArray[Any] = (
            np.empty(shape, dtype) if 0 in shape else np.load(path, mmap_mode="r", allow_pickle=False)
        )
    except (ValueError, OverflowError):  # more or larger dimensions than an array can have
        raise InputError(not_npy) from None
    if dtype.kind == "U" and not is_text(mapped):
        raise InputError(f"{path} is damaged: it has characters that do not exist")
    return mapped


def is_text(array: NDArray[Any]) -> bool:
    """Return whether all characters of an array of strings exist: Python fails on others as soon as they are used."""
    return not array.size or int(np.ascontiguousarray(array).view(f"{array.dtype.byteorder}u4").max()) <= sys.maxunicode


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Return the shape of a .npy file's array, whether it is in Fortran order, and its dtype.

    Raises InputError for a header that NumPy would not write.
    """
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except (OSError, MemoryError):
        raise
    except Exception as error:  # NumPy parses a header as Python source, which can raise almost anything
        raise InputError(f"it has a damaged header ({type(error).__name__})") from None
    if version not in VERSIONS or not all(type(n) is int and n >= 0 for n in shape):
        raise InputError(f"it has a header of version {version} and shape {one_line(shape, 60)}")
    return shape, fortran, dtype


@contextmanager
def written_whole(path: str | Path, *, binary: bool = False, among_many: bool = False) -> Iterator[IO[Any]]:
    """Open a temporary file for writing, and rename it to `path` when it is complete and on disk.

    Temporary files that killed calls left for the same path are removed first, except with `among_many`, for folders
    that take long to list: use `leftovers` there.
    """
    path = Path(path)
    if not among_many:
        _remove_abandoned(path)
    descriptor, temporary = _temporary_file(path)
    options: dict[str, Any] = {"mode": "wb"} if binary else {"mode": "w", "encoding": "utf-8", "newline": ""}
    try:
        with os.fdopen(descriptor, **options) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if LOCKED:  # until it has its name
                Path(temporary).replace(path)
        if not LOCKED:
            Path(temporary).replace(path)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = os.fspath(path)  # the error of a full disk does not name the file
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def _temporary_file(path: Path) -> tuple[int, str]:
    """Create a temporary file beside `path`, locked while it is written; the lock ends with the process."""
    while True:
        descriptor, temporary = _new_file(path)
        if not LOCKED or (try_lock(descriptor) and Path(temporary).exists()):
            return descriptor, temporary
        os.close(descriptor)  # another process took it for abandoned before it was locked
        Path(temporary).unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary files of `path` whose writers no longer exist; do nothing if there are no locks."""
    pattern = re.compile(rf"{re.escape(f'.{path.name}.')}[a-z0-9_]{{8}}{re.escape(UNFINISHED)}", re.DOTALL)
    try:
        matches = [file for file in path.parent.iterdir() if LOCKED and pattern.fullmatch(file.name)]
    except OSError:  # a folder that may be written but not listed
        return
    for file in matches:
        with suppress(OSError), open_regular(file) as opened:
            if not file.is_symlink() and try_lock(opened, unsupported=False):
                file.unlink()


def _new_file(path: Path) -> tuple[int, str]:
    """Create a temporary file beside `path`, with the permissions that the umask leaves.

    The umask is not read, since reading it means changing it for a moment, for all threads of the process.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
    while True:
        letters = "".join(secrets.choice(_LETTERS) for _ in range(8))
        temporary = path.with_name(f".{path.name}.{letters}{UNFINISHED}")
        with suppress(FileExistsError):
            return os.open(temporary, flags, 0o666), str(temporary)


def sync_file(path: Path) -> None:
    """Flush the content of a file to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(folder: Path) -> None:
    """Flush renames in a directory to disk, if the system can: syncing a file does not sync its name."""
    try:
        sync_file(folder)
    except OSError as error:
        if error.errno not in _CANNOT_SYNC:
            raise


def leftovers(folder: str | Path) -> list[Path]:
    """Return the temporary files that interrupted calls of `written_whole` left directly in a folder.

    Files that are still being written look the same, so delete them only if no process writes to the folder. For a
    symbolic link the list is empty, because its target may belong to another program.
    """
    folder = Path(folder)
    if folder.is_symlink() or not folder.is_dir():
        return []
    return sorted(f for f in folder.iterdir() if _TEMPORARY.fullmatch(f.name) and f.is_file() and not f.is_symlink())


def write_array(path: str | Path, array: NDArray[Any]) -> None:
    """Write a .npy file of plain numbers, completely or not at all."""
    with written_whole(path, binary=True) as file:
        np.save(file, array, allow_pickle=False)
