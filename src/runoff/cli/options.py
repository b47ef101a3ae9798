"""Options that several commands read alike."""

from pathlib import Path
from typing import Any

import click


def numbers(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[int] | None:
    """Numbers of edits, as in 5,10,15."""
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise click.BadParameter(f"expected numbers of edits, none negative, as in 5,10,15; got {value[:60]!r}.")
    return [int(part) for part in parts]


def training_options(command: Any) -> Any:
    """Options of all commands that train."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Machine-readable result on standard output."),
        click.option("--dry-run", is_flag=True, help="Say what would be trained, and roughly how long it takes."),
        click.option(
            "--retrain",
            is_flag=True,
            help="Train anew what another device or version trained, which would come out otherwise here.",
        ),
        click.option("--in-flight", type=click.IntRange(1), help="Networks at a time; it changes the time only."),
        click.option("--device", help="cpu, cuda or cuda:N. Default: a GPU if there is one."),
        click.option("--data-dir", type=click.Path(path_type=Path), help="Where the datasets are."),
    ):
        command = option(command)
    return command
