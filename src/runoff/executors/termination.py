"""Orderly exit on SIGTERM, by which Slurm, Kubernetes and `timeout` end a program.

Without it, processes of joblib would outlive this one, and Ray would print its stack and abort.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CODE = 128 + signal.SIGTERM  # as a shell gives it

_received = False


def terminated(*_: Any) -> None:
    """Exit with the code for SIGTERM; as with Ctrl-C, work is stopped on the way out."""
    global _received
    _received = True
    sys.exit(CODE)


@contextmanager
def code_kept() -> Iterator[None]:
    """Exit with the code for SIGTERM also if it arrives while Ray waits, which would exit with 1."""
    try:
        yield
    except SystemExit:
        if _received:
            sys.exit(CODE)
        raise


@contextmanager
def orderly() -> Iterator[None]:
    """Exit in order if the block gets SIGTERM, unless the program handles it."""
    before = _replaced(signal.SIG_DFL, terminated)
    try:
        yield
    finally:
        if before:
            _replaced(terminated, signal.SIG_DFL)


def _replaced(old: Any, new: Any) -> bool:
    """Replace the handler if it is `old`; only the main thread can."""
    can = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is old
    if can:
        signal.signal(signal.SIGTERM, new)
    return can
