"""Locks on directories, so that one command at a time works on a run."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

import portalocker

from runoff.errors import BusyError

LOCK = ".lock"
PATIENCE = 5.0  # seconds to wait for another command
NO_WRITING = (errno.EROFS, errno.EACCES, errno.EPERM)


@contextmanager
def locked(path: Path, *, reading: bool = False) -> Iterator[bool]:
    """Lock a run's directory, which is created if needed, for one command at a time.

    Each command rewrites the manifest that it read, so two at once would overwrite each other's changes. With
    `reading`, yield False if the directory is read-only; the command still waits for one that writes.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = _open_lock_file(path / LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if not reading or error.errno not in NO_WRITING:
            raise
        with ExitStack() as held:
            with suppress(OSError):
                _wait_for(held.enter_context(_open_lock_file(path / LOCK, os.O_RDONLY)), path, shared=True)
            yield False
        return
    with file:
        _wait_for(file, path)
        yield True  # closing the file releases the lock, as does the end of the process


def try_lock(file: IO[bytes] | int, *, shared: bool = False, unsupported: bool = True) -> bool:
    """Lock an open file or directory without waiting; return False if another process holds the lock.

    A file system without locks counts as success, or as `unsupported` says.
    """
    flags = portalocker.LockFlags.SHARED if shared else portalocker.LockFlags.EXCLUSIVE
    try:
        portalocker.lock(file, flags | portalocker.LockFlags.NON_BLOCKING)
    except portalocker.exceptions.AlreadyLocked:
        return False
    except (portalocker.exceptions.LockException, OSError):
        return unsupported
    return True


def _open_lock_file(path: Path, flags: int) -> IO[bytes]:
    """Open the lock file, which must be a regular file: a pipe could block, and a link could lead elsewhere."""
    more_flags = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags | more_flags, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return os.fdopen(descriptor, "rb")


def _wait_for(file: IO[bytes], path: Path, shared: bool = False) -> None:
    until = time.monotonic() + PATIENCE
    while not try_lock(file, shared=shared):
        if time.monotonic() > until:
            raise BusyError(f"{path} is in use by another command: wait until it has finished")
        time.sleep(0.05)
