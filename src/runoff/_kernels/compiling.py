"""Compilation of kernels with Numba, without the GIL, with a cache on disk if possible."""

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
FREE_BYTES = 64 * 2**20  # free disk space required: Numba crashes if the disk fills up during a write


def kernel(function: F) -> F:
    """Compile `function` on first use, and cache the machine code for later processes if possible.

    By default, Numba reuses the code of a kernel whose file is unchanged even if a kernel that it calls has changed,
    for example in an upgrade, and certificates would come from a mixture of two versions. So the name of the cache
    contains a digest of all kernels, which ignores docstrings and comments.
    """
    directory = cache_directory()
    options = {"nogil": True, "error_model": "numpy"}
    if directory is None:
        return cast(F, numba.njit(function, **options))  # type: ignore[call-overload]
    before, config.CACHE_DIR = config.CACHE_DIR, str(directory)  # type: ignore[attr-defined]
    try:
        return cast(F, numba.njit(function, cache=True, **options))  # type: ignore[call-overload]
    finally:
        config.CACHE_DIR = before  # type: ignore[attr-defined]


def helper(function: F) -> F:
    """Compile `function` for use in kernels only, without a wrapper for Python, which takes less time."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(function, **options))  # type: ignore[call-overload]


@cache
def cache_directory() -> Path | None:
    """Return a cache directory: NUMBA_CACHE_DIR, a folder next to the kernels, the user's cache, or None.

    Numba unpickles its cache, so anyone who can write to it can run code in this process. A directory is used only if
    no other user can write to it or rename it.
    """
    name = f"runoff-{code_digest([KERNELS])[:16]}"
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    for parent in [Path(chosen)] if chosen else [KERNELS / "__pycache__", platformdirs.user_cache_path()]:
        if _writable(parent / name):
            return parent / name
    return None


def _writable(directory: Path) -> bool:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(directory):
            return False
        with tempfile.TemporaryFile(dir=directory):
            return shutil.disk_usage(directory).free > FREE_BYTES
    except (OSError, RuntimeError):
        return False


def _is_private(directory: Path) -> bool:
    """Return whether only this user and root can write to a directory or replace it."""
    if not hasattr(os, "getuid"):  # this system has no such permissions
        return True
    directory = directory.resolve()
    for folder in (directory, *directory.parents):
        status = folder.stat()
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        # In a sticky directory, such as /tmp, other users can add files but not replace those of this user.
        shared = others_write and (folder == directory or not status.st_mode & stat.S_ISVTX)
        if shared or status.st_uid not in (0, os.getuid()):
            return False
    return True
