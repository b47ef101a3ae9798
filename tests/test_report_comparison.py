"""Comparisons in the report: with an undefended model, between runs on the same inputs, and between classes."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import runoff
from helpers import SIGNS, a_run, run, scores
from runoff import report
from runoff.report import Source, _collect, _html, _origin, _words, figures
from runoff.runs import Run
from test_report import page_data

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Make two runs on the same test inputs, one on others, and predictions of a model that is correct on 3 of 4."""
    folder = tmp_path_factory.mktemp("somewhere private")
    a_run(folder / "plain")
    a_run(folder / "spread", k=5, d=3)
    a_run(folder / "other", seed=1)
    labels = np.asarray(Run.open(folder / "plain").labels())
    np.save(folder / "predictions.npy", np.where(np.arange(60) % 4 == 0, (labels + 1) % 3, labels))
    return folder


def source(folder, name="plain", **given):
    return Source.from_run(folder / name, pictures=False, **given)


# -- the undefended model ----------------------------------------------------------------------------------------------


def test_an_undefended_model_is_counted_over_all_and_by_class(folder):
    predictions = np.load(folder / "predictions.npy")
    labels = np.asarray(Run.open(folder / "plain").labels())
    data = report.collect([source(folder, undefended=predictions)], sample=4)
    (model,) = data["undefended"]
    assert (model["label"], model["correct"], model["n_inputs"]) == ("undefended", 45, 60)
    assert model["per_class"] == [int(((predictions == labels) & (labels == c)).sum()) for c in range(3)]
    assert data["sources"][0]["undefended"] == 0
    for shown in data["samples"][0]["inputs"]:
        assert shown["undefended"] == {"0": int(predictions[shown["i"]])}
    assert report.collect([source(folder)], sample=1)["undefended"] == []


def test_predictions_are_indices_names_scores_or_a_file(folder, tmp_path):
    predictions = np.load(folder / "predictions.npy")
    names = np.array(["cat", "dog", "bird"])[predictions]
    np.save(tmp_path / "names.npy", names)
    for given in (predictions.astype(np.uint8), names, np.eye(3)[predictions], tmp_path / "names.npy"):
        assert source(folder, undefended=given).undefended.tolist() == predictions.tolist()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (np.zeros(5, int), "undefended must have one prediction for each of the 60 test inputs"),
        (np.full(60, 3), "undefended must hold class indices from 0 to 2, got 3 for input 0"),
        (
            np.array(["cat"] * 59 + ["cow"]),
            "undefended must hold predictions among the classes, got 'cow' for input 59",
        ),
        (np.full(60, 0.5), "undefended must hold class indices (integers) or names of classes, got dtype float64"),
        (np.full((60, 3), np.nan), "undefended must hold finite scores"),
    ],
)
def test_predictions_that_do_not_fit_are_refused(folder, wrong, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        source(folder, undefended=wrong)


def test_the_command_takes_predictions_once_or_per_run(folder, tmp_path):
    given, out = folder / "predictions.npy", tmp_path / "report.html"
    command = ("report", folder / "plain", folder / "spread", "--out", out, "--sample", 2, "--undefended", given)
    assert run(*command).exit_code == 0
    data = page_data(out.read_text())
    assert [model["label"] for model in data["undefended"]] == ["undefended"]
    assert [about["undefended"] for about in data["sources"]] == [0, 0]
    np.save(tmp_path / "zeros.npy", np.zeros(60, int))
    assert run(*command, "--undefended", tmp_path / "zeros.npy").exit_code == 0
    data = page_data(out.read_text())
    assert [model["label"] for model in data["undefended"]] == ["undefended, plain", "undefended, spread"]
    result = run(*command, "--undefended", given, "--undefended", given)
    assert result.exit_code == 2
    assert "once for all runs or once per run, got 3 files for 2 runs" in result.stderr
    np.save(tmp_path / "short.npy", np.zeros(5, int))
    result = run("report", folder / "plain", "--out", out, "--undefended", tmp_path / "short.npy")
    assert result.exit_code == 2
    assert "short.npy must have one prediction for each of the 60 test inputs" in result.stderr


def test_a_classifier_takes_a_model_or_its_predictions():
    values, y = scores(120, 1, 3)
    X, labels = values[:, 0], np.array([10, 20, 30])[y]
    classifier = runoff.RunoffClassifier(LogisticRegression(), n_partitions=4, classes=[10, 20, 30]).fit(X, labels)
    model = clone(classifier.estimator).fit(X, labels)
    for given in (model, model.predict(X), model.predict_proba(X)):
        data = report.collect([Source.from_classifier(classifier, X, labels, undefended=given)], sample=1)
        assert data["undefended"][0]["correct"] == (model.predict(X) == labels).sum()
    with pytest.raises(ValueError, match="got 40 for input 0"):
        Source.from_classifier(classifier, X, labels, undefended=np.full(120, 40))


# -- runs on the same inputs -------------------------------------------------------------------------------------------


def test_runs_on_the_same_inputs_share_their_sample(folder):
    sources = [source(folder, name) for name in ("plain", "spread", "other")]
    data = report.collect(sources, sample=7)
    assert [about["sample"] for about in data["sources"]] == [0, 0, 1]
    for shown in data["samples"][0]["inputs"]:
        assert set(shown["elections"]) == {"0", "1", "2", "3"}
        for m, found in shown["elections"].items():
            method = data["methods"][int(m)]
            certificates = sources[method["source"]].certificates(method["election"], "tight")
            assert found["radius"] == certificates.radius[shown["i"]]
            assert data["sources"][0]["classes"][found["prediction"]] == certificates.prediction[shown["i"]]
    assert "the same for plain and spread" in data["samples"][0]["how"]
    assert "the same" not in data["samples"][1]["how"]


def test_an_input_can_be_selected(folder, tmp_path):
    chosen = {shown["i"] for shown in report.collect([source(folder)], sample=2)["samples"][0]["inputs"]}
    asked = next(i for i in range(60) if i not in chosen)
    out = tmp_path / "report.html"
    assert run("report", folder / "plain", "--out", out, "--sample", 2, "--input", asked).exit_code == 0
    data = page_data(out.read_text())
    assert {shown["i"] for shown in data["samples"][0]["inputs"]} == chosen | {asked}
    assert data["opened"] == asked
    result = run("report", folder / "plain", "--out", out, "--input", 60)
    assert result.exit_code == 2
    assert "must be below 60, the number of inputs, got 60" in result.stderr


def test_radii_against_single_classes_are_those_of_the_library(folder):
    for name in ("plain", "spread"):
        used = source(folder, name)
        data = report.collect([used], sample=10)
        for m, election in (("0", "plurality"), ("1", "runoff")):
            certificates = used.certificates(election, "tight")
            known = np.stack([certificates.radius_to(c) for c in used.classes])
            for shown in data["samples"][0]["inputs"]:
                targets = shown["elections"][m]["to"]
                assert {c for c, _ in targets} == {0, 1, 2} - {shown["elections"][m]["prediction"]}
                assert [radius for _, radius in targets] == [known[c, shown["i"]] for c, _ in targets]
                assert min(radius for _, radius in targets) >= shown["elections"][m]["radius"]


def test_many_members_leave_room_for_the_whole_sample(monkeypatch):
    n = 16
    monkeypatch.setattr(_collect, "SAMPLE_BYTES", _collect.SAMPLE_BYTES * n // _collect.SAMPLE)
    values, y = scores(n, 1000, 10, clear=0.5)
    large = Source(
        name="large",
        ballots=runoff.rank(values),
        labels=y,
        spread=np.arange(1000)[:, None],
        classes=tuple("abcdefghij"),
        n_partitions=1000,
    )
    data = report.collect([large])
    assert len(data["samples"][0]["inputs"]) == n


def test_the_page_holds_what_was_collected(folder):
    data = report.collect([source(folder), source(folder, "spread")], sample=12, elections=("runoff", "maximin"))
    assert page_data(_html.page(data))["samples"][0]["inputs"] == json.loads(json.dumps(data["samples"][0]["inputs"]))


# -- classes -----------------------------------------------------------------------------------------------------------


def test_classes_without_a_certified_input_are_named():
    values, y = scores(300, 21, 3, clear=3)
    y[:294], y[294:] = y[:294] % 2, 2  # the last class is rare, and never predicted
    values[..., 2] -= 9
    np.put_along_axis(values, y[:, None, None].repeat(21, 1), 3, axis=2)
    values[294:, :, 2] = -99
    rare = Source(
        name="rare", ballots=runoff.rank(values), labels=y, spread=np.arange(21)[:, None],
        classes=("stop", "go", "yield"), n_partitions=21,
    )  # fmt: skip
    data = report.collect([rare], budgets=[0, 5, 50], sample=1)
    for method in data["methods"]:
        assert method["per_class"][2] == [0, 0, 0]
        share = f"{100 * method['curve'][5] / 300:.1f} %"
        told = f"{method['label']} at 5 edits: certified accuracy is {share} over all inputs, but 0 % for 1 of the 3 "
        assert method["hints"][1] == f"{told}classes: yield (6). The numbers in brackets count their test inputs."
        assert method["hints"][2] == ""  # nothing is certified at all


def test_the_command_warns_of_classes_at_zero(tmp_path):
    a_run(tmp_path / "signs", n=90, k=9, classes=SIGNS)
    result = run("report", tmp_path / "signs", "--out", tmp_path / "r.html", "--sample", 2)
    assert re.search(r"but 0 % for \d+ of the \d+ classes: sign ", result.stderr)
    page = page_data((tmp_path / "r.html").read_text())
    about = page["sources"][0]
    hint = page["methods"][about["headline"]]["hints"][page["budgets"].index(about["middle"])]
    assert hint in result.stderr.replace("\n", " ")


# -- words, origin, colours --------------------------------------------------------------------------------------------


def test_the_origin_names_no_folder(folder, tmp_path, monkeypatch):
    images = np.zeros((60, 4, 4), np.uint8)
    a_run(tmp_path / "my run", images=images)
    (tmp_path / "pets.npz").unlink()
    out = tmp_path / "report.html"
    assert run("report", tmp_path / "my run", folder / "spread", "--out", out, "--sample", 1).exit_code == 0
    text = out.read_text()
    for private in (str(tmp_path), str(folder), str(Path.home()), tmp_path.name):
        assert private not in text
    data = page_data(text)
    assert data["sources"][0]["made"][0].startswith("runoff train pets.npz ")
    assert "--out 'my run'" in data["sources"][0]["made"][0]
    assert data["sources"][0]["notes"][0].startswith("No pictures: ")
    monkeypatch.chdir(tmp_path.parent)
    inside = report.collect([source(tmp_path, "my run")], sample=1)["sources"][0]
    assert f"--out '{tmp_path.name}/my run'" in inside["made"][0]
    assert inside["checked"] == [f"runoff certify '{tmp_path.name}/my run' --use-seeds 1 --bound tight"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("checkpoints='/home/ann/my runs/a'", "checkpoints='a'"),
        ("python /home/ann/mine.py --k 3", "python mine.py --k 3"),
        (r"C:\Users\ann\data.npz is missing", "data.npz is missing"),
        ("~/data/x.npz", "x.npz"),
        ("--classes '<script>a</script>,</script>,b'", "--classes '<script>a</script>,</script>,b'"),
        ("runs/a, and/or 50/50, https://example.org/a/b", "runs/a, and/or 50/50, https://example.org/a/b"),
    ],
)
def test_folders_are_removed_from_sentences(text, left):
    assert _origin.without_folders((text,)) == (left,)


def test_every_unit_has_its_words_in_the_page(folder):
    for unit, nouns in (("samples", "edits"), ("sources", "sources"), ("labels", "changed labels")):
        data = report.collect([source(folder)], sample=1)
        data["unit"] = _words.counted(unit)
        text = re.sub(r"<script.*?</script>|<style>.*?</style>", "", _html.page(data), flags=re.DOTALL)
        assert f"by that many {nouns}{data['unit']['caveat']}." in text
        assert f"largest number of {nouns} that provably" in text
        if unit != "samples":
            assert not re.search(r"\bedits\b", text.replace("two edits", ""))


def test_certified_fraction_is_another_word_for_certified_accuracy_only():
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("src/**/*.py"), *ROOT.glob("src/**/*.html")]
    texts = {str(page.relative_to(ROOT)): re.sub(r"\s+", " ", page.read_text(encoding="utf-8")) for page in pages}
    found = [name for name, text in texts.items() for _ in re.findall(r"certified fraction", text, re.IGNORECASE)]
    assert found == ["docs/report.md"]
    assert "the paper calls it the certified fraction" in texts["docs/report.md"]


@pytest.mark.parametrize("n_curves", [1, 2, 4, 7])
def test_legends_of_figures_cover_no_point(n_curves, tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(figures, "save", lambda figure, *_: kept.append(figure))
    base = figures.Curve("DPA", "plurality", {b: 97.0 - b / 9 for b in range(100)}, marks=tuple(range(0, 100, 9)))
    curves = [
        figures.Curve(f"method {j}", "runoff", dict.fromkeys(range(100), 98.0 + j / 7), base=base, marks=(0, 50, 99))
        for j in range(n_curves)
    ]
    figures._draw_both([base, *curves], tmp_path, "", {"undefended": 99.0})
    for figure in kept:
        figure.draw_without_rendering()
        (ax,) = figure.axes
        legends = [*figure.legends, *([ax.get_legend()] if ax.get_legend() else [])]
        assert len(legends) == 1
        box = legends[0].get_window_extent()
        points = [ax.transData.transform(line.get_xydata()) for line in ax.lines if line.get_label()[0] != "_"]
        inside = [box.contains(*point) for line in points for point in line]
        assert len(inside) >= 100
        assert not any(inside)
    assert "undefended" in [text.get_text() for text in kept[0].legends[0].get_texts()]


def contrast(a, b):
    def light(color):
        color = color if len(color) == 7 else "#" + "".join(2 * c for c in color[1:])
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(a), light(b)))
    return (high + 0.05) / (low + 0.05)


def test_colours_have_enough_contrast():
    """WCAG 2: 4.5 for text, 3 for marks of charts, in both themes."""
    style = _html.asset("page.css")
    light, dark = re.findall(r":root(?:\[data-theme=\"dark\"\])? \{\s*(--bg.*?)\}", style, re.DOTALL)[:2]
    for theme in (light, dark):
        colors = dict(re.findall(r"--(\w+): (#\w+);", theme))
        for ground in ("bg", "card", "soft"):
            for text in ("ink", "muted", "focus", "good", "bad"):
                assert contrast(colors[text], colors[ground]) >= 4.5, (text, ground)
        assert contrast(colors["ink"], colors["warn"]) >= 4.5
        for mark in (f"m{m}" for m in range(8)):
            assert contrast(colors[mark], colors["bg"]) >= 3, mark
