"""The command line with users' own input: a network in a file, a table, and `runoff doctor`."""

import csv
import importlib.util
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import runoff
from helpers import run
from runoff import cli
from runoff.errors import InputError
from runoff.saving import tables

NETWORK = """
from torch import nn

def make(shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear({width} * shape[1] * shape[2], n_classes))
"""


def test_a_network_from_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETWORK.format(width=1))
    (tmp_path / "images.npz").write_bytes(b"")
    draws = np.random.default_rng(0)
    arrays = {"x": draws.integers(0, 255, (24, 8, 8), np.uint8), "y": np.arange(24) % 2}
    np.savez("images.npz", x_train=arrays["x"], y_train=arrays["y"], x_test=arrays["x"][:9], y_test=arrays["y"][:9])
    options = ["--k", 2, "--recipe", "quick", "--device", "cpu", "--classes", 2, "--out", "out"]
    result = run("train", "images.npz", *options, "--network", "net.py:make")
    assert result.exit_code == 0, result.output
    name = json.loads(Path("out/manifest.json").read_text())["settings"]["network"]
    assert name.startswith("net.py:make@")
    assert run("certify", "out").exit_code == 0
    assert run("train", "images.npz", *options, "--network", name).exit_code == 0
    np.savez("bad.npz", x=arrays["x"][:1], y=arrays["y"][:1])
    from runoff.torch.networks import NETWORKS

    monkeypatch.delitem(NETWORKS, name)  # as in another process
    result = run("update", "out", "--remove", "bad.npz", "--device", "cpu")
    assert f"the network {name} is from a file: pass it again, as --network net.py:make" in result.stderr
    assert run("verify", "out", "--retrain", 1, "--network", "net.py:make", "--device", "cpu").exit_code == 0
    assert run("update", "out", "--remove", "bad.npz", "--network", "net.py:make", "--device", "cpu").exit_code == 0
    (tmp_path / "net.py").write_text(NETWORK.format(width="0 or 1"))
    result = run("train", "images.npz", *options, "--network", name)
    assert "net.py has changed since training: its SHA-256 starts with" in result.stderr
    assert run("train", "images.npz", *options, "--network", "net.py:make").exit_code == 2  # another run


BAD = """
from torch import nn

def raises(shape, n_classes):
    raise RuntimeError("boom")

def takes_nothing():
    return nn.Linear(1, 1)

def misspelt(shape, n_classes):
    return nn.Linaer(64, n_classes)

def nothing(shape, n_classes):
    nn.Linear(64, n_classes)

def too_wide(shape, n_classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, n_classes + 1))

def of_colours(shape, n_classes):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, n_classes))
"""


def test_cells_of_any_length_are_read(tmp_path):
    """One long mail, which anyone can send, must not stop training; other readers of the process keep their limit."""
    limit = csv.field_size_limit()
    (tmp_path / "mails.csv").write_text(f"text,kind\n{'x' * 200_000},ham\n")
    mails, labels, _ = tables.samples(tmp_path / "mails.csv", "kind")
    assert (len(mails["text"][0]), labels) == (200_000, ["ham"])
    assert csv.field_size_limit() == limit


def test_tables_that_do_not_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in (
        ("certify", "absent.csv"),
        ("certify", "absent.parquet"),
        ("certify", "absent.npy"),
        ("train", "absent.csv", "--k", 5, "--label-column", "a", "--classes", "a,b", "--out", "out"),
    ):
        result = run(*command)
        assert result.exit_code == 2
        assert f"{command[1]} cannot be read: No such file or directory" in result.stderr


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("resnet", "--network must be one of 'nin', 'small' or FILE.py:FUNCTION"),
        ("absent.py:make", "--network absent.py:make cannot be read: No such file"),
        ("net.py:missing", "net.py has no function 'missing'"),
        ("broken.py:make", "--network broken.py:make cannot be imported: ModuleNotFoundError"),
        ("bad.py:raises", "network must build for shape (1, 8, 8) and 10 classes, but it raised RuntimeError: boom"),
        ("bad.py:takes_nothing", "but it raised TypeError: takes_nothing() takes 0 positional arguments but 2 were"),
        ("bad.py:misspelt", "but it raised AttributeError: module 'torch.nn' has no attribute 'Linaer'"),
        ("bad.py:nothing", "network must return an nn.Module, got NoneType"),
        (
            "bad.py:too_wide",
            "network must return one score per class, (2, 10) for 2 inputs, got (2, 11): its",
        ),
        ("bad.py:of_colours", "network must score inputs of shape (1, 8, 8), but it raised RuntimeError: "),
    ],
)
def test_networks_that_cannot_be_used(tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETWORK)
    (tmp_path / "broken.py").write_text("import no_such_module_of_mine\n")
    (tmp_path / "bad.py").write_text(BAD)
    result = run("train", "digits", "--k", 2, "--network", given, "--out", "out")
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "out").exists()


def test_doctor_describes_the_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("RUNOFF_DATA", str(tmp_path / "nowhere"))
    found = json.loads(run("doctor", "--json").stdout)
    assert found["runoff"]["version"] == runoff.__version__
    assert found["packages"]["numpy"] == np.__version__
    assert found["system"]["python"] == sys.version.split()[0]
    assert found["devices"]["cpu"]
    assert found["places"]["data"].startswith(f"{tmp_path / 'nowhere'}, which does not exist; found: digits")
    assert found["variables"]["RUNOFF_DATA"] == str(tmp_path / "nowhere")
    assert set(os.environ.values()) & set(found["variables"].values()) == set(found["variables"].values())
    for name, module in (("xgboost", "xgboost"), ("torch", "torch")):  # XGBoost is also installed as xgboost-cpu
        assert (name in found["packages"]) == (importlib.util.find_spec(module) is not None)
    text = run("doctor").stdout
    assert f"  numpy: {np.__version__}\n" in text
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install 'runoff[torch]'" in run("doctor").stdout
    assert "doctor" in cli.COMMANDS


def table(n, seed):
    draws = np.random.default_rng(seed)
    kind = draws.integers(0, 2, n)
    rows = [
        f"{'' if i % 9 == 0 else round(draws.normal(3 * k), 3)},{draws.choice(['red', 'blue'])},{draws.normal(k):.3f},"
        f"{['ham', 'spam'][k]}"
        for i, k in enumerate(kind)
    ]
    return ["length,colour,width,kind", *rows]


def test_a_table_is_trained_on_and_certified(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text("\n".join(table(200, 0)))
    Path("new.csv").write_text("\n".join(table(60, 1)))
    options = ["--k", 10, "--label-column", "kind", "--classes", "ham,spam"]
    result = run("train", "train.csv", *options, "--out", "model")
    assert result.exit_code == 0, result.output
    assert "200 samples of train.csv: 10 members" in result.stdout
    assert "Next: runoff certify model --inputs NEW.csv --label-column kind" in result.stdout
    result = run("certify", "model", "--inputs", "new.csv", "--label-column", "kind", "--out", "rows.csv", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    assert summary["clean_accuracy"] > 0.8
    assert summary["certified_accuracy"][1] > 0.5
    assert Path("rows.csv").read_text().startswith("input,prediction,radius,runner_up,label\n0,")
    # A text in a column of numbers reaches the members of its own bucket only.
    Path("edited.csv").write_text("\n".join([*table(200, 0), "broken,red,text,ham"]))
    assert run("train", "edited.csv", *options, "--out", "models/edited").exit_code == 0
    sets = [json.loads(Path(name, "manifest.json").read_text())["training_sets"] for name in ("model", "models/edited")]
    assert sum(a != b for a, b in zip(*sets, strict=True)) == 1


@pytest.mark.parametrize("executor", ["joblib", "ray"])
def test_a_table_is_trained_where_the_executor_does(tmp_path, monkeypatch, executor):
    """Whatever --executor names is called."""
    from runoff.executors import Joblib, Ray

    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text("\n".join(table(100, 0)))
    options = ["--k", 5, "--label-column", "kind", "--classes", "ham,spam"]

    def called(self, *_args, **_more):
        raise InputError(f"called {self.name}")

    with monkeypatch.context() as patched:
        patched.setattr(Joblib, "run", called)
        patched.setattr(Ray, "kinds", called)
        result = run("train", "train.csv", *options, "--executor", executor, "--out", "model")
    assert f"called {executor}" in result.stderr
    if executor == "joblib":
        assert run("train", "train.csv", *options, "--executor", executor, "--out", "model").exit_code == 0
        assert run("train", "train.csv", *options, "--out", "other").exit_code == 0
        given = ["--inputs", "train.csv", "--label-column", "kind", "--out"]
        assert [run("certify", name, *given, f"{name}.csv").exit_code for name in ("model", "other")] == [0, 0]
        assert Path("model.csv").read_bytes() == Path("other.csv").read_bytes()


def test_a_column_of_a_table_names_sources(tmp_path, monkeypatch):
    """All rows of one source reach one member, and a new source with many rows, too."""
    monkeypatch.chdir(tmp_path)

    def write(name, rows, senders):
        header, *body = rows
        lines = [f"{header},sender", *(f"{row},{sender}" for row, sender in zip(body, senders, strict=True))]
        Path(name).write_text("\n".join(lines))

    senders = [f"0{i * i % 23}" for i in range(200)]
    write("train.csv", table(200, 0), senders)
    write("more.csv", [*table(200, 0), *table(30, 5)[1:]], [*senders, *["mallory"] * 30])
    write("new.csv", table(60, 1), ["x"] * 60)
    columns = ["--label-column", "kind", "--group-column", "sender"]
    options = ["--k", 10, *columns, "--classes", "ham,spam"]
    result = run("train", "train.csv", *options, "--out", "model")
    assert result.exit_code == 0, result.output
    assert f"{len({*senders})} sources, the largest with" in result.stdout
    assert f"Next: runoff certify model --inputs NEW.csv {' '.join(columns)}" in result.stdout
    assert run("train", "more.csv", *options, "--out", "more").exit_code == 0
    sets = [json.loads(Path(name, "manifest.json").read_text())["training_sets"] for name in ("model", "more")]
    assert sum(a != b for a, b in zip(*sets, strict=True)) == 1
    shown = run("certify", "model", "--inputs", "new.csv", *columns, "--to", "ham", "--from", "spam", "--json")
    assert shown.exit_code == 0, shown.output
    summary = json.loads(shown.stdout)
    assert (summary["unit"], summary["target"]["to"]) == ("sources", "ham")
    without = run("verify", "model", "--data", "train.csv", *columns[:2])  # a column is left over
    assert "no groups were passed (of a table, by --group-column)." in without.stdout
    assert all(line.startswith(("model: ", "Checked: ", "Not checked: ")) for line in without.stdout.splitlines())
    write("nameless.csv", table(200, 0), [*senders[1:], ""])
    result = run("train", "nameless.csv", *options, "--out", "m")
    assert result.exit_code == 2
    assert "got None for sample 199" in " ".join(result.stderr.split())


TRAIN = ["train", "train.csv", "--k", 2, "--out", "m"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "digits", "--k", 2, "--out", "m", "--group-column", "a"], "--group-column is for .csv and .parquet"),
        (
            [*TRAIN, "--label-column", "kind", "--group-column", "kind", "--classes", "x,y"],
            "must be two columns, got 'kind' twice",
        ),
        (
            [*TRAIN, "--label-column", "kind", "--group-column", "b", "--classes", "x,y"],
            "train.csv must have the group column 'b', got length, colour, width, kind",
        ),
        (TRAIN, "train.csv is a table, so name its label column"),
        (["train", "train.csv", "--k", 2, "--out", "m", "--recipe", "quick"], "--recipe is for networks"),
        (["train", "train.csv", "--k", 2, "--out", "m", "--epochs", 3], "--epochs is for networks"),
        (
            ["train", "train.csv", "--k", 2, "--out", "m", "--encoder", "efficientnet-lite0"],
            "--encoder is for networks",
        ),
        (
            ["train", "train.csv", "--k", 2, "--out", "m", "--executor", "ray", "--storage", "s"],
            "--storage is for networks",
        ),
        (["train", "digits", "--k", 2, "--out", "m", "--label-column", "a"], "--label-column is for .csv and .parquet"),
        (
            ["train", "train.csv", "--k", 2, "--out", "m", "--label-column", "a", "--classes", "x,y"],
            "train.csv must have the label column 'a', got length, colour, width, kind",
        ),
        (
            ["certify", "train.csv", "--inputs", "train.csv"],
            "--inputs is for saved classifiers, and train.csv is not one",
        ),
    ],
)
def test_tables_that_cannot_be_used(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    Path("train.csv").write_text("\n".join(table(20, 0)))
    result = run(*arguments)
    assert (result.exit_code, message in result.stderr) == (2, True), result.output
    assert not Path("m").exists()
