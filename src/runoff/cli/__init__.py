"""Command line with one module per command, imported when the command is used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from runoff._version import __version__
from runoff.cli.errors import Failures
from runoff.cli.options import common_options

COMMANDS = ("certify", "data", "demo", "doctor", "pretrain", "report", "reproduce", "train", "update", "verify")


class Commands(Failures):
    """A command group that imports each command from the module of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load a command."""
        if cmd_name not in COMMANDS:
            return None
        if cmd_name not in self.commands:
            command: Any = getattr(import_module(f"{__name__}.{cmd_name}"), cmd_name)
            self.add_command(common_options(command))
        return super().get_command(ctx, cmd_name)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__)
@common_options
def main() -> None:
    """Certified predictions from training data that cannot be fully trusted.

    Exit codes: 1 the command failed, 2 invalid input, 3 a requirement is not met or a certificate is wrong, 4 files do
    not match what was recorded about them, 70 a bug in runoff.

    Example: runoff demo
    """
