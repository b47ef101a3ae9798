"""Output of commands for people, in which text from files cannot control the terminal or imitate other output."""

from __future__ import annotations

import click

from runoff._io.text import visible


def printable(text: str) -> str:
    """Return lines of text with control characters, and parts of paths that are not valid UTF-8, replaced."""
    return "\n".join(map(visible, text.split("\n"))).encode("utf-8", "replace").decode()


def say(text: str, *, err: bool = False) -> None:
    """Print lines of text."""
    click.echo(printable(text), err=err)


def cell(text: object) -> str:
    """Return text for a table of rich, which is printed as it is, without markup and control characters."""
    from rich.markup import escape

    return escape(visible(str(text)))
