"""The choice of an executor, by name or as an object."""

from __future__ import annotations

from typing import Any

from runoff.errors import InputError
from runoff.executors.base import Executor
from runoff.executors.local import Joblib, Local

NAMES = ("local", "joblib", "ray")


def get(executor: Any, n_jobs: int | None = None) -> Executor:
    """Return an executor by name or as given; "joblib" uses `n_jobs`."""
    if isinstance(executor, Executor):
        return executor
    if executor not in NAMES:
        raise InputError(
            f"executor must be one of {', '.join(map(repr, NAMES))} or an object of runoff.executors, got {executor!r}"
        )
    if executor == "joblib":
        return Joblib(n_jobs)
    if executor == "ray":
        from runoff.executors.cluster import Ray

        return Ray()
    return Local()
