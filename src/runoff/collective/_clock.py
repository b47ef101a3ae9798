"""The time limit of a collective certificate, which every long loop looks at."""

from __future__ import annotations

import time


class OutOfTime(Exception):  # noqa: N818 - it ends a computation and is not an error
    """The time is up: what was proven so far is the result."""


def check(deadline: float | None) -> None:
    """Raise `OutOfTime` if this moment of `time.monotonic` has passed."""
    if deadline is not None and time.monotonic() >= deadline:
        raise OutOfTime
