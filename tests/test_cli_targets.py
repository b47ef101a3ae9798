"""`--to` and `--from`: the edits needed to make an ensemble predict a class, on the command line and in the report."""

import csv
import json
import re

import numpy as np
import pytest

import runoff
from helpers import a_run, run
from runoff import report
from runoff.report import Source

RNG = np.random.default_rng(0)
SCORES = (RNG.normal(size=(40, 12, 3)) + RNG.normal(size=(40, 1, 3))).astype(np.float32)
LABELS = (SCORES.mean(axis=1).argmax(axis=1) + (np.arange(40) % 7 == 0)) % 3
BUDGETS = ("--budgets", "0,1,3,9")


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("scores.npy", SCORES)
    np.save("y.npy", LABELS)


def summary(*arguments):
    result = run("certify", *arguments, *BUDGETS, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_rates_are_those_of_the_library():
    certificates = runoff.certify(SCORES)
    budgets = [0, 1, 3, 9]
    every = summary("scores.npy", "--labels", "y.npy", "--to", 2)["target"]
    assert every["might_become"] == runoff.targeted_rate(certificates, LABELS, None, 2, budgets).tolist()
    assert (every["to"], every["from"], every["inputs"]) == ("2", None, int((LABELS != 2).sum()))
    one = summary("scores.npy", "--labels", "y.npy", "--to", 2, "--from", 0)["target"]
    assert one["might_become"] == runoff.targeted_rate(certificates, LABELS, 0, 2, budgets).tolist()
    assert one["median_radius"] == np.median(certificates.radius_to(2)[LABELS == 0])
    unlabelled = summary("scores.npy", "--to", 2)["target"]
    others = certificates.prediction != 2
    assert unlabelled["might_become"] == [float((certificates.radius_to(2)[others] < b).mean()) for b in budgets]
    assert summary("scores.npy")["target"] is None


def test_the_table_and_the_rows():
    shown = run("certify", "scores.npy", "--labels", "y.npy", "--to", 2, "--from", 0, "--out", "c.csv", *BUDGETS)
    text = " ".join(shown.stdout.split())
    rate = runoff.targeted_rate(runoff.certify(SCORES), LABELS, 0, 2, [3])[0]
    assert "might become 2" in text
    assert re.search(rf"│ 3 │ [0-9.]+ % │ [0-9.]+ % │.* {100 * rate:.2f} % │ │ 9 │", text)
    assert (
        f"the share of {(LABELS == 0).sum()} inputs of class 0 for which it is not proven that this many edits" in text
    )
    with open("c.csv", newline="") as file:  # noqa: PTH123
        rows = list(csv.DictReader(file))
    assert [int(row["radius_to"]) for row in rows] == runoff.certify(SCORES).radius_to(2).tolist()
    assert "13 inputs" not in run("certify", "scores.npy", "--to", 2).stdout.split("Might become")[0]


def test_scores_can_say_what_was_counted():
    limits = "inserted and deleted samples are not covered"
    shown = " ".join(run("certify", "scores.npy", "--unit", "labels", "--to", 1).stdout.split())
    assert "│ changed labels │" in shown.replace("┃", "│")
    assert f"this many changed labels cannot make the ensemble predict 1 ({limits})." in shown
    assert "not covered" in summary("scores.npy", "--unit", "labels")["edit"]
    assert summary("scores.npy", "--unit", "sources")["unit"] == "sources"
    assert summary("scores.npy")["unit"] == "samples"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--to", 3), "--to must be a class index from 0 to 2; got '3'"),
        (("--to", "owl"), "--to must be a class index from 0 to 2; got 'owl'"),
        (("--from", 1), "--from needs --to"),
        (("--to", 1, "--from", 0), "so it needs --labels FILE"),
        (("--to", 1, "--from", 1, "--labels", "y.npy"), "--to and --from must be two classes, got '1' twice"),
        (("--to", 1, "--from", 0, "--labels", "ones.npy"), "--from must be the class of at least one input, got '0'"),
        (("--to", 1, "--from", 4, "--labels", "y.npy"), "--from must be a class index from 0 to 2; got '4'"),
    ],
)
def test_what_is_no_target(options, message):
    np.save("ones.npy", np.ones(40, int))
    result = run("certify", "scores.npy", *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_runs_name_their_classes(tmp_path):
    a_run(tmp_path / "run")
    named = summary(tmp_path / "run", "--to", "dog", "--from", "cat")["target"]
    assert (named["to"], named["from"]) == ("dog", "cat")
    wrong = run("certify", tmp_path / "run", "--to", "1")
    assert wrong.exit_code == 2
    assert "--to must be one of cat, dog, bird; got '1'" in " ".join(wrong.stderr.split())
    other = run("certify", tmp_path / "run", "--unit", "sources")
    assert other.exit_code == 2
    assert "counts samples: leave out --unit sources" in " ".join(other.stderr.split())


def test_the_report_has_a_table_of_the_target(tmp_path):
    a_run(tmp_path / "run")
    source = Source.from_run(tmp_path / "run")
    data = report.collect([source], budgets=[0, 1, 4], sample=3, to="dog")
    about = data["sources"][0]["target"]
    assert about["head"] == ["edits", "DPA", "DPA+ROE"]
    for column, election in ((1, "plurality"), (2, "runoff")):
        certificates = runoff.certify(source.ballots, election=election)
        rates = runoff.targeted_rate(certificates, source.labels, None, 1, [0, 1, 4])
        assert [row[column] for row in about["rows"]] == [f"{100 * rate:.1f} %" for rate in rates]
    assert "might be predicted as dog after an attack" in about["text"]
    assert "target" not in report.collect([source], sample=3)["sources"][0]
    result = run("report", tmp_path / "run", "--out", "r.html", "--to", "dog")
    assert result.exit_code == 0, result.output
    with open("r.html") as file:  # noqa: PTH123
        assert "From other classes to dog" in file.read()
    wrong = run("report", tmp_path / "run", "--out", "r.html", "--to", "owl")
    assert wrong.exit_code == 2
    assert "the target must be one of cat, dog, bird, got 'owl'" in " ".join(wrong.stderr.split())
