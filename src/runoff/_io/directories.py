"""Directories that appear under their name only when they are complete and on disk."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from runoff._io.files import UNFINISHED, sync_directory, sync_file
from runoff._io.locks import try_lock


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Create a temporary directory beside `path`, and rename it to `path` when it is complete and on disk."""
    message = f"{path} already exists: save to a new directory, or remove it first"
    if path.exists():
        raise FileExistsError(message)
    with _temporary_directory(path) as folder:
        try:
            yield folder
            for file in folder.rglob("*"):
                (sync_directory if file.is_dir() else sync_file)(file)
            sync_directory(folder)
            folder.chmod(0o755)
            folder.rename(path)
            sync_directory(path.parent)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(message) from None  # another process created it first
            raise


@contextmanager
def _temporary_directory(path: Path) -> Iterator[Path]:
    """Create a temporary directory beside `path`, locked while it is written.

    The lock is released if the process dies, so that the next call recognises and removes abandoned directories.
    """
    _remove_abandoned(path)
    while True:
        folder = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}.", suffix=UNFINISHED))
        try:
            descriptor = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:  # another process removed it as abandoned before it was locked
            continue
        except PermissionError:  # this system cannot open directories, and so cannot lock them
            yield folder
            return
        try:
            if not try_lock(descriptor) or not folder.exists():
                continue
            yield folder
            return
        finally:
            os.close(descriptor)


def _remove_abandoned(path: Path) -> None:
    """Remove temporary directories of dead processes beside `path`, but none that is still being written."""
    pattern = re.compile(rf"{re.escape(f'.{path.name}.')}[a-z0-9_]{{8}}{re.escape(UNFINISHED)}")
    for folder in sorted(path.parent.iterdir()) if path.parent.is_dir() else []:
        if not pattern.fullmatch(folder.name) or folder.is_symlink() or not folder.is_dir():
            continue
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                if try_lock(descriptor):  # its writer no longer exists
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def write_key(folder: Path, key: bytes) -> None:
    """Write the secret key, readable by its owner only."""
    (folder / "key").unlink(missing_ok=True)
    with open(folder / "key", "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(key)
