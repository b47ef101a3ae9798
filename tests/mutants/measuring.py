"""The tests without a mutant: which functions each runs, and the processor time that it takes alone, in a fork."""

import ctypes
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pytest
from _pytest.scope import Scope
from _pytest.tmpdir import tmppath_result_key

TRACING = 3  # times as long as a test may take while its calls are noted


@dataclass(frozen=True, eq=False)
class Test:
    """One test: what it takes, and the lines of the part's files that belong to functions which it runs."""

    name: str
    item: Any
    seconds: float
    lines: frozenset[tuple[str, int]]


def prepare(session: Any) -> None:
    """Make the fixtures that several tests share once, here: a fork would take seconds to make its own."""
    made = set()
    for item in session.items:
        every = (definition for found in item._fixtureinfo.name2fixturedefs.values() for definition in found)
        shared = {d for d in every if d.baseid and d.params is None and d.scope != "function"}  # without pytest's own
        for definition in shared:
            definition._scope = Scope.Session
        if shared - made:
            session._setupstate.setup(item)
            item.stash[tmppath_result_key] = {}  # tmp_path reads whether the test passed, and none has run
            session._setupstate.teardown_exact(session)
            item._initrequest()  # so that the fixtures of this test alone are made again when it runs
            made |= shared


def measured(items: list[Any], files: dict[str, str], slow: float, run: Callable[[Any], str | None]) -> list[Test]:
    """Every test that takes at most `slow` seconds, measured; one that fails unmutated is an error."""
    found = json.loads(said(_forked(lambda: _traced(items, files, slow, run))))
    for name in found["modules"]:  # what tests import late, so that no fork pays for it
        with suppress(BaseException):
            import_module(name)
    return [
        Test(item.nodeid, item, took, frozenset((f, n) for f, n in found["lines"][item.nodeid]))
        for item in items
        if item.nodeid in found["lines"] and (took := alone(item, slow, run)) is not None
    ]


def alone(item: Any, slow: float, run: Callable[[Any], str | None]) -> float | None:
    """The processor time of one test in a fork of its own, or None if it is above `slow` seconds."""

    def timed() -> Any:
        signal.setitimer(signal.ITIMER_PROF, slow)
        started = time.process_time()
        failed = run(item)
        return time.process_time() - started, failed

    answer = said(_forked(timed))
    if not answer:
        return None
    took, failed = json.loads(answer)
    if failed:
        raise pytest.UsageError(f"a test fails without any mutant, fix it first: {failed}")
    return float(took)


def _forked(call: Callable[[], Any]) -> tuple[int, int]:
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        return pid, read
    quiet()
    with os.fdopen(write, "w") as file:
        json.dump(call(), file)
    os._exit(0)


def said(fork: tuple[int, int]) -> str:
    """Return what a fork writes until it exits."""
    pid, pipe = fork
    with os.fdopen(pipe) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text


def quiet() -> None:
    """In a fork: print nothing, and end with the parent."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, on Linux
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


class _SlowError(BaseException):
    pass


def _traced(
    items: list[Any], files: dict[str, str], slow: float, run: Callable[[Any], str | None]
) -> dict[str, dict[str, list[tuple[str, int]]] | list[str]]:
    """The lines that each test runs, without those that are far too slow; and the modules that are loaded then."""
    stopped = []

    def stop(_signal: int, _frame: Any) -> None:
        stopped.append(True)
        raise _SlowError

    signal.signal(signal.SIGPROF, stop)
    tracer = _Tracer(files)
    lines = {}
    for item in items:
        stopped.clear()
        with suppress(BaseException):
            signal.setitimer(signal.ITIMER_PROF, TRACING * slow)
            tracer.start()
            run(item)
        seen = sorted(tracer.stop())
        signal.setitimer(signal.ITIMER_PROF, 0)
        if not stopped:  # one that fails is found out when it runs alone
            lines[item.nodeid] = seen
    return {"lines": lines, "modules": [name for name in sys.modules if not name.startswith("__")]}


class _Tracer:
    """Notes the functions of some files that run, in every thread; by line would cost minutes in the kernels."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files = files
        self.seen: set[tuple[str, int]] = set()
        self.lines: dict[Any, set[tuple[str, int]]] = {}

    def start(self) -> None:
        self.seen = set()
        threading.settrace(self._call)
        sys.settrace(self._call)

    def stop(self) -> set[tuple[str, int]]:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
        return self.seen

    def _call(self, frame: Any, event: str, _arg: Any) -> None:  # noqa: ARG002
        name = self.files.get(frame.f_code.co_filename)
        if name is None:
            return
        code = frame.f_code
        if code not in self.lines:
            self.lines[code] = {(name, line) for _, _, line in code.co_lines() if line is not None}
        self.seen |= self.lines[code]
