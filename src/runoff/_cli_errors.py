"""How commands fail: one sentence, and an exit code that says of which kind."""

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
