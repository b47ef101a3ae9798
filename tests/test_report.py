"""The report: its numbers equal the library's, the page makes no requests, and invalid input gets one sentence."""

import base64
import csv
import hashlib
import html
import json
import os
import re
import shlex
import struct
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import runoff
from helpers import SIGNS, a_run, run, scores
from runoff import datasets, report
from runoff.elections import get
from runoff.paper import tables
from runoff.report import Source, _collect, _html, _pictures, _words, drawing, figures
from runoff.runs import Run

VENDORED = {
    "d3.min.js": "912111098ea99503a6f4967361d2bbdc9dbf58cf9c678c8e27e5b02d1a07f0c1",
    "plot.umd.min.js": "4358086467740777dd788d6b27a95cebdbaefdd50c730a3060117073bd7134cb",
}
HOSTILE = ("<script>alert(1)</script>", "</script><img src=x onerror=alert(2)>", "$x & \u2028 'y' \"z\"")


def page_data(text):
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    data = json.loads(found.group(1))
    for g, sample in enumerate(data["samples"]):
        packed = re.search(rf'<script type="text/plain" id="sample-{g}">([^<]*)</script>', text).group(1)
        sample["inputs"] = json.loads(zlib.decompress(base64.b64decode(packed)))
        for shown in sample["inputs"]:
            for election in shown["elections"].values():
                lengthen(election)
    return data


def lengthen(election):
    """Expand the steps of an attack as the page's script does, here to counts instead of differences."""
    after, bars = [election["prediction"], election["runner_up"]], [dict(part) for part in election["rounds"]]
    for j, (bucket, members, firsts, finalists, changes) in enumerate(election["attack"]["steps"]):
        after = finalists or after
        rounds = []
        for known, part in zip(bars, changes, strict=True):
            rounds.append([[c, None if n is None else known.get(c, 0) + n] for c, n in part])
            for c, n in rounds[-1]:
                known.pop(c, None) if n is None else known.update({c: n})
        step = {"bucket": bucket, "members": members or [bucket], "firsts": firsts, "after": after, "rounds": rounds}
        election["attack"]["steps"][j] = step


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return a_run(tmp_path_factory.mktemp("runs") / "plain", seeds=(1, 3))


def test_what_one_attack_on_all_inputs_leaves(plain, tmp_path):
    source = Source.from_run(plain)
    data = report.collect([source], collective=60.0, sample=2)
    about, middle = data["sources"][0], data["sources"][0]["middle"]
    certificates = source.certificates("runoff", "tight")
    labels = np.array(source.classes, object)[source.labels]
    together = runoff.collective_accuracy(certificates, labels, [middle])[0]
    assert 0 < together >= certificates.certified_accuracy(labels, [middle])[0]
    left = f"at least {round(together * len(labels)):,} of the {len(labels):,} test inputs"
    assert left in about["guarantee"][-1]
    assert "(inserted and deleted samples are not covered), " in " ".join(
        report.collect([replace(source, unit="labels")], collective=0.0, sample=2)["sources"][0]["guarantee"][-1:]
    )
    assert len(report.collect([source], sample=2)["sources"][0]["guarantee"]) == len(about["guarantee"]) - 1
    page = tmp_path / "report.html"
    assert run("report", plain, "--out", page, "--use-seeds", 1, "--collective", "--time-limit", 9).exit_code == 0
    assert "(collective accuracy)." in page.read_text()
    refused = run("report", plain, "--out", page, "--time-limit", 9)
    assert (refused.exit_code, "applies to --collective only" in refused.stderr) == (2, True)


@pytest.fixture(scope="module")
def spread(tmp_path_factory):
    return a_run(tmp_path_factory.mktemp("runs") / "spread", k=5, d=3, classes=SIGNS, n=90)


@pytest.mark.parametrize("bound", ["tight", "paper"])
def test_the_numbers_are_those_of_the_library(plain, spread, bound):
    data = report.collect(
        [Source.from_run(plain, 1), Source.from_run(spread)], bound=bound, budgets=[3, 0, 1], sample=5
    )
    assert [method["label"] for method in data["methods"]] == ["DPA", "DPA+ROE", "FA", "FA+ROE"]
    assert data["budgets"] == [0, 1, 3]
    for method in data["methods"]:
        opened = Run.open((plain, spread)[method["source"]])
        y = np.asarray(opened.labels())
        ballots = np.asarray(opened.ballots(1))
        certificates = runoff.certify(ballots, election=method["election"], spread=opened.spread(), bound=bound)
        budgets = np.arange(len(method["curve"]))
        np.testing.assert_array_equal(
            np.array(method["curve"]) / len(y), runoff.certified_accuracy(certificates, y, budgets)
        )
        assert method["certified"] == [int((certificates.radius >= b).sum()) for b in budgets]
        assert method["curve"][-1] == method["certified"][-1] == 0
        right = certificates.prediction == y
        for kind, which in (("right", right), ("wrong", ~right)):
            assert method["radii"][kind] == np.bincount(certificates.radius[which], minlength=len(budgets)).tolist()
        for c in range(ballots.shape[2]):
            own = y == c
            assert method["per_class"][c] == [int((right & own & (certificates.radius >= b)).sum()) for b in (0, 1, 3)]
        source = data["sources"][method["source"]]
        np.testing.assert_allclose(source["members"]["accuracy"], (ballots.argmax(2) == y[:, None]).mean(0), atol=1e-6)
        assert source["members"]["seconds"] == [0.5] * ballots.shape[1]


def test_every_attack_of_the_page_works_as_it_is_replayed(plain, spread):
    for path in (plain, spread):
        source = Source.from_run(path, 1)
        data = report.collect([source], sample=12)
        for shown in data["samples"][0]["inputs"]:
            ballots = np.asarray(source.ballots[shown["i"]])
            assert shown["firsts"]["0"] == ballots.argmax(1).tolist()
            for m, found in shown["elections"].items():
                election = get(data["methods"][int(m)]["election"])
                assert election.hold(ballots).prediction == found["prediction"]
                outcome = election.hold(ballots)
                assert found["rounds"] == [list(part.bars.items()) for part in election.rounds(ballots, outcome)]
                steps = found["attack"]["steps"]
                assert len(steps) >= found["radius"] + 1
                for step in steps[:-1]:
                    assert step["after"][0] == found["prediction"]
                assert steps[-1]["after"][0] != found["prediction"]
                firsts, rounds = list(shown["firsts"]["0"]), [dict(bars) for bars in found["rounds"]]
                for step in steps:
                    for bars, changes in zip(rounds, step["rounds"], strict=True):
                        bars.update(changes)
                    assert set(step["members"]) <= set(source.spread[step["bucket"]].tolist())
                    for member, first in zip(step["members"], step["firsts"], strict=True):
                        firsts[member] = first
                votes = np.bincount(firsts, minlength=ballots.shape[1])
                assert {c: n for c, n in rounds[0].items() if n} == {c: n for c, n in enumerate(votes.tolist()) if n}
                winner, other = steps[-1]["after"]
                assert (rounds[-1][winner], -winner) > (rounds[-1][other] or 0, -other)
                if election.name == "plurality":
                    assert int(np.argmax(votes)) == steps[-1]["after"][0]
                certificates = source.certificates(election.name, "tight")
                assert found["explain"] == certificates.explain(shown["i"])


def test_the_sample_is_the_same_each_time_and_has_a_share_of_everything(plain, spread):
    data = [report.collect([Source.from_run(spread)], sample=43) for _ in range(2)]
    assert data[0] == data[1]
    inputs = data[0]["samples"][0]["inputs"]
    assert len({shown["i"] for shown in inputs}) == 43
    assert len({shown["label"] for shown in inputs}) >= 20
    assert "43 of the 90 test inputs, taken evenly from the list sorted by" in data[0]["samples"][0]["how"]
    few = report.collect([Source.from_run(plain)], sample=1000)["samples"][0]
    assert len(few["inputs"]) == 60
    assert few["how"] == "This section displays all 60 test inputs."


def test_methods_have_the_papers_names(plain):
    names = [_collect.method_name(*setting) for setting in ((1, 1, "plurality"), (1, 16, "runoff"), (4, 1, "runoff"))]
    assert names == ["DPA", "DPA*+ROE", "FA+ROE"]
    result = run("report", plain, "--out", plain.parent / "both.html", "--sample", 2)
    assert result.exit_code == 0, result.output
    labels = [method["label"] for method in page_data((plain.parent / "both.html").read_text())["methods"]]
    assert labels == ["DPA", "DPA+ROE", "DPA*", "DPA*+ROE"]
    twice = report.collect([Source.from_run(plain, 1), Source.from_run(plain, 1)], sample=1)["methods"]
    assert len({method["label"] for method in twice}) == 4


def test_the_papers_numbers_stand_beside_its_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # commands of a report name no folders
    a_run(tmp_path / "run", name="cifar10", k=50, classes=tuple("0123456789"))
    data = report.collect([Source.from_run(tmp_path / "run", pictures=False)], sample=2)
    for method in data["methods"]:
        row = tables.rows("T3", "cifar10", 50, method["name"])[0]
        assert {mark["budget"]: mark["percent"] for mark in method["paper"]} == row.percent
    assert data["budgets"] == [0, *sorted(row.percent)]
    (check,) = report.collect([Source.from_run(tmp_path / "run", pictures=False)], sample=1, bound="paper")["sources"][
        0
    ]["checked"]
    assert run(*shlex.split(check)[1:]).exit_code == 0
    assert check.endswith("--use-seeds 1 --bound paper")
    marks = "Crosses mark the paper's numbers for DPA and DPA+ROE on cifar10, k = 50 (table 3)."
    assert data["sources"][0]["paper"] == marks  # nothing is known of its recipe
    for name, told in (("quick", " This run uses another network or recipe."), ("paper", "")):
        a_run(tmp_path / name, name="cifar10", k=50, classes=tuple("0123456789"), network="nin", recipe=name)
        source = Source.from_run(tmp_path / name, pictures=False)
        assert report.collect([source], sample=1)["sources"][0]["paper"] == marks + told
        options = f"--k 50 --recipe {name}"
        assert source.made[0].endswith(f"{options} --out {name}")


def test_names_cannot_turn_a_sentence_around(tmp_path):
    a_run(tmp_path / "run", classes=("a\u202eb", "\u2066c", "d\n"))
    source = replace(Source.from_run(tmp_path / "run", pictures=False), name="x\u202ey\x00")
    assert source.classes == ("a\\u202eb", "\\u2066c", "d\\u000a")
    assert source.name == "x\\u202ey\\u0000"
    page = _html.page(report.collect([source], sample=2))
    assert "\\u202e" not in page.replace("\\\\u202e", "")


def test_the_papers_marks_are_for_its_data_alone(tmp_path):
    a_run(tmp_path / "run", name="cifar10", k=50, classes=tuple("0123456789"))
    source = Source.from_run(tmp_path / "run", pictures=False)
    assert source.of_paper
    for other in (replace(source, of_paper=False), replace(source, dataset="cifar")):
        data = report.collect([other], sample=1)
        assert not any(method["paper"] for method in data["methods"])
        assert data["sources"][0]["paper"] is None


def test_the_improvement_is_drawn_where_one_curve_ends():
    method = {"source": 0, "label": "one", "paper": [], "name": "DPA"}
    data = {
        "unit": {"name": "samples"},
        "budgets": [0],
        "sources": [{"n_inputs": 10, "data": None, "n_partitions": 5}],
        "methods": [
            {**method, "election": "plurality", "curve": [10, 0]},
            {**method, "election": "runoff", "name": "DPA+ROE", "curve": [10, 10, 5, 0]},
        ],
    }
    ax = drawing.library().Figure().subplots()
    figures._improvement(ax, figures._curves(data))
    (line,) = [line for line in ax.lines if len(line.get_xdata()) == 4]
    assert line.get_ydata().tolist() == [0, 100, 50, 0]


def test_improvements_are_over_the_same_data(tmp_path):
    for seed in (0, 1):
        a_run(tmp_path / f"run{seed}", seed=seed)
    sources = [Source.from_run(tmp_path / f"run{seed}", pictures=False) for seed in (0, 1)]
    apart = report.collect([replace(s, data_fingerprint=str(i)) for i, s in enumerate(sources)], sample=1)
    assert [figures._base(apart, m) for m in range(4)] == [None, 0, None, 2]
    same = report.collect([replace(s, data_fingerprint="same") for s in sources], sample=1)
    assert [figures._base(same, m) for m in range(4)] == [None, 0, 0, 0]
    unknown = report.collect([replace(s, data_fingerprint=None) for s in sources], sample=1)
    assert [figures._base(unknown, m) for m in range(4)] == [None, 0, None, 2]


def test_tables_of_several_networks_are_refused(tmp_path):
    head = "dataset,k,method,d,budget,ours,paper,network,recipe\n"
    rows = "mnist,4,DPA,1,1,50,40,nin,paper\nmnist,4,DPA,1,2,10,30,small,quick\n"
    (tmp_path / "t.csv").write_text(head + rows)
    result = run("report", "--csv", tmp_path / "t.csv", "--figures", tmp_path / "f")
    assert result.exit_code == 2
    assert "for several networks or recipes" in result.stderr


def test_times_that_cannot_be_read_are_unknown(tmp_path):
    a_run(tmp_path / "run")
    for content in (None, "{}", '{"networks": {"0-0": NaN, "1-0": "x"}}', "nonsense"):
        (tmp_path / "run" / "timings.json").unlink(missing_ok=True)
        if content is not None:
            (tmp_path / "run" / "timings.json").write_text(content)
        assert Source.from_run(tmp_path / "run", pictures=False).member_seconds is None


def test_inputs_as_series_and_coo_matrices():
    texts = pd.Series(["good", "bad", "good one", "bad one"] * 10)
    labels = np.array([1, 0, 1, 0] * 10)
    words = make_pipeline(CountVectorizer(), LogisticRegression())
    found = runoff.RunoffClassifier(words, n_partitions=2, classes=[0, 1]).fit(texts, labels)
    data = report.collect([Source.from_classifier(found, texts, labels)], sample=2)
    assert all(shown["text"] == texts[shown["i"]] for shown in data["samples"][0]["inputs"])
    counts = CountVectorizer().fit_transform(texts).tocoo()
    found = runoff.RunoffClassifier(LogisticRegression(), n_partitions=2, classes=[0, 1]).fit(counts, labels)
    data = report.collect([Source.from_classifier(found, counts, labels)], sample=2)
    assert data["samples"][0]["inputs"][0]["features"]


@pytest.mark.parametrize("wrong", [{"budgets": []}, {"budgets": [-1]}, {"elections": []}])
def test_reports_of_nothing(tmp_path, wrong):
    a_run(tmp_path / "run")
    with pytest.raises(ValueError, match=r"must be|needs"):
        report.collect([Source.from_run(tmp_path / "run", pictures=False)], **wrong)


def test_pictures_and_commands_of_ones_own_data(tmp_path):
    data = datasets.load("digits")
    arrays = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    np.savez(tmp_path / "own.npz", **arrays)
    own = ("train", tmp_path / "own.npz", "--k", 3, "--network", "small", "--recipe", "quick", "--device", "cpu")
    for classes in ("10", "a,b c,d,e,f,g,h,i,j,k"):
        out = tmp_path / f"run-{len(classes)}"
        assert run(*own, "--classes", classes, "--out", out).exit_code == 0
        source = Source.from_run(out)
        assert source.pictures is not None
        assert f" --classes {shlex.quote(classes)} " in source.made[0]


@pytest.mark.filterwarnings("ignore:.*members learn nothing:UserWarning")
def test_a_classifier_with_tables_and_texts():
    import pandas as pd

    draws = np.random.default_rng(0)
    table = pd.DataFrame({"<b>age</b>": draws.normal(size=120), "town": draws.choice(["a", "b"], 120)})
    labels = np.where(table["<b>age</b>"] > 0, "old", "young")
    for X, kind in ((table, "features"), ([f"word{label} more" for label in labels], "text")):
        classifier = runoff.RunoffClassifier(n_partitions=5, classes=["old", "young"]).fit(X, labels)
        source = Source.from_classifier(classifier, X, labels)
        data = report.collect([source], sample=4)
        certificates = classifier.certify(X)
        method = data["methods"][1]
        budgets = np.arange(len(method["curve"]))
        expected = runoff.certified_accuracy(certificates, labels, budgets)
        np.testing.assert_array_equal(np.array(method["curve"]) / 120, expected)
        shown = data["samples"][0]["inputs"][0]
        assert kind in shown
        assert shown["elections"]["1"]["explain"] == certificates.explain(shown["i"])
        assert data["sources"][0]["classes"] == ["old", "young"]
        assert data["sources"][0]["n_train"] == 120
        report.page(data)
    with pytest.raises(ValueError, match="y_true must hold labels that the classifier knows, got middle"):
        Source.from_classifier(classifier, X, np.where(labels == "old", "middle", labels))


def test_cells_of_a_table_are_for_people():
    table = pd.DataFrame(
        {"n": [0.5, np.nan], "text": ["nan", "x" * 900], "day": [pd.NaT, pd.Timestamp(0)], "k": [pd.NA, 7]}
    )
    values, labels = scores(2, 3, 2)
    source = Source(name="table", ballots=values, labels=labels, features=table)
    first, second = (dict(_pictures.appearance(source, i)["features"]) for i in range(2))
    assert first == {"n": "0.5", "text": "nan", "day": "missing", "k": "missing"}
    assert second == {"n": "missing", "text": "x" * 597 + "...", "day": "1970-01-01 00:00:00", "k": "7"}


@pytest.mark.filterwarnings("ignore:.*members learn nothing:UserWarning")
def test_a_classifier_of_images_has_pictures():
    digits, labels = np.zeros((40, 4, 4), np.uint8), np.arange(40) % 2
    digits[labels == 1, 1] = 16
    classifier = runoff.RunoffClassifier(n_partitions=3, classes=[0, 1]).fit(digits, labels)
    data = report.collect([Source.from_classifier(classifier, digits, labels, made=("python mine.py",))], sample=3)
    assert all("picture" in shown for shown in data["samples"][0]["inputs"])
    assert data["sources"][0]["made"] == ["python mine.py"]
    assert data["sources"][0]["classes"] == ["0", "1"]


def test_seconds_that_were_not_written_down(tmp_path):
    run_ = Run.open(a_run(tmp_path / "run"))
    times = {f"{m}-0": 0.25 for m in range(1, 9)}
    (run_.path / "timings.json").write_text(json.dumps({"networks": times, "training": 1.0}))
    run_.record("timings.json")
    assert Source.from_run(run_.path).member_seconds == (None, *[0.25] * 8)
    (run_.path / "timings.json").write_text(json.dumps({"networks": {}, "training": 1.0}))
    run_.record("timings.json")
    assert Source.from_run(run_.path).member_seconds is None


def test_one_input_that_nothing_protects():
    """A page without any radius above 0 still has its sentences."""
    ballots = runoff.rank(np.array([[[1, 0], [0, 1]]], np.float32))
    source = Source(
        name="two",
        ballots=ballots,
        labels=np.array([0]),
        spread=np.array([[0], [1]]),
        classes=("a", "b"),
        n_partitions=2,
    )
    data = report.collect([source])
    assert data["budgets"] == [0, 1]
    assert "For 0 of them (0.0 % of all)" in data["sources"][0]["guarantee"][0]
    assert len(report.page(data)) > 400_000
    assert repr(replace(source, features=["a secret"])) == "<Source 'two': 1 input, 2 members, 2 classes>"
    with pytest.raises(ValueError, match="at least one run"):
        report.collect([])
    with pytest.raises(ValueError, match="must have 2 classes, got 3"):
        replace(source, classes=("a", "b", "c"))
    with pytest.raises(ValueError, match="one label for each of 1 inputs"):
        replace(source, labels=np.array([0, 1]))


def test_scores_need_only_labels():
    """The defaults of a source are those of `runoff.certify`."""
    values, labels = scores(40, 7, 3)
    source = Source(name="mine", ballots=values, labels=labels)
    assert (source.classes, source.n_partitions, source.d) == (("0", "1", "2"), 7, 1)
    np.testing.assert_array_equal(source.certificates("runoff", "tight").radius, runoff.certify(values).radius)
    spread = runoff.spreads.cyclic(7, [0, 1])
    found = Source(name="mine", ballots=values, labels=labels, spread=spread)
    assert (found.n_partitions, found.d) == (3, 2)
    with pytest.raises(ValueError, match="mine must have 3 dimensions"):
        Source(name="mine", ballots=values[0], labels=labels)
    with pytest.raises(ValueError, match=r"mine must have a spread that is an integer array \(n_buckets, d\), got"):
        replace(source, spread=np.arange(7))


def test_the_command_takes_scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values, labels = scores(40, 7, 3)
    np.save("mine.npy", values)
    np.save("other.npy", values[::-1])
    np.save("y.npy", labels)
    np.save("float.npy", labels.astype(float))
    np.save("spread.npy", runoff.spreads.cyclic(7, [0, 1]))
    rows = ["input,member,class,score,label"]
    names = ("ant", "bee", "cat")
    for (i, m, c), value in np.ndenumerate(values):
        rows.append(f"mail {i},{m},{names[c]},{value},{names[labels[i]]}")
    table = "\n".join([*rows, ""])
    Path("mine.csv").write_text(table)
    Path("wrong.csv").write_text(table.replace(",ant\n", ",dog\n"))
    out = ("--out", "report.html")
    result = run("report", "mine.npy", "other.npy", "--labels", "y.npy", "--undefended", "y.npy", *out)
    assert result.exit_code == 0, result.output
    correct = int((runoff.certify(values).prediction == labels).sum())
    page = Path("report.html").read_text()
    assert f"DPA+ROE, mine predicts {correct} of 40 test inputs" in page
    assert "runoff certify mine.npy --labels y.npy --bound tight" in page
    options = ("--labels", "y.npy", "--spread", "spread.npy", "--unit", "sources")
    assert run("report", "mine.npy", *options, "--out", "spread.html").exit_code == 0
    assert f"runoff certify mine.npy {' '.join(options)} --bound tight" in Path("spread.html").read_text()
    result = run("report", "mine.csv", "--out", "table.html")
    assert result.exit_code == 0, result.output
    assert f"DPA+ROE predicts {correct} of 40 test inputs" in Path("table.html").read_text()
    for arguments, told in (
        (("mine.npy",), "pass those of mine.npy as --labels FILE"),
        (("none.npy", "--labels", "y.npy"), "none.npy cannot be read: No such file"),
        (("mine.npy", "--labels", "float.npy"), "the labels of mine.npy must be class indices (integers), got float64"),
        (("mine.npy", "--labels", "y.npy", "--spread", "y.npy"), "a spread that is an integer array"),
        (("mine.csv", "--labels", "y.npy"), "the labels are in the column label of mine.csv already"),
        (("wrong.csv",), "the labels of wrong.csv must be among the classes of the scores, got 'dog' for input"),
        (("folder", "--labels", "y.npy"), "--labels is for scores, and none are given: leave it out"),
    ):
        result = run("report", *arguments, "--out", "refused.html")
        assert (result.exit_code, told in result.stderr) == (2, True), result.stderr
    assert not Path("refused.html").exists()


def test_percentages_are_rounded_as_the_page_does():
    assert [_words.share(*parts) for parts in ((321, 400), (1, 16), (1, 3), (1, 1), (0, 7), (3, 16))] == [
        "80.3 %", "6.3 %", "33.3 %", "100.0 %", "0.0 %", "18.8 %",
    ]  # fmt: skip


def test_names_from_users_are_escaped(tmp_path):
    folder = tmp_path / "<b>run</b>&"
    a_run(folder, classes=HOSTILE, name="'\"><script>alert(3)</script>")
    out = tmp_path / "report.html"
    result = run("report", folder, "--out", out)
    assert result.exit_code == 0, result.output
    text = out.read_text()
    assert "alert(" not in text.replace("\\u003cscript\\u003ealert(", "").replace("onerror=alert(2)", "").replace(
        html.escape("'\"><script>alert(3)</script>"), ""
    )
    assert text.count("<script") == text.count("</script>") == 2 + len(_html.SCRIPTS)
    assert "\u2028" not in text
    data = page_data(text)
    assert data["sources"][0]["classes"] == list(HOSTILE)
    assert data["sources"][0]["name"] == folder.name


def test_the_page_makes_no_requests_and_runs_only_its_own_scripts(plain, tmp_path):
    out = tmp_path / "report.html"
    assert run("report", plain, "--out", out, "--use-seeds", 1).exit_code == 0
    text = out.read_text()
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text).group(1)
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "http" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == len(_html.SCRIPTS)
    for script in scripts:
        assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy
    outside = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    for address in re.findall(r'(?:src|href|action|data|srcset|poster)\s*=\s*"([^"]*)"', outside):
        assert address.startswith(("#", "data:"))
    assert "url(" not in outside
    assert "@import" not in outside
    own = "".join(_html.asset(name) for name in _html.SCRIPTS if not name.startswith("vendored"))
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "http"):
        assert forbidden not in own


def test_the_chart_library_is_the_one_that_was_looked_at():
    folder = Path(report.__file__).parent / "assets" / "vendored"
    assert {file.name for file in folder.glob("*.js")} == set(VENDORED)
    for name, digest in VENDORED.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    assert "ISC" in (folder.parent / "page.html").read_text()
    assert "Permission to use, copy, modify" in (folder / "LICENSE-d3.txt").read_text()
    assert "interval-tree-1d" in (folder / "LICENSE-plot.txt").read_text()


def test_ten_thousand_inputs_fit_into_three_megabytes(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8)  # the worst to compress
    a_run(tmp_path / "run", n=10_000, k=100, classes=SIGNS[:10], images=noise, name="large")
    out = tmp_path / "report.html"
    result = run("report", tmp_path / "run", "--out", out, "--sample", 800)
    assert result.exit_code == 0, result.output
    assert "No pictures" not in result.output
    assert out.stat().st_size < 3_000_000
    inputs = page_data(out.read_text())["samples"][0]["inputs"]
    assert 100 <= len(inputs) < 800
    assert all(shown["picture"].startswith("data:image/png;base64,") for shown in inputs)


def test_the_same_run_gives_the_same_bytes(spread, tmp_path):
    for name in ("a", "b"):
        arguments = ("--out", tmp_path / name / "report.html", "--figures", tmp_path / name, "--sample", 6)
        result = run("report", spread, *arguments)
        assert result.exit_code == 0, result.output
    first = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "b").iterdir()}
    assert len(first) == 10
    for name, data in first.items():
        begin = {"svg": b"<?xml", "pdf": b"%PDF", "png": b"\x89PNG", "html": b"<!doct"}[name.split(".")[-1]]
        assert data.startswith(begin)
        assert len(data) > 5000
    width = struct.unpack(">I", first["certified.png"][16:20])[0]
    assert width == 3.25 * 300  # the column of a paper


def test_what_is_refused(plain, tmp_path):
    altered = a_run(tmp_path / "altered")
    ballots = altered / "ballots-1.npy"
    ballots.write_bytes(ballots.read_bytes()[:-1] + b"\x07")
    unfinished = a_run(tmp_path / "unfinished", seeds=())
    broken = a_run(tmp_path / "broken")
    manifest = json.loads((broken / "manifest.json").read_text())
    del manifest["member_sizes"]
    (broken / "manifest.json").write_text(json.dumps(manifest))
    table = tmp_path / "table.csv"
    table.write_text("dataset,k\ncifar10,50\n")
    out = ("--out", tmp_path / "x.html")
    figures = ("--figures", tmp_path / "figures")
    for arguments, code, told in (
        ((plain,), 2, "needs --out FILE"),
        (out, 2, "needs at least one run"),
        ((tmp_path, *out), 2, "is not a run: it has no manifest.json"),
        ((altered, *out), 4, "was altered or damaged: ballots-1.npy"),
        ((plain, altered, *out), 4, "was altered or damaged: ballots-1.npy"),
        ((unfinished, *out), 2, "is not finished"),
        ((broken, *out), 4, "does not describe a run: KeyError"),
        ((plain, "--use-seeds", 2, *out), 2, "has ballots of 1, 3 networks per member, not 2"),
        ((plain, "--budgets", "5;6", *out), 2, "expected non-negative numbers of edits"),
        ((plain, "--input", 60, "--use-seeds", 1, *figures), 2, "must be below 60"),
        ((plain, "--out", tmp_path / "table.csv" / "x.html"), 1, "cannot be written: File exists"),
        (("--csv", table, *out), 2, "--csv requires --figures FOLDER and excludes runs"),
        (("--csv", table, *figures), 2, "method is missing"),
        (("--csv", tmp_path / "none.csv", *figures), 2, "cannot be read: No such file"),
    ):
        result = run("report", *arguments)
        assert result.exit_code == code, (arguments, result.output)
        assert told in result.stderr
        assert "Traceback" not in result.output
    assert not (tmp_path / "x.html").exists()


def test_a_page_that_cannot_be_written_leaves_nothing(plain, tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    out = tmp_path / "report.html"
    out.write_text("the one before")
    data = report.collect([Source.from_run(plain, 1)], sample=1)
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        report.write(out, data)
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert out.read_text() == "the one before"


def test_pictures_of_a_dataset_that_changed_are_left_out(tmp_path):
    images = np.zeros((60, 4, 4), np.uint8)
    a_run(tmp_path / "run", images=images)
    assert Source.from_run(tmp_path / "run").pictures is not None
    assert Source.from_run(tmp_path / "run", pictures=False).pictures is None
    with np.load(tmp_path / "pets.npz") as arrays:
        np.savez(tmp_path / "pets.npz", **{**arrays, "x_test": images + 1})
    source = Source.from_run(tmp_path / "run")
    assert source.pictures is None
    assert "no longer holds the samples" in source.notes[0]


@pytest.mark.parametrize("shape", [(3, 5), (3, 5, 1), (3, 5, 3), (64, 40, 3), (7, 300)])
def test_pictures_are_png_files(shape):
    from io import BytesIO

    from PIL import Image

    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    uri = _pictures.data_uri(image)
    read = np.asarray(Image.open(BytesIO(base64.b64decode(uri.partition(",")[2]))))
    assert max(read.shape[:2]) <= 32
    if max(shape[:2]) <= 32:
        np.testing.assert_array_equal(read, image.reshape(read.shape))
    else:
        assert abs(float(read.mean()) - float(image.mean())) < 3
    assert zlib.crc32(b"IEND") == struct.unpack(">I", _pictures.png(image)[-4:])[0]


def test_figures_from_a_table(tmp_path):
    rows = [row for k in (50, 250) for row in tables.rows("T3", "cifar10", k)]
    with (tmp_path / "reproduction.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*figures.NEEDED, "clean"])
        for row in rows:
            for budget, percent in row.percent.items():
                writer.writerow([row.dataset, row.k, row.method, row.d, budget, percent + 1, percent, 70.0])
    result = run("report", "--csv", tmp_path / "reproduction.csv", "--figures", tmp_path / "figures")
    assert result.exit_code == 0, result.output
    names = {f"{what}-cifar10-k{k}.{kind}" for what in ("certified", "improvement") for k in (50, 250)
             for kind in ("svg", "pdf", "png")}  # fmt: skip
    assert {path.name for path in (tmp_path / "figures").iterdir()} == names
    curves = figures._settings(tmp_path / "reproduction.csv")["cifar10", 50]
    assert [curve.label for curve in curves] == ["DPA", "DPA+ROE"]
    assert curves[1].base is curves[0]
    assert curves[0].ours[0] == 70.0


def test_figures_from_the_table_of_this_project(tmp_path):
    table = Path(__file__).parent.parent / "docs" / "reproduction.csv"
    names = figures.draw_table(table, tmp_path)
    assert "certified-cifar10-k50" in names
    assert len(list(tmp_path.iterdir())) == 3 * len(names)


def test_of_rows_beside_one_printed_row_the_nearest_d_is_drawn(tmp_path):
    head = "dataset,k,method,d,budget,ours,paper,paper_d\n"
    rows = [("FA", 2, 16), ("DPA*+ROE", 8, 16), ("DPA*", 2, 16), ("DPA*", 8, 16), ("DPA*", 32, 32), ("DPA", 1, 1)]
    lines = "".join(f"mnist,4,{method},{d},1,{10 + d},20,{printed}\n" for method, d, printed in rows)
    (tmp_path / "t.csv").write_text(head + lines)
    drawn = figures._settings(tmp_path / "t.csv")["mnist", 4]
    labels = ["DPA", "DPA*, d = 8 (16)", "DPA*+ROE, d = 8 (16)", "DPA*, d = 32", "FA, d = 2 (16)"]
    assert [curve.label for curve in drawn] == labels
    assert [curve.ours[1] for curve in drawn] == [11, 18, 18, 42, 12]
    shorter = "".join(line.rsplit(",", 1)[0] + "\n" for line in (head + lines).splitlines())
    (tmp_path / "t.csv").write_text(shorter)
    assert len(figures._settings(tmp_path / "t.csv")["mnist", 4]) == 6  # nothing says that they stand beside one


def test_legends_with_long_names_have_one_column(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(figures, "save", lambda figure, *_: kept.append(figure))
    for name in ("short", "a run with a name that is very long indeed, 3 seeds"):
        curves = [figures.Curve(f"{name} {i}", "plurality", {0: 50.0, 1: 20.0 + i}, marks=(0, 1)) for i in range(6)]
        figures._draw_both(curves, tmp_path, "")
    two, one = kept
    assert [figure.legends[0]._ncols for figure in (two, one)] == [2, 1]
    assert one.get_figheight() > two.get_figheight()
    one.draw_without_rendering()
    box = one.legends[0].get_window_extent()
    assert box.x1 <= one.bbox.x1


def test_plot_draws_what_certified_accuracy_says():
    from matplotlib.figure import Figure

    values, labels = scores(200, 15, 4)
    certificates = runoff.certify(values)
    ax = Figure().subplots()
    assert certificates.plot(labels, ax, label="ours", color="k") is ax
    certificates.plot(ax=ax)
    right, all_ = ax.get_lines()
    budgets = right.get_xdata()
    np.testing.assert_allclose(right.get_ydata(), 100 * runoff.certified_accuracy(certificates, labels, budgets))
    np.testing.assert_allclose(all_.get_ydata(), [100 * (certificates.radius >= b).mean() for b in budgets])
    assert right.get_label() == "ours"
    with pytest.raises(ValueError, match="no certificates"):
        certificates[:0].plot(ax=ax)


def test_without_matplotlib_one_sentence_says_what_to_install(monkeypatch, plain):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"pip install 'runoff\[report\]'"):
        runoff.certify(scores(5, 5, 3)[0]).plot()
    result = run("report", plain, "--figures", "nowhere")
    assert result.exit_code == 1
    assert "Install it with: pip install 'runoff[report]'" in result.stderr


def test_certificates_in_a_notebook():
    values, _ = scores(20, 9, 3)
    certificates = runoff.certify(values).named(np.array(HOSTILE, dtype=object))
    shown = certificates._repr_html_()
    assert "<script" not in shown
    assert html.escape(HOSTILE[0]) in shown
    assert "the first 5 of 20" in shown
    assert f"{100 * (certificates.radius >= 0).mean():.1f} %" in shown
    assert "Certificates of 0 inputs" in html.unescape(certificates[:0]._repr_html_())
