"""A run's directory, for one command at a time."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any

LOCK = ".lock"
PATIENCE = 5.0  # seconds to wait for another command that is about to end
NO_WRITING = (errno.EROFS, errno.EACCES, errno.EPERM)


class BusyError(RuntimeError):
    """A run that another command is working on."""


@contextmanager
def locked(path: Path, *, reading: bool = False) -> Iterator[bool]:
    """A run's directory, made if it is not there, for one command at a time: each writes the manifest that it read.

    A command that mostly reads gets False where it cannot write; it still waits for one that does.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        file = _opened(path / LOCK, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        if not reading or error.errno not in NO_WRITING:
            raise
        with ExitStack() as held:
            with suppress(OSError):
                _lock(held.enter_context(_opened(path / LOCK, os.O_RDONLY)), path, shared=True)
            yield False
        return
    with file:
        _lock(file, path)
        yield True  # closing the file gives it back, and so does a kill


def _opened(path: Path, flags: int) -> IO[bytes]:
    """Open the lock file, which must be an ordinary one: a pipe would wait for a reader, a link lead elsewhere."""
    more = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(path, flags | more, 0o666)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not an ordinary file", os.fspath(path))
    return os.fdopen(descriptor, "rb")


def _lock(file: Any, path: Path, shared: bool = False) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return
    until = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise BusyError(f"{path} is in use by another command: wait until that is done") from None
            time.sleep(0.05)
        else:
            return
