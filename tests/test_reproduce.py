"""Rows of the paper: their settings, and the runs that they share."""

import csv
import dataclasses
import json
import shutil
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

import runoff
from helpers import run
from runoff import datasets
from runoff.datasets.catalogue import CATALOGUE
from runoff.paper import plans, reproduction, tables
from runoff.runs import Run


def test_every_row_of_the_tables():
    assert len(tables.rows()) == 51  # 47 settings, and table 6's four
    assert sum(len(row.percent) for row in tables.rows()) == 255
    (row,) = tables.rows("T3", "cifar10", 50, "DPA+ROE")
    assert row.percent == {5: 59.8, 10: 49.09, 15: 36.04, 18: 27.52, 20: 21.3}
    assert (row.election, row.spread, row.n_seeds, row.run) == ("runoff", 1, 1, "cifar10-k50-d1")
    (row,) = (row for row in tables.rows("T1", "gtsrb", 100, "FA+ROE") if row.d == 32)
    assert (row.election, row.spread, row.n_seeds, row.n_networks) == ("runoff", 32, 1, 3200)
    (row,) = tables.rows("T2", "mnist", 1200, "DPA*")
    assert (row.election, row.spread, row.n_seeds, row.run) == ("plurality", 1, 16, "mnist-k1200-d1")
    assert tables.rows("T6", method="FA")[0].std[5] == 0.25


def test_recipes_of_the_paper_flip_no_digits_and_no_signs():
    for given, flipped in ((None, "paper"), ("paper", "paper"), ("paper-literal", "paper-literal")):
        assert tables.recipe_for("cifar10", given) == flipped
        for dataset in ("mnist", "gtsrb"):
            assert tables.recipe_for(dataset, given) == f"{flipped}-no-flip"
    assert tables.recipe_for("gtsrb", "paper-literal-no-flip") == "paper-literal-no-flip"
    assert tables.recipe_for("gtsrb", "quick") == "quick"


@pytest.fixture
def tiny(monkeypatch):
    """Some of the digits under the name of CIFAR-10, and rows of a few networks."""
    whole = datasets.load("digits")
    train, test = {"x_train": whole.x_train[:480], "y_train": whole.y_train[:480]}, (whole.x_test, whole.y_test)
    digits = dataclasses.replace(whole, **train, x_test=test[0][:120], y_test=test[1][:120])
    monkeypatch.setattr(datasets, "load", lambda *_, **__: digits)
    rows = [tables.Row("T3", "cifar10", 4, method, 1, {0: 50.0, 1: 40.0}, {}) for method in ("DPA", "DPA+ROE")] + [
        tables.Row("T2", "cifar10", 4, "DPA*", 2, {1: 41.0}, {}),
        tables.Row("T1", "cifar10", 4, "FA", 2, {1: 42.0}, {}),
    ]
    monkeypatch.setattr(tables, "rows", lambda table=None, *_: [r for r in rows if table in (None, r.table)])
    return digits


def test_rows_share_runs_and_are_written_beside_the_papers(tiny, tmp_path, monkeypatch):
    options = ("--network", "small", "--recipe", "quick", "--device", "cpu", "--runs", tmp_path)
    result = run("reproduce", "--table", "T3", *options, "--json")
    assert result.exit_code == 0, result.output
    lines = json.loads(result.stdout)
    assert [(line["method"], line["budget"]) for line in lines] == [
        ("DPA", 0), ("DPA", 1), ("DPA+ROE", 0), ("DPA+ROE", 1)
    ]  # fmt: skip
    opened = Run.open(tmp_path / "cifar10-k4-d1")
    certificates = runoff.certify(np.asarray(opened.ballots()), election="plurality", bound="paper")
    right = 100 * runoff.certified_accuracy(certificates, tiny.y_test, [1])
    assert lines[1]["ours"] == round(float(right[0]), 2)
    assert lines[1]["difference"] == round(lines[1]["ours"] - 40, 2)
    stamps = {f: f.stat().st_mtime_ns for f in opened.path.glob("members/*")}
    assert len(stamps) == 4
    timings = (opened.path / "timings.json").read_text()
    with monkeypatch.context() as slow:
        slow.setattr("runoff.runs.training.time", SimpleNamespace(perf_counter=count().__next__))
        assert run("reproduce", "--table", "T3", *options).exit_code == 0
    assert (opened.path / "timings.json").read_text() == timings  # looking for existing networks is not training
    result = run("reproduce", *options)
    assert result.exit_code == 0, result.output
    assert "difference" in result.stdout
    assert all(f.stat().st_mtime_ns == stamp for f, stamp in stamps.items())
    assert len(list(opened.path.glob("members/*"))) == 8
    assert len(list((tmp_path / "cifar10-k4-d2").glob("members/*"))) == 8
    with (tmp_path / "reproduction.csv").open(newline="") as file:
        written = list(csv.DictReader(file))
    assert len(written) == 6
    assert {line["table"] for line in written} == {"T1", "T2", "T3"}


def test_trials_have_other_seeds_and_a_deviation(tiny, tmp_path):  # noqa: ARG001
    options = ("--network", "small", "--recipe", "quick", "--device", "cpu", "--runs", tmp_path, "--trials", 2)
    lines = json.loads(run("reproduce", "--table", "T3", *options, "--json").stdout)
    assert all(line["trials"] == 2 and line["std"] is not None for line in lines)
    assert [line["networks"] for line in lines] == [8] * 4  # both methods and DPA* share them
    alone = json.loads(run("reproduce", "--table", "T3", *options[:-2], "--json").stdout)
    first = alone[1]["ours"]  # the networks of the first seed are those of a run without trials
    second = 2 * lines[1]["ours"] - first
    assert lines[1]["std"] == pytest.approx(abs(first - second) / 2**0.5, abs=0.02)
    assert lines[1]["std"] > 0
    lines = json.loads(run("reproduce", "--table", "T1", *options, "--json").stdout)
    one, other = (Run.open(tmp_path / name) for name in ("cifar10-k4-d2", "cifar10-k4-d2-trial1"))
    assert (one.spread() != other.spread()).any()
    assert (np.asarray(one.ballots()) != np.asarray(other.ballots())).any()
    assert lines[0]["networks"] == 16


def test_another_d_than_the_papers(tiny, tmp_path):  # noqa: ARG001
    options = ("--network", "small", "--recipe", "quick", "--device", "cpu", "--runs", tmp_path, "--d", 3)
    lines = json.loads(run("reproduce", *options, "--json").stdout)
    assert [(x["method"], x["d"], x["paper_d"]) for x in lines if x["budget"] == 1] == [
        ("DPA", 1, 1), ("DPA+ROE", 1, 1), ("DPA*", 3, 2), ("FA", 3, 2)
    ]  # fmt: skip
    assert Run.open(tmp_path / "cifar10-k4-d3").spread().shape == (12, 3)
    assert Run.open(tmp_path / "cifar10-k4-d1").seeds() == [1, 3]
    assert "--method 'FA' --d 3" in lines[-1]["command"]


def test_all_rows_can_be_listed_and_unknown_ones_are_refused(monkeypatch):
    monkeypatch.setattr("runoff.paper.plans.seconds_for", lambda *_: 7.0)
    listed = run("reproduce", "--dry-run")
    assert len(listed.stdout.splitlines()) == 51
    assert "T6 cifar10 k=50 FA d=16: 3,200 networks for 4 trials, 2,400 to train, roughly 7.0 s" in listed.stdout
    assert "T6 cifar10 k=50 DPA+ROE d=1: 800 networks for 16 trials, none to train" in listed.stdout
    assert run("reproduce", "--dataset", "mnist", "--k", 50).exit_code == 2


def test_times_are_estimated_from_one_small_measurement_per_recipe(monkeypatch):
    measured = []

    def try_out(trainer, job, inputs):
        measured.append((trainer.shape, len(job.labels), len(inputs)))
        return 0.1, 0.2

    monkeypatch.setattr("runoff.torch.Trainer.try_out", try_out)
    for function in (plans._pace, plans._pixel_seconds):
        function.cache_clear()
    try:
        rows = json.loads(run("reproduce", "--dry-run", "--device", "cpu", "--runs", "none", "--json").stdout)
    finally:
        for function in (plans._pace, plans._pixel_seconds):
            function.cache_clear()
    assert len(rows) == 51
    assert len(measured) <= 2  # it was one per dataset and k, with whole batches
    assert all(size == ((16, 16, 3), 16, 64) for size in measured)
    seconds = {(row["dataset"], row["k"]): row["seconds"] for row in rows if row["missing"] and row["method"] == "DPA"}
    assert {dataset for dataset, _ in seconds} == {"mnist", "cifar10", "gtsrb"}
    assert min(seconds.values()) > 3600


def test_the_nearest_row_is_the_one_to_compare_with():
    rows = tables.rows("T1", "cifar10", 50)
    assert {row.d for row in rows} == {16, 32}
    for d, expected in ((2, 16), (16, 16), (20, 16), (31, 32), (32, 32), (64, 32)):
        found = reproduction.nearest(rows, d)
        assert len(found) == 3
        assert {(row.d, row.printed_d or row.d) for row in found} == {(d, expected)}
    assert all(row.printed_d is None for row in reproduction.nearest(rows, 32))
    listed = json.loads(
        run("reproduce", "--table", "T1", "--dataset", "cifar10", "--k", 50, "--dry-run", "--json").stdout
    )
    assert len(listed) == 6


def test_rows_of_other_networks_do_not_replace_each_other(tiny, tmp_path):  # noqa: ARG001
    options = ("--table", "T3", "--network", "small", "--device", "cpu", "--out", tmp_path / "rows.csv")
    result = run("reproduce", *options, "--recipe", "quick", "--runs", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    with (tmp_path / "rows.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert {line["recipe"] for line in lines} == {"quick"}
    assert all(line["command"].endswith("--network small --recipe quick") for line in lines)
    assert all(float(line["seconds"]) > 0 for line in lines)
    key = reproduction._key(lines[0])
    assert key != reproduction._key({**lines[0], "recipe": "paper"})
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    result = run("reproduce", *options[:-1], tmp_path / "other.csv", "--runs", tmp_path / "new")
    assert result.exit_code == 2
    assert "must be a table written by `runoff reproduce`" in result.stderr
    assert not (tmp_path / "new").exists()


def test_edited_runs_and_unknown_times(tiny, tmp_path):
    options = ("--table", "T3", "--network", "small", "--recipe", "quick", "--device", "cpu", "--runs", tmp_path)
    assert run("reproduce", *options).exit_code == 0
    path = tmp_path / "cifar10-k4-d1"
    timings = json.loads((path / "timings.json").read_text())
    (path / "timings.json").write_text(json.dumps({**timings, "timed": 3}))  # as after a kill
    assert json.loads(run("reproduce", *options, "--json").stdout)[0]["seconds"] is None
    np.savez(tmp_path / "new.npz", x=tiny.x_test[:1], y=tiny.y_test[:1])
    assert run("update", path, "--add", tmp_path / "new.npz", "--device", "cpu").exit_code == 0
    result = run("reproduce", *options)
    assert result.exit_code == 2
    assert "was edited, so it is not a run of the paper" in result.stderr


def small_images(monkeypatch):
    entry = dataclasses.replace(CATALOGUE["cifar10"], n_train=480, n_test=120, shape=(8, 8, 1))
    monkeypatch.setitem(CATALOGUE, "cifar10", entry)


def test_what_is_there_is_not_to_be_trained(tiny, tmp_path, monkeypatch):  # noqa: ARG001
    small_images(monkeypatch)
    options = ("--network", "small", "--recipe", "quick", "--device", "cpu", "--runs", tmp_path)

    def plans(*more):
        told = json.loads(run("reproduce", *options, *more, "--dry-run", "--json").stdout)
        return [(plan["method"], plan["n_networks"], plan["missing"], plan["seconds"] > 0) for plan in told]

    none = [("DPA", 4, 4, True), ("DPA+ROE", 4, 0, False), ("DPA*", 8, 4, True), ("FA", 8, 8, True)]
    assert plans() == none
    assert list(tmp_path.iterdir()) == []
    assert run("reproduce", "--table", "T3", *options).exit_code == 0
    assert plans() == [("DPA", 4, 0, False), ("DPA+ROE", 4, 0, False), *none[2:]]
    assert plans("--trials", 3)[0] == ("DPA", 12, 8, True)
    assert plans("--trials", 3)[-1] == ("FA", 24, 24, True)


def test_trials_of_the_paper_and_rows_of_other_trials(tiny, tmp_path, monkeypatch):  # noqa: ARG001
    options = ("--network", "small", "--recipe", "quick", "--device", "cpu", "--runs", tmp_path)
    assert [row.trials for row in (tables.Row("T6", "cifar10", 50, m, 1, {}, {}) for m in ("DPA+ROE", "FA"))] == [16, 4]
    monkeypatch.setattr(tables.Row, "trials", property(lambda row: 2 if row.method == "DPA" else 1))
    lines = json.loads(run("reproduce", "--table", "T3", *options, "--json").stdout)
    assert [(line["method"], line["trials"]) for line in lines] == [
        ("DPA", 2), ("DPA", 2), ("DPA+ROE", 1), ("DPA+ROE", 1)
    ]  # fmt: skip
    assert [("--trials" in line["command"]) for line in lines] == [False] * 4
    assert run("reproduce", "--table", "T3", *options, "--trials", 1).exit_code == 0
    with (tmp_path / "reproduction.csv").open(newline="") as file:
        kept = [(line["method"], line["trials"], line["std"] != "") for line in csv.DictReader(file)]
    assert kept.count(("DPA", "2", True)) == kept.count(("DPA", "1", False)) == kept.count(("DPA+ROE", "1", False)) == 2


def test_runs_of_another_machine_are_read_and_not_trained_anew(tiny, tmp_path, monkeypatch):  # noqa: ARG001
    options = ("--network", "small", "--recipe", "quick", "--device", "cpu", "--runs", tmp_path)
    there = json.loads(run("reproduce", "--table", "T3", *options, "--json").stdout)
    members = {f: f.read_bytes() for f in tmp_path.glob("*/members/*")}
    monkeypatch.setattr("runoff.torch.devices.describe", lambda _: "a laptop")
    here = run("reproduce", "--table", "T3", *options, "--json")
    assert json.loads(here.stdout) == there
    for more in (("--table", "T2"), ("--table", "T3", "--trials", 2)):  # more networks than exist
        result = run("reproduce", *more, *options)
        assert result.exit_code == 2
        assert "not a laptop, so all of its networks would have to be retrained" in result.stderr
    assert {f: f.read_bytes() for f in tmp_path.glob("*/members/*")} == members
    (tmp_path / "cifar10-k4-d1" / "ballots-1.npy").write_bytes(b"")
    assert run("reproduce", "--table", "T3", *options).exit_code == 4


def test_trials_and_runs_without_members_of_another_machine(tiny, tmp_path, monkeypatch):  # noqa: ARG001
    small_images(monkeypatch)
    options = ("--network", "small", "--recipe", "quick", "--device", "cpu", "--runs", tmp_path, "--table", "T3")
    there = json.loads(run("reproduce", *options, "--trials", 2, "--json").stdout)
    assert run("reproduce", *options).exit_code == 0
    monkeypatch.setattr("runoff.torch.devices.describe", lambda _: "a laptop")
    assert json.loads(run("reproduce", *options, "--trials", 2, "--json").stdout) == there
    shutil.rmtree(tmp_path / "cifar10-k4-d1" / "members")
    assert run("reproduce", *options).exit_code == 0  # ballots are all it needs
    assert [plan["missing"] for plan in json.loads(run("reproduce", *options, "--dry-run", "--json").stdout)] == [0, 0]
    result = run("reproduce", *options, "--trials", 2)
    assert result.exit_code == 2
    assert "are missing or changed" in result.stderr
    assert run("reproduce", *options[:2], "--recipe", "nonsense", "--dry-run").exit_code == 2


def test_other_networks_want_other_runs(tiny, tmp_path):  # noqa: ARG001
    options = ("--recipe", "quick", "--device", "cpu", "--runs", tmp_path, "--table", "T3")
    assert run("reproduce", *options, "--network", "small", "--weights").exit_code == 0
    assert run("reproduce", *options, "--network", "small").exit_code == 0  # weights that are kept do no harm
    result = run("reproduce", *options, "--network", "nin")
    assert result.exit_code == 2
    assert 'is a run with network = "small", not "nin": give another folder with --runs' in result.stderr
