"""The command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from runoff._version import __version__
from runoff.cli import certify, data, pretrain, report, reproduce, runs, train, update, verify
from runoff.cli.errors import writing


class Commands(click.Group):
    """Commands that end with 130 when they are interrupted, as shells expect."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run one."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("Interrupted: what is finished is kept.", err=True)
            ctx.exit(130)
        except BrokenPipeError:
            raise  # whoever read our output has seen enough
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            raise click.ClickException(f"{where}{error.strerror or error}") from None


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__)
def main() -> None:
    """Certified predictions from training data that cannot be fully trusted.

    Example: runoff demo
    """


main.add_command(certify.certify)
main.add_command(data.data)
main.add_command(train.train)
main.add_command(pretrain.pretrain)
main.add_command(update.update)
main.add_command(reproduce.reproduce)
main.add_command(report.report)
main.add_command(verify.verify)


@main.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("runoff-demo.html"), show_default=True, help="The report."
)
def demo(out: Path) -> None:
    """Train members on parts of the digits dataset, certify them and write a report, in less than a minute.

    Example: runoff demo --out digits.html
    """
    from runoff.cli import demo

    with runs.told(), writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        demo.main(out)
