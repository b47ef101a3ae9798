"""The command line with what people bring along: a network in a file, a table, a machine to describe."""

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import runoff
from helpers import run
from runoff import cli

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
    assert "net.py has changed since: its SHA-256 starts with" in result.stderr
    assert run("train", "images.npz", *options, "--network", "net.py:make").exit_code == 2  # another run


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("resnet", "--network must be one of 'nin', 'small' or FILE.py:FUNCTION"),
        ("absent.py:make", "--network absent.py:make cannot be read: No such file"),
        ("net.py:missing", "net.py has no function 'missing'"),
        ("broken.py:make", "--network broken.py:make cannot be imported: ModuleNotFoundError"),
    ],
)
def test_networks_that_cannot_be_used(tmp_path, monkeypatch, given, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NETWORK)
    (tmp_path / "broken.py").write_text("import no_such_module_of_mine\n")
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
    text = run("doctor").stdout
    assert f"  numpy: {np.__version__}\n" in text
    monkeypatch.setitem(sys.modules, "torch", None)
    assert "pip install 'runoff[torch]'" in run("doctor").stdout
    assert "doctor" in cli.COMMANDS
