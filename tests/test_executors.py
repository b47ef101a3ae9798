"""Executors without a cluster: the choice, storage, groups, tasks, and results found after an interruption."""

import copy
import importlib
import os
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from joblib import parallel_config
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers import SMALL, run
from lines_of_text import Lines, OneWaits, Signals
from runoff import RunoffClassifier, datasets, executors
from runoff.errors import CheckpointError, DeviceError, InputError, MemberError, MissingExtraError, StorageError
from runoff.executors import Executor, Joblib, Local, Place, Ray, Storage, tasks
from runoff.executors.grouping import LONGEST, Uncut, groups_for
from runoff.executors.recovery import Failure, Group, Recovery
from runoff.executors.scheduling import Schedule
from runoff.executors.storage import Ahead, missing
from runoff.fitting import work
from runoff.fitting.work import kind_here, modules_of, processor, release, require_versions
from runoff.torch import TorchClassifier
from runoff.torch.checkpoints import decoded
from runoff.torch.pipeline import Pipeline, network_jobs

ADDRESSES = [f"{i:064x}" for i in range(4)]


# -- the choice --------------------------------------------------------------------------------------------------------


def test_executors_are_chosen_by_name_or_as_objects():
    assert [type(executors.get(name)) for name in executors.NAMES] == [Local, Joblib, Ray]
    assert executors.get("joblib", 3) == Joblib(3)
    mine = Ray(gpus=1)
    assert executors.get(mine) is mine
    assert copy.deepcopy(mine) == mine
    message = "executor must be one of 'local', 'joblib', 'ray' or an object of runoff.executors, got 'slurm'"
    with pytest.raises(InputError, match=message):
        RunoffClassifier(LogisticRegression(), executor="slurm").fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cpus": 0}, "cpus must be a whole number of at least 1, got 0"),
        ({"members_per_task": 1.5}, "members_per_task must be a whole number of at least 1, got 1.5"),
        ({"workers": 0}, "workers must be a whole number of at least 1, got 0"),
        ({"wait": 0}, "wait must be a positive number of seconds, got 0"),
        ({"wait": float("nan")}, "wait must be a positive number of seconds, got nan"),
        ({"mixed": "ab"}, "mixed must be a tuple of two or more different names of resources, got 'ab'"),
        ({"mixed": ("a", "a")}, r"mixed must be a tuple of two or more different names of resources, got \('a', 'a'\)"),
        ({"resources": {"x": 0}}, "resources must map names of custom resources to positive numbers"),
        ({"resources": ["x"]}, "resources must map names of custom resources to positive numbers"),
        ({"gpus": 2}, "gpus must be a number from 0 to 1, since a network is trained on one GPU, got 2"),
        ({"address": "ray://head:10001"}, "address must be that of a cluster to which this machine belongs"),
    ],
)
def test_invalid_settings_of_ray_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        Ray(**settings)


def test_ray_is_an_extra_and_imported_only_when_it_is_used():
    code = (
        "import sys; sys.modules['ray'] = None\n"
        "from runoff import RunoffClassifier\n"
        "from sklearn.datasets import load_iris\n"
        "settings = dict(n_partitions=3, classes=range(3))\n"
        "RunoffClassifier(**settings).fit(*load_iris(return_X_y=True))\n"
        "try: RunoffClassifier(**settings, executor='ray').fit(*load_iris(return_X_y=True))\n"
        "except ImportError as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "MissingExtraError executor='ray' needs Ray. Install it with: pip install 'runoff[ray]'\n"


def test_options_of_a_cluster_need_ray(tmp_path):
    result = run("train", "digits", *SMALL, "--gpus-per-task", 1, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "--gpus-per-task needs --executor ray." in result.stderr
    from runoff.cli import options

    read = [function(None, None, text) for function, text in (
        (options._bytes, "1.5GiB"), (options._bytes, "300"), (options._resources, "h200, fast=0.5"),
        (options._names, "h200,a100"), (options._bytes, None), (options._resources, None), (options._names, None),
    )]  # fmt: skip
    assert read == [3 * 2**29, 300, {"h200": 0.001, "fast": 0.5}, ("h200", "a100"), None, None, None]
    for option, value in (
        ("--wait", 5), ("--mixed", "a,b"), ("--members-per-task", 3), ("--workers", 9), ("--resources", "x"),
        ("--memory-per-task", "1GB"),
    ):  # fmt: skip
        result = run("train", "digits", *SMALL, option, value, "--out", tmp_path / "run")
        assert f"{option} needs --executor ray." in result.stderr
    for option, value, message in (
        ("--memory-per-task", "much", "expected a size, as in 8GiB or 500MB; got 'much'"),
        ("--resources", "a=b", "expected names and amounts, as in h200=1,fast=0.5; got 'a=b'"),
        ("--mixed", "a", "mixed must be a tuple of two or more different names of resources, got ('a',)"),
        ("--resources", "CPU=1", "resources must map names of custom resources to positive numbers"),
    ):
        result = run("train", "digits", *SMALL, "--executor", "ray", option, value, "--out", tmp_path / "run")
        assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    result = run("train", "digits", *SMALL, "--executor", "ray", "--address", "ray://a:1", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "run the command on a node of the cluster" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_joblib_yields_each_member_when_it_is_finished(tmp_path, backend):
    found = []
    with parallel_config(backend=backend):
        for item, seen in Joblib(2).run(OneWaits(tmp_path / "go"), [0, 1, 2]):
            (tmp_path / "go").touch()
            found.append((item, seen))
        assert found[0][0] != 0
        assert sorted(item for item, _ in found) == [0, 1, 2]
        assert (0, True) in found
        results = Joblib(2).run(Lines(), [0, 1, 2, 3])
        next(results)
        results.close()  # without a warning
        with pytest.raises(KeyError):
            list(Joblib(2).run(Lines(), [4, 5]))


TERMINATED = """
import os, signal, time
from runoff.executors import Joblib, Work

class Terminating(Work):
    kind = member = weight = measure = None  # defined, and not needed

    def train(self, items, place):
        print("started", flush=True)
        if items == [0]:
            os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(300)

list(Joblib(2).run(Terminating(), [0, 1, 2, 3]))
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_processes_of_joblib_end_with_a_terminated_program():
    done = subprocess.run([sys.executable, "-c", TERMINATED], capture_output=True, text=True, timeout=200)
    assert done.returncode == 143, done.stderr
    assert "started" in done.stdout  # and its end was read, so no process was left that could write


def test_joblib_with_a_backend_that_returns_all_results_at_the_end():
    with parallel_config(backend="multiprocessing"):
        assert sorted(Joblib(2).run(Lines(), [0, 1])) == [(0, "line 0"), (1, "line 1")]
        # joblib terminates these processes while they wait for a lock, where a handler in Python might never run.
        assert list(Joblib(2).run(Signals(), [0, 1])) == [(0, True), (1, True)]


# -- storage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["{}/results", "memory://results{}"])
def test_storage_returns_what_was_stored_whole(tmp_path, where):
    storage = Storage(where.format(tmp_path))
    assert storage.is_remote == where.startswith("memory")
    assert storage.existing() == []
    digests = [storage.put(address, address.encode()) for address in ADDRESSES]
    assert storage.existing() == list(zip(ADDRESSES, digests, strict=True))
    assert storage.get(ADDRESSES[1], digests[1]) == ADDRESSES[1].encode()
    assert storage.get(ADDRESSES[1], digests[0]) is None  # never stored
    storage._write(f"{ADDRESSES[2]}-{digests[2]}.result", b"half")
    assert storage.get(ADDRESSES[2], digests[2]) is None
    token = storage.mark()
    assert storage.is_marked(token)
    storage.unmark(token)
    assert not storage.is_marked(token)
    ahead, results = Ahead(storage), storage.existing()
    storage._delete(f"{ADDRESSES[3]}-{digests[3]}.result")
    ahead.expect([*results, (ADDRESSES[1], digests[1])])
    assert [ahead.look(*result) for result in results] == [storage.look(*result) for result in results]
    assert ahead.look(*results[0]) == (ADDRESSES[0].encode(), True)  # again
    ahead.close()
    for _ in range(2):  # the second time, there is nothing to do
        storage.remove_all(results)
    storage.close()
    assert storage.existing() == []
    assert not (tmp_path / "results").exists()
    assert isinstance(missing("member 3", storage), StorageError)


@pytest.mark.parametrize("where", ["{}/results", "memory://leftovers{}"])
def test_what_killed_processes_left_in_storage_is_removed(tmp_path, where):
    """At once where one run alone uses the folder, else when nobody can need it any more."""
    where = where.format(tmp_path)
    shared, private = Storage(where), Storage(where, private=True)
    token = shared.mark()
    shared._write(f"probe-{int(time.time()) - 7200}-abc", b"old")
    if not shared.is_remote:
        for age in (0, 7200):
            file = Path(where, f".result.abcdefg{age % 10}.runoff-tmp".replace("0.", f"{'h' if age else 'i'}."))
            file.touch()
            os.utime(file, (time.time() - age, time.time() - age))
    shared.close()
    assert shared.is_marked(token)
    assert len(shared._names()) == (1 if shared.is_remote else 2)
    private.close()
    assert private._names() == []


def test_secrets_in_addresses_are_not_shown():
    for where in (
        "s3://KEY:SECRET@bucket/folder", "https://host/folder?token=SECRET&x=1", "nowhere://u:SECRET@x",
        "s3://KEY:with/SECRET/in+it@bucket/folder", "nowhere://u:p@SECRET@host/folder",
    ):  # fmt: skip
        storage = Storage(where, {"secret": "SECRET"})
        executor = Ray(storage=where, storage_options={"secret": "SECRET"})
        texts = [repr(storage), storage.location, repr(executor), str(missing("member 1", storage))]
        with pytest.raises((InputError, StorageError, MissingExtraError)) as caught:
            Storage(where.replace("s3:", "nowhere:").replace("https:", "nowhere:")).existing()
        assert not [text for text in [*texts, str(caught.value)] if "SECRET" in text]
    assert Storage("s3://bucket/folder").location == "s3://bucket/folder"


def test_addresses_that_nothing_can_read():
    with pytest.raises(InputError, match="storage must be a path or an address that fsspec knows, got 'nowhere://x'"):
        Storage("nowhere://x").existing()


# -- groups ------------------------------------------------------------------------------------------------------------


@given(
    weights=st.dictionaries(st.integers(0, 999), st.floats(1, 100), max_size=60),
    seconds=st.floats(1e-4, 100),
    workers=st.integers(1, 40),
    gpu=st.booleans(),
    most=st.none() | st.integers(1, 10),
)
def test_groups_hold_every_item_once_and_are_balanced(weights, seconds, workers, gpu, most):
    groups = groups_for(weights, seconds, workers, gpu, most)
    assert sorted(item for group in groups for item in group) == sorted(weights)
    assert all(groups)
    if most is not None:
        assert max(map(len, groups), default=0) <= most
        return
    longest = max((seconds * weight for weight in weights.values()), default=0)
    share = seconds * sum(weights.values()) / workers
    for group in groups:  # nobody gets more than a worker's share, and one item
        load = seconds * sum(weights[item] for item in group)
        assert len(group) == 1 or load <= min(share, LONGEST["gpu" if gpu else "cpu"]) + longest


def test_groups_become_smaller_and_follow_the_number_of_workers():
    uncut = Uncut(dict.fromkeys(range(19_200), 1.0), 0.094, gpu=True)
    sizes = [len(uncut.cut(1)), len(uncut.cut(1))]
    assert 0.094 * sizes[0] == pytest.approx(600, abs=0.1)  # on one GPU, few tasks: each has to start
    sizes += [len(uncut.cut(64)) for _ in range(3)]  # when nodes have joined
    assert 0.094 * sizes[-1] == pytest.approx(0.094 * 19_200 / 64, abs=0.1)
    assert [len(group) for group in groups_for(dict.fromkeys(range(1000), 1.0), 0.001, 2, False)] == [500, 500]
    assert [len(group) for group in groups_for({1: 5.0, 2: 1.0, 3: 1.0}, 100.0, 2, False)] == [1, 1, 1]
    assert groups_for({}, 1.0, 1, False) == []


# -- tasks on workers --------------------------------------------------------------------------------------------------


def test_a_task_stores_results_and_reports_digests(tmp_path):
    storage, work = Storage(str(tmp_path)), Lines()
    reports = list(tasks.train(work, [1, 2, 3], 1, Place(1), storage))
    stored = [pair for report in reports for pair in report.stored]
    assert [item for item, _ in stored] == [1, 2, 3]
    assert [storage.get(work.address(item), digest) for item, digest in stored] == [b"line 1", b"line 2", b"line 3"]
    assert max(len(repr(report)) for report in reports) < 1000
    assert reports[0] == tasks.Report(reports[0].node)  # it has started
    sent = [pair for report in tasks.train(work, [1, 2], 1, Place(1), None) for pair in report.sent]
    assert sent == [(1, b"line 1"), (2, b"line 2")]
    *_, last, failure = tasks.train(work, [3, 4, 5, 6], 3, Place(1), None)
    assert (4, b"line 4") in last.sent  # finished before the failure
    *_, failure = tasks.train(work, [4, 5, 6], 4, Place(1), storage)
    assert (failure.kind, failure.message) == ("KeyError", "'five'")
    assert work.address(4) in dict(storage.existing())  # finished before the failure
    seconds, memory, sees = tasks.measure(work, 1, Place(1), storage, "no such mark")
    assert (seconds, sees) == (0.5, False)
    assert memory > 2**20


# -- the schedule ------------------------------------------------------------------------------------------------------


class Reports:
    """Stands for a task of Ray: its reports, some of which arrive only after the end of another task."""

    def __init__(self, reports, after=None):
        self.reports, self.after, self.taken, self.ended = iter(reports), after, 0, False

    def __next__(self):
        self.taken += 1
        try:
            return next(self.reports)
        except StopIteration:
            self.ended = True
            raise

    def is_ready(self):
        return self.after is None or not self.taken or self.after.ended


class FakeRay:
    """Stands for the module."""

    exceptions = SimpleNamespace(RayError=KeyError)

    def wait(self, tasks, num_returns=1, timeout=None):
        return [task for task in tasks if task.is_ready()], []

    def get(self, report):
        return report

    def cancel(self, task, force):
        raise AssertionError


def test_the_end_of_a_task_is_no_failure_of_a_member_that_is_retrained_already(tmp_path):
    storage, lines, tasks_of = Storage(str(tmp_path)), Lines(), []

    def stored(items):
        return tuple((i, storage.put(lines.address(i), lines.pack(i, f"line {i}"))) for i in items)

    def submit(items, kind):
        def reports():
            yield tasks.Report("node")
            report = tasks.Report("node", stored(items))
            if len(tasks_of) == 1:  # the file of member 2 is damaged
                (tmp_path / f"{lines.address(2)}-{dict(report.stored)[2]}.result").write_bytes(b"half")
            yield report

        tasks_of.append((list(items), Reports(reports(), tasks_of[0][1] if tasks_of else None)))
        return tasks_of[-1][1]

    uncut = [Uncut(dict.fromkeys((1, 2, 3), 1.0), 0.01, gpu=False, most=3)]
    schedule = Schedule(FakeRay(), lines, submit, uncut, lambda kind: (2, 2), storage, Counter())
    assert sorted(schedule.results()) == [(1, b"line 1"), (2, b"line 2"), (3, b"line 3")]
    assert [items for items, _ in tasks_of] == [[1, 2, 3], [2]]


# -- what is trained again ---------------------------------------------------------------------------------------------


ERROR = Failure("node-1", "ZeroDivisionError", "division by zero")
CRASH = Failure("", "WorkerCrashedError", "it died", "worker")
LOST = Failure("", "NodeDiedError", "it was terminated", "node")


def repeat(faulty, items, failure):
    """Train items until all but the faulty ones are done; return the attempts, and the error that stopped this."""
    recovery, first, last = Recovery(Lines()), [Group(tuple(items))], []
    done, attempts = set(), 0
    while first or last:
        group = first.pop(0) if first else last.pop(0)
        left = [item for item in group.items if item not in done]
        bad = next((item for item in left if item in faulty), None)
        done |= set(left[: left.index(bad)] if bad is not None else left)
        attempts += len(left) if bad is None else left.index(bad) + 1
        if bad is None:
            continue
        try:
            more = recovery.again(group, left[left.index(bad) :], failure)
        except MemberError as error:
            return attempts, str(error)
        first += more[0]
        last += more[1]
    return attempts, None


@pytest.mark.parametrize("failure", [ERROR, CRASH])
def test_a_failure_of_every_member_stops_the_run_before_they_are_all_tried(failure):
    attempts, error = repeat(range(100), range(100), failure)
    assert attempts == 3 if failure is ERROR else 4  # a crash counts where the member was alone
    assert error.startswith("member 0 failed 3 times in the same way")
    assert failure.message in error


def test_a_member_that_takes_its_nodes_down_stops_the_run():
    attempts, error = repeat({40}, range(100), LOST)
    assert attempts <= 100 + 3 + 10
    assert error == "member 40 was lost with its node 10 times (NodeDiedError: it was terminated)"


@pytest.mark.parametrize("failure", [ERROR, CRASH])
def test_a_faulty_member_is_repeated_alone(failure):
    attempts, error = repeat({40}, range(100), failure)
    assert attempts <= 40 + 4
    assert error.startswith("member 40 failed 3 times in the same way")


def test_an_error_that_names_no_member_is_found_by_halves():
    """The failing member is not the first: 63 fails whenever others are in its group."""
    recovery, groups, attempts = Recovery(Lines()), [Group(tuple(range(64)))], 0
    while groups:
        group = groups.pop(0)
        attempts += 1
        if 63 in group.items and len(group.items) > 1:
            first, last = recovery.again(group, group.items, ERROR)
            groups = first + groups + last
    assert attempts < 30


def test_lost_nodes_are_nobodys_failure():
    recovery, group = Recovery(Lines()), Group((1, 2, 3))
    for _ in range(2):
        assert recovery.again(group, (1, 2, 3), LOST) == ([group], [])
    for _ in range(20):  # member 1 may be what takes the nodes down, so it no longer holds up the others
        assert recovery.again(group, (1, 2, 3), LOST) == ([Group((1,)), Group((2, 3))], [])
    for _ in range(9):
        assert recovery.again(group, (2,), LOST) == ([Group((2,))], [])
    message = r"member 2 was lost with its node 10 times \(NodeDiedError: it was terminated\)"
    with pytest.raises(MemberError, match=message):
        recovery.again(Group((2,)), (2,), LOST)
    with pytest.raises(DeviceError, match="other machine"):
        recovery.again(group, (1,), Failure("n", "DeviceError", "other machine"))
    named = Failure("n", "MemberError", "member 3 could not be trained")
    assert recovery.again(group, (1, 2, 3), named) == ([Group((3,))], [Group((1, 2), 1)])


def test_a_task_refuses_a_machine_of_another_kind():
    work = Lines()
    work.kinds = ({"place": "here"}, {"place": "there"})
    assert not any(isinstance(report, Failure) for report in tasks.train(work, [2], 2, Place(3), None))
    *_, failure = tasks.train(work, [3], 3, Place(3), None)
    assert failure.kind == DeviceError.__name__
    assert "differ in place (there and here): a member trained on both would have different bits" in failure.message


# -- networks ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def digits():
    return datasets.load("digits")


def fitted(data, n_partitions=4, **settings):
    given = {"n_partitions": n_partitions, "classes": range(10), "device": "cpu", "progress": False} | settings
    return TorchClassifier("small", "quick", **given).fit(data.x_train[:300], data.y_train[:300])


class Empty:
    weights, half, arriving = True, False, None

    def has(self, job, identity, inputs):
        return False


def work_of(classifier):
    codes = np.searchsorted(classifier.classes_, classifier._labels)
    rows = classifier.partition_.rows(classifier._buckets, classifier._digests, codes)
    jobs = network_jobs(classifier._features.data, codes, rows, range(len(rows)), classifier._seed, 1)
    return Pipeline.plan(classifier._trainer_settings(), Empty(), jobs, classifier._inputs).work()


def test_networks_trained_elsewhere_before_an_interruption_are_found(tmp_path, digits):
    first = fitted(digits, checkpoints=tmp_path / "one")
    work, storage = work_of(first), Storage(first._store.arriving.replace("one", "two"))
    for item in list(work.jobs)[:3]:
        kept = replace(first._store.get(work.jobs[item], work.identities[item], None), seconds=1.25)
        storage.put(work.address(item), work.pack(item, kept))
    last = list(work.jobs)[3]
    storage._write(f"{work.address(last)}-{'0' * 64}.result", b"half of it")
    storage.put(work.address(last), b"not a network, under the digest of these words")
    others = replace(first._store.get(work.jobs[last], work.identities[last], None), inputs="0" * 64, seconds=1.25)
    storage.put(work.address(last), work.pack(last, others))  # the network, with scores for other inputs
    foreign = storage.put("f" * 64, b"of another run")
    second = fitted(digits, checkpoints=tmp_path / "two")
    assert [second._store.seconds(m, 0) == 1.25 for m in range(4)] == [True, True, True, False]
    np.testing.assert_array_equal(second.scores(digits.x_test).values, first.scores(digits.x_test).values)
    assert storage.existing() == [("f" * 64, foreign)]
    kept = replace(first._store.get(work.jobs[last], work.identities[last], None), seconds=0.25)
    data = work.pack(last, kept)
    assert decoded(work.jobs[last], data, work.identities[last]).state.keys() == kept.state.keys()
    changes = {b'"runoff network 1"': b'"runoff network 0"', b'"seconds":"0': b'"seconds":"x'}
    altered = [data.replace(*change) for change in changes.items()]
    headers = [len(head).to_bytes(8, "little") + head for head in (b'{"__metadata__":null}', b"[" * 10**5)]
    for bad in (b"", data[:50], data[:-4] + b"abcd", *altered, *headers):
        with pytest.raises(CheckpointError, match="the result of member 3 "):
            decoded(work.jobs[last], bad, work.identities[last])


class Failing(Executor):
    """Trains in this process and fails after some results."""

    name, here = "failing", True

    def __init__(self, most):
        self.most, self.yielded = most, 0

    def run(self, work, items, storage=None, watch=None):
        for pair in work.train(items, Place()):
            if self.yielded == self.most:
                raise RuntimeError("the executor is broken")
            self.yielded += 1
            yield pair


def test_an_executor_that_raises_loses_nothing(tmp_path, digits):
    expected = fitted(digits, checkpoints=tmp_path / "expected")
    with pytest.raises(RuntimeError, match="the executor is broken"):
        fitted(digits, checkpoints=tmp_path / "broken", executor=Failing(2), in_flight=1)
    kept = {file: file.read_bytes() for file in (tmp_path / "broken").glob("*.safetensors")}
    assert len(kept) == 2
    second = Failing(4)
    again = fitted(digits, checkpoints=tmp_path / "broken", executor=second)
    assert second.yielded == 2
    assert all(file.read_bytes() == data for file, data in kept.items())
    np.testing.assert_array_equal(again.scores(digits.x_test).values, expected.scores(digits.x_test).values)


class Forgetful(Executor):
    """Trains in this process, and yields results as often as it is told."""

    name, here = "forgetful", True

    def __init__(self, times):
        self.times = times

    def run(self, work, items, storage=None, watch=None):
        for item, result in work.train(items, Place()):
            for _ in range(self.times.get(work.member(item), 1)):
                yield item, result


@pytest.mark.parametrize(
    ("times", "message"), [({2: 0}, "and did not return member 2"), ({1: 2}, "got member 1 again")]
)
def test_an_executor_that_forgets_or_repeats_a_member_is_an_error(digits, times, message):
    """A member would vote without training, or keep samples that were removed."""
    message = f"executor 'forgetful' must return each member once, {message}"
    with pytest.raises(MemberError, match=message):
        fitted(digits, executor=Forgetful(times))
    X, y = digits.x_train[:300].reshape(300, -1), digits.y_train[:300]
    members = RunoffClassifier(LogisticRegression(), n_partitions=4, classes=range(10)).fit(X, y)
    with pytest.raises(MemberError, match=message):
        members.set_params(executor=Forgetful(times)).update(remove=(X[:100], y[:100]))


class WithCpus(Executor):
    """Trains in this process, as a task that may use some CPUs."""

    name, here = "with CPUs", True

    def __init__(self, cpus):
        self.cpus = cpus

    def run(self, work, items, storage=None, watch=None):
        yield from work.train(items, Place(self.cpus))


class Located(LogisticRegression):
    """Knows the process that fitted it."""

    def fit(self, X, y):
        self.process_ = os.getpid()
        return super().fit(X, y)


def test_estimators_are_fitted_on_the_cpus_asked_for():
    X, y = datasets.load("digits").x_train[:300].reshape(300, -1) / 16, datasets.load("digits").y_train[:300]
    settings = {"n_partitions": 6, "classes": range(10)}
    one, two = (RunoffClassifier(Located(), **settings, executor=WithCpus(n)).fit(X, y) for n in (1, 2))
    assert {member.fitted[0].process_ for member in one.members_} == {os.getpid()}
    assert os.getpid() not in {member.fitted[0].process_ for member in two.members_}
    np.testing.assert_array_equal(one.scores(X).values, two.scores(X).values)


def test_the_libraries_of_an_estimator_belong_to_the_kind_of_a_machine(tmp_path, monkeypatch):
    """Another release of XGBoost, or another file of one's own, on one node would give other bits there."""
    file = tmp_path / "own_estimators.py"
    file.write_text("from sklearn.linear_model import LogisticRegression as Base\nclass Own(Base): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    own = importlib.import_module("own_estimators")
    try:
        modules = modules_of(make_pipeline(StandardScaler(), own.Own()))
        assert (modules, modules_of(LogisticRegression())) == (("own_estimators",), ())
        before = kind_here(Place(), modules)
        file.write_text(file.read_text().replace("pass", "x = 1"))
        after = kind_here(Place(), modules)
        assert {name for name in before if before[name] != after[name]} == {"module own_estimators"}
        with pytest.raises(DeviceError, match="must have the versions of this machine, got module own_estimators"):
            require_versions((after,), before)
        own.__version__ = "1.2"
        assert release("own_estimators") == "1.2"
        sent = before | {"module own_estimators": release("no_such_module")}  # with the estimator, by cloudpickle
        require_versions((before, sent), before)
    finally:
        del sys.modules["own_estimators"]


def test_a_library_that_hides_its_instructions_makes_the_processor_part_of_the_kind(monkeypatch):
    """MKL chooses them by the model, so two nodes with the same version of it could give different bits."""
    mkl = {"user_api": "blas", "internal_api": "mkl", "version": "2025.2", "filepath": "libmkl_rt.so"}
    monkeypatch.delenv("MKL_CBWR", raising=False)
    assert processor()
    assert processor() not in kind_here(Place())["libraries"]  # OpenBLAS says which
    monkeypatch.setattr(work, "threadpool_info", lambda: [mkl])
    assert kind_here(Place())["libraries"] == f"mkl 2025.2 {processor()}"
    before = kind_here(Place())
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    assert kind_here(Place()) == before | {"settings": "MKL_CBWR=AVX2"}
    require_versions((kind_here(Place()),), before)  # for scores, the settings of the cluster do not matter


def test_work_is_the_same_in_another_process(digits):
    work = work_of(fitted(digits))
    sent = copy.deepcopy(work)  # as pickle does it
    for key, job in work.jobs.items():
        other = sent.jobs[key]
        assert other.samples is sent.jobs[0, 0].samples
        np.testing.assert_array_equal(job.rows, other.rows)
        np.testing.assert_array_equal(job.labels, other.labels)
        assert job.source.generate_state(4).tolist() == other.source.generate_state(4).tolist()
        assert sent.address(key) == work.address(key)
    alone = copy.deepcopy(work.part([(2, 0)]))
    assert len(alone.jobs[2, 0].samples) == len(work.jobs[2, 0].rows)
    [(_, a)], [(_, b)] = (list(one.train([(2, 0)], Place(1))) for one in (work, alone))
    assert all(np.array_equal(a.state[name].numpy(), b.state[name].numpy()) for name in a.state)
    assert work.measure([(2, 0)], Place(1, False)) > 0


def test_only_one_module_imports_ray():
    package = Path(executors.__file__).parent.parent
    found = {path.relative_to(package).as_posix() for path in package.rglob("*.py") if "import ray" in path.read_text()}
    assert found == {"executors/cluster.py"}
