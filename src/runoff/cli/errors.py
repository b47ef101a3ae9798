"""Exit codes and error messages of all commands."""

from __future__ import annotations

import atexit
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from runoff import errors
from runoff.cli.options import start_logging
from runoff.cli.output import printable, say

FAILED, BAD_INPUT, NOT_MET, DO_NOT_MATCH, BUG, INTERRUPTED = 1, 2, 3, 4, 70, 130

# The first matching row applies.
EXIT_CODES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((errors.StorageError, errors.IntegrityError), DO_NOT_MATCH),
    ((errors.MissingError, errors.DownloadError, errors.MissingExtraError), FAILED),
    ((errors.MemberError, errors.BusyError, errors.ClusterError), FAILED),
    ((errors.RunoffError,), BAD_INPUT),
    ((OSError,), FAILED),
)


class Failure(click.ClickException):
    """An error message with an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(printable(message))
        self.exit_code = code  # type: ignore[misc]


class NotMet(Failure):
    """Failure because certificates do not meet a requirement of the user."""

    def __init__(self, message: str) -> None:
        super().__init__(message, NOT_MET)


def exit_code(error: Exception) -> int:
    """Return the exit code for an error."""
    return next((code for kinds, code in EXIT_CODES if isinstance(error, kinds)), BUG)


def failure(error: Exception) -> Failure:
    """Return the one-sentence message and the exit code for an error."""
    code = exit_code(error)
    if code == BUG:
        report = "this is a bug in runoff: please report it with the output of --debug and of `runoff doctor`"
        return Failure(f"{type(error).__name__}: {error}; {report}", BUG)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Failure(f"{where}{error.strerror or error}", code)
    return Failure(str(error), code)


class Failures(click.Group):
    """A command group that turns errors into one sentence and an exit code of `EXIT_CODES`."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command; the first Ctrl-C interrupts it, and a second one exits immediately."""
        with _interruptible():
            return super().main(*args, **extra)

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Start logging before options are parsed, because some options set the log level."""
        start_logging()
        return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and report its errors."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            say("Interrupted: finished work is kept.", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if ctx.meta.get("runoff.debug"):
                click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
            raise failure(error) from None


def _show_warning(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning as one sentence, without the line of code that it came from."""
    text = str(message) if issubclass(category, UserWarning) else f"{category.__name__}: {message}"
    logging.getLogger("runoff").warning("%s", text)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on the first Ctrl-C, and exit with the same code on the second.

    Without this, a second Ctrl-C while threads finish ends the process by a signal or with an abort. Nothing is lost:
    files appear under their names only when they are complete.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield  # the caller handles or ignores interruptions
        return
    interrupted = False

    def handle(*_: Any) -> None:
        nonlocal interrupted
        if interrupted:
            os.write(2, b"Stopped at once: finished work is kept.\n")
            os._exit(INTERRUPTED)
        interrupted = True
        atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)  # interpreter shutdown is short
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    except KeyboardInterrupt:  # outside a command, for example while options are parsed
        sys.exit(INTERRUPTED)
    finally:
        if not interrupted:
            signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report an `OSError` in the block as a failure to write this path."""
    try:
        yield
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}; no partial file was left", FAILED) from error
