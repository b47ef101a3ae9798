"""Mutants in forked copies of one warm interpreter: importing and collecting take longer than most tests.

The tests are collected once. A first pass notes which functions of the part each test runs and how long it takes.
Then each mutant is a fork: the changed code is put in, and the tests that run the changed function follow, first those
that have noticed most in the least time, until one fails. A limit on each test's processor time ends mutants that
never would.
"""

import ast
import ctypes
import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.operators import Mutant, mutants
from tests.mutants.parts import PACKAGE, ROOT
from tests.mutants.swapping import Swap

EXAMPLES = 15  # of each property, without shrinking: a failure is enough
SLOW = 1.5  # seconds: a test that takes longer is left out
MOST_SECONDS = 5.0  # of tests for one mutant
LEAST_SECONDS = 1.0  # of processor time for a test, and five times what it takes without a mutant
MEMORY = 8 * 2**30
KILLED, SURVIVED, TIMEOUT, UNCOVERED, UNREACHED = "killed", "survived", "timeout", "uncovered", "unreached"
EXPLAINED = "explained"  # known not to matter, and not tried


@dataclass
class Results:
    """What became of each mutant."""

    verdicts: dict[Mutant, str] = field(default_factory=dict)
    by: dict[Mutant, str] = field(default_factory=dict)  # the test that noticed it
    seconds: float = 0.0
    untried: int = 0


class Campaign:
    """A pytest plugin that runs mutants in place of tests."""

    def __init__(
        self,
        files: list[str],
        jobs: int,
        wanted: Callable[[Mutant], bool],
        explained: Callable[[Mutant], bool],
        seconds: float | None,
        told: Callable[[str], None],
    ) -> None:
        self.explained = explained
        self.files, self.jobs, self.wanted, self.limit, self.told = files, jobs, wanted, seconds, told
        self.results = Results()
        self.failed: str | None = None
        self.kills: dict[str, int] = {}  # by test: those that notice much in little time go first

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Remember that a test failed."""
        if report.failed:
            self.failed = str(report.nodeid)

    def pytest_runtestloop(self, session: Any) -> bool:
        """In place of the tests: first as they are, then against each mutant."""
        started = time.monotonic()
        items = [item for item in session.items if item.get_closest_marker("slow") is None]
        for item in items:
            _quicken(item)
        direct = items[0].nodeid.split("::")[0] if items else ""  # the part's own tests: a good guess to begin with
        self.kills = {item.nodeid: 2 for item in items if item.nodeid.startswith(f"{direct}::")}
        sources = {file: (PACKAGE / file).read_text() for file in self.files}
        modules = {file: import_module(_module_name(file)) for file in self.files}
        swaps = {file: Swap(modules[file], sources[file]) for file in self.files}
        baseline = self._baseline(items)
        self.told(f"{len(baseline)} tests, {sum(t for t, _ in baseline.values()):.0f} s without mutants")
        todo = [m for file in self.files for m, _ in mutants(file, sources[file]) if self.wanted(m)]
        by_id = {item.nodeid: item for item in items}
        first = time.monotonic()  # the limit is for mutants
        waiting = self._ready(todo, swaps, baseline)
        running: dict[int, tuple[Mutant, int, float]] = {}
        done = 0
        exhausted = False
        while True:
            while len(running) < self.jobs and not exhausted:
                late = self.limit is not None and time.monotonic() - first > self.limit
                ready = None if late else next(waiting, None)
                if ready is None:
                    exhausted = True
                    break
                mutant, tree, tests = ready
                pid, pipe = self._fork(mutant, tree, swaps[mutant.file], [(took, by_id[t]) for took, t in tests])
                running[pid] = mutant, pipe, time.monotonic() + 60 + 20 * sum(took for took, _ in tests)
            if not running:
                break
            self._reap(running)
            if len(self.results.verdicts) // 100 > done:
                done = len(self.results.verdicts) // 100
                self.told(f"{len(self.results.verdicts)} of {len(todo)} mutants, {time.monotonic() - started:.0f} s")
        self.results.untried = len(todo) - len(self.results.verdicts)
        self.results.seconds = time.monotonic() - started
        return True

    def _ready(
        self, todo: list[Mutant], swaps: dict[str, Swap], baseline: dict[str, tuple[float, set[tuple[str, int]]]]
    ) -> Iterator[tuple[Mutant, ast.Module, list[tuple[float, str]]]]:
        """Mutants with their trees, the tests that run their lines, the most promising first, and what these take.

        A tree is right only until the next mutant is asked for: fork at once.
        """
        runs: dict[tuple[str, int], list[tuple[float, str]]] = {}
        for test, (took, lines) in baseline.items():
            for line in lines:
                runs.setdefault(line, []).append((took, test))
        everywhere = sorted((took, test) for test, (took, _) in baseline.items())
        wanted = set(todo)
        every = (pair for file, swap in swaps.items() for pair in mutants(file, swap.source))
        for mutant, tree in every:
            if mutant not in wanted:
                continue
            if self.explained(mutant):
                self.results.verdicts[mutant] = EXPLAINED
                continue
            if not swaps[mutant.file].reaches(mutant.where):
                self.results.verdicts[mutant] = UNREACHED
                continue
            tests = everywhere
            if mutant.where:
                lines = {*range(mutant.line, max(mutant.end, mutant.line) + 1)}
                if not any((mutant.file, line) in runs for line in lines):  # a default: no code has its line
                    lines = {
                        line for _, _, line in swaps[mutant.file].functions[mutant.where].__code__.co_lines() if line
                    }
                tests = list({test for line in lines for test in runs.get((mutant.file, line), [])})
            if not tests:
                self.results.verdicts[mutant] = UNCOVERED
                continue
            tests = sorted(tests, key=lambda t: ((t[0] + 0.02) / (self.kills.get(t[1], 0) + 0.2), t[1]))
            spent = 0.0
            for at, (took, _) in enumerate(tests):
                spent += took
                if spent > MOST_SECONDS and mutant.where:  # a constant may matter anywhere
                    tests = tests[: at + 1]
                    break
            yield mutant, tree, tests

    def _baseline(self, items: list[Any]) -> dict[str, tuple[float, set[tuple[str, int]]]]:
        """Seconds and lines of every test, each measured in a fork; one that fails unmutated is an error."""
        passes = [self._measured(items, traced) for traced in (False, True)]
        (times, broken), (lines, _) = ((json.loads(_said(pipe)), os.waitpid(pid, 0))[0] for pid, pipe in passes)
        if broken:
            raise pytest.UsageError(f"{broken} fails without any mutant: mend it first")
        quick = {test: took for test, took in times.items() if took <= SLOW}
        return {test: (took, {(f, n) for f, n in lines[test]}) for test, took in quick.items()}

    def _measured(self, items: list[Any], traced: bool) -> tuple[int, int]:
        """A fork that runs every test once; its answer is the processor time of each, or the lines that each runs."""
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            return pid, read
        _silence()
        tracer = _Tracer({str(PACKAGE / file): file for file in self.files})
        found: dict[str, Any] = {}
        for item, following in zip(items, [*items[1:], None], strict=True):
            if traced:
                tracer.start()
            started = time.process_time()
            self._run(item, following)
            found[item.nodeid] = time.process_time() - started
            if traced:
                found[item.nodeid] = sorted(tracer.stop())
            elif self.failed:
                break
        with os.fdopen(write, "w") as file:
            json.dump([found, self.failed], file)
        os._exit(0)

    def _run(self, item: Any, following: Any) -> None:
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)

    def _fork(self, mutant: Mutant, tree: ast.Module, swap: Swap, tests: list[tuple[float, Any]]) -> tuple[int, int]:
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            return pid, read
        try:
            _silence()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            try:
                swap.apply(mutant.where, tree)
            except (SyntaxError, ValueError) as error:
                os.write(write, f"cannot be written: {error}".encode()[:500])
                os._exit(1)
            except Exception as error:  # a constant that cannot be computed: noticed at import
                os.write(write, f"import: {error}".encode()[:500])
                os._exit(1)
            for (took, test), (_, following) in zip(tests, [*tests[1:], (0, None)], strict=True):
                signal.setitimer(signal.ITIMER_PROF, LEAST_SECONDS + 5 * took)
                self._run(test, following)
                if self.failed:
                    os.write(write, self.failed.encode()[:2000])
                    os._exit(1)
            os._exit(0)
        except BaseException as error:
            os.write(write, f"{type(error).__name__}: {error}".encode()[:500])
            os._exit(1)

    def _reap(self, running: dict[int, tuple[Mutant, int, float]]) -> None:
        """Wait for one of them to end."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                break
            for other, (_, _, until) in running.items():
                if time.monotonic() > until:
                    os.kill(other, signal.SIGKILL)
            time.sleep(0.005)
        mutant, pipe, _ = running.pop(pid)
        said = _said(pipe)
        if os.WIFSIGNALED(status):
            self.results.verdicts[mutant] = TIMEOUT
            return
        killed = os.WEXITSTATUS(status) != 0
        self.results.verdicts[mutant] = KILLED if killed else SURVIVED
        if killed:
            self.results.by[mutant] = said
            self.kills[said] = self.kills.get(said, 0) + 1
        else:
            self.told(f"survived  {mutant}")


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


def _said(pipe: int) -> str:
    with os.fdopen(pipe) as file:
        return file.read()


def _silence() -> None:
    """In a fork: say nothing, and end with the parent."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG, on Linux
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _quicken(item: Any) -> None:
    """Few examples of a property, always the same, and no time spent on making a failure small."""
    from hypothesis import HealthCheck, Phase, settings

    function = getattr(item, "obj", None)
    function = getattr(function, "__func__", function)
    if hasattr(function, "hypothesis"):
        quick = settings(
            max_examples=EXAMPLES,
            phases=[Phase.explicit, Phase.generate],
            database=None,
            deadline=None,
            derandomize=True,
            suppress_health_check=list(HealthCheck),
        )
        function._hypothesis_internal_use_settings = quick


def _module_name(file: str) -> str:
    return "runoff." + file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def campaign(
    files: list[str],
    tests: tuple[str, ...],
    *,
    jobs: int,
    wanted: Callable[[Mutant], bool],
    explained: Callable[[Mutant], bool],
    seconds: float | None,
    told: Callable[[str], None],
    folder: Path,
) -> Results:
    """Run the mutants of some files against some tests."""
    plugin = Campaign(files, jobs, wanted, explained, seconds, told)
    quiet = [
        "-p",
        "no:terminal",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:cov",
        "-p",
        "no:hypothesispytest",
    ]
    options = ["--override-ini", "addopts=", "-W", "ignore:invalid value:RuntimeWarning", "--basetemp", str(folder)]
    present = [str(ROOT / "tests" / test) for test in dict.fromkeys(tests) if (ROOT / "tests" / test).exists()]
    code = pytest.main([*quiet, *options, "--rootdir", str(ROOT), *present], plugins=[plugin])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"mutants: the tests could not be run, pytest exits with code {int(code)}")
    return plugin.results
