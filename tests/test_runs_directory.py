"""Runs as directories: their files, rejected directories, and leftovers of killed commands."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from helpers import SMALL, files, run
from runoff import datasets
from runoff.runs import Run, training


@pytest.mark.parametrize(
    "other", [("--d", 1), ("--d", 2, "--recipe", "paper-no-flip"), ("--d", 2, "--seed", 1), ("--d", 2, "--k", 6)]
)
def test_a_run_of_other_settings_is_refused(trained_run, other):
    before = files(trained_run)
    result = run("train", "digits", *SMALL, *other, "--out", trained_run)
    assert result.exit_code == 2
    assert "give another directory" in result.stderr
    assert files(trained_run) == before


def test_a_run_keeps_its_classes(tmp_path):
    data = datasets.load("digits")
    arrays = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    names = [*"abcdefghij"]
    np.savez(tmp_path / "own.npz", **arrays, classes=np.array(names))
    command = ("train", tmp_path / "own.npz", *SMALL, "--out", tmp_path / "run")
    assert run(*command).exit_code == 0
    for others in (names[::-1], [*names, "k"]):
        np.savez(tmp_path / "own.npz", **arrays, classes=np.array(others))
        result = run(*command)
        assert result.exit_code == 2
        assert "is a run with classes =" in result.stderr


def test_a_run_keeps_weights_or_not(trained_run):
    result = run("train", "digits", *SMALL, "--d", 2, "--no-weights", "--out", trained_run)
    assert result.exit_code == 2
    assert "is a run with weights = true, not false" in result.stderr


def test_a_run_of_another_recipe_names_the_difference(trained_run):
    result = run("train", "digits", *SMALL, "--d", 2, "--epochs", 9, "--out", trained_run)
    assert result.exit_code == 2
    assert re.search(r'is a run with recipe = {"epochs": \d+}, not {"epochs": 9}: give another', result.stderr)


def test_the_election_of_a_run(tmp_path, trained_run):
    out = tmp_path / "run"
    shutil.copytree(trained_run, out)
    assert json.loads(run("certify", out, "--json").stdout)["election"] == "runoff"
    assert run("train", "digits", *SMALL, "--d", 2, "--election", "plurality", "--out", out).exit_code == 0
    assert json.loads(run("certify", out, "--json").stdout)["election"] == "plurality"
    assert json.loads(run("certify", out, "--election", "runoff", "--json").stdout)["election"] == "runoff"
    assert run("train", "digits", *SMALL, "--d", 2, "--out", out).exit_code == 0
    assert Run.open(out).election == "plurality"


def test_another_folder_is_left_unchanged(tmp_path):
    (tmp_path / "key").write_text("my own")
    result = run("train", "digits", *SMALL, "--out", tmp_path)
    assert result.exit_code == 2
    assert "holds files that are not a run" in result.stderr
    assert files(tmp_path) == {Path("key"): b"my own"}


@pytest.mark.parametrize("name", ["ballots-1.npy", "labels.npy", "key", "members/member-000003-seed-0000.safetensors"])
def test_an_altered_file_is_detected(trained_run, name, tmp_path):
    copy = tmp_path / "copy"
    for file, data in files(trained_run).items():
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        (copy / file).write_bytes(data)
    data = bytearray((copy / name).read_bytes())
    data[-1] ^= 1
    (copy / name).write_bytes(data)
    result = run("certify", copy)
    assert result.exit_code == 4
    assert "altered" in result.stderr


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ((), "n_seeds", None),
        ((), "n_seeds", "x"),
        ((), "edits", ["edits/000000-add.npz"]),
        ((), "edits", [3]),
        ((), "election", "lottery"),
        (("settings",), "random_state", "x"),
        (("dataset",), "given", None),
        (("dataset",), "classes", [1, 2]),
        (("dataset",), "weights", 1),
        (("files",), "ballots-x.npy", "0"),
        (("files",), "labels.npy", 5),
    ],
)
def test_damaged_manifests(trained_run, tmp_path, place, name, value):
    out = tmp_path / "run"
    shutil.copytree(trained_run, out)
    manifest = json.loads((out / "manifest.json").read_text())
    inner = manifest
    for key in place:
        inner = inner[key]
    inner[name] = value
    (out / "manifest.json").write_text(json.dumps(manifest))
    np.savez(tmp_path / "new.npz", x=np.zeros((1, 8, 8), np.uint8), y=np.zeros(1, np.int64))
    for command in (
        ("certify", out),
        ("update", out, "--add", tmp_path / "new.npz"),
        ("train", "digits", *SMALL, "--d", 2, "--out", out),
        ("report", out, "--out", tmp_path / "r.html"),
    ):
        result = run(*command)
        assert result.exit_code == 4, (command, result.output)
        assert "was altered" in result.stderr


def test_ballots_are_removed_with_their_networks(two_seed_run):
    assert run("train", "digits", *SMALL, "--out", two_seed_run).exit_code == 0  # ballots of one network, too
    for seeds in (1, 2):
        assert run("certify", two_seed_run, "--use-seeds", seeds).exit_code == 0
    opened = Run.open(two_seed_run)
    opened.forget(2)
    assert len(opened.manifest["files"]) == len(Run.open(two_seed_run).manifest["files"])
    opened.forget(1)
    assert opened.seeds() == [1]
    assert [name for name in opened.manifest["files"] if name.startswith("cert")] == ["certificates/runoff-tight-1.csv"]
    shutil.rmtree(two_seed_run / "members")
    vouched = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training, "publish", lambda run, *_: vouched.append(dict(run.manifest["files"])))
        run("train", "digits", *SMALL, "--out", two_seed_run)
    assert not [name for name in vouched[0] if name.startswith(("ballots-", "certificates/"))]


def test_files_that_a_kill_or_a_user_removed(two_seed_run, tmp_path):
    half = tmp_path / "half"
    half.mkdir()
    shutil.copy(two_seed_run / "key", half / "key")  # killed before the manifest was there
    (half / ".manifest.json.abc").touch()
    assert run("train", "digits", *SMALL, "--out", half).exit_code == 0
    (two_seed_run / "timings.json").write_text("{}")
    assert run("certify", two_seed_run).exit_code == 4
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", two_seed_run).exit_code == 0
    assert run("certify", two_seed_run).exit_code == 0
    file = two_seed_run / "certificates" / "runoff-tight-2.csv"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    result = run("certify", two_seed_run)
    assert result.exit_code == 4
    assert "remove it and certify again" in result.stderr
    file.unlink()
    assert run("certify", two_seed_run).exit_code == 0
    assert file.read_bytes() == content
    manifest = json.loads((two_seed_run / "manifest.json").read_text())
    del manifest["edits"]
    (two_seed_run / "manifest.json").write_text(json.dumps(manifest))
    result = run("train", "digits", *SMALL, "--out", two_seed_run)
    assert result.exit_code == 4
    assert "has no edits" in result.stderr
