"""Numbers, and text from files, formatted for people."""

import re


def duration(seconds: float) -> str:
    """Return a duration as text, as in 4.2 s, 42 s, 3 min 20 s, 2 h 56 min, 5 days 3 h or 84 days."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if (whole := round(seconds)) < 600:
        minutes, rest = divmod(whole, 60)
        return f"{minutes} min {rest} s" if minutes else f"{rest} s"
    if (whole := round(seconds / 60)) < 48 * 60:
        hours, minutes = divmod(whole, 60)
        return f"{hours} h {minutes} min" if hours else f"{minutes} min"
    if (whole := round(seconds / 3600)) < 14 * 24:
        return f"{whole // 24} days {whole % 24} h"
    return f"{round(seconds / 86400):,} days"


def size(n_bytes: float) -> str:
    """Return a number of bytes as text, as in 812 bytes, 3.4 kB, 56 MB or 1.2 GB."""
    if n_bytes < 1000:
        return f"{round(n_bytes)} bytes"
    power = 1 if n_bytes < 999_500 else 2 if n_bytes < 999_500_000 else 3
    value, unit = n_bytes / 1000**power, ("kB", "MB", "GB")[power - 1]
    return f"{value:.1f} {unit}" if value < 9.95 else f"{value:,.0f} {unit}"


def one_line(value: object, most: int = 200) -> str:
    """Return the start of a name from a file, or of an error's message, which may quote any part of it, on one line."""
    return visible(" ".join(str(value).split())[:most])


CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Return a text with the characters escaped that control a terminal or reverse what follows."""
    return CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def constant_votes(n: int | None, n_members: int) -> str:
    """Return a sentence on members that vote the same for every input, or nothing if there are none."""
    if not n:
        return ""
    of = f"{n:,} of {count(n_members, 'member')}"
    sentence = f"{of} {'ranks' if n == 1 else 'rank'} the classes in the same way for every input, as members without "
    sentence += "samples or with samples of one class do"
    if 2 * n <= n_members:
        return f"{sentence}."
    return f"{sentence}: large radii mean little here, so use fewer partitions, or more samples."


def count(n: int, noun: str) -> str:
    """Return a number with its noun, as in 1 edit or 2 edits."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {noun}s"
