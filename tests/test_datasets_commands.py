"""The commands of `runoff data`, as users run them."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dataset_helpers import PUBLIC, damage_mnist, own_arrays, put_mnist, run
from dataset_helpers import elsewhere as elsewhere
from dataset_helpers import mnist as mnist
from runoff import cli, datasets


def test_the_list(mnist, tmp_path):
    tmp_path = tmp_path / "[red]x[/red]"  # a name, not a colour
    put_mnist(tmp_path / "MNIST" / "raw", mnist)
    rows = json.loads(run("list", "--json", "--data-dir", tmp_path).stdout)
    assert [row["name"] for row in rows] == ["digits", "mnist", "cifar10", "gtsrb", "spamassassin"]
    assert [row["found"] for row in rows] == ["scikit-learn", str(tmp_path / "MNIST" / "raw"), None, None, None]
    assert rows[1] == {
        "name": "mnist", "train": 6, "test": 3, "shape": [5, 4], "classes": 10, "found": str(tmp_path / "MNIST/raw")
    }  # fmt: skip
    result = run("list", "--data-dir", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == f"looked in {tmp_path}"
    assert "1,437" in result.stdout
    assert "48x48x3" in result.stdout
    assert result.stdout.count("missing") == 3
    assert str(tmp_path / "MNIST" / "raw") in result.stdout


def test_paths_are_printed_as_they_are(mnist, tmp_path, monkeypatch):
    """Paths are neither parsed as markup nor wrapped."""
    monkeypatch.setenv("COLUMNS", "40")
    folder = tmp_path / "a-rather-long-directory-name-of-somebody" / "q[/red]"
    put_mnist(folder, mnist)
    np.savez(folder / "mine.npz", **own_arrays())
    assert run("list", "--data-dir", folder).stdout.splitlines()[2].endswith(f"  {folder}")
    assert f"from {folder}, fingerprint " in run("check", "mnist", "--data-dir", folder).stdout
    right, classes = run("check", folder / "mine.npz").stdout.splitlines()
    assert right.startswith(f"{folder}/mine.npz: correct, Dataset('mine.npz'")
    assert classes.startswith(f"{folder}/mine.npz: its classes were taken from its samples, so one more sample could")
    assert f"Error: {folder} must be a folder of images" in run("check", folder).stderr
    np.savez(folder / "mine.npz", **own_arrays(classes=np.array(["a", "b", "c"])))
    assert len(run("check", folder / "mine.npz").stdout.splitlines()) == 1


def test_a_path_that_is_no_text(tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    try:
        Path(folder).mkdir()
    except OSError:
        pytest.skip("this file system knows text only")
    np.savez(f"{folder}/mine.npz", **own_arrays())
    command = [sys.executable, "-m", "runoff", "data", "check", f"{folder}/mine.npz"]
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, text=True, env=strict, check=True)
    assert f"from {tmp_path}/?/mine.npz, fingerprint " in done.stdout


def test_a_missing_data_directory(tmp_path):
    nowhere = tmp_path / "nowhere"
    result = run("list", "--data-dir", nowhere)
    assert result.exit_code == 0
    assert sum(line.endswith(" missing") for line in result.stdout.splitlines()) == 4
    assert result.stdout.splitlines()[-1] == f"looked in {nowhere}, which does not exist"
    assert [row["found"] for row in json.loads(run("list", "--json", "--data-dir", nowhere).stdout)][1:] == [None] * 4
    result = run("check", "--data-dir", nowhere)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {nowhere} does not exist: give the folder that holds the datasets\n"
    assert run("check", "digits", "--data-dir", nowhere).exit_code == 0
    for command in ("list", "check"):
        for odd in ("~nobody-at-all", "x" * 300):
            result = run(command, "--data-dir", odd)
            assert result.exit_code in (1, 2)
            assert result.stderr.startswith("Error: ")
            assert len(result.stderr.splitlines()) == 1


def test_the_check(mnist, tmp_path):
    put_mnist(tmp_path, mnist)
    fingerprint = datasets.load("mnist", tmp_path).fingerprint
    result = run("check", "--data-dir", tmp_path)  # whatever exists
    assert result.exit_code == 0
    assert f"fingerprint {PUBLIC['digits']}" in result.stdout
    assert f"from {tmp_path}, fingerprint {fingerprint}" in result.stdout
    result = run("check", "cifar10", "mnist", "--data-dir", tmp_path, "--json")
    assert result.exit_code == 1
    missing, found = json.loads(result.stdout)
    assert (missing["name"], missing["ok"]) == ("cifar10", False)
    assert missing["error"].startswith("cifar10 is missing in ")
    assert found == {
        "name": "mnist", "ok": True, "found": str(tmp_path), "train": 6, "test": 3, "shape": [5, 4], "classes": 10,
        "classes_fixed": True, "fingerprint": fingerprint,
    }  # fmt: skip
    damage_mnist("pixel", tmp_path)
    assert run("check", "cifar10", "mnist", "--data-dir", tmp_path).exit_code == 4
    assert run("check", "nothing").exit_code == 2


def test_help():
    assert {"list", "check", "fetch"} <= set(cli.main.get_command(None, "data").commands)
    for command in ("list", "check", "fetch"):
        assert f"Example: runoff data {command}" in run(command, "--help").stdout
