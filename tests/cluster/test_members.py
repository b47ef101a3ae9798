"""Members and runs on a Ray cluster: the same bytes as without a cluster, whatever is interrupted."""

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from work_of_tests import Slow

from conftest import idle
from helpers import COMMAND, files, run
from runoff import RunoffClassifier, datasets
from runoff.errors import DeviceError, InputError
from runoff.executors import Joblib, Local, Storage
from runoff.runs import Run
from runoff.saving import classifiers
from runoff.torch import TorchClassifier

K = 8
TRAIN = ("train", "digits", "--k", K, "--d", 2, "--network", "small", "--recipe", "quick", "--in-flight", 1)
DIGITS = load_digits(return_X_y=True)


def content(folder):
    """Return all files of a run or of a folder of checkpoints, without the times that training took."""
    found = {}
    for name, data in files(folder).items():
        if name.suffix == ".safetensors":
            length = int.from_bytes(data[:8], "little")
            header = json.loads(data[8 : 8 + length])
            del header["__metadata__"]["seconds"]
            data = (json.dumps(header, sort_keys=True), data[8 + length :])
        elif name.name == "manifest.json":
            manifest = json.loads(data)
            digests = manifest.pop("files")
            del manifest["digest"]
            timed = ("members/", "timings.json")
            data = manifest | {
                "files": {f: d for f, d in digests.items() if not f.startswith(timed)},
                "all": [*digests],
            }
            data["all"].sort()
        if name.name not in ("timings.json", ".lock"):
            found[str(name)] = data
    return found


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A run that was trained here."""
    out = tmp_path_factory.mktemp("local") / "run"
    assert run(*TRAIN, "--device", "cpu", "--out", out).exit_code == 0
    return out


@pytest.fixture
def ray_options(cluster):
    return ("--executor", "ray", "--address", cluster.address)


def test_a_run_has_the_same_bytes(local, tmp_path, ray_options):
    plan = run(*TRAIN, *ray_options, "--out", tmp_path / "run", "--dry-run")
    assert "Ray cluster of 2 nodes and 2 workers: 16 to train in " in plan.stdout
    assert not (tmp_path / "run").exists()
    result = run(*TRAIN, *ray_options, "--out", tmp_path / "run", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["trained"] == 2 * K
    assert "Ray cluster of 2 nodes and 2 workers: 16 to train in" in result.stderr
    assert content(tmp_path / "run") == content(local)
    Run.open(tmp_path / "run").verify()
    assert run("verify", tmp_path / "run", "--retrain", 1).exit_code == 0


@pytest.mark.parametrize("there", [True, False])
def test_a_run_is_resumed_in_both_directions(local, tmp_path, ray_options, there):
    shutil.copytree(local, tmp_path / "run")
    lost = sorted((tmp_path / "run" / "members").iterdir())[:5]
    for file in lost:
        file.unlink()
    kept = {f: f.stat().st_mtime_ns for f in (tmp_path / "run" / "members").iterdir()}
    options = ray_options if there else ("--device", "cpu")
    result = run(*TRAIN, *options, "--out", tmp_path / "run", "--json")
    assert json.loads(result.stdout) | {"seconds": 0} == {
        "run": str(tmp_path / "run"), "edits": 0, "trained": 5, "found": 11, "seconds": 0, "refused": [],
    }  # fmt: skip
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in kept.items())
    assert content(tmp_path / "run") == content(local)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_is_killed_or_interrupted_leaves_a_run_to_resume_and_no_task(
    local, tmp_path, ray_options, cluster, ray_of, how
):
    for attempt in range(5):  # a run whose members arrive together may be finished before the signal
        out = tmp_path / f"run-{attempt}"
        arguments = [*map(str, TRAIN), *ray_options, "--out", str(out)]
        process = subprocess.Popen(  # a shell may have told its background jobs to ignore Ctrl-C
            [sys.executable, "-c", COMMAND, *arguments],
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        while process.poll() is None and len(list(out.glob("members/*.safetensors"))) < 3:
            time.sleep(0.002)
        process.send_signal(how)  # if it still runs
        code = process.wait(300)
        if code and len(list(out.glob("members/*.safetensors"))) < 2 * K:
            break
    assert code == (130 if how == signal.SIGINT else -how)
    import ray

    ray_of()._connected()
    assert idle(ray)
    kept = {f: f.stat().st_mtime_ns for f in out.glob("members/*.safetensors")}
    assert 3 <= len(kept) < 2 * K
    result = run(*TRAIN, *ray_options, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    assert all(file.stat().st_mtime_ns == stamp for file, stamp in kept.items())
    assert content(out) == content(local)


def classifier(**settings):
    data = datasets.load("digits")
    given = {"n_partitions": K, "classes": range(10), "device": "cpu", "progress": False} | settings
    return TorchClassifier("small", "quick", **given).fit(data.x_train[:600], data.y_train[:600], score=data.x_test)


def test_networks_by_way_of_an_s3_compatible_server(tmp_path, ray_of, bucket):
    """What was finished when a driver died is found there, and never trained again."""
    here = classifier(checkpoints=tmp_path / "here")
    executor = ray_of(**bucket)
    there = classifier(checkpoints=tmp_path / "there", executor=executor)
    assert content(tmp_path / "there") == content(tmp_path / "here")
    storage = executor.storage_for(None)
    assert storage.existing() == []
    # As a driver leaves it that was killed before it collected any of them:
    work = finished_work(there)
    for item in list(work.jobs)[:5]:
        member = there.members_[item[0]]
        stored = there._store.get(work.jobs[item], work.identities[item], work._inputs_digest)
        assert stored is not None, member
        storage.put(work.address(item), work.pack(item, stored))
    damaged = work.address(list(work.jobs)[5])
    storage._write(f"{damaged}-{'0' * 64}.result", b"half of it")
    for file in (tmp_path / "there").iterdir():
        file.unlink()
    again = classifier(checkpoints=tmp_path / "there", executor=executor)
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert storage.existing() == []
    np.testing.assert_array_equal(again.scores(DIGITS_IMAGES).values, here.scores(DIGITS_IMAGES).values)


def test_a_bucket_that_does_not_exist_is_refused_and_not_created(ray_of, bucket):
    with pytest.raises(InputError, match="storage s3://result/run must exist: create its bucket first"):
        classifier(executor=ray_of(**bucket | {"storage": "s3://result/run"}))
    assert Storage(where="s3://", options=bucket["storage_options"])._names() == ["results"]


DIGITS_IMAGES = datasets.load("digits").x_test[:50]


def finished_work(fitted):
    """Return the work of all networks of a classifier."""
    from runoff.torch.pipeline import Pipeline, network_jobs

    rows = fitted.partition_.rows(fitted._buckets, fitted._digests, np.searchsorted(fitted.classes_, fitted._labels))
    codes = np.searchsorted(fitted.classes_, fitted._labels)
    jobs = network_jobs(fitted._features.data, codes, rows, range(K), fitted._seed, 1)
    planned = Pipeline.plan(fitted._trainer_settings(), EmptyStore(), jobs, fitted._inputs)
    return planned.work()


class EmptyStore:
    weights, half, arriving = True, False, None

    def has(self, job, identity, inputs):
        return False


def test_networks_without_a_folder_come_through_the_object_store(ray_of):
    here, there, joblib = (classifier(executor=executor) for executor in (Local(), ray_of(), Joblib(2)))
    for other in (there, joblib):
        for a, b in zip(here.members_, other.members_, strict=True):
            assert a.fitted[0].keys() == b.fitted[0].keys()
            assert all(np.array_equal(a.fitted[0][name].numpy(), b.fitted[0][name].numpy()) for name in a.fitted[0])
    there.update(remove=(datasets.load("digits").x_train[:2], datasets.load("digits").y_train[:2]))
    assert len(there.updated_members_) <= 2


def test_a_table_is_trained_on_the_cluster(tmp_path, ray_options, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text("\n".join(["a,kind", *(f"{i},{'ham' if i % 2 else 'spam'}" for i in range(80))]))
    options = ("train", "train.csv", "--k", 4, "--label-column", "kind", "--classes", "ham,spam")
    result = run(*options, *ray_options, "--out", "model")
    assert result.exit_code == 0, result.output
    assert "Ray cluster of 2 nodes and 2 workers: 4 to train in" in result.stderr
    assert run(*options, "--out", "here").exit_code == 0
    for name in ("model", "here"):
        given = ("--inputs", "train.csv", "--label-column", "kind", "--out", f"{name}.csv")
        assert run("certify", name, *given).exit_code == 0
    assert Path("model.csv").read_bytes() == Path("here.csv").read_bytes()


def test_scikit_learn_members_have_the_same_bits(ray_of):
    X, y = DIGITS
    settings = {"n_partitions": K, "spread": 2, "classes": range(10)}
    here, there = (
        RunoffClassifier(Slow(max_iter=400), **settings, executor=executor).fit(X, y)
        for executor in ("local", ray_of())
    )
    np.testing.assert_array_equal(there.scores(X[:100]).values, here.scores(X[:100]).values)
    for member, other in zip(here.members_, there.members_, strict=True):
        assert member.fitted[0].coef_.tobytes() == other.fitted[0].coef_.tobytes()
        assert classifiers.member_bytes(member).__sizeof__() == classifiers.member_bytes(other).__sizeof__()
    for fitted in (here, there):
        fitted.update(remove=(X[:3], y[:3]))
    np.testing.assert_array_equal(there.scores(X[:100]).values, here.scores(X[:100]).values)


def test_estimators_that_do_not_repeat_are_rejected_there_too(ray_of):
    from work_of_tests import Unseeded

    with pytest.raises(ValueError, match="estimator must learn the same from the same samples every time"):
        RunoffClassifier(Unseeded(), n_partitions=3, classes=range(10), executor=ray_of()).fit(*DIGITS)


def test_what_cannot_be_sent_is_refused_in_one_sentence(ray_of):
    class Locked(LogisticRegression):
        """An estimator with a lock, of which scikit-learn makes copies, but which no other process can get."""

        def __sklearn_clone__(self):
            return self

        def __deepcopy__(self, memo):
            return LogisticRegression()

        def __reduce__(self):
            raise TypeError("cannot pickle '_thread.lock' object")

    def network(shape, n_classes, lock=threading.Lock()):  # noqa: B008
        raise AssertionError

    message = (
        "must be serializable, since it is sent to the workers of the cluster, but serializing it failed: TypeError: "
    )
    with pytest.raises(InputError, match=message):
        RunoffClassifier(Locked(), n_partitions=3, classes=range(10), executor=ray_of()).fit(*DIGITS)
    with pytest.raises(InputError, match=message):
        TorchClassifier(network, "quick", n_partitions=2, classes=range(10), executor=ray_of()).fit(*DIGITS)


def test_machines_of_another_kind_are_refused_with_the_reason(cluster, ray_of, tmp_path, ray_options):
    other = cluster.add_node(
        num_cpus=1, resources={"old": 1}, object_store_memory=80 * 2**20, env_vars={"ATEN_CPU_CAPABILITY": "default"}
    )
    added = [other]
    cluster.wait_for_nodes()
    try:
        result = run(*TRAIN, *ray_options, "--out", tmp_path / "run")
        assert result.exit_code == 2
        assert "of the cluster differ in" in result.stderr
        assert "no radius would hold" in result.stderr
        alone = classifier(executor=ray_of(resources={"old": 0.1}), checkpoints=tmp_path / "old")
        assert "ATEN_CPU_CAPABILITY=default" in alone._trained_with["device"]
        added.append(cluster.add_node(num_cpus=1, resources={"new": 1}, object_store_memory=80 * 2**20))
        cluster.wait_for_nodes()
        mixed = classifier(executor=ray_of(mixed=("new", "old")), checkpoints=tmp_path / "mixed")
        assert " | " in mixed._trained_with["device"]
        here = classifier(checkpoints=tmp_path / "here")
        identity = mixed._identities
        assert [identity[m, 0] == here._identities[m, 0] for m in range(K)] == [True, False] * (K // 2)
        assert [identity[m, 0] == alone._identities[m, 0] for m in range(K)] == [False, True] * (K // 2)
    finally:
        for node in added:
            cluster.remove_node(node)


def test_what_cannot_be_reached(tmp_path, ray_of, monkeypatch):
    import ray

    members = RunoffClassifier(LogisticRegression(), classes=range(10), executor=ray_of())
    with monkeypatch.context() as patched:
        patched.setattr(ray.util.client.ray, "is_connected", lambda: True)
        with pytest.raises(InputError, match=r"to which this machine belongs, got 'ray://...'"):
            members.fit(*DIGITS)
        patched.setattr(ray, "is_initialized", lambda: False)
        patched.setenv("RAY_ADDRESS", "ray://a:1")
        with pytest.raises(InputError, match="to which this machine belongs, got 'ray://a:1'"):
            RunoffClassifier(LogisticRegression(), classes=range(10), executor="ray").fit(*DIGITS)
    with pytest.raises(InputError, match="address must be that of a cluster to which this machine belongs"):
        RunoffClassifier(LogisticRegression(), executor=__import__("runoff.executors").executors.Ray("ray://a:1"))
    assert issubclass(DeviceError, InputError)
    assert Storage(str(tmp_path / "none")).existing() == []
