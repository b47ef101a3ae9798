"""The table of benchmarks: verdicts, failing benchmarks, and the comparison of two commits."""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import __main__ as bench
from benchmarks.table import Row, Table, compared, read


def by_name(*rows):
    return {row.name: row for row in rows}


def test_verdicts():
    assert Row("a", 3.0, "x", at_most=3).verdict == "ok"
    assert Row("a", 3.1, "x", at_most=3).verdict == "MISSED"
    assert Row("a", float("nan"), "x", at_most=3).verdict == "MISSED"
    assert Row("a", 2.9, "x", at_least=3).verdict == "MISSED"
    assert Row("a", 2.9, "x").verdict == ""
    both = [Row("a", measured, "x", at_least=0.6, at_most=1.6) for measured in (0.5, 1, 2)]
    assert [row.verdict for row in both] == ["MISSED", "ok", "MISSED"]
    assert both[0].target == "at least 0.6, at most 1.6"
    failed = Row("a", None, "", at_most=3, error="ValueError: no")
    assert (failed.verdict, failed.number) == ("FAILED", "ValueError: no")


def test_every_benchmark_of_either_commit_has_a_line():
    base = by_name(Row("gone", 1.0, "s"), Row("both", 2.0, "s", at_most=3), Row("slower", 2.0, "s", at_most=3))
    this = by_name(Row("new", 5.0, "x"), Row("slower", 4.0, "s", at_most=3), Row("both", 1.0, "s", at_most=3))
    lines = compared(base, this)
    assert [(line.name, line.ratio, line.note) for line in lines] == [
        ("new", None, "new"),
        ("slower", 2.0, "MISSED, was ok"),
        ("both", 0.5, "ok"),
        ("gone", None, "only in base"),
    ]
    assert (lines[0].base, lines[0].this, lines[-1].this) == ("", "5 x", "")
    assert compared({}, {}) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Row("a", None, "", error="KeyError: 'x'"), Row("a", 1.0, "s")),
        (Row("a", 1.0, "s"), Row("a", None, "", error="KeyError: 'x'")),
        (Row("a", 0.0, "s"), Row("a", 1.0, "s")),
        (Row("a", float("nan"), "s"), Row("a", 1.0, "s")),
        (Row("a", 1.0, "s"), Row("a", float("inf"), "s")),
        (Row("a", 1.0, "s"), Row("a", 1.0, "argmax")),  # another unit is another measurement
    ],
)
def test_what_has_no_ratio(before, after):
    (line,) = compared(by_name(before), by_name(after))
    assert line.ratio is None
    assert (line.base, line.this) == (before.number, after.number)


def test_a_table_is_read_as_it_was_written_and_fields_of_other_versions_are_skipped(tmp_path):
    table = Table()
    table.add("a", 2, "argmax", at_most=3, seconds=0.5)
    table.fail("b", RuntimeError("broken\nin two lines"))
    table.write(tmp_path / "build" / "bench.json")
    rows = read(tmp_path / "build" / "bench.json")
    assert rows == by_name(*table.rows)
    assert rows["b"].error == "RuntimeError: broken"
    data = json.loads((tmp_path / "build" / "bench.json").read_text())
    for row in data["rows"]:
        row["colour"] = "red"
    (tmp_path / "other.json").write_text(json.dumps(data))
    assert read(tmp_path / "other.json") == rows


def test_a_benchmark_that_fails_does_not_stop_the_others(monkeypatch, tmp_path, capsys):
    parts = {"missing": ("benchmarks.nowhere", "measure"), "start": ("tests.test_bench", "measured")}
    monkeypatch.setattr(bench, "PARTS", parts)
    table = bench.measure(parts, False, tmp_path / "bench.json")
    assert table.failed
    assert [(row.name, row.verdict) for row in table.rows] == [("missing", "FAILED"), ("quick", "ok")]
    assert "0 of 1 targets missed, 1 benchmarks FAILED" in capsys.readouterr().out
    assert read(tmp_path / "bench.json")["missing"].error.startswith("ModuleNotFoundError")


def measured(table, _full):
    table.add("quick", 1, "s", at_most=2)


def test_a_base_that_dies_is_shown_beside_this_one(monkeypatch, tmp_path, capsys):
    run = subprocess.run

    def fake(command, **settings):
        if "--only" not in command:
            return run(command, **settings)
        if Path(settings["env"]["PYTHONPATH"].split(":")[0]) != bench.ROOT / "src":
            return subprocess.CompletedProcess(command, 139)
        table = Table()
        measured(table, False)
        table.write(Path(command[command.index("--out") + 1]))
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, "run", fake)
    monkeypatch.setattr(bench, "_extract", lambda *_: None)
    lines = bench.compare("HEAD", ["start"], tmp_path / "compare.json")
    assert [(line.name, line.base, line.this, line.note) for line in lines] == [
        ("quick", "", "1 s", "new"),
        ("start", "exited with code 139", "", "only in base"),
    ]
    assert "exited with code 139" in capsys.readouterr().out
    assert json.loads((tmp_path / "compare.json").read_text())["rows"][0]["name"] == "quick"
    table = Table()
    table.add("quick", 2, "s")
    table.write(tmp_path / "earlier.json")
    (line,) = bench.compare(str(tmp_path / "earlier.json"), ["start"], tmp_path / "compare.json")
    assert line.ratio == 0.5


def test_an_unknown_commit_is_refused_in_a_sentence(tmp_path):
    with pytest.raises(SystemExit, match=r"error: no-such-commit must be a commit or a \.json file of an earlier run"):
        bench.compare("no-such-commit", ["start"], tmp_path / "compare.json")
