"""Runs: trained ensembles as directories."""

from runoff.errors import RunError
from runoff.runs.directory import Run
from runoff.runs.settings import Settings

__all__ = ["Run", "RunError", "Settings"]
