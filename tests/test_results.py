"""Benchmarks of recipes: a queue that keeps what is finished, and tables from the kept ballots."""

import csv
import json
import sys

import numpy as np
import pytest

import runoff
from benchmarks import recipes, results

QUICK = "network=small,epochs=1"


def test_ballots_are_those_of_the_library():
    scores = np.random.default_rng(0).integers(0, 4, (40, 7, 10)).astype(np.float32)  # with ties
    np.testing.assert_array_equal(recipes.ranked(scores), runoff.rank(scores))


def test_variants_change_recipes():
    recipe, network, weights, seeds = recipes.variant("strong:weights=procedural,epochs=7,seeds=3,schedule='constant'")
    assert (recipe.epochs, recipe.schedule, network, weights, seeds) == (7, "constant", "nin", "procedural", 3)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")
def test_a_queue_keeps_rows_and_ballots(tmp_path, monkeypatch, capsys):
    queue, out, table = tmp_path / "queue", tmp_path / "out", tmp_path / "results.csv"
    queue.write_text(
        f"members digits --k 12 --members 2 --samples 40 --shifts 0,1 --device cpu strong-digits:{QUICK},crop=1\n"
        "members digits no-such-recipe\n"
        f"ensemble digits --k 12 --samples 40 --device cpu --name mnist strong-digits:{QUICK},crop=1,seeds=2\n"
        "end\n"
    )
    monkeypatch.setattr(recipes, "PIECE", 12 * 10 * 100)
    monkeypatch.setattr(recipes, "finishing", recipes.ThreadPoolExecutor(1))
    monkeypatch.setattr(sys, "argv", ["recipes", "queue", str(queue), "--out", str(out)])
    recipes.main()
    assert "KeyError: 'no-such-recipe'" in capsys.readouterr().err
    rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
    assert [(row["what"], row.get("scored_with_shift")) for row in rows] == [
        ("members", None), ("members", 0), ("members", 1), ("ensemble", None),
    ]  # fmt: skip
    assert rows[0]["out_of_part"] == rows[1]["out_of_part"]  # the recipe has no shift of its own
    assert len(rows[3]["test"]) == 12
    kept = results.ballots(out, rows[3]["ballots"], "test")
    assert len(list(out.glob("*-test*.npz"))) > 1
    assert kept["ballots"].shape == (len(kept["y"]), 12, 10)
    right = 100 * (kept["ballots"].argmax(2) == kept["y"][:, None]).mean(0)
    np.testing.assert_allclose(right, rows[3]["test"])
    next(out.glob("*-test1.npz")).rename(out / "elsewhere.npz")
    with pytest.raises(SystemExit, match=r"pieces of .* are missing"):
        results.ballots(out, rows[3]["ballots"], "test")
    (out / "elsewhere.npz").rename(out / f"{rows[3]['ballots']}-test1.npz")

    monkeypatch.setitem(results.EDITS, ("mnist", 12), ((1, 2), 1))
    monkeypatch.setattr(results, "paper_best", lambda *_: 50.0)
    paper = "T3,mnist,12,{},1,{},40.0,,41.0,,1,-1,45.0,1,12,1.0,cpu,nin,paper-no-flip,command"
    lines = [paper.format(method, edits) for method in ("DPA", "DPA+ROE") for edits in (1, 2)]
    head = results.Path("docs/reproduction.csv").read_text().splitlines()[0]
    (tmp_path / "reproduction.csv").write_text("\n".join([head, *lines]) + "\n")
    monkeypatch.setattr(
        sys, "argv",
        ["results", "collect", str(out), "--csv", str(table), "--reproduction", str(tmp_path / "reproduction.csv")],
    )  # fmt: skip
    results.main()
    with table.open(newline="") as file:
        written = list(csv.DictReader(file))
    assert tuple(written[0]) == results.COLUMNS
    certificates = runoff.certify(kept["ballots"])
    for row in written:
        if (row["track"], row["election"]) == ("scratch", "runoff"):
            expected = 100 * runoff.certified_accuracy(certificates, kept["y"], [int(row["edits"])])[0]
            assert row["certified"] == f"{expected:.2f}"
    assert {row["track"] for row in written} == {"scratch", "paper"}


def test_the_figure_is_drawn_from_the_rows(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    out = tmp_path / "results.svg"
    monkeypatch.setattr(sys, "argv", ["results", "figure", "--out", str(out)])
    results.main()
    assert out.read_text().count("strong members, run-off") == 1
