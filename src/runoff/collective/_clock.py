"""The time limit of a collective certificate, which every long loop checks."""

from __future__ import annotations

import time


class OutOfTime(Exception):  # noqa: N818 - it ends a computation and is not an error
    """Signal that the time is up, so that the result is what was proven so far."""


def check(deadline: float | None) -> None:
    """Raise `OutOfTime` if `time.monotonic` has passed the deadline."""
    if deadline is not None and time.monotonic() >= deadline:
        raise OutOfTime
