"""Every source replaced whole and every label changed, on the command line: what is certified must not move."""

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest

from helpers import run

POINTS = ("red", "green", "blue")  # one feature; a source says a class for each
SENDERS = ("a", "b", "c", "d", "e", "f", "g")
HONEST = ("x", "y", "x")
LIES = (None, ("y", "x", "y"))  # the source is gone, or says something else
SETTINGS = ("--k", 5, "--classes", "x,y", "--label-column", "kind")


def train(rows, out, *options):
    """Train on rows (feature, sender, class) and return the certificates of all points: predictions and radii."""
    with_senders = "--group-column" in options
    header = "colour,sender,kind" if with_senders else "colour,number,kind"
    Path("train.csv").write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]))
    trained = run("train", "train.csv", *SETTINGS, *options, "--out", out)
    assert trained.exit_code == 0, trained.output
    Path("new.csv").write_text("\n".join([header, *(f"{point},0,x" for point in POINTS)]))
    group = ("--group-column", "sender") if with_senders else ()
    shown = run("certify", out, "--inputs", "new.csv", "--label-column", "kind", *group, "--to", "x", "--out", "r.csv")
    assert shown.exit_code == 0, shown.output
    with Path("r.csv").open(newline="") as file:
        table = list(csv.DictReader(file))
    assert {row["unit"] for row in table} == {"sources" if with_senders else "labels"}
    columns = [[row[name] for row in table] for name in ("prediction", "radius", "radius_to")]
    return columns[0], np.array(columns[1], int), np.array(columns[2], int)


def sources(contents, out):
    rows = [(p, s, c) for s, kinds in contents.items() if kinds for p, c in zip(POINTS, kinds, strict=True)]
    return train(rows, out, "--group-column", "sender")


@pytest.mark.filterwarnings("ignore:.*learn")
def test_no_source_replaced_whole_changes_what_is_certified(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    honest = dict.fromkeys(SENDERS, HONEST)
    prediction, radius, to_x = sources(honest, "victim")
    assert radius.max() >= 1
    tried = 0
    for size in (1, 2):
        if not (radius >= size).any():
            break
        some = itertools.combinations((*SENDERS, "mallory"), size)
        for which in some if size == 1 else itertools.islice(some, 0, None, 9):
            for lie in LIES:
                now, _, _ = sources(honest | dict.fromkeys(which, lie), f"m{tried}")
                assert all(a == b for a, b, r in zip(now, prediction, radius, strict=True) if r >= size)
                assert not any(a == "x" for a, r in zip(now, to_x, strict=True) if r >= size)
                tried += 1
    assert tried >= 16


@pytest.mark.filterwarnings("ignore:.*learn")
def test_no_label_changed_changes_what_is_certified(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [(POINTS[i % 3], i // 3, HONEST[i % 3]) for i in range(12)]
    prediction, radius, to_x = train(rows, "victim", "--threat", "labels")
    assert radius.max() >= 1
    for i, (point, number, kind) in enumerate(rows):
        edited = [*rows[:i], (point, number, "y" if kind == "x" else "x"), *rows[i + 1 :]]
        now, _, _ = train(edited, f"m{i}", "--threat", "labels")
        assert all(a == b for a, b, r in zip(now, prediction, radius, strict=True) if r >= 1)
        assert not any(a == "x" for a, r in zip(now, to_x, strict=True) if r >= 1)
    short = run("certify", "victim", "--inputs", "new.csv", "--label-column", "kind", "--json")
    assert "not covered" in json.loads(short.stdout)["edit"]
