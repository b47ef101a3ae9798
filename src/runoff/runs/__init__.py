"""Runs: a trained ensemble as a directory."""

from runoff.errors import RunError
from runoff.runs.directory import Run, Settings

__all__ = ["Run", "RunError", "Settings"]
