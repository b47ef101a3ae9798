"""reproduce --carry: a member's scores, summed over its networks, from which another machine continues."""

import dataclasses
import io
import json

import numpy as np
import pytest

from helpers import run
from runoff import datasets
from runoff.errors import StorageError
from runoff.paper import carrying, tables
from runoff.runs import Run

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


def test_an_interrupted_row_is_continued_from_the_sums_alone(tiny, tmp_path, monkeypatch):  # noqa: ARG001
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
    assert reproduced(tmp_path, *carry) == lines  # nothing is left to train
    assert len(trained) == 14
    assert [file.name for file in (tmp_path / "carry").iterdir() if file.name != ".lock"] == ["cifar10-k4-d1.npz"]


def test_sums_in_half_precision_rank_like_the_run_and_are_small(tiny, tmp_path):
    reproduced(tmp_path, "--table", "T2")
    reproduced(tmp_path, "--table", "T2", "--carry", tmp_path / "carry")
    ballots = np.asarray(Run.open(tmp_path / "runs" / "cifar10-k4-d1").ballots(3))
    with np.load(tmp_path / "carry" / "cifar10-k4-d1.npz") as file:
        means = file["means"]
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
    monkeypatch.setattr(carrying.Carried, "write", lambda self: (write(self), written.append(self.seeds.sum())))
    expected = reproduced(tmp_path, "--table", "T1")
    lines = reproduced(tmp_path, "--table", "T1", "--carry", tmp_path / "carry")
    assert written == [*range(1, 9), 8]  # after every network, and at the end
    assert lines[0]["ours"] == pytest.approx(expected[0]["ours"], abs=1.2)
    assert (tmp_path / "carry" / "cifar10-k4-d2.npz").exists()


def test_what_cannot_be_continued_is_refused(tiny, tmp_path):  # noqa: ARG001
    carry = ("--carry", tmp_path / "carry")

    def refused(*options, code=2):
        done = run("reproduce", *OPTIONS, "--runs", tmp_path / "runs", *carry, *options)
        assert done.exit_code == code, done.output
        return done.stderr

    assert "trials need the networks one by one" in refused("--table", "T6", "--trials", 2)
    assert "leave out --weights and --retrain" in refused("--table", "T2", "--weights")
    reproduced(tmp_path, "--table", "T2", *carry)
    assert "contains sums over 3 networks per member, from which those of 2 cannot be extracted" in refused(
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
