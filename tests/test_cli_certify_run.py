"""`runoff certify` on runs: without members, in read-only folders and on full disks."""

import csv
import errno
import fcntl
import json
import os
import shutil
from pathlib import Path

import numpy as np
from pyarrow import parquet

import runoff
from helpers import SMALL, files, run
from runoff import datasets
from runoff._io import locks
from runoff.runs import Run


def test_certify_a_run(trained_run):
    result = run("certify", trained_run, "--budgets", "0,1", "--bound", "paper", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    opened = Run.open(trained_run)
    certificates = runoff.certify(np.asarray(opened.ballots()), spread=opened.spread(), bound="paper")
    labels = datasets.load("digits").y_test
    assert summary["certified_accuracy"] == runoff.certified_accuracy(certificates, labels, [0, 1]).tolist()
    with (trained_run / "certificates" / "runoff-paper-1.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["radius"]) for row in rows] == certificates.radius.tolist()
    assert "certificates/runoff-paper-1.csv" in opened.manifest["files"]
    assert run("certify", trained_run, "--format", "parquet", "--require", "0:100").exit_code == 3  # still written
    table = parquet.read_table(trained_run / "certificates" / "runoff-tight-1.parquet")
    assert table["label"].to_pylist() == labels.tolist()
    assert "certificates/runoff-tight-1.parquet" in Run.open(trained_run).manifest["files"]
    assert run("certify", trained_run, "--labels", trained_run / "labels.npy").exit_code == 2
    assert run("certify", trained_run, "--use-seeds", 4).exit_code == 2


def test_a_run_without_its_members_can_be_certified(trained_run, tmp_path):
    slim = tmp_path / "slim"
    shutil.copytree(trained_run, slim, ignore=shutil.ignore_patterns("members"))
    whole, given = (run("certify", path, "--json") for path in (trained_run, slim))
    assert given.exit_code == 0, given.output
    assert json.loads(given.stdout)["certified_accuracy"] == json.loads(whole.stdout)["certified_accuracy"]
    shutil.copytree(trained_run, tmp_path / "holed")
    next((tmp_path / "holed" / "members").iterdir()).unlink()
    assert run("certify", tmp_path / "holed").exit_code == 4


def test_a_run_that_can_only_be_read(trained_run, monkeypatch):
    plain = os.open

    def refuse(path, flags, *more, **options):
        if Path(path).name == locks.LOCK and flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return plain(path, flags, *more, **options)

    expected = json.loads(run("certify", trained_run, "--json").stdout)
    (trained_run / "certificates" / "runoff-tight-1.csv").unlink(missing_ok=True)
    before = files(trained_run)
    monkeypatch.setattr(os, "open", refuse)
    result = run("certify", trained_run, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["certified_accuracy"] == expected["certified_accuracy"]
    assert "is read-only, so the rows of these certificates are not written there" in result.stderr
    assert files(trained_run) == before
    assert run("train", "digits", *SMALL, "--d", 2, "--out", trained_run).exit_code == 1
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    with (trained_run / locks.LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # a user with write access
        assert "is in use by another command" in run("certify", trained_run).stderr


def test_a_run_that_cannot_be_written_to(trained_run, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    before = files(trained_run)
    monkeypatch.setattr(os, "fsync", full)
    result = run("certify", trained_run, "--election", "plurality")
    assert result.exit_code == 1
    assert "cannot be written: No space left on device" in result.stderr
    assert files(trained_run) == before
    result = run("train", "digits", *SMALL, "--d", 2, "--out", trained_run)
    assert result.exit_code == 1
    assert f"Error: {trained_run / 'ballots-1.npy'}: No space left on device" in result.stderr
    assert files(trained_run) == before


def test_a_folder_that_only_others_can_write_to(trained_run, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("runoff.saving.rows.write", refuse)
    result = run("certify", trained_run, "--bound", "paper", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["inputs"] == 360
    assert "are not written there" in result.stderr
