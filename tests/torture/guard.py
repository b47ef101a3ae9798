"""Run a case with limits: record what it raised, and whether it took too long or too much memory."""

import resource
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 2.0  # of processor time
HANGS = 20.0  # by the clock: other work on the machine does not count against a reader
MEGABYTES = 500


class Hang(BaseException):
    """Raised when a reader hangs. Not an Exception, so that no code handles it on the way."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    result: Any = None
    error: BaseException | None = None
    excess: str | None = None  # too long, or too much


def _hang(*_: Any) -> None:
    raise Hang


def guarded(call: Callable[[], Any], again: bool = False) -> Outcome:
    """Call a case. If it takes too long it is called once more, because kernels are compiled on first use."""
    signal.signal(signal.SIGALRM, _hang)
    _forget_peak()  # what earlier cases took does not hide what this one takes
    before = _peak()
    started = time.process_time()
    signal.setitimer(signal.ITIMER_REAL, HANGS)
    result, error = None, None
    try:
        result = call()
    except BaseException as raised:
        error = raised
        if isinstance(raised, KeyboardInterrupt):
            raise
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    took, grew = time.process_time() - started, _peak() - before
    if isinstance(error, Hang):
        return Outcome(error=error, excess=f"it hangs: no answer after {HANGS:.0f} s")
    if grew > MEGABYTES:
        return Outcome(result, error, f"it takes {grew:.0f} MB")
    if took > SECONDS and not again:
        return guarded(call, again=True)
    return Outcome(result, error, f"it takes {took:.1f} s" if took > SECONDS else None)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _forget_peak() -> None:
    """Reset the peak to the memory that is in use now."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def sentence(error: BaseException, allowed: tuple[type[BaseException], ...], about: tuple[str, ...]) -> str | None:
    """Return what is wrong with an error: its type, more than one line, or no mention of its subject."""
    text = str(error)
    if not isinstance(error, allowed):
        return f"{type(error).__name__}: {text}"
    if not text or "\n" in text or len(text) > 1500:
        return f"{type(error).__name__} is not one sentence: {text!r:.200}"
    if about and not any(word in text for word in about):
        return f"{type(error).__name__} does not say what it is about: {text!r:.200}"
    return None
