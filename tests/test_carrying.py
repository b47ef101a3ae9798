"""reproduce --carry: mean scores or ballots of members, from which another machine continues."""

import dataclasses
import io
import json
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import run
from runoff import datasets
from runoff.errors import StorageError
from runoff.paper import carrying, tables
from runoff.runs import Run
from runoff.torch.training import pools, trainer

OPTIONS = ("--network", "small", "--recipe", "quick", "--device", "cpu")
STAR = tables.Row("T2", "cifar10", 4, "DPA*", 3, {0: 50.0, 1: 41.0}, {})


@pytest.fixture
def tiny(monkeypatch):
    """Some of the digits under the name of CIFAR-10, and rows of a few networks."""
    whole = datasets.load("digits")
    digits = dataclasses.replace(
        whole, x_train=whole.x_train[:240], y_train=whole.y_train[:240], x_test=whole.x_test[:90],
        y_test=whole.y_test[:90],
    )  # fmt: skip
    monkeypatch.setattr(datasets, "load", lambda *_, **__: digits)
    rows = [STAR, tables.Row("T1", "cifar10", 4, "FA", 2, {1: 42.0}, {}),
            tables.Row("T6", "cifar10", 4, "DPA", 1, {1: 42.0}, {1: 0.1})]  # fmt: skip
    monkeypatch.setattr(tables, "rows", lambda table=None, *_: [r for r in rows if table in (None, r.table)])
    return digits


def reproduced(folder, *options):
    done = run("reproduce", *OPTIONS, "--runs", folder / "runs", "--json", *options)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


class StoppedError(Exception):
    pass


def content(folder):
    """Return the seeds and the scores or ballots of every file."""
    found = {}
    for file in sorted(folder.glob("*.npz")):
        with np.load(file) as arrays:
            found[file.name] = [arrays[name].tobytes() for name in ("members", "values", "seeds", "used")]
    return found


def test_an_interrupted_row_is_continued_from_the_means_alone(tiny, tmp_path, monkeypatch):  # noqa: ARG001
    whole = reproduced(tmp_path, "--table", "T2")
    carry = ("--table", "T2", "--carry", tmp_path / "carry")
    add, trained = carrying.Carried.add, []

    def stopping(carried, network):
        if len(trained) in (5, 9):
            trained.append(None)
            raise StoppedError
        add(carried, network)
        trained.append((network.member, network.seed))

    monkeypatch.setattr(carrying.Carried, "add", stopping)
    monkeypatch.setattr(trainer, "as_completed", pools.prefetch)  # in order: none waits for an earlier seed, uncounted
    for kept in (5, 8):  # of 12: the machine is lost twice
        assert run("reproduce", *OPTIONS, "--runs", tmp_path / "none", *carry).exit_code == 70
        assert carrying.count(tmp_path / "carry" / "cifar10-k4-d1.npz") == kept
        planned = json.loads(run("reproduce", *OPTIONS, *carry, "--dry-run", "--json").stdout)
        assert [(plan["n_networks"], plan["missing"]) for plan in planned] == [(12, 12 - kept)]
    lines = reproduced(tmp_path, *carry)
    done = [key for key in trained if key is not None]
    assert sorted(done) == [(m, s) for m in range(4) for s in range(3)]  # none twice
    for line, expected in zip(lines, whole, strict=True):
        assert line["ours"] == pytest.approx(expected["ours"], abs=1.2)  # one of 90 inputs: scores were rounded
        assert line["networks"] == expected["networks"] == 12
        assert line["seconds"] > 0
        assert line["command"] == f"{expected['command']} --carry carry"
    assert not (tmp_path / "none").exists()
    monkeypatch.setattr(carrying.Carried, "add", add)
    at_once = reproduced(tmp_path, "--table", "T2", "--carry", tmp_path / "once")
    assert [line["ours"] for line in at_once] == [line["ours"] for line in lines]
    assert content(tmp_path / "once") == content(tmp_path / "carry")
    assert reproduced(tmp_path, *carry) == lines  # nothing is left to train
    assert len(trained) == 14
    assert [file.name for file in (tmp_path / "carry").iterdir() if file.name != ".lock"] == ["cifar10-k4-d1.npz"]


def test_means_in_half_precision_rank_like_the_run_and_are_small(tiny, tmp_path):
    reproduced(tmp_path, "--table", "T2")
    reproduced(tmp_path, "--table", "T2", "--carry", tmp_path / "carry")
    ballots = np.asarray(Run.open(tmp_path / "runs" / "cifar10-k4-d1").ballots(3))
    with np.load(tmp_path / "carry" / "cifar10-k4-d1.npz") as file:
        means = file["values"]
    assert means.dtype == np.float16
    assert means.nbytes == 4 * len(tiny.y_test) * 10 * 2  # 10 MB for 50 members, 10,000 inputs and 10 classes
    ranked = carrying.points(np.moveaxis(means.astype(np.float32), 0, 1))
    assert (ranked != ballots).any(axis=2).mean() < 0.02
    assert (ranked.argmax(2) == ballots.argmax(2)).all()


def test_members_of_a_spread_are_carried_too_and_a_kill_loses_what_came_since_the_last_write(
    tiny,  # noqa: ARG001
    tmp_path,
    monkeypatch,
):
    write, written = carrying.Carried.write, []
    monkeypatch.setattr(carrying, "INTERVAL", -1)
    monkeypatch.setattr(carrying.Carried, "write", lambda self: (write(self), written.append(self.n_networks)))
    expected = reproduced(tmp_path, "--table", "T1")
    lines = reproduced(tmp_path, "--table", "T1", "--carry", tmp_path / "carry")
    assert written == [*range(1, 9), 8]  # after every network, and at the end
    assert lines[0]["ours"] == expected[0]["ours"]  # ballots are exact
    ballots = np.asarray(Run.open(tmp_path / "runs" / "cifar10-k4-d2").ballots())
    with np.load(tmp_path / "carry" / "cifar10-k4-d2.npz") as file:
        np.testing.assert_array_equal(np.moveaxis(file["values"], 0, 1), ballots)


def test_runs_with_many_members_have_several_files(tiny, tmp_path, monkeypatch):
    reproduced(tmp_path, "--table", "T1", "--carry", tmp_path / "one")
    monkeypatch.setattr(carrying, "SIZE", 3 * len(tiny.y_test) * 10)  # ballots of 3 members
    whole = reproduced(tmp_path, "--table", "T1", "--carry", tmp_path / "several")
    names = [f"cifar10-k4-d2.{i}of3.npz" for i in (1, 2, 3)]
    assert list(content(tmp_path / "several")) == names
    assert carrying.count(tmp_path / "several" / "cifar10-k4-d2.npz") == 8
    with np.load(tmp_path / "one" / "cifar10-k4-d2.npz") as file:
        parts = [np.load(tmp_path / "several" / name)["values"] for name in names]
        np.testing.assert_array_equal(np.concatenate(parts), file["values"])
    (tmp_path / "several" / names[1]).unlink()  # only its members are trained again
    trained, stamps = [], [(tmp_path / "several" / name).stat().st_mtime_ns for name in (names[0], names[2])]
    add = carrying.Carried.add
    monkeypatch.setattr(carrying.Carried, "add", lambda self, one: (trained.append(one.member), add(self, one)))
    again = reproduced(tmp_path, "--table", "T1", "--carry", tmp_path / "several")
    assert again[0]["ours"] == whole[0]["ours"]
    assert sorted(trained) == [3, 4, 5]
    assert stamps == [(tmp_path / "several" / name).stat().st_mtime_ns for name in (names[0], names[2])]


def test_networks_are_added_in_the_order_of_their_seeds(tmp_path):
    """The mean is rounded after each network, so another order would change its last bits."""
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(2, 4, 5, 3)).astype(np.float32)
    scores[1, 2, 4, 1] = np.inf  # an input without a mean: the member votes by its class shares
    jobs = [SimpleNamespace(member=m, seed=s, key=(m, s)) for m in range(2) for s in range(4)]
    settings = SimpleNamespace(spread=1, to_dict=dict)
    work = SimpleNamespace(
        rows=[np.arange(3), np.arange(1, 3)], labels=np.array([0, 1, 1]), n_classes=3,
        inputs=np.zeros((5, 2), np.uint8), pipeline=SimpleNamespace(jobs=jobs),
    )  # fmt: skip
    orders = [jobs, jobs[::-1], [jobs[i] for i in rng.permutation(8)]]
    results = []
    for number, order in enumerate(orders):
        file = tmp_path / f"{number}.npz"
        for half in (order[:4], order[4:]):
            carried = carrying.Carried.open(file, settings, work)
            for job in half:
                key = (job.member, job.seed)
                carried.add(SimpleNamespace(**vars(job), refused="NaN" if key == (0, 1) else None, scores=scores[key]))
            carried.write()
        left = carrying.Carried.open(file, settings, work)
        for job in left.missing(jobs):  # those that waited for another when the first half ended
            left.add(SimpleNamespace(**vars(job), refused="NaN" if job.key == (0, 1) else None, scores=scores[job.key]))
        left.write()
        results.append((content(tmp_path)[file.name], left.ballots(4).tobytes()))
    assert results[0] == results[1] == results[2]
    ballots = carrying.Carried.open(tmp_path / "0.npz", settings, work).ballots(4)
    assert ballots[4, 1].tolist() == [1, 2, 0]
    usable = scores[0, [0, 2, 3]].mean(axis=0)
    np.testing.assert_array_equal(ballots[:, 0].argmax(1), usable.argmax(1))


def test_what_cannot_be_continued_is_refused(tiny, tmp_path):  # noqa: ARG001
    carry = ("--carry", tmp_path / "carry")

    def refused(*options, code=2):
        done = run("reproduce", *OPTIONS, "--runs", tmp_path / "runs", *carry, *options)
        assert done.exit_code == code, done.output
        return done.stderr

    assert "trials need the networks one by one" in refused("--table", "T6", "--trials", 2)
    assert "leave out --weights and --retrain" in refused("--table", "T2", "--weights")
    reproduced(tmp_path, "--table", "T2", *carry)
    assert "contains means over 3 networks per member, from which those of 2 cannot be extracted" in refused(
        "--table", "T2", "--d", 2
    )
    assert "is of another run, whose settings differ" in refused("--table", "T2", "--recipe", "strong-digits")
    file = tmp_path / "carry" / "cifar10-k4-d1.npz"
    data = file.read_bytes()
    file.write_bytes(data[: len(data) // 2])
    assert "cannot be read" in refused("--table", "T2", code=4)
    with pytest.raises(StorageError, match="cannot be read"):
        carrying.count(file)
    with np.load(io.BytesIO(data)) as arrays:
        changed = dict(arrays) | {"used": arrays["used"] + 1}
    np.savez(file, **changed)
    assert "was altered or damaged: remove it" in refused("--table", "T2", code=4)


FORGERIES = {
    "members as floats": lambda arrays, _: {"members": arrays["members"].astype(np.float32)},
    "members as a mask": lambda arrays, _: {"members": arrays["members"].astype(bool)},
    "numbers of networks as floats": lambda arrays, _: {"used": arrays["used"] - 0.5},
    "numbers of networks as booleans": lambda arrays, _: {"used": arrays["used"].astype(bool)},
    "an endless time": lambda _, about: {"about": np.array(json.dumps(about | {"seconds": float("inf")}))},
    "a time before the start": lambda _, about: {"about": np.array(json.dumps(about | {"seconds": -1}))},
    "no device": lambda _, about: {"about": np.array(json.dumps(about | {"trained_with": [{}]}))},
    "a device that is a number": lambda _, about: {
        "about": np.array(json.dumps(about | {"trained_with": [{"device": 1}]}))
    },
}


@pytest.mark.parametrize("forged", FORGERIES.values(), ids=FORGERIES)
def test_forged_files_are_refused_in_one_sentence(forged, tmp_path):
    """NumPy also takes floats, masks and infinity where only numbers of members or seconds make sense."""
    file = tmp_path / "sums.npz"
    jobs = [SimpleNamespace(member=m, seed=0, key=(m, 0)) for m in range(2)]
    work = SimpleNamespace(
        rows=[np.arange(3)] * 2, labels=np.array([0, 1, 1]), n_classes=3, inputs=np.zeros((5, 2), np.uint8),
        pipeline=SimpleNamespace(jobs=jobs),
    )  # fmt: skip
    settings = SimpleNamespace(spread=1, to_dict=dict)
    carried = carrying.Carried.open(file, settings, work)
    for job in jobs:
        carried.add(SimpleNamespace(**vars(job), refused=None, scores=np.ones((5, 3), np.float32)))
    carried.write()
    with np.load(file) as stored:
        arrays = dict(stored)
    assert carrying.Carried.open(file, settings, work).n_networks == 2
    np.savez(file, **arrays | forged(arrays, json.loads(str(arrays["about"]))))
    with pytest.raises(StorageError, match=r"sums.npz .*: remove it") as raised:
        carrying.Carried.open(file, settings, work)
    assert "\n" not in str(raised.value)
