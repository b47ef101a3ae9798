"""`runoff train` and `runoff update` on the command line: dry runs, interruptions, and invalid input."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from helpers import COMMAND, SMALL, run
from runoff._io import locks


def test_a_dry_run_writes_nothing(tmp_path):
    result = run("train", "digits", *SMALL, "--n-seeds", 3, "--out", tmp_path / "x", "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    message = json.loads(result.stdout)
    assert (message["networks"], message["missing"]) == (15, 15)
    assert message["seconds"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("more", [0, 30], ids=["once", "again and again"])
def test_an_interruption_ends_with_one_code(tmp_path, more):
    out = tmp_path / "run"
    arguments = ["train", "digits", *map(str, SMALL), "--n-seeds", "40", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while process.poll() is None and len(list(out.glob("members/*.safetensors"))) < 1:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    for _ in range(more):
        time.sleep(0.01)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
    _, message = process.communicate(timeout=300)
    assert process.returncode == 130
    assert "finished work is kept." in message
    assert "Traceback" not in message


def test_paths_are_not_markup(tmp_path):
    out = tmp_path / "q[red]run"
    result = run("train", "digits", *SMALL, "--out", out)
    assert result.exit_code == 0
    assert f"Next: runoff certify '{out}'" in result.stdout


def test_invalid_input_is_refused(tmp_path):
    for arguments, code, message in (
        (("train", "digit", *SMALL, "--out", tmp_path / "x"), 2, "neither a dataset"),
        (("train", "cifar10", *SMALL, "--data-dir", tmp_path, "--out", tmp_path / "x"), 1, "cifar"),
        (("train", "digits", *SMALL, "--recipe", "papr", "--out", tmp_path / "x"), 2, "for '--recipe'"),
        (
            ("train", "digits", *SMALL, "--network", "resnet", "--out", tmp_path / "x"),
            2,
            "--network must be one of 'nin', 'small' or FILE.py:FUNCTION",
        ),
        (("train", "digits", *SMALL, "--out", Path(__file__).parent), 2, "holds files that are not a run"),
        (("train", "digits", *SMALL, "--out", __file__), 2, "is a file: give another directory"),
        (
            ("train", "digits", *SMALL, "--classes", 3, "--out", tmp_path / "x"),
            2,
            "classes applies to your own data only, not to 'digits'",
        ),
        (("certify", tmp_path), 2, "is not a run: it has no manifest.json"),
        (("update", tmp_path / "nothing", "--add", "x.npz"), 2, "nothing is not a run: it has no manifest.json"),
    ):
        result = run(*arguments)
        assert result.exit_code == code, result.output
        assert message in result.stderr
    assert not (tmp_path / "x").exists()


def test_images_that_are_too_small_and_edits_of_nothing(tmp_path, trained_run):
    x = np.zeros((8, 3, 3, 1), np.uint8)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(8) % 2, x_test=x, y_test=np.arange(8) % 2)
    for network in ("small", "nin"):
        options = ("--classes", 2, "--k", 1, "--network", network, "--recipe", "quick", "--out", tmp_path / "run")
        result = run("train", tmp_path / "own.npz", *options)
        assert result.exit_code == 2
        assert "is for images from 4 x 4 up, got 3 x 3" in result.stderr
    assert not (tmp_path / "run").exists()
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 8, 8), np.uint8), y=np.zeros(0, np.int64))
    result = run("update", trained_run, "--add", tmp_path / "none.npz")
    assert result.exit_code == 2
    assert "contains no samples" in result.stderr


def test_without_pytorch_one_sentence_says_what_to_install(tmp_path, trained_run):
    (tmp_path / "none.npz").write_bytes(b"")
    for arguments in (
        ("train", "digits", *SMALL, "--out", tmp_path / "x"),
        ("train", "digits", *SMALL, "--out", tmp_path / "x", "--dry-run"),
        ("update", trained_run, "--add", tmp_path / "none.npz"),
        ("pretrain", "--out", tmp_path / "x"),
    ):
        code = f"import sys; sys.modules['torch'] = None; {COMMAND}"
        result = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True)
        assert result.returncode == 1, result.stderr
        assert result.stderr.startswith("Error: runoff.torch needs torch. Install it with: pip install")
        assert not (tmp_path / "x").exists()


def test_one_command_at_a_time(tmp_path, two_seed_run, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    with locks.locked(two_seed_run):
        for command in (
            ("train", "digits", *SMALL, "--out", two_seed_run),
            ("update", two_seed_run, "--add", tmp_path / "new.npz"),
            ("certify", two_seed_run),
        ):
            result = run(*command)
            assert result.exit_code == 1
            assert "is in use by another command" in result.stderr
    assert run("certify", two_seed_run).exit_code == 0
