"""The Ray executor: every result arrives exactly once, whatever is lost."""

import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from work_of_tests import Counted, kind_by_environment

from conftest import STORE, idle
from runoff import RunoffClassifier
from runoff.errors import ClusterError, DeviceError, InputError, MemberError
from runoff.executors import Storage, Watch, scheduling, tasks


@pytest.fixture
def log(tmp_path):
    (tmp_path / "log").mkdir()
    return str(tmp_path / "log")


@pytest.fixture
def storage(tmp_path):
    return Storage(str(tmp_path / "arriving"))


def collected(executor, work, items, storage, watch=None):
    results = list(executor.run(work, items, storage, watch))
    found = {item: result.decode() if isinstance(result, bytes) else result for item, result in results}
    assert len(found) == len(results)  # each once
    return found


def expected(items, total=0):
    return {item: f"result {item} {total}" for item in items}


@pytest.fixture
def nobody_helps(monkeypatch):
    """For numbers of attempts: on a busy machine, a task may look slow, and an idle worker would train its members."""
    monkeypatch.setattr(scheduling, "SLOW", 1e9)
    monkeypatch.setattr(scheduling, "SILENT", 1e9)


@pytest.mark.parametrize("files", [True, False])
@pytest.mark.parametrize("stored", [True, False])
def test_every_result_arrives_once(ray_of, log, storage, files, stored):
    watch = Watch()
    work = Counted(log, seconds=0.01, data=np.ones(3), files=files)
    found = collected(ray_of(), work, list(range(30)), storage if stored else None, watch)
    assert found == expected(range(30), 3.0)
    assert sum(watch.nodes.values()) == 30
    assert watch.note()
    assert len(storage.existing()) == (30 if files and stored else 0)


def test_a_plan_says_what_will_be_done(ray_of, log):
    plan = ray_of().plan(Counted(log, seconds=2.0), list(range(30)))
    assert (plan.results, plan.workers) == (30, 2)
    assert 4 <= len(plan.tasks) <= 12
    assert sorted(item for group in plan.tasks for item in group) == list(range(30))
    assert plan.seconds == pytest.approx(30)
    assert plan.memory > 2**20
    assert str(plan).startswith(
        f"Ray cluster of 2 nodes and 2 workers: 30 to train in {len(plan.tasks)} tasks, roughly 30 s"
    )
    three = ray_of(members_per_task=3).plan(Counted(log), list(range(10)))
    assert sorted(map(len, three.tasks)) == [1, 3, 3, 3]


def test_a_node_killed_without_grace_loses_nothing(cluster, ray_of, log, storage):
    import ray

    work, watch, early = Counted(log, seconds=0.3), Watch(), {}
    doomed = cluster.add_node(num_cpus=2, object_store_memory=80 * 2**20)
    cluster.wait_for_nodes()
    found, killed = {}, False
    for item, result in ray_of().run(work, list(range(60)), storage, watch):
        found[item] = result.decode()
        if not killed and len(found) >= 12:
            early = {i: len(work.attempts(i)) for i in found}
            cluster.remove_node(doomed, allow_graceful=False)
            killed = True
    assert killed
    assert found == expected(range(60))
    assert {i: len(work.attempts(i)) for i in early} == early  # what was finished is never trained again
    until = time.monotonic() + 120  # the cluster notices a death by missing heartbeats
    while sum(n["Alive"] for n in ray.nodes()) != 2 and time.monotonic() < until:
        time.sleep(0.2)
    assert sum(n["Alive"] for n in ray.nodes()) == 2


def test_a_full_object_store(cluster, ray_of, log, storage):
    ray_of()._connected()
    import ray

    hoarded = [ray.put(np.ones(2**20)) for _ in range(12)]  # 96 MB where 80 fit
    work = Counted(log, seconds=0.01, data=np.ones(2**21))  # 16 MB more
    assert collected(ray_of(), work, list(range(20)), storage) == expected(range(20), float(2**21))
    del hoarded


@pytest.mark.parametrize(
    ("trouble", "message"),
    [
        (
            "raises",
            r"member 7 could not be trained on its 5 samples: OSError: no space left \(3 times in the same way\)",
        ),
        ("raises something", r"member 7 failed 3 times in the same way on .*: ZeroDivisionError: division by zero"),
        ("kills", r"member 7 failed 3 times in the same way: WorkerCrashedError: "),
    ],
)
def test_the_same_failure_three_times_stops_the_run_and_names_the_member(ray_of, log, storage, trouble, message):
    import ray

    work = Counted(log, seconds=0.01, troubles=((7, trouble),))
    with pytest.raises(MemberError, match=message):
        collected(ray_of(), work, list(range(16)), storage)
    assert 3 <= len(work.attempts(7)) <= 8
    sound = Counted(log, seconds=0.01)
    assert collected(ray_of(), sound, list(range(16)), storage) == expected(range(16))
    assert idle(ray)


def test_a_task_that_hangs_does_not_hold_up_the_rest(ray_of, log, storage):
    work = Counted(log, seconds=0.05, troubles=((13, "hangs once"),))
    started = time.monotonic()
    assert collected(ray_of(), work, list(range(40)), storage) == expected(range(40))
    assert time.monotonic() - started < 300  # of 600
    assert len(work.attempts(13)) >= 2


@pytest.mark.usefixtures("nobody_helps")
def test_what_a_worker_stored_before_it_died_is_never_trained_again(ray_of, log, storage):
    work = Counted(log, seconds=0.01, troubles=((9, "kills once"),), folder=storage.where)
    assert collected(ray_of(members_per_task=16), work, list(range(16)), storage) == expected(range(16))
    assert {item: len(work.attempts(item)) for item in range(16)} == dict.fromkeys(range(16), 1) | {9: 2}


def test_a_file_that_becomes_visible_late_is_awaited(ray_of, log, storage, monkeypatch):
    """As in a shared folder whose listings other machines cache."""
    look, looks, watch = Storage.look, [], Watch()

    def look_later(self, address, digest):
        looks.append(time.monotonic())
        return (None, False) if looks[-1] < looks[0] + 2 else look(self, address, digest)

    monkeypatch.setattr(Storage, "look", look_later)
    work = Counted(log, seconds=0.01)
    assert collected(ray_of(), work, [0, 1], storage, watch) == expected([0, 1])
    assert [len(work.attempts(item)) for item in (0, 1)] == [1, 1]
    assert "" not in watch.nodes
    assert len(looks) < 100  # without a pause, thousands


def test_a_task_whose_report_is_lost_is_cancelled(ray_of, log, monkeypatch):
    """Its members are trained in another task, so nobody would wait for it."""
    import ray

    get, lost = ray.get, []

    def get_all_but_one(reference, **more):
        report = get(reference, **more)
        if not lost and getattr(report, "sent", ()):
            lost.append(report)
            raise ray.exceptions.ObjectLostError("", None, "")
        return report

    monkeypatch.setattr(ray, "get", get_all_but_one)
    work = Counted(log, seconds=0.1, troubles=((11, "hangs once"),), files=False)
    assert collected(ray_of(members_per_task=12), work, list(range(12)), None) == expected(range(12))
    assert lost
    assert idle(ray)


@pytest.mark.usefixtures("nobody_helps")
def test_a_damaged_file_is_discarded_and_its_member_trained_again(ray_of, log, storage, monkeypatch):
    look, damaged = Storage.look, []

    def look_too_late(self, address, digest):
        if not damaged and int(address, 16) == 3:
            damaged.append(Path(self.where, f"{address}-{digest}.result"))
            damaged[0].write_bytes(damaged[0].read_bytes()[:-1])
        return look(self, address, digest)

    monkeypatch.setattr(Storage, "look", look_too_late)
    work = Counted(log, seconds=0.01)
    assert collected(ray_of(members_per_task=16), work, list(range(16)), storage) == expected(range(16))
    assert {item: len(work.attempts(item)) for item in range(16)} == dict.fromkeys(range(16), 1) | {3: 2}
    assert len(storage.existing()) == 16


def test_a_failure_does_not_recall_a_task_whose_first_report_waits(ray_of, log, storage, monkeypatch):
    """As when the driver was busy while one task failed and another started."""
    ready = scheduling.Schedule._ready

    def ready_later(schedule):
        if len(schedule.unfinished) == 8:
            time.sleep(3)
        return ready(schedule)

    monkeypatch.setattr(scheduling.Schedule, "_ready", ready_later)
    work = Counted(log, seconds=0.01, troubles=((-2, "arrives broken"),))
    assert collected(ray_of(members_per_task=1), work, list(range(8)), storage) == expected(range(8))
    assert Path(log, "arrived").exists()


@pytest.mark.parametrize("trouble", ["raises", "raises something", "kills"])
def test_a_failure_of_every_member_stops_the_run_at_once(ray_of, log, storage, trouble):
    work = Counted(log, seconds=0.01, troubles=((-1, trouble),))
    with pytest.raises(MemberError, match=r"member \d+ (failed|could not be trained on) .*3 times in the same way"):
        collected(ray_of(members_per_task=25), work, list(range(200)), storage)
    assert len(list(Path(log).glob("*-*"))) <= 32  # 8 groups, then up to 3 attempts for the first member of each


def test_a_worker_that_hangs_before_its_first_report_does_not_hold_up_the_rest(ray_of, log, storage, monkeypatch):
    monkeypatch.setattr(scheduling, "SILENT", 2.0)
    work = Counted(log, seconds=0.05, troubles=((-2, "arrives slowly"),))
    started = time.monotonic()
    assert collected(ray_of(), work, list(range(20)), storage) == expected(range(20))
    assert time.monotonic() - started < 300  # of 600


def test_nodes_that_are_lost_again_and_again_are_nobodys_failure(cluster, ray_of, log, storage):
    """Four nodes die with the same member."""
    work, found = Counted(log, seconds=0.01, troubles=((0, "waits"),)), []
    fleeting = {"num_cpus": 1, "resources": {"fleeting": 1}, "object_store_memory": STORE}
    node = cluster.add_node(**fleeting)
    results = ray_of(resources={"fleeting": 1}).run(work, [0], storage)
    thread = threading.Thread(target=lambda: found.extend(results))
    thread.start()
    for n in range(1, 5):
        until = time.monotonic() + 120
        while len(work.attempts(0)) < n and time.monotonic() < until:
            time.sleep(0.05)
        assert len(work.attempts(0)) == n
        cluster.remove_node(node, allow_graceful=False)
        node = cluster.add_node(**fleeting)
    Path(log, "go").touch()
    thread.join(120)
    cluster.remove_node(node)
    assert found == [(0, b"result 0 0")]


def test_closing_ends_all_tasks(ray_of, log, storage):
    import ray

    work = Counted(log, seconds=0.2)
    results = ray_of().run(work, list(range(100)), storage)
    for _ in range(3):
        next(results)
    results.close()
    assert idle(ray)
    attempts = len(list(Path(log).glob("*-*")))
    time.sleep(1)
    assert len(list(Path(log).glob("*-*"))) == attempts < 100


@pytest.mark.parametrize(
    ("when", "troubles"), [("os.kill(os.getpid(), signal.SIGTERM)", ()), ("signal.alarm(1)", ((8, "waits"),))]
)
def test_a_driver_that_is_terminated_cancels_its_tasks(cluster, log, when, troubles):
    """By Slurm at the end of a job's time, or by Kubernetes, also while it waits for results."""
    code = (
        "import os, signal, sys; from runoff.executors import Ray; from work_of_tests import Counted\n"
        "signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGTERM))\n"
        f"work = Counted(sys.argv[2], troubles={troubles}, files=False)\n"
        f"for _ in Ray(address=sys.argv[1]).run(work, list(range(9))):\n"
        f"    {when}"
    )
    done = subprocess.run([sys.executable, "-c", code, cluster.address, log], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (143, "")


def test_data_is_sent_once(ray_of, log, storage, monkeypatch):
    """Whatever the number of tasks and calls with the same work."""
    import ray

    executor, sent = ray_of(members_per_task=2), []
    executor._connected()
    put = ray.put
    monkeypatch.setattr(ray, "put", lambda value: sent.append(value) or put(value))
    work = Counted(log, seconds=0.01, data=np.ones(10**5))
    executor.plan(work, range(20))
    collected(executor, work, list(range(20)), storage)
    collected(executor, work, list(range(20, 30)), storage)
    assert sent == [work]
    X, y = load_iris(return_X_y=True)
    RunoffClassifier(LogisticRegression(), n_partitions=4, classes=range(3), executor=ray_of()).fit(X, y)
    assert len(sent) == 2  # also for the member that is trained again to see whether it repeats


def test_the_drivers_memory_does_not_grow_with_the_members(ray_of, log, storage):
    def peak(n):
        work = Counted(log, seconds=0.001, size=2**20)
        tracemalloc.start()
        found = 0
        for _ in ray_of().run(work, list(range(n)), storage):
            found += 1
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found == n
        return most

    peak(10)  # imports
    few, many = peak(20), peak(120)
    assert many < few + 5 * 2**20  # of 100 MB


def test_errors_of_ray_itself_are_one_sentence(ray_of, log, storage, monkeypatch):
    import ray

    def broken(*_args, **_more):
        raise ray.exceptions.RaySystemError("the head does not answer")

    results = ray_of().run(Counted(log, seconds=0.1), list(range(20)), storage)
    next(results)
    with monkeypatch.context() as patched:
        patched.setattr(ray, "wait", broken)
        with pytest.raises(ClusterError, match=r"the Ray cluster failed \(RaySystemError: .*\): finished results"):
            list(results)


def test_other_versions_are_refused(ray_of, monkeypatch):
    monkeypatch.setattr(tasks, "versions_here", lambda: {"runoff": "9.9", "Python": "3.99"})
    with pytest.raises(DeviceError, match=r"node .* of the cluster has runoff .*, and the driver has 9.9: install"):
        ray_of().kinds(kind_by_environment)


def test_storage_that_workers_do_not_see(ray_of, log, tmp_path, monkeypatch):
    hidden = Storage(str(tmp_path / "hidden"))
    monkeypatch.setattr(Storage, "mark", lambda *_: "none")  # as if the folder were of another machine
    with pytest.raises(InputError, match="storage must be seen by all nodes, but a worker does not see"):
        list(ray_of().run(Counted(log), [1, 2], hidden))


def test_storage_that_can_no_longer_be_written_stops_the_run_with_the_reason(ray_of, log, storage):
    work = Counted(log, seconds=0.05)
    results = ray_of(members_per_task=5).run(work, list(range(40)), storage)
    next(results)
    kept = Path(storage.where).rename(f"{storage.where}-kept")
    Path(storage.where).touch()  # a file in place of the folder
    with pytest.raises((MemberError, OSError), match=r"File exists|Not a directory"):
        list(results)
    assert next(kept.glob("*.result"))


def test_a_cluster_without_what_a_task_takes(ray_of, log):
    with pytest.raises(
        InputError, match=r"no node of the cluster has the resources of a task \(CPU 64\) within 1 seconds"
    ):
        list(ray_of(cpus=64, wait=1.0).run(Counted(log), [1]))


def test_nodes_of_two_kinds_are_refused_unless_each_has_a_name(cluster, ray_of, log, storage):
    """Here, the kind is a variable of the environment."""
    odd = cluster.add_node(num_cpus=1, resources={"odd": 1}, object_store_memory=80 * 2**20, env_vars={"KIND": "odd"})
    cluster.wait_for_nodes()
    try:
        with pytest.raises(DeviceError, match=r"differ in place \(.*odd.*\): .* no radius would hold; restrict tasks"):
            ray_of().kinds(kind_by_environment)
        assert ray_of(resources={"odd": 0.5}).kinds(kind_by_environment) == ({"place": "odd"},)
    finally:
        cluster.remove_node(odd)
