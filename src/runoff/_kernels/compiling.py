"""One way to compile a kernel: numba, without the GIL, its machine code kept on disk where that is possible."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import platformdirs
from numba.core import config

from runoff._io.sources import code_digest

F = TypeVar("F", bound=Callable[..., Any])

KERNELS = Path(__file__).parent
ROOM = 64 * 2**20  # bytes that must be free: numba does not survive a disk that fills up while it writes


def kernel(function: F) -> F:
    """Compile `function` on first use, and keep the machine code for the next process if it can be kept.

    Numba alone would go on using the code of a kernel whose own file is unchanged when a kernel that it calls has
    changed, as after an upgrade: certificates from a mixture of two versions. So ours are kept under a digest of all
    kernels, which leaves out docstrings and comments.
    """
    directory = _cache_directory()
    options = {"nogil": True, "error_model": "numpy"}
    if directory is None:
        return cast(F, numba.njit(function, **options))  # type: ignore[call-overload]
    before, config.CACHE_DIR = config.CACHE_DIR, str(directory)  # type: ignore[attr-defined]
    try:
        return cast(F, numba.njit(function, cache=True, **options))  # type: ignore[call-overload]
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]


def helper(function: F) -> F:
    """Compile `function` for kernels only: it cannot be called from Python, and so costs less to compile."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(function, **options))  # type: ignore[call-overload]


@cache
def _cache_directory() -> Path | None:
    """Find a directory for this version of the kernels: where the user says, beside them, in the user's cache, or None.

    Numba reads what it kept by pickle, so whoever can write there can run code here: only a directory in which nobody
    else can write or rename anything will do.
    """
    name = f"runoff-{code_digest([KERNELS])[:16]}"
    given = os.environ.get("NUMBA_CACHE_DIR")
    for parent in [Path(given)] if given else [KERNELS / "__pycache__", platformdirs.user_cache_path()]:
        if _writable(parent / name):
            return parent / name
    return None


def _writable(directory: Path) -> bool:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _only_ours(directory):
            return False
        with tempfile.TemporaryFile(dir=directory):
            return shutil.disk_usage(directory).free > ROOM
    except (OSError, RuntimeError):
        return False


def _only_ours(directory: Path) -> bool:
    """Return whether nobody but this user and root can put files into a directory, or another one in its place."""
    if not hasattr(os, "getuid"):  # no such rights on this system
        return True
    place = directory.resolve()
    for folder in (place, *place.parents):
        status = folder.stat()
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky directory, such as /tmp, others can add files but not replace ours.
        shared = others_write and (folder == place or not status.st_mode & stat.S_ISVTX)
        if shared or status.st_uid not in (0, os.getuid()):
            return False
    return True
