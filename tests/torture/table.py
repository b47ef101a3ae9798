"""The table: for a terminal, and in a page between marks, with the date and the commit."""

import datetime
import os
import platform
from pathlib import Path

from tests.tables import commit, duration
from tests.torture.tally import Tally

HEAD = ["| part | what | tried | failed |", "| --- | --- | ---: | ---: |"]


def plain(part: str, tally: Tally, seconds: float) -> list[str]:
    """The lines of a part, with examples of what failed."""
    lines = [f"{part} ({seconds:.0f} s)"]
    for what, line in sorted(tally.lines.items()):
        lines.append(f"  {what:<62}{line.tried:>12,} tried{line.failed:>9,} failed")
        lines += [f"      {example}" for example in line.examples]
    return lines


def write(page: str, found: dict[str, tuple[Tally, float]], seed: int, scale: float) -> None:
    """Replace the block of each part that was run; those that were not stay as they are."""
    path = Path(page)
    text = path.read_text()
    for part, (tally, seconds) in found.items():
        start, end = f"<!-- {part} -->", f"<!-- end of {part} -->"
        if start not in text or end not in text:
            raise SystemExit(f"{page} must have the marks {start} and {end} for the table, got none")
        head, rest = text.split(start, 1)
        text = (
            head
            + start
            + "\n"
            + "\n".join(block(part, tally, seconds, seed, scale))
            + "\n"
            + end
            + rest.split(end, 1)[1]
        )
    path.write_text(text)


def block(part: str, tally: Tally, seconds: float, seed: int, scale: float) -> list[str]:
    """A part as Markdown."""
    rows = [f"| {part} | {what} | {line.tried:,} | {line.failed:,} |" for what, line in sorted(tally.lines.items())]
    command = f"python -m tests.torture --part {part} --scale {scale:g} --seed {seed}"
    about = f"{datetime.date.today()}, commit {commit()}, `{command}`"
    return ["", *HEAD, *rows, "", f"{about}: {duration(seconds)} on {os.cpu_count()} cores ({platform.machine()}).", ""]
