"""Compilation of kernels with numba, without the GIL, with a cache on disk where possible."""

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
FREE_BYTES = 64 * 2**20  # that the disk needs: numba crashes if it fills up during a write


def kernel(function: F) -> F:
    """Compile `function` on first use, and cache the machine code for the next process if possible.

    Numba alone would reuse the code of a kernel whose file is unchanged after a kernel that it calls has changed, as by
    an upgrade, and certificates would come from a mixture of two versions. So the cache is named by a digest of all
    kernels, which ignores docstrings and comments.
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
    """Compile `function` for use in kernels only: without a wrapper for Python it compiles faster."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    options = {"nogil": True, "error_model": "numpy", "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return cast(F, numba.njit(function, **options))  # type: ignore[call-overload]


@cache
def cache_directory() -> Path | None:
    """Return a cache directory for these kernels: NUMBA_CACHE_DIR, beside the kernels, the user's cache, or None.

    Numba reads its cache by pickle, so anybody who can write to it can run code in this process. Only a directory in
    which nobody else can write or rename anything is used.
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
        # In a sticky directory, such as /tmp, others can add files but not replace those of this user.
        shared = others_write and (folder == directory or not status.st_mode & stat.S_ISVTX)
        if shared or status.st_uid not in (0, os.getuid()):
            return False
    return True
