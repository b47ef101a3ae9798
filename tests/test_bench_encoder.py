"""benchmarks.encoder: rows one by one, resumed, with their full commands, and added to those of the results page."""

import csv
import json
import sys

import numpy as np
import pytest

import runoff
from benchmarks import encoder, results
from runoff import datasets


class Halves:
    """An encoder whose features are means of 2 x 2 pixels."""

    name, sha256, batch = "halves", "0" * 64, 64
    settings = {"pixels": 8, "device": "cpu (of this machine)"}  # noqa: RUF012

    def features(self, x, show=None):  # noqa: ARG002
        return x.reshape(len(x), 4, 2, 4, 2).mean(axis=(2, 4)).reshape(len(x), 16).astype(np.float32)


@pytest.fixture
def measured(monkeypatch, tmp_path):
    counted = []
    fit = encoder.fit_heads
    monkeypatch.setattr(encoder, "opened", lambda _: Halves())
    monkeypatch.setattr(encoder, "fit_heads", lambda *a, **k: (counted.append(len(a[2])), fit(*a, **k))[1])

    def run(*options):
        command = ["encoder", "digits", "halves.safetensors", "--samples", "200", "--name", "digits", "--keep", ""]
        monkeypatch.setattr(sys, "argv", [*command, *options, "--out", str(tmp_path)])
        encoder.main()
        return [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]

    run.fitted = counted
    return run


def test_rows_are_written_one_by_one_and_a_repeated_command_computes_the_others(measured, tmp_path, monkeypatch):
    judged = encoder.judge

    def dying(k, *rest):
        if k == 20:
            raise RuntimeError("lost")
        judged(k, *rest)

    monkeypatch.setattr(encoder, "judge", dying)
    with pytest.raises(RuntimeError, match="lost"):
        measured("--k", "10,20", "--elections", "runoff,plurality", "--seed", "1")
    monkeypatch.setattr(encoder, "judge", judged)
    rows = measured("--k", "10,20", "--elections", "runoff,plurality", "--seed", "1")
    assert measured.fitted == [10, 20]  # the first was kept
    assert [(row["k"], row["seed"]) for row in rows] == [(10, 1), (20, 1)]
    assert rows[0]["command"] == (
        "python -m benchmarks.encoder digits halves.safetensors --k 10 --elections runoff,plurality --samples 200 "
        "--name digits --keep '' --seed 1 --out DIRECTORY"
    )
    rows = measured("--k", "10", "--elections", "runoff,plurality")  # of another seed, other parts
    assert measured.fitted == [10, 20, 10]
    assert rows[2]["certified"] != rows[0]["certified"]

    data = datasets.load("digits")
    _, parts, _ = encoder.parts(data, 10, "content")
    heads = encoder.fit_heads(Halves().features(data.x_train), data.y_train, parts, 10)
    certificates = runoff.certify(encoder.ranked_scores(heads, Halves().features(data.x_test)))
    expected = 100 * runoff.certified_accuracy(certificates, data.y_test, [0, 2])
    np.testing.assert_allclose([rows[2]["certified"]["runoff"][n] for n in ("0", "2")], expected)

    runs = tmp_path / "runs.csv"
    for _ in range(2):  # adding twice changes nothing
        monkeypatch.setattr(sys, "argv", ["results", "add", str(tmp_path), "--runs", str(runs)])
        results.main()
    with runs.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert {(row["track"], row["k"], row["seed"]) for row in written} == {
        ("encoder", "10", "1"), ("encoder", "20", "1"), ("encoder", "10", "0")
    }  # fmt: skip
    assert len(written) == sum(len(c) for row in rows for c in row["certified"].values())
    (two,) = (r for r in written if (r["k"], r["seed"], r["election"], r["edits"]) == ("10", "0", "runoff", "2"))
    assert two["certified"] == f"{expected[1]:.2f}"
    assert two["command"].startswith("python -m benchmarks.encoder digits halves.safetensors --k 10")


def test_without_test_images(measured):
    (row,) = measured("--k", "10", "--no-test", "--elections", "runoff")
    assert row["certified"] == {}
    assert "--no-test" in row["command"]
    assert row["estimated"]["runoff"]["0"] > 50
    assert len(measured("--k", "10", "--elections", "runoff")) == 2  # another row
