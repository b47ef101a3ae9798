"""How commands fail: one sentence, and an exit code that says of which kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click


class InputError(click.ClickException):
    """Something the user gave is not what was expected."""

    exit_code = 2


class NotMet(click.ClickException):
    """Less is guaranteed than was required."""

    exit_code = 3


class IntegrityFailure(click.ClickException):
    """A file is not what its manifest says."""

    exit_code = 4


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """What cannot be written, in one sentence."""
    try:
        yield
    except ImportError as error:
        raise click.ClickException(str(error)) from None
    except OSError as error:
        raise click.ClickException(f"{path} cannot be written: {error.strerror}; nothing was left there") from None
