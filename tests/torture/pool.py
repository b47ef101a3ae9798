"""Work distributed over forked processes, each with its own tally."""

import multiprocessing
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.torture.tally import Tally


def share_out(task: Callable[..., Tally], arguments: Sequence[tuple[Any, ...]], jobs: int) -> Tally:
    """Call `task` with each of these arguments and add up the tallies."""
    if jobs <= 1 or len(arguments) < 2:
        return Tally().merge(_called(task, given) for given in arguments)
    context = multiprocessing.get_context("fork")
    with context.Pool(jobs) as pool:
        pieces = pool.starmap(_called, [(task, given) for given in arguments], chunksize=1)
    return Tally().merge(pieces)


def _called(task: Callable[..., Tally], given: tuple[Any, ...]) -> Tally:
    try:
        return task(*given)
    except Exception as error:  # a crash is a failure too, and must not end the others
        import traceback

        tally = Tally()
        last = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(last.filename).name}:{last.lineno}"
        told = f"{task.__module__}{given!r:.300}: {type(error).__name__}: {error} at {place}"
        tally.fail("cases that came to an end", told, tried=1)
        return tally
