"""Classifiers that `runoff train TABLE` saved: certified, reported and verified, and members that learn nothing."""

import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import runoff
from helpers import run
from runoff.ballots import constant_members

RNG = np.random.default_rng(0)
COLUMNS = ("--label-column", "kind")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with tables, an ensemble, an undefended model, and an ensemble with too many members."""
    place = tmp_path_factory.mktemp("tables")
    kind = np.where(RNG.random(300) < 0.3, "rare", "usual")
    table = pd.DataFrame(
        {
            "a": RNG.normal(size=300) + (kind == "rare"),
            "colour": np.where(RNG.random(300) < 0.8, np.where(kind == "rare", "red", "blue"), "grey"),
            "kind": kind,
        }
    )
    table[:200].to_csv(place / "train.csv", index=False)
    table[200:].to_csv(place / "new.csv", index=False)
    for k, name in ((9, "model"), (1, "alone"), (150, "idle")):
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            options = ("--k", k, *COLUMNS, "--classes", "rare,usual", "--out", place / name)
            result = run("train", place / "train.csv", *options)
        (place / f"{name}.txt").write_text(result.stdout + result.stderr)
    return place


@pytest.fixture(autouse=True)
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_training_prints_what_an_undefended_model_reaches_and_what_comes_next():
    text = Path("model.txt").read_text()
    assert "One undefended model: " in text
    assert " without attack (trained on four fifths of the samples, scored on the rest)" in text
    assert "Verify with: runoff verify " in text
    assert "1 member, each bucket in 1" in Path("alone.txt").read_text()
    result = run("train", "train.csv", "--k", 5, *COLUMNS, "--classes", "rare,usual", "--out", "as-json", "--json")
    facts = json.loads(result.stdout)
    assert 0.5 < facts["undefended_accuracy"] < 1
    assert facts["idle_members"] == 0


def test_members_that_learn_nothing_are_told_by_train_and_certify():
    text = Path("idle.txt").read_text()
    assert "Warning: " in text
    assert " of 150 members learn nothing: " in text
    assert "UserWarning" not in text
    assert ".py" not in text
    scores = runoff.RunoffClassifier.load("idle").scores(pd.read_csv("new.csv").drop(columns="kind")).values
    constant = sum(len(np.unique(runoff.rank(scores[:, [m]]), axis=0)) == 1 for m in range(150))
    assert constant == constant_members(scores) > 75
    told = f"{constant} of 150 members rank the classes in the same way for every input"
    result = run("certify", "idle", "--inputs", "new.csv", *COLUMNS)
    assert f"{told}, as members without samples or with samples of one class do: large radii mean" in result.stdout
    result = run("certify", "idle", "--inputs", "new.csv", *COLUMNS, "--json")
    assert json.loads(result.stdout)["constant_members"] == constant
    assert f"Warning: {told}" in result.stderr
    assert "rank the classes in the same" not in run("certify", "model", "--inputs", "new.csv", *COLUMNS).stdout
    result = run("report", "idle", "--inputs", "new.csv", *COLUMNS, "--out", "idle.html")
    assert f"Warning: idle: {told}" in result.stderr
    assert told in Path("idle.html").read_text()


def test_constant_members_of_scores():
    scores = RNG.normal(size=(500, 6, 3))
    scores[:, 2] = [3, 1, 2]
    scores[:, 4] = scores[:1, 4]
    scores[:-1, 5] = scores[:1, 5]
    scores[-1, 5] = scores[0, 5][::-1]
    assert constant_members(scores) == 2
    assert constant_members(scores[:-1]) == 3
    assert constant_members(np.repeat(scores[:1], 30, axis=0)) == 6
    assert constant_members(scores[:5]) is None  # too few to tell


def test_a_dry_run_warns_of_members_that_learn_nothing(tmp_path):
    result = run("train", "digits", "--k", 1000, "--network", "tiny", "--dry-run", "--out", tmp_path / "run")
    if "tiny" in result.stderr:
        result = run("train", "digits", "--k", 1000, "--dry-run", "--out", tmp_path / "run")
    assert "237 without any, 374 with one class only" in result.stdout
    assert "Warning: 611 of 1,000 members learn nothing: 237 have no samples and 374" in result.stderr


def test_a_dry_run_of_a_table_describes_its_members():
    options = ("--k", 150, *COLUMNS, "--classes", "rare,usual", "--out", "planned", "--dry-run")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        result = run("train", "train.csv", *options)
        facts = json.loads(run("train", "train.csv", *options, "--json").stdout)
    described, warning = result.stdout.removesuffix("; nothing was trained\n"), result.stderr
    assert f"{described}; trained in " in Path("idle.txt").read_text()
    assert warning in Path("idle.txt").read_text()
    assert facts["members"] == 150
    assert f"{facts['idle_members']} of 150 members learn nothing" in warning
    assert not Path("planned").exists()


def test_sentences_of_certify_are_one_line_each_and_names_are_text(monkeypatch):
    kinds = np.array(["[b]ham", "spam"])[np.arange(40) % 2]
    rows = [
        (i, m, c, float(c == k) + RNG.random() / 2) for i, k in enumerate(kinds) for m in range(9) for c in {*kinds}
    ]
    pd.DataFrame(rows, columns=["input", "member", "class", "score"]).to_csv("named.csv", index=False)
    for column in ("label", "prediction"):
        pd.DataFrame({"input": range(40), column: kinds}).to_csv(f"{column}.csv", index=False)
    options = ("--labels", "label.csv", "--undefended", "prediction.csv", "--to", "[b]ham", "--unit", "sources")
    monkeypatch.delenv("COLUMNS", raising=False)
    lines = run("certify", "named.csv", *options, "--collective").stdout.splitlines()
    head = ["sources", "certified", "certified accuracy", "of the lowest class", "collective accuracy"]
    cells = [
        [cell.strip() for cell in line.strip("┃│").split(line[0])] for line in lines if line.startswith(("┃", "│"))
    ]
    assert cells[0] == [*head, "might become [b]ham"]
    assert all(row[0].isdigit() for row in cells[1:])  # no cell is wrapped
    assert "Accuracy of the undefended model without attack: 100.00 %; nothing is proven for it" in lines
    assert any(line.startswith("Might become [b]ham: ") and line.endswith("predict [b]ham.") for line in lines)


def test_a_saved_classifier_is_reported():
    result = run(
        "report",
        "model",
        "--inputs",
        "new.csv",
        *COLUMNS,
        "--undefended",
        "alone",
        "--out",
        "report.html",
        "--to",
        "rare",
    )
    assert result.exit_code == 0, result.output
    page = Path("report.html").read_text()
    assert "runoff certify model --inputs new.csv --label-column kind --bound tight" in page
    here = Path.cwd()
    result = run("report", here / "model", "--inputs", here / "new.csv", *COLUMNS, "--out", "absolute.html")
    assert result.exit_code == 0, result.output
    assert "runoff certify model --inputs new.csv --label-column kind --bound tight" in (
        absolute := Path("absolute.html").read_text()
    )
    assert str(here) not in absolute
    Path("below").mkdir()
    Path("below/new.csv").write_bytes(Path("new.csv").read_bytes())
    run("report", f"../{here.name}/model", "--inputs", "below/new.csv", *COLUMNS, "--out", "b.html")
    assert f"runoff certify ../{here.name}/model --inputs below/new.csv --label" in Path("b.html").read_text()
    certificates = runoff.RunoffClassifier.load("model").certify(pd.read_csv("new.csv").drop(columns="kind"))
    right = int((certificates.prediction == pd.read_csv("new.csv").kind).sum())
    assert f"predicts {right} of 100 test inputs" in page
    alone = runoff.RunoffClassifier.load("alone").predict(pd.read_csv("new.csv").drop(columns="kind"))
    np.save("alone.npy", np.asarray(alone, str))
    other = run("report", "model", "--inputs", "new.csv", *COLUMNS, "--undefended", "alone.npy", "--out", "other.html")
    assert other.exit_code == 0, other.output
    for arguments, sentence in (
        (
            ("model",),
            "model is a saved classifier: pass test inputs with their labels, as --inputs NEW.csv --label-col",
        ),
        (("model", "--inputs", "new.csv"), "model is a saved classifier: pass test inputs with their labels"),
        (
            ("model", "--inputs", "new.csv", *COLUMNS, "--undefended", "idle"),
            "must be a single model to be the undefended",
        ),
        (("nothing", "--inputs", "new.csv"), "--inputs is for saved classifiers, and none is given: leave it out"),
    ):
        result = run("report", *arguments, "--out", "refused.html")
        assert (result.exit_code, sentence in result.stderr) == (2, True), result.stderr
    assert not Path("refused.html").exists()


def test_a_saved_classifier_is_compared_with_an_undefended_one():
    result = run("certify", "model", "--inputs", "new.csv", *COLUMNS, "--undefended", "alone", "--json")
    table = pd.read_csv("new.csv")
    alone = runoff.RunoffClassifier.load("alone").predict(table.drop(columns="kind"))
    assert json.loads(result.stdout)["undefended_accuracy"] == np.mean(alone == table.kind)
    result = run("certify", "model", "--inputs", "new.csv", *COLUMNS, "--undefended", "idle")
    assert (result.exit_code, "got 150 members: train it on the same table with --k 1" in result.stderr) == (2, True)
    np.save("scores.npy", RNG.normal(size=(5, 5, 2)))
    np.save("y.npy", np.zeros(5, int))
    result = run("certify", "scores.npy", "--labels", "y.npy", "--undefended", "alone")
    assert (result.exit_code, "the inputs of these scores are not known" in result.stderr) == (2, True)


def test_columns_that_the_model_does_not_know_are_named():
    table = pd.read_csv("new.csv")
    table.drop(columns="a").to_csv("lacks.csv", index=False)
    table[["colour", "kind", "a"]].to_csv("order.csv", index=False)
    for arguments, sentence in (
        (
            ("new.csv", "--require", "1:70%"),
            "must have the columns of the training table, got kind in addition",
        ),
        (("lacks.csv", *COLUMNS), "lacks.csv must have the columns of the training table: a is missing"),
        (("order.csv", *COLUMNS), "order.csv must have its columns in the order of the training table: a, colour"),
    ):
        result = run("certify", "model", "--inputs", *arguments)
        assert (result.exit_code, sentence in result.stderr) == (2, True), result.stderr


def test_labels_are_given_once():
    np.save("y.npy", np.array(["usual"] * 100))
    result = run("certify", "model", "--inputs", "new.csv", *COLUMNS, "--labels", "y.npy")
    assert (result.exit_code, "labels are in --label-column already: leave out --labels" in result.stderr) == (2, True)


def test_labels_of_a_table_are_read_in_the_type_of_the_classes():
    table = pd.read_csv("train.csv")
    y = (table.pop("kind") == "rare").astype(int)
    runoff.RunoffClassifier(n_partitions=5, classes=[0, 1]).fit(table, y).save("numbers")
    table.assign(kind=y).to_csv("numbers.csv", index=False)
    result = run("certify", "numbers", "--inputs", "numbers.csv", *COLUMNS, "--budgets", "0", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["clean_accuracy"] > 0.6


def test_a_saved_classifier_is_verified_with_its_table():
    result = run("verify", "model", "--data", "train.csv", *COLUMNS, "--retrain", 1)
    assert result.exit_code == 0, result.output
    assert "Checked: the training sets of 9 members, 200 rows in total, hashed and divided again." in result.stdout
    assert "Checked: 1 member retrained" in result.stdout
    assert "Checked: certify: 20 predictions and radii" in result.stdout
    pd.read_csv("train.csv")[1:].to_csv("less.csv", index=False)
    assert run("verify", "model", "--data", "less.csv", *COLUMNS).exit_code == 4
    result = run("verify", "model")
    assert (
        "pass it as --data train.npz, with the arrays x and y, or as --data TRAIN.csv --label-column" in result.stdout
    )
    for arguments, sentence in (
        (("--data", "train.csv"), "train.csv is a table, so name its label column, as in --label-column species"),
        (COLUMNS, "--label-column needs the table that a saved classifier was trained on, as --data TRAIN.csv"),
        (("--data", "absent.csv", *COLUMNS), "absent.csv"),
    ):
        result = run("verify", "model", *arguments)
        assert (result.exit_code in (1, 2), sentence in result.stderr) == (True, True), result.stderr


def test_a_saved_classifier_cannot_be_updated():
    before = sorted(Path("model").rglob("*"))
    result = run("update", "model", "--add", "new.csv")
    assert (result.exit_code, "model is a saved classifier, which holds no training samples" in result.stderr) == (2, 1)
    assert sorted(Path("model").rglob("*")) == before


def test_sources_of_a_table_are_verified(tmp_path):
    table = pd.read_csv("train.csv").assign(sender=[f"s{i % 40}" for i in range(200)])
    table.to_csv("sent.csv", index=False)
    groups = (*COLUMNS, "--group-column", "sender")
    run("train", "sent.csv", "--k", 5, *groups, "--classes", "rare,usual", "--out", tmp_path / "model")
    result = run("verify", tmp_path / "model", "--data", "sent.csv", *groups)
    assert result.exit_code == 0, result.output
    assert "Checked: the training sets of 5 members" in result.stdout
    result = run("report", tmp_path / "model", "--inputs", "sent.csv", *groups, "--out", "sources.html")
    assert result.exit_code == 0, result.output
    assert "--group-column sender" in Path("sources.html").read_text()


def test_the_table_has_the_rows_that_are_required():
    np.save("scores.npy", 3 * np.eye(2)[[0] * 100][:, None] + RNG.normal(size=(100, 51, 2)))
    result = run("certify", "scores.npy", "--require-certified", "7:10%", "--require-certified", "23:0%")
    assert result.exit_code == 0
    cells = [line.split("│")[1].strip() for line in result.stdout.splitlines() if line.startswith("│")]
    assert {"7", "23"} < {*cells}
    assert cells == sorted(cells, key=int)
    result = run("certify", "scores.npy", "--require-certified", "7:10%", "--budgets", "1", "--json")
    assert json.loads(result.stdout)["budgets"] == [1]  # as asked for


def test_the_head_of_the_table_is_one_line():
    np.save("scores.npy", RNG.normal(size=(20, 1, 2)))
    first = run("certify", "scores.npy").stdout.splitlines()[0]
    assert first == "20 inputs, 1 member, 2 classes, 1 bucket: runoff, tight bound"
