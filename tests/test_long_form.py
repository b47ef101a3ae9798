"""`runoff certify` on tables in long form, and the undefended number beside the certified ones."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import runoff
from helpers import run
from runoff.errors import InputError

RNG = np.random.default_rng(0)
N, MEMBERS, CLASSES = 30, 9, ["bird", "cat", "dog"]
SCORES = RNG.normal(size=(N, MEMBERS, 3)) + 2 * RNG.normal(size=(N, 1, 3))
TRUTH = np.array(CLASSES)[SCORES.mean(axis=1).argmax(axis=1)]
LONG = pd.DataFrame(
    [
        {"input": f"image {i}", "member": m, "class": CLASSES[c], "score": SCORES[i, m, c]}
        for i in range(N)
        for m in range(MEMBERS)
        for c in range(3)
    ]
)


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    by_input = dict(zip(LONG.input.unique(), TRUTH, strict=True))
    shuffled = LONG.sample(frac=1, random_state=1)
    shuffled.to_csv("scores.csv", index=False)
    shuffled.to_parquet("scores.parquet")
    LONG.assign(label=LONG.input.map(by_input)).to_csv("labelled.csv", index=False)
    labels = pd.DataFrame({"input": by_input.keys(), "label": by_input.values()}).sample(frac=1, random_state=2)
    labels.to_csv("labels.csv", index=False)
    labels.rename(columns={"label": "prediction"}).assign(prediction="cat").to_parquet("undefended.parquet")


@pytest.mark.parametrize("scores", ["scores.csv", "scores.parquet", "labelled.csv"])
def test_tables_give_the_same_as_arrays(scores):
    known = [] if scores == "labelled.csv" else ["--labels", "labels.csv"]
    options = ["--budgets", "0,1,2", "--out", "rows.csv", "--export", "proof.json", "--json"]
    result = run("certify", scores, *known, *options, "--undefended", "undefended.parquet", "--require", "1:10%")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    certificates = runoff.certify(SCORES).named(np.array(CLASSES))
    assert summary["certified_accuracy"] == certificates.certified_accuracy(TRUTH, [0, 1, 2]).tolist()
    assert summary["classes_with_inputs"] == CLASSES
    by_class = certificates.certified_accuracy(TRUTH, [0, 1, 2], by_class=True)
    assert summary["certified_accuracy_by_class"] == by_class.T.tolist()
    assert summary["lowest_class"] == [CLASSES[c] for c in by_class.argmin(axis=0)]
    assert summary["undefended_accuracy"] == np.mean(TRUTH == "cat")
    rows = {row["input"]: row for row in csv.DictReader(Path("rows.csv").read_text().splitlines())}
    for i in range(N):
        row = rows[f"image {i}"]
        assert (row["prediction"], int(row["radius"])) == (certificates.prediction[i], certificates.radius[i])
        assert row["label"] == TRUTH[i]
    assert subprocess.run([sys.executable, "-m", "runoff.check", "proof.json"], check=False).returncode == 0


def test_the_table_shows_the_lowest_class_and_the_undefended_model():
    result = run("certify", "labelled.csv", "--undefended", "undefended.parquet", "--budgets", "1")
    assert "of the lowest class" in result.stdout
    assert f"undefended model without attack: {100 * np.mean(TRUTH == 'cat'):.2f} %; nothing is proven" in result.stdout
    np.save("scores.npy", SCORES)
    np.save("undefended.npy", np.zeros(N, int))
    result = run("certify", "scores.npy", "--undefended", "undefended.npy")
    assert (result.exit_code, "it needs --labels FILE" in result.stderr) == (2, True)
    np.save("labels.npy", np.ones(N, int))
    result = run("certify", "scores.npy", "--undefended", "undefended.npy", "--labels", "labels.npy", "--json")
    assert json.loads(result.stdout)["undefended_accuracy"] == 0


def test_whole_numbers_are_sorted_as_numbers():
    long = LONG.assign(**{"class": LONG["class"].map({"bird": 2, "cat": 10, "dog": 1}), "member": LONG.member + 1})
    long.sample(frac=1, random_state=3).to_csv("numbers.csv", index=False)
    np.save("spread.npy", runoff.spreads.cyclic(MEMBERS, [0, 2]))
    run("certify", "numbers.csv", "--spread", "spread.npy", "--out", "rows.csv")
    expected = runoff.certify(SCORES[:, :, [2, 0, 1]], spread=np.load("spread.npy"))
    rows = {row["input"]: int(row["radius"]) for row in csv.DictReader(Path("rows.csv").read_text().splitlines())}
    assert [rows[f"image {i}"] for i in range(N)] == expected.radius.tolist()


def table_of(scores, names):
    places = np.indices(scores.shape).reshape(3, -1)
    return pd.DataFrame(
        {"input": places[0], "member": np.array(names)[places[1]], "class": places[2], "score": scores.ravel()}
    )


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_members_of_a_spread_must_be_numbered_without_gaps(suffix):
    scores = np.where(np.arange(12) < 9, 1.0, -1.0)[None, :, None] * [1, 0]  # nine members for class 0, three for 1
    spread = np.eye(12, dtype=bool)
    spread[0, :6] = True  # one bucket reaches six of the nine
    np.save("spread.npy", spread)
    texts = [f"m{j + 1}" for j in range(12)]
    assert runoff.certify(scores, spread=spread).radius == 0
    assert runoff.certify(scores[:, np.argsort(texts)], spread=spread).radius > 0  # m1, m10, m11, m12, m2: wrong
    for names, odd in (
        (texts, "m1"),
        ([f"{j:02}x" for j in range(12)], "00x"),
        ([*range(11), 12], "12"),  # a gap
        ([*range(2, 14)], "13"),
        ([*range(-1, 11)], "-1"),
        ([float(j) for j in range(12)], "0.0"),
        ([*map(str, range(11)), "last"], "0"),
    ):
        table = table_of(scores, names)
        getattr(table, f"to_{suffix}")(f"named.{suffix}")
        result = run("certify", f"named.{suffix}", "--spread", "spread.npy", "--out", "rows.csv")
        assert result.exit_code == 2
        assert "must number its 12 members 0 to 11 or 1 to 12, since a spread lists members by number" in result.stderr
        assert f"got member {odd}: rename them in the spread's order" in result.stderr
        assert not Path("rows.csv").exists()
        assert run("certify", f"named.{suffix}").exit_code == 0  # one bucket per member needs no order
    shifted = scores[:, 1:]  # member 0 is missing, and the others are 1 to 11
    getattr(table_of(shifted, range(1, 12)), f"to_{suffix}")(f"short.{suffix}")
    for kind in (spread, runoff.spreads.cyclic(12, [0, 1])):
        np.save("spread.npy", kind)
        result = run("certify", f"short.{suffix}", "--spread", "spread.npy")
        assert (result.exit_code, " 11" in result.stderr, "spread must" in result.stderr) == (2, True, True)


def test_a_boolean_table_takes_members_by_position_or_not_at_all():
    scores = RNG.normal(size=(5, 12, 3))
    spread = np.eye(12, dtype=bool)
    numbered = runoff.certify(scores, spread=pd.DataFrame(spread)).radius
    np.testing.assert_array_equal(numbered, runoff.certify(scores).radius)
    named = pd.DataFrame(spread, columns=[f"m{j + 1}" for j in range(12)])
    for table in (named, named[sorted(named)], pd.DataFrame(spread)[[*range(1, 12), 0]]):
        with pytest.raises(InputError, match=r"members by position, and the columns of this table must be named 0, 1"):
            runoff.certify(scores, spread=table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda t: t.drop(columns="member"),
            "must have the columns input, member, class, score, got input, class, score",
        ),
        (lambda t: t[:0], "must have at least one row below its header"),
        (lambda t: t[1:], "member 0 for class bird of input image 0 is missing"),
        (lambda t: pd.concat([t, t[5:6]]), "got two of member 1 for class dog of input image 0"),
        (lambda t: t.assign(score=[*t.score[:-1], np.nan]), "must have a finite number as the score in every row"),
        (lambda t: t.assign(score=["high", *t.score[1:]]), "must have a finite number as the score in every row"),
        (
            lambda t: t.assign(member=[None, *t.member[1:]]),
            "must have a value for member in every row, got an empty cell",
        ),
        (lambda t: t.assign(label=np.arange(len(t)) % 2), "must have one label per input, got two for input image 0"),
    ],
)
def test_tables_that_are_refused(change, message):
    change(LONG).to_csv("bad.csv", index=False)
    result = run("certify", "bad.csv")
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1 or "Usage" in result.stderr


def test_files_that_are_no_tables():
    Path("ragged.csv").write_text("input,member,class,score\n1,2,3\n")
    assert "must have 4 cells in every row, got 3 in row 2" in run("certify", "ragged.csv").stderr
    with Path("open.csv").open("w") as file:
        LONG[["score", "input", "member", "class"]].to_csv(file, index=False)
        file.write('1,image 0,0,"cat\n' + "1,image 9,9,dog\n" * 9)
    assert "cannot be read as CSV: unexpected end of data" in run("certify", "open.csv").stderr
    Path("noise.parquet").write_bytes(b"PAR1 no")
    assert "cannot be read as Parquet" in run("certify", "noise.parquet").stderr
    Path("labels.csv").write_text(Path("labels.csv").read_text() + "image 0,cat\n")
    assert (
        "must have one row per input, got 31 rows of 30"
        in run("certify", "scores.csv", "--labels", "labels.csv").stderr
    )
    LONG[:1][["input"]].assign(label="cat").to_csv("labels.csv", index=False)
    assert "has no label of input" in run("certify", "scores.csv", "--labels", "labels.csv").stderr
