"""The command-line interface."""

from __future__ import annotations

import click

from runoff._version import __version__
from runoff.cli import certify, data, demo, pretrain, report, reproduce, train, update, verify
from runoff.cli.errors import Commands
from runoff.cli.options import common_options


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__)
@common_options
def main() -> None:
    """Certify predictions of classifiers whose training data cannot be fully trusted.

    Exit codes: 1 failure, 2 invalid input, 3 a requirement is not met or a certificate is wrong, 4 files do not match
    their recorded digests, 70 a bug.

    Example: runoff demo
    """


for _command in (
    certify.certify, data.data, demo.demo, pretrain.pretrain, report.report, reproduce.reproduce, train.train,
    update.update, verify.verify,
):  # fmt: skip
    main.add_command(common_options(_command))
