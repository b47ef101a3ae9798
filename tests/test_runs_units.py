"""Runs that count sources or labels, from the command line: trained, updated, certified, reported and verified."""

import json
import shutil

import numpy as np
import pytest
from sklearn.datasets import load_digits

import runoff
from helpers import run
from runoff import RunoffClassifier, datasets, hashing, verify
from runoff.errors import DatasetError
from runoff.runs import Run
from runoff.runs.retraining import members_of
from runoff.verify import _content

X, Y = load_digits(return_X_y=True)
X = X.reshape(-1, 8, 8).astype(np.uint8)
GROUPS = np.array([f"client {i * i % 41}" for i in range(200)])
OPTIONS = ("--k", 4, "--network", "small", "--recipe", "quick", "--device", "cpu", "--classes", 10)


def dataset(path, rows, groups=None, labels=Y):
    arrays = {"x_train": X[rows], "y_train": labels[rows], "x_test": X[300:330], "y_test": Y[300:330]}
    np.savez(path, **arrays, **({} if groups is None else {"groups": groups}))
    return path


def done(*arguments, code=0):
    result = run(*arguments)
    assert result.exit_code == code, result.output
    return result.output


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    done("train", dataset(folder / "s.npz", np.arange(200), GROUPS), *OPTIONS, "--out", folder / "sources")
    done("train", dataset(folder / "l.npz", np.arange(200)), *OPTIONS, "--threat", "labels", "--out", folder / "labels")
    return folder


def test_a_run_with_groups_counts_sources(runs, tmp_path):
    shown = done("certify", runs / "sources", "--export", tmp_path / "proof.json", "--out", tmp_path / "rows.csv")
    assert "│ sources │" in shown.replace("┃", "│")
    assert "An edit is one source: all that it contributes may change" in " ".join(shown.split())
    assert json.loads((tmp_path / "proof.json").read_text())["unit"] == "sources"
    assert (tmp_path / "rows.csv").read_text().startswith("input,prediction,radius,runner_up,unit,label\n0,")
    message = json.loads(done("certify", runs / "sources", "--json"))
    assert message["unit"] == "sources"
    short = done("certify", runs / "sources", "--require", "1:100%", code=3)
    assert "at 1 source, required 100 %" in " ".join(short.split())
    manifest = Run.open(runs / "sources").manifest
    assert manifest["sources"][0] == len({*GROUPS})
    assert "sources counted" in done("train", runs / "s.npz", *OPTIONS, "--out", runs / "sources")
    plan = done("train", runs / "s.npz", *OPTIONS, "--out", tmp_path / "x", "--dry-run")
    assert "21 sources, the largest with" in " ".join(plan.split())


def test_a_report_says_sources_and_labels(runs, tmp_path):
    for name, words in (
        ("sources", ['data-noun="source"', "An edit is one source", "may control any sources", "corrupting any"]),
        (
            "labels",
            [
                'data-noun="changed label"',
                "Inserted and deleted samples are not covered",
                "are trusted",
                "cannot change its prediction (inserted and deleted samples are not covered).",
                'data-caveat=" (inserted',
            ],
        ),
    ):
        done("report", runs / name, "--out", tmp_path / "report.html")
        page = (tmp_path / "report.html").read_text()
        assert [word for word in words if word not in page] == []
        assert "inserts, deletes or relabels one training sample" not in page
    both = done("report", runs / "sources", runs / "labels", "--out", tmp_path / "report.html", code=2)
    assert "runs that count the same unit, got labels and sources" in " ".join(both.split())


def test_updates_of_sources_equal_a_new_run(runs, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(runs / "sources", out)
    own = np.flatnonzero([name == GROUPS[0] for name in GROUPS])
    np.savez(tmp_path / "gone.npz", x=X[own], y=Y[own], groups=GROUPS[own])
    np.savez(tmp_path / "new.npz", x=X[200:205], y=Y[200:205], groups=np.arange(5))
    np.savez(tmp_path / "nameless.npz", x=X[200:205], y=Y[200:205])
    np.savez(tmp_path / "other.npz", x=X[own], y=Y[own], groups=np.repeat("mallory", len(own)))
    assert "must have groups, as s.npz has" in done("update", out, "--add", tmp_path / "nameless.npz", code=2)
    assert "is not a training sample" in " ".join(
        done("update", out, "--remove", tmp_path / "other.npz", code=2).split()
    )
    done("update", out, "--add", tmp_path / "new.npz", "--remove", tmp_path / "gone.npz")
    left = np.setdiff1d(np.arange(200), own)
    path = dataset(tmp_path / "s2.npz", [*left, *range(200, 205)], [*GROUPS[left], *"01234"])
    done("train", path, *OPTIONS, "--out", tmp_path / "again")
    a, b = Run.open(out), Run.open(tmp_path / "again")
    np.testing.assert_array_equal(a.ballots(), b.ballots())
    assert a.manifest["training_sets"] == b.manifest["training_sets"]
    assert a.manifest["sources"] == b.manifest["sources"]
    before = Run.open(runs / "sources").manifest["training_sets"]
    touched = [m for m in range(4) if before[m] != a.manifest["training_sets"][m]]
    names = [GROUPS[0], *range(5)]
    assert touched == np.unique(hashing.sources(names, 6, a.partition().key)[:, 0] % 4).tolist()
    assert "everything that was checked is correct" in done("verify", out)


def test_runs_of_labels_can_only_relabel(runs, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(runs / "labels", out)
    assert Run.open(out).manifest["member_sizes"] == [50] * 4
    np.savez(tmp_path / "old.npz", x=X[:2], y=Y[:2])
    np.savez(tmp_path / "new.npz", x=X[:2], y=9 - Y[:2])
    refused = done("update", out, "--remove", tmp_path / "old.npz", code=2)
    assert "this run counts labels, so its samples are fixed" in " ".join(refused.split())
    done("update", out, "--remove", tmp_path / "old.npz", "--add", tmp_path / "new.npz")
    relabelled = np.append(9 - Y[:2], Y[2:])
    path = dataset(tmp_path / "l2.npz", np.arange(200), labels=relabelled)
    done("train", path, *OPTIONS, "--threat", "labels", "--out", tmp_path / "again")
    np.testing.assert_array_equal(Run.open(out).ballots(), Run.open(tmp_path / "again").ballots())
    shown = " ".join(done("certify", out).split())
    assert "Inserted and deleted samples are not covered." in shown
    limits = "inserted and deleted samples are not covered"
    short = " ".join(done("certify", out, "--require", "1:100%", code=3).split())
    assert f"at 1 changed label ({limits}), required 100 %" in short
    assert f"radii count changed labels; {limits})" in done("verify", out)


def test_runs_of_different_units_are_not_mixed_up(runs):
    mixed = done("train", runs / "l.npz", *OPTIONS, "--out", runs / "labels", code=2)
    assert 'unit = "labels", not "samples"' in " ".join(mixed.split())
    both = done("train", runs / "s.npz", *OPTIONS, "--threat", "labels", "--out", runs / "x", code=2)
    assert "has groups, which cannot be used if labels are counted" in " ".join(both.split())
    sums = done("train", runs / "s.npz", *OPTIONS, "--hash", "pixel-sum", "--out", runs / "x", code=2)
    assert "hash must be 'content' if sources are counted" in " ".join(sums.split())


@pytest.mark.parametrize("groups", [np.zeros(199, int), np.zeros((200, 1), int), np.zeros(200), GROUPS.astype("S")])
def test_invalid_groups_of_a_dataset_are_refused(groups, tmp_path):
    with pytest.raises(DatasetError, match="groups must name the source of each training image"):
        datasets.load(dataset(tmp_path / "x.npz", np.arange(200), groups))


def test_groups_are_part_of_a_datasets_fingerprint(runs):
    with_groups, without = (datasets.load(runs / name, classes=10) for name in ("s.npz", "l.npz"))
    assert with_groups.fingerprint != without.fingerprint
    assert verify.networks.dataset_fingerprint(with_groups) == with_groups.fingerprint


# -- the verifier ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sources", "labels"])
def test_runs_are_verified(runs, tmp_path, name):
    assert "the training sets of 4 members" in done("verify", runs / name, "--retrain", 1)
    out = tmp_path / "run"
    shutil.copytree(runs / name, out)
    manifest = (out / "manifest.json").read_text().replace(f'"unit": "{name}"', '"unit": "samples"')
    (out / "manifest.json").write_text(manifest)
    assert run("verify", out).exit_code == 4


def test_names_of_sources_are_hashed_alike():
    names = [
        "a",
        "",
        "é",
        "e\u0301",
        "01",
        "7",
        "7.0",
        "-0",
        "-0.0",
        "-7.0",
        "1.5",
        "1e5",
        "７",
        "--1",
        "-",
        ".0",
        "0.0",
    ]
    names += [7, 7.0, -3, 2**53 + 1, 2**70, np.int8(3), np.float32(3), np.str_("x"), np.uint64(2**63)]
    ours = hashing.sources(names, len(names), bytes(32))
    theirs = np.frombuffer(b"".join(_content.source_digests(names, len(names), bytes(32))), "<u8").reshape(-1, 2)
    np.testing.assert_array_equal(theirs, ours)


@pytest.mark.parametrize("settings", [{}, {"spread": 2}])
def test_saved_classifiers_are_verified(tmp_path, settings):
    x, groups = X[:200].reshape(200, -1), GROUPS.tolist()
    known = {"n_partitions": 3, "classes": range(10), **settings}
    RunoffClassifier(**known).fit(x, Y[:200], groups).save(tmp_path / "sources")
    shared = {"threat": "labels", "shared": runoff.members.default_estimator("dense")[:-1]}
    RunoffClassifier(**known, **shared).fit(x, Y[:200]).save(tmp_path / "labels")
    for name, given in (("sources", groups), ("labels", None)):
        members = members_of(tmp_path / name, "runoff classifier")
        options = {"groups": given, "members": members, "retrain": 2, "sample": 3}
        report = verify.classifier(tmp_path / name, x, Y[:200], **options)
        assert report.failures == []
        assert any("bit for bit the same" in line for line in report.checked)
    wrong = verify.classifier(tmp_path / "sources", x, Y[:200], groups=[*groups[1:], "x"])
    assert wrong.exit_code == 4
    without = verify.classifier(tmp_path / "sources", x, Y[:200])
    assert any("divided by source, and no groups were passed" in line for line in without.not_checked)
