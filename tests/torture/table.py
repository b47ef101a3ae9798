"""The table: for a terminal, and in a page between marks, with the date and the commit."""

import datetime
import os
import platform
import subprocess
from pathlib import Path

from tests.torture.tally import Tally

ROOT = Path(__file__).parent.parent.parent
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
    took = f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
    command = f"python -m tests.torture --part {part} --scale {scale:g} --seed {seed}"
    about = f"{datetime.date.today()}, commit {commit()}, `{command}`"
    return ["", *HEAD, *rows, "", f"{about}: {took} on {os.cpu_count()} cores ({platform.machine()}).", ""]


def commit() -> str:
    """The commit that is checked out, with a mark where files differ from it."""
    command = ["git", "describe", "--always", "--dirty=+", "--abbrev=9", "--exclude=*"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return told.stdout.strip() or "unknown"
