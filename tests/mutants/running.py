"""Mutants in forked copies of one warm interpreter: importing and collecting take longer than most tests.

The tests are collected once. A first pass notes which functions of the part each test runs and how long it takes.
Then each mutant is a fork: the changed code is put in, and the tests that run the changed function follow, first those
that have noticed most in the least time, until one fails. A limit on each test's processor time ends mutants that
never would. No clock on the wall is read, except for a fork that sleeps and does nothing: a busy machine must not make
a mutant look noticed.
"""

import ast
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.mutants.measuring import Test, measured, prepare, quiet
from tests.mutants.operators import Mutant, mutants
from tests.mutants.parts import PACKAGE, ROOT
from tests.mutants.swapping import Swap

EXAMPLES = 10  # of each property, without shrinking: a failure is enough
MOST_PARAMETERS = 150  # of one test
SLOW = 0.8  # seconds: a test that takes longer is left out
MOST_SECONDS = 8.0  # of tests for one mutant
LEAST_SECONDS = 1.0  # of processor time for a test, and five times what it takes without a mutant
MEMORY = 8 * 2**30
HANGS = 120.0  # seconds after which a fork that sleeps and uses no processor has a deadlock
KILLED, SURVIVED, TIMEOUT, UNCOVERED, UNREACHED = "killed", "survived", "timeout", "uncovered", "unreached"
NO_CODE = 3  # the exit code of a fork whose change cannot be compiled
EXPLAINED = "explained"  # known not to matter, and not tried


@dataclass
class Results:
    """The verdict on each mutant."""

    verdicts: dict[Mutant, str] = field(default_factory=dict)
    by: dict[Mutant, str] = field(default_factory=dict)  # the test that noticed it
    seconds: float = 0.0
    untried: int = 0
    total: int = 0  # mutants of the part, of which those tried may be a sample


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
            self.failed = f"{report.nodeid}\n{report.longreprtext[-2000:]}"

    def pytest_runtestloop(self, session: Any) -> bool:
        """In place of the tests: first as they are, then against each mutant."""
        started = time.process_time()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        items = _few([item for item in session.items if item.get_closest_marker("slow") is None])
        for item in items:
            _quicken(item)
        direct = items[0].nodeid.split("::")[0] if items else ""  # the part's own tests: a good guess to begin with
        self.kills = {item.nodeid: 2 for item in items if item.nodeid.startswith(f"{direct}::")}
        sources = {file: (PACKAGE / file).read_text() for file in self.files}
        modules = {file: import_module(_module_name(file)) for file in self.files}
        swaps = {file: Swap(modules[file], sources[file]) for file in self.files}
        prepare(session)
        tests = measured(items, {str(PACKAGE / file): file for file in self.files}, SLOW, self._run)
        self.told(f"{len(tests)} tests, {sum(test.seconds for test in tests):.0f} s without mutants")
        todo = [m for file in self.files for m, _ in mutants(file, sources[file]) if self.wanted(m)]
        first = time.monotonic()  # the limit is for mutants
        waiting = self._ready(todo, swaps, tests)
        running: dict[int, _Fork] = {}
        done = 0
        exhausted = False
        while True:
            while len(running) < self.jobs and not exhausted:
                late = self.limit is not None and time.monotonic() - first > self.limit
                ready = None if late else next(waiting, None)
                if ready is None:
                    exhausted = True
                    break
                mutant, tree, chosen = ready
                fork = self._fork(mutant, tree, swaps[mutant.file], chosen)
                running[fork.pid] = fork
            if not running:
                break
            self._reap(running)
            if len(self.results.verdicts) // 100 > done:
                done = len(self.results.verdicts) // 100
                self.told(f"{len(self.results.verdicts)} of {len(todo)} mutants, {time.monotonic() - first:.0f} s")
        self.results.untried = len(todo) - len(self.results.verdicts)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        children = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.results.seconds = time.process_time() - started + children
        return True

    def _ready(
        self, todo: list[Mutant], swaps: dict[str, Swap], measured: list[Test]
    ) -> Iterator[tuple[Mutant, ast.Module, list[Test]]]:
        """Mutants with their trees, and the tests that run their functions, the most promising first.

        A tree is right only until the next mutant is asked for: fork at once.
        """
        runs: dict[tuple[str, int], list[Test]] = {}
        for test in measured:
            for line in test.lines:
                runs.setdefault(line, []).append(test)
        wanted = set(todo)
        every = (pair for file, swap in swaps.items() for pair in mutants(file, swap.source))
        for mutant, tree in every:
            if mutant not in wanted:
                continue
            if self.explained(mutant):
                self.results.verdicts[mutant] = EXPLAINED
                continue
            swap = swaps[mutant.file]
            if not swap.reaches(mutant.where):
                self.results.verdicts[mutant] = UNREACHED
                continue
            if mutant.where:
                lines = {*range(mutant.line, max(mutant.end, mutant.line) + 1)}
                if not any((mutant.file, line) in runs for line in lines):  # a default: no code has its line
                    lines = _lines(swap.functions[mutant.where])
            else:
                lines = {line for function in swap.readers(mutant.line) for line in _lines(function)}
            tests = list({test.name: test for line in lines for test in runs.get((mutant.file, line), [])}.values())
            if not mutant.where and not tests:  # a constant that other modules read
                tests = measured
            if not tests:
                self.results.verdicts[mutant] = UNCOVERED
                continue
            tests = self._ordered(tests)
            spent = 0.0
            for at, test in enumerate(tests):
                spent += test.seconds
                if spent > MOST_SECONDS * (1 if mutant.where else 3):  # a constant may matter anywhere
                    tests = tests[: at + 1]
                    break
            yield mutant, tree, tests

    def _ordered(self, tests: list[Test]) -> list[Test]:
        """Those that have noticed most in the least time first, but not all parameters of one test before another."""
        same: dict[str, int] = {}
        costs = {}
        for test in sorted(tests, key=lambda t: ((t.seconds + 0.02) / (self.kills.get(t.name, 0) + 0.2), t.name)):
            function = test.name.split("[")[0]
            same[function] = same.get(function, 0) + 1
            costs[test] = (test.seconds + 0.02) / (self.kills.get(test.name, 0) + 0.2) * same[function]
        return sorted(tests, key=lambda t: (costs[t], t.name))

    def _run(self, item: Any) -> str | None:
        """Run one test, leaving shared fixtures in place; return its name if it fails."""
        self.failed = None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=item.session)
        return self.failed

    def _fork(self, mutant: Mutant, tree: ast.Module, swap: Swap, tests: list[Test]) -> "_Fork":
        read, write = os.pipe()
        pid = os.fork()
        if pid:
            os.close(write)
            return _Fork(pid, read, mutant, tests)
        try:
            quiet()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            signal.signal(signal.SIGPROF, signal.SIG_DFL)
            try:
                swap.apply(mutant.where, tree)
            except (SyntaxError, ValueError):
                os._exit(NO_CODE)
            except Exception:  # a constant that cannot be computed: noticed at import
                os._exit(1)
            for at, test in enumerate(tests):
                os.write(write, f"{at}\n".encode())
                signal.setitimer(signal.ITIMER_PROF, LEAST_SECONDS + 5 * test.seconds)
                if self._run(test.item):
                    os._exit(1)
            os._exit(0)
        except BaseException:
            os._exit(1)

    def _reap(self, running: dict[int, "_Fork"]) -> None:
        """Wait for one of them to end."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid in running:
                break
            for fork in running.values():
                fork.end_if_it_hangs()
            time.sleep(0.005)
        fork = running.pop(pid)
        mutant = fork.mutant
        by = fork.last_test()
        if os.WIFSIGNALED(status):
            verdict = TIMEOUT
        else:
            code = os.WEXITSTATUS(status)
            verdict = {0: SURVIVED, NO_CODE: UNREACHED}.get(code, KILLED)
        self.results.verdicts[mutant] = verdict
        if verdict in (TIMEOUT, KILLED):
            self.results.by[mutant] = by
            self.kills[by] = self.kills.get(by, 0) + 1
        elif verdict == SURVIVED:
            self.told(f"survived  {mutant}")


@dataclass
class _Fork:
    """One mutant that is being tried."""

    pid: int
    pipe: int
    mutant: Mutant
    tests: list[Test]
    used: float = -1.0  # processor time when it was last seen to move
    moved: float = 0.0

    def end_if_it_hangs(self) -> None:
        """End a fork that sleeps, and has used no processor time for a while."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        used = float(fields[11]) + float(fields[12])
        if used != self.used or fields[0] == "R":
            self.used, self.moved = used, time.monotonic()
        elif time.monotonic() - self.moved > HANGS:
            os.kill(self.pid, signal.SIGKILL)

    def last_test(self) -> str:
        """The test that ran last, or "" where the change itself failed."""
        with os.fdopen(self.pipe) as file:
            begun = file.read().split()
        return self.tests[int(begun[-1])].name if begun else ""


def _lines(function: Any) -> set[int]:
    return {line for _, _, line in function.__code__.co_lines() if line}


def _few(items: list[Any]) -> list[Any]:
    """Of a test with many parameters, some that are spread over all of them."""
    same: dict[str, list[Any]] = {}
    for item in items:
        same.setdefault(item.nodeid.split("[")[0], []).append(item)
    kept = {item for group in same.values() for item in group[:: -(-len(group) // MOST_PARAMETERS)]}
    return [item for item in items if item in kept]


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
    options_of_pytest = [
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
    code = pytest.main([*options_of_pytest, *options, "--rootdir", str(ROOT), *present], plugins=[plugin])
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        raise SystemExit(f"mutants: the tests could not be run, pytest exits with code {int(code)}")
    return plugin.results
