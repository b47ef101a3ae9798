"""The origin of tables of results: commit and duration."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parent.parent


def commit() -> str:
    """Return the checked-out commit, with a + if code differs from it (pages may differ: tables are written there)."""
    name = _git("rev-parse", "--short=9", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!*.md")
    return f"{name}+" if changed else name or "unknown"


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S607
    return done.stdout.strip()


def duration(seconds: float) -> str:
    """Return a duration formatted for people."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"
