"""Options that several commands read alike."""

import click


def numbers(_ctx: click.Context, _param: click.Parameter, value: str | None) -> list[int] | None:
    """Numbers of edits, as in 5,10,15."""
    if value is None:
        return None
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 for part in parts):
        raise click.BadParameter(f"expected numbers of edits, none negative, as in 5,10,15; got {value[:60]!r}.")
    return [int(part) for part in parts]
