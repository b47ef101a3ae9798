"""The command line, as a user meets it."""

import csv
import io
import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import runoff
from helpers import run
from runoff import cli, errors, spreads
from runoff._io import progress
from runoff._io.progress import with_progress
from runoff._io.text import duration, size
from runoff.cli.errors import exit_code

RNG = np.random.default_rng(0)
SCORES = (RNG.normal(size=(40, 12, 5)) + 2 * RNG.normal(size=(40, 1, 5))).astype(np.float32)
LABELS = SCORES.mean(axis=1).argmax(axis=1)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("scores.npy", SCORES)
    np.save("y.npy", LABELS)
    np.save("spread.npy", spreads.cyclic(12, [0, 2, 5]))


def test_json_is_all_that_standard_output_holds():
    result = run("certify", "scores.npy", "--labels", "y.npy", "--budgets", "0,1, 3", "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    certificates = runoff.certify(SCORES)
    assert summary["budgets"] == [0, 1, 3]
    assert summary["certified_accuracy"] == runoff.certified_accuracy(certificates, LABELS, [0, 1, 3]).tolist()
    assert summary["certified"] == [np.mean(certificates.radius >= b) for b in (0, 1, 3)]
    assert (summary["inputs"], summary["members"], summary["classes"], summary["buckets"]) == (40, 12, 5, 12)
    assert (summary["election"], summary["bound"]) == ("runoff", "tight")
    assert result.stderr == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_is_a_bar_on_terminals_and_plain_lines_elsewhere(monkeypatch, capsys):
    blocks = [SCORES[:30], SCORES[30:]]

    def shown(**options):
        assert list(with_progress(blocks, "certifying", 40, unit="inputs", **options)) == blocks
        return capsys.readouterr().err

    assert shown() == ""
    assert shown(show=True) == "certifying: 40 of 40 inputs\n"
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    assert re.fullmatch(r"certifying: 30 of 40 inputs, \S+ s left\n", shown())
    assert shown(show=False) == ""
    with progress.with_downloads() as received:
        received("train.gz", 1_200_000, 9_900_000)
        received("test.gz", 512, None)
    assert capsys.readouterr().err == "train.gz: 1.2 MB of 9.9 MB\ntest.gz: 512 bytes\n"
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert list(with_progress(blocks, "certifying", 40, unit="inputs")) == blocks
    assert "40 of 40 inputs" in sys.stderr.getvalue()
    assert "\x1b[" in sys.stderr.getvalue() or "━" in sys.stderr.getvalue()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(4.21, "4.2 s"), (42, "42 s"), (200, "3 min 20 s"), (10_566, "2 h 56 min"), (400_000, "4 days 15 h"),
     (10_566_183, "122 days")],
)  # fmt: skip
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [(812, "812 bytes"), (3_400, "3.4 kB"), (999_600, "1.0 MB"), (56_000_000, "56 MB"), (1.2e9, "1.2 GB"),
     (4.5e12, "4,500 GB")],
)  # fmt: skip
def test_sizes_for_people(n, text):
    assert size(n) == text


@pytest.mark.parametrize("place", [0, 2])
def test_how_much_is_said(place, monkeypatch):
    def noisy(*_args, **_words):
        for level in ("debug", "info", "warning"):
            getattr(logging.getLogger("runoff"), level)("a %s", level)
        raise TypeError("nobody thought of this")

    monkeypatch.setattr(runoff, "certify", noisy)
    for option, said in (("--debug", 3), ("-v", 2), (None, 1), ("--quiet", 0)):
        words = ["certify", "scores.npy"]
        result = run(*([*words[:place], option, *words[place:]] if option else words))
        assert result.exit_code == 70
        lines = result.stderr.splitlines()
        assert lines[:said] == ["a debug", "a info", "Warning: a warning"][-said:] * bool(said)
        assert lines[-1].startswith("Error: TypeError: nobody thought of this; this is a bug in runoff")
        assert lines[-1].endswith("the output of --debug and of `runoff doctor`")
        assert ("Traceback (most recent call last):" in lines) == (option == "--debug")


def test_every_error_has_an_exit_code_of_its_own_choice():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.RunoffError)]
    codes = {kind.__name__: exit_code(kind("a sentence")) for kind in kinds}
    assert codes == {
        "RunoffError": 2, "InputError": 2, "MissingExtraError": 1, "MemberError": 1, "DeviceError": 2, "RunError": 2,
        "BusyError": 1, "ClusterError": 1, "StorageError": 4, "CheckpointError": 4, "DatasetError": 2,
        "MissingError": 1, "IntegrityError": 4, "DownloadError": 1, "NoSuchInputError": 2,
    }  # fmt: skip
    assert (exit_code(OSError()), exit_code(ValueError())) == (1, 70)


def test_members_that_the_spread_leaves_out_are_warned_of():
    np.save("short.npy", np.arange(10)[:, None])
    result = run("certify", "scores.npy", "--spread", "short.npy")
    assert result.exit_code == 0
    assert (
        "Warning: 2 of 12 members are in no row of the spread, so radii assume that no edit changes them: use the"
        in (result.stderr)
    )
    assert "Warning" not in run("certify", "scores.npy", "--spread", "spread.npy").stderr


def test_the_table_is_for_people():
    result = run("certify", "scores.npy", "--labels", "y.npy", "--spread", "spread.npy", "--election", "plurality")
    assert result.exit_code == 0
    certificates = runoff.certify(SCORES, spread=spreads.cyclic(12, [0, 2, 5]), election="plurality")
    clean = 100 * np.mean(certificates.prediction == LABELS)
    assert f"Accuracy without attack: {clean:.2f} %" in result.stdout
    assert "certified accuracy" in result.stdout
    assert "certified accuracy" not in run("certify", "scores.npy").stdout


def test_rows_are_written_whole():
    assert run("certify", "scores.npy", "--labels", "y.npy", "--bound", "paper", "--out", "c.csv").exit_code == 0
    with open("c.csv", newline="") as file:  # noqa: PTH123
        rows = list(csv.DictReader(file))
    certificates = runoff.certify(SCORES, bound="paper")
    assert [int(row["radius"]) for row in rows] == certificates.radius.tolist()
    assert [int(row["prediction"]) for row in rows] == certificates.prediction.tolist()
    assert [int(row["runner_up"]) for row in rows] == certificates.runner_up.tolist()
    assert [int(row["label"]) for row in rows] == LABELS.tolist()
    assert [int(row["input"]) for row in rows] == list(range(40))
    assert sorted(os.listdir()) == ["c.csv", "scores.npy", "spread.npy", "y.npy"]  # noqa: PTH208


def test_what_cannot_be_written_leaves_nothing(monkeypatch):
    result = run("certify", "scores.npy", "--out", "nowhere/c.csv")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "nowhere/c.csv cannot be written: No such file or directory" in result.stderr
    Path("c.csv").write_text("old")

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = run("certify", "scores.npy", "--out", "c.csv")
    assert result.exit_code == 1
    assert "c.csv cannot be written: No space left on device" in result.stderr
    assert Path("c.csv").read_text() == "old"
    assert sorted(os.listdir()) == ["c.csv", "scores.npy", "spread.npy", "y.npy"]  # noqa: PTH208


def truncated():
    Path("bad.npy").write_bytes(Path("scores.npy").read_bytes()[:-1])


def cut_in_the_header():
    Path("bad.npy").write_bytes(Path("scores.npy").read_bytes()[:20])


def pickled():
    np.save("bad.npy", np.array([{}], dtype=object), allow_pickle=True)


def hostile():
    Path("bad.npy").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")


def save(array):
    return lambda: np.save("bad.npy", array)


def with_nan():
    scores = SCORES.copy()
    scores[11, 2, 3] = np.nan
    np.save("bad.npy", scores)


@pytest.mark.parametrize(
    ("arguments", "message", "make"),
    [
        (["bad.npy"], "bad.npy is truncated: its header promises 9728 bytes, the file has 9727", truncated),
        (["bad.npy"], "bad.npy must be a .npy file as numpy.save writes it, got something else", cut_in_the_header),
        (["bad.npy"], "bad.npy must hold numbers, got pickled objects, which are never loaded", pickled),
        (["bad.npy"], "bad.npy must be a .npy file as numpy.save writes it, got something else", hostile),
        (["bad.npy"], "got nan for input 11, member 2, class 3", with_nan),
        (["bad.npy"], "bad.npy must hold at least one input, got shape (0, 3, 2)", save(np.empty((0, 3, 2)))),
        (["bad.npy"], "bad.npy must have at least 2 classes", save(np.ones((4, 3, 1)))),
        (["bad.npz"], "bad.npz must be a .npy file as numpy.save writes it, got an archive of arrays",
         lambda: np.savez("bad.npz", SCORES)),
        (["bad.npy"], "bad.npy must have 3 dimensions", save(np.ones((4, 3)))),
        (["bad.npy"], "bad.npy must be real numbers", save(np.ones((4, 3, 2), "U3"))),
        (["missing.npy"], "missing.npy cannot be read: No such file or directory", None),
        (["."], ". is not a run: it has no manifest.json", None),
        (["scores.npy", "--labels", "spread.npy"], "spread.npy must have one label for each of 40 inputs", None),
        (["scores.npy", "--labels", "bad.npy"], "y_true must be classes 0 to 4, got 5", save(LABELS * 0 + 5)),
        (["scores.npy", "--spread", "y.npy"], "spread must be an integer array (n_buckets, d), got shape (40,)", None),
        (["scores.npy", "--budgets", "5,-1"], "non-negative numbers of edits, as in 5,10,15; got '5,-1'", None),
        (["scores.npy", "--budgets", "five"], "non-negative numbers of edits, as in 5,10,15; got 'five'", None),
        (["scores.npy", "--election", "borda"], "'borda' is not one of 'maximin', 'plurality', 'runoff'", None),
        (["scores.npy", "--bound", "loose"], "'loose' is not one of 'tight', 'paper'", None),
        (["scores.npy", "--frobnicate"], "No such option", None),
        ([], "Missing argument 'SCORES'", None),
    ],
)  # fmt: skip
def test_wrong_usage_exits_2_with_one_sentence(arguments, message, make):
    if make:
        make()
    result = run("certify", *arguments, "--out", "c.csv")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert result.stderr.splitlines()[-1].startswith("Error: ")
    assert not Path("c.csv").exists()
    assert not Path("owned").exists()


def test_the_error_comes_last_in_a_process_of_its_own():
    with_nan()
    command = [sys.executable, "-m", "runoff", "certify", "bad.npy"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1].startswith("Error: scores must be finite, got nan for input 11, member 2")


def test_help_and_version():
    assert "Example: runoff certify scores.npy" in run("certify", "--help").stdout
    assert runoff.__version__ in run("--version").stdout
    for name in ("", *cli.main.list_commands(None)):
        assert "Example: runoff" in run(*name.split(), "--help").stdout
    assert set(cli.main.list_commands(None)) == {
        "certify",
        "data",
        "demo",
        "doctor",
        "pretrain",
        "report",
        "reproduce",
        "train",
        "update",
        "verify",
    }


def test_the_demo_prints_certified_accuracy_by_budget_and_ends_with_a_report(tmp_path):
    out = tmp_path / "report.html"
    command = [sys.executable, "-m", "runoff", "demo", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == f"The report is in {out}: open it in a browser."
    assert out.read_text().startswith("<!doctype html>")
    assert "plurality" in done.stdout
    assert "runoff" in done.stdout
    assert re.search(r"1, on all images +│ +undefended +│ +9\d\.\d % │", done.stdout)
    assert "Proven:" in done.stdout


def test_numbers_beyond_all_bounds_and_a_full_disk():
    assert run("certify", "scores.npy", "--budgets", "9" * 5000).exit_code == 2
    with open("/dev/full", "w") as full:  # noqa: PTH123
        result = subprocess.run(
            [sys.executable, "-m", "runoff", "certify", "scores.npy", "--json"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert result.returncode == 1
    assert "No space left on device" in result.stderr
    assert "Traceback" not in result.stderr


def test_rows_as_parquet():
    from pyarrow import parquet

    assert run("certify", "scores.npy", "--labels", "y.npy", "--out", "c.parquet").exit_code == 0
    table = parquet.read_table("c.parquet")
    certificates = runoff.certify(SCORES)
    assert table.column_names == ["input", "prediction", "radius", "runner_up", "label"]
    assert table["radius"].to_pylist() == certificates.radius.tolist()
    assert table["label"].to_pylist() == LABELS.tolist()
    about = {b"runoff.election": b"runoff", b"runoff.bound": b"tight", b"runoff.unit": b"samples"}
    assert table.schema.metadata == about


def test_parquet_without_pyarrow_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = run("certify", "scores.npy", "--out", "c.parquet")
    assert result.exit_code == 1
    assert "pip install 'runoff[parquet]'" in result.stderr
    assert not Path("c.parquet").exists()
