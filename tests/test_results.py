"""Benchmarks of recipes: a queue that keeps what is finished, and tables from what is certified."""

import csv
import json
import sys

import numpy as np
import pytest

import runoff
from benchmarks import pretraining, recipes, reproduction, results
from runoff.torch import starting

QUICK = "network=small,epochs=1"


def test_ballots_are_those_of_the_library():
    scores = np.random.default_rng(0).integers(0, 4, (40, 7, 10)).astype(np.float32)  # with ties
    np.testing.assert_array_equal(recipes.ranked(scores), runoff.rank(scores))


def test_first_weights_with_changed_settings(tmp_path):
    settings, weights = pretraining.settings_of("steps=3,textures=noise+fractals,strokes=0,weights=procedural")
    assert (settings.steps, settings.textures, settings.strokes, weights) == (3, ("noise", "fractals"), 0, "procedural")
    assert pretraining.name_of("steps=3,lr=1e-3") == "steps-3-lr-1e-3"
    options = ["pretrain", "-", "--device", "cpu", "--out", str(tmp_path), "steps=1,batch=2,stock=1,textures=noise"]
    recipes.run(recipes.parser().parse_intermixed_args(options))
    [row] = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert row["what"] == "pretrain"
    assert row["settings"]["textures"] == ["noise"]
    assert starting.get(tmp_path / row["file"], "nin").sha256


def test_variants_change_recipes():
    recipe, network, weights, seeds = recipes.variant("strong:weights=procedural,epochs=7,seeds=3,schedule='constant'")
    assert (recipe.epochs, recipe.schedule, network, weights, seeds) == (7, "constant", "nin", "procedural", 3)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_a_queue_keeps_rows_and_ballots(tmp_path, monkeypatch, capsys):
    queue, out, table, runs = (tmp_path / name for name in ("queue", "out", "results.csv", "runs.csv"))
    queue.write_text(
        f"members digits --k 12 --members 2 --samples 40 --shifts 0,1 --device cpu strong-digits:{QUICK},crop=1\n"
        "members digits no-such-recipe\n"
        "ensemble digits --k 12 --samples 40 --ballots --device cpu --name mnist "
        f"strong-digits:{QUICK},crop=1,seeds=2\n"
        "end\n"
    )
    monkeypatch.setattr(recipes, "PIECE", 12 * 10 * 100)
    monkeypatch.setattr(recipes, "finishing", recipes.ThreadPoolExecutor(1))
    monkeypatch.setattr(sys, "argv", ["recipes", "queue", str(queue), "--out", str(out)])
    recipes.main()
    assert "KeyError: 'no-such-recipe'" in capsys.readouterr().err
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert [(row["what"], row.get("scored_with_shift"), row.get("version")) for row in rows] == [
        ("members", None, None), ("members", 0, None), ("members", 1, None),
        ("ensemble", None, 0), ("ensemble", None, 1), ("ensemble", None, "mean"),
    ]  # fmt: skip
    assert rows[0]["out_of_part"] == rows[1]["out_of_part"]  # the recipe has no shift of its own
    kept = [
        np.load(path) for path in sorted(out.glob("*-test*.npz"), key=lambda path: int(path.stem.rpartition("test")[2]))
    ]
    assert len(kept) > 1
    ballots, y = (np.concatenate([piece[name] for piece in kept]) for name in ("ballots", "y"))
    assert ballots.shape == (len(y), 12, 10)
    assert rows[-1]["test"] == round(100 * (ballots.argmax(2) == y[:, None]).mean(), 4)
    assert rows[3]["test"] != rows[4]["test"]  # two networks, not one twice

    monkeypatch.setitem(results.EDITS, ("mnist", 12), ((1, 2), 1))
    monkeypatch.setattr(results, "paper_best", lambda *_: 50.0)
    paper = "T3,mnist,12,{},1,{},40.0,,41.0,,1,-1,45.0,1,12,1.0,cpu,nin,paper-no-flip,command"
    lines = [paper.format(method, edits) for method in ("DPA", "DPA+ROE") for edits in (1, 2)]
    head = results.Path("docs/reproduction.csv").read_text().splitlines()[0]
    (tmp_path / "reproduction.csv").write_text("\n".join([head, *lines]) + "\n")
    files = ["--runs", str(runs), "--csv", str(table), "--reproduction", str(tmp_path / "reproduction.csv")]
    for what in (["add", str(out)], ["add", str(out)], ["tables"]):  # adding a run twice changes nothing
        monkeypatch.setattr(sys, "argv", ["results", *what, *files])
        results.main()
    with table.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert tuple(written[0]) == results.COLUMNS
    assert {row["track"] for row in written} == {"scratch", "paper"}
    at = [row for row in written if (row["track"], row["election"], row["edits"]) == ("scratch", "runoff", "2")]
    by_networks = {",seeds=2" in row["recipe"]: row for row in at}
    certificates = runoff.certify(ballots)
    expected = 100 * runoff.certified_accuracy(certificates, y, [2])[0]
    assert by_networks[True]["certified"] == f"{expected:.2f}"
    assert by_networks[True]["std"] == ""
    alone = [row["certified"]["runoff"][2] for row in rows[3:5]]
    assert float(by_networks[False]["certified"]) == pytest.approx(np.mean(alone), abs=0.006)
    assert float(by_networks[False]["std"]) == pytest.approx(np.std(alone, ddof=1), abs=0.02)
    assert float(by_networks[True]["seconds"]) == pytest.approx(2 * float(by_networks[False]["seconds"]), abs=0.2)


def test_the_figure_is_drawn_from_the_rows(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    out = tmp_path / "results.svg"
    monkeypatch.setattr(sys, "argv", ["results", "figure", "--out", str(out)])
    results.main()
    assert out.read_text().count("strong members, run-off") == 1


def test_the_figure_against_the_number_of_parts(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    out = tmp_path / "results.svg"
    monkeypatch.setattr(sys, "argv", ["results", "against-parts", "--out", str(out)])
    results.main()
    drawn = out.read_text()
    assert all(f">{n} edits<" in drawn for n in (10, 60, 500))
    rows = [row for row in results.read(results.Path("docs/results.csv")) if row["track"] == "encoder"]
    rows = [row for row in rows if row["election"] == "runoff"]
    assert results.measured_at(rows, 1000, 60) > results.measured_at(rows, 250, 60)  # as the page says
    assert results.measured_at(rows, 50, 60) == 0


def test_the_tables_of_the_page_and_the_csv_are_those_that_the_command_prints(tmp_path, monkeypatch, capsys):
    docs = results.Path("docs")
    monkeypatch.setattr(sys, "argv", ["results", "tables", "--csv", str(tmp_path / "results.csv")])
    results.main()
    assert (tmp_path / "results.csv").read_text() == (docs / "results.csv").read_text()

    def rows(text):
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if "." in line]
        return [row[1:] for row in cells if len(row) >= 7]

    printed = rows(capsys.readouterr().out)
    page = (docs / "results.md").read_text()
    accuracy = page.split("## Certified accuracy")[1].split("## Which election")[0]
    for row in rows(accuracy):
        of_gtsrb = row in (OF_GTSRB_100, OF_GTSRB_50)  # estimates of runs whose rows are not stored
        assert of_gtsrb or row in printed, row
    encoder = page.split("## A trusted encoder")[1].split("## Cost")[0]
    assert len(rows(encoder)) == 7
    for accuracy_of_members, *cells in rows(encoder):
        assert any(row[0] == accuracy_of_members and row[2:] == cells for row in printed)
    commands = {row["command"].partition(" -m ")[2].split(" ")[0] or row["command"].split(" ")[0]
                for row in results.read(docs / "results.csv")}  # fmt: skip
    assert commands == {"benchmarks.recipes", "benchmarks.encoder", "benchmarks.networks", "runoff"}


OF_GTSRB_100 = ["97.46", "96.28", "92.62", "90.48", "88.24", "85.34"]
OF_GTSRB_50 = ["99.68", "99.40", "98.84", "97.04", "92.48", "88.52"]


# -- which rows of the paper have been run -----------------------------------------------------------------------------


def test_the_page_says_of_every_row_of_the_paper_what_has_been_run():
    docs = results.Path("docs")
    page = (docs / "reproduction.md").read_text(encoding="utf-8")
    table = reproduction.printed(reproduction.read(docs / "reproduction.csv"))
    assert reproduction.inserted(page, table) == page, "run: python -m benchmarks.reproduction --write PAGE"
    assert page.index(table) < 500
    assert "Of the 47 rows of tables 1 to 4" in table
    cells = [cell.strip() for line in table.splitlines()[5:] for cell in line.split("|")[3:-1]]
    assert sum(map(bool, cells)) == 51


def test_rows_that_have_been_run_in_part(tmp_path):
    head = results.Path("docs/reproduction.csv").read_text().splitlines()[0]
    line = "{},cifar10,50,{},{},{},40,,41,,{},-1,45,{},400,1,cpu,{},{},command"
    lines = []
    for budget in (5, 10, 15, 18, 20):
        lines += [
            line.format("T2", "DPA*", 16, budget, 16, 1, "nin", "paper"),
            line.format("T1", "DPA*+ROE", 4, budget, 16, 1, "nin", "paper"),
            line.format("T1", "DPA*+ROE", 8, budget, 16, 1, "nin", "paper"),
            line.format("T3", "DPA", 1, budget, 1, 1, "small", "paper"),
            line.format("T3", "DPA+ROE", 1, budget, 1, 1, "nin", "strong"),
            line.format("T6", "DPA", 1, budget, 1, 16, "nin", "paper"),
            line.format("T6", "DPA+ROE", 1, budget, 1, 15, "nin", "paper"),
        ]
    lines.append(line.format("T1", "FA", 16, 5, 16, 1, "nin", "paper"))  # of one budget only
    (tmp_path / "reproduction.csv").write_text("\n".join([head, *lines]) + "\n")
    done = reproduction.read(tmp_path / "reproduction.csv")
    status = {
        (row.table == "T6", row.method, row.d): reproduction.status(row, done)
        for row in reproduction.unique_rows()
        if (row.dataset, row.k) == ("cifar10", 50)
    }
    assert status[False, "DPA*", 16] == "run"
    assert status[False, "DPA*", 32] == "not run"
    assert status[False, "DPA*+ROE", 16] == "fewer: d = 8"
    assert status[False, "DPA", 1] == status[False, "DPA+ROE", 1] == status[False, "FA", 16] == "not run"
    assert status[True, "DPA", 1] == "run"
    assert status[True, "DPA+ROE", 1] == "fewer: 15 trials"
