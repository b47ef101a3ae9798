"""Exit codes and error messages of all commands."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from runoff import errors
from runoff.cli.options import start_logging

FAILED, BAD_INPUT, NOT_MET, DO_NOT_MATCH, BUG, INTERRUPTED = 1, 2, 3, 4, 70, 130

# The first matching row counts.
EXIT_CODES: tuple[tuple[tuple[type[Exception], ...], int], ...] = (
    ((errors.StorageError, errors.IntegrityError), DO_NOT_MATCH),
    ((errors.MissingError, errors.DownloadError, errors.MissingExtraError), FAILED),
    ((errors.MemberError, errors.BusyError), FAILED),
    ((errors.RunoffError,), BAD_INPUT),
    ((OSError,), FAILED),
)


class Failure(click.ClickException):
    """An error message with an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]


class NotMet(Failure):
    """A requirement of the user that the certificates do not meet."""

    def __init__(self, message: str) -> None:
        super().__init__(message, NOT_MET)


def exit_code(error: Exception) -> int:
    """Return the exit code for an error."""
    return next((code for kinds, code in EXIT_CODES if isinstance(error, kinds)), BUG)


def failure(error: Exception) -> Failure:
    """Return the one-sentence message and the exit code for an error."""
    code = exit_code(error)
    if code == BUG:
        report = "this is a bug in runoff: please report it with the output of --debug"
        return Failure(f"{type(error).__name__}: {error}; {report}", BUG)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Failure(f"{where}{error.strerror or error}", code)
    return Failure(str(error), code)


class Failures(click.Group):
    """A command group that turns errors into one sentence and an exit code of `EXIT_CODES`."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """Start logging before options are parsed: some of them set its level."""
        start_logging()
        return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command and report its errors."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            click.echo("Interrupted: finished work is kept.", err=True)
            ctx.exit(INTERRUPTED)
        except Exception as error:
            if ctx.meta.get("runoff.debug"):
                click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
            raise failure(error) from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Report an `OSError` in the block as a failure to write this path."""
    try:
        yield
    except OSError as error:
        raise Failure(f"{path} cannot be written: {error.strerror}; no partial file was left", FAILED) from error
