"""Edits of runs: an update equals a run on the edited samples, also after a kill."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import save

from helpers import SMALL, files, run
from runoff import datasets, samples
from runoff.report.source import Source
from runoff.runs import Run
from runoff.runs.work import Work
from runoff.torch import checkpoints


def test_update_is_a_run_on_the_edited_samples(tmp_path):
    data = datasets.load("digits")
    out, whole = tmp_path / "run", tmp_path / "whole.npz"
    assert run("train", "digits", *SMALL, "--out", out).exit_code == 0
    before = {f: f.stat().st_mtime_ns for f in out.glob("members/*.safetensors")}
    np.savez(tmp_path / "bad.npz", x=data.x_train[:1], y=data.y_train[:1])
    np.savez(tmp_path / "new.npz", x=data.x_test[:1], y=data.y_test[:1])
    edits = ("--remove", tmp_path / "bad.npz", "--add", tmp_path / "new.npz", "--device", "cpu")
    assert run("update", out, *edits, "--dry-run").exit_code == 0
    result = run("update", out, *edits, "--json")
    assert result.exit_code == 0, result.output
    assert 1 <= json.loads(result.stdout)["trained"] <= 2
    assert sum(f.stat().st_mtime_ns != stamp for f, stamp in before.items()) == json.loads(result.stdout)["trained"]
    np.savez(
        whole,
        x_train=np.concatenate([data.x_train[1:], data.x_test[:1]]),
        y_train=np.append(data.y_train[1:], data.y_test[0]),
        x_test=data.x_test,
        y_test=data.y_test,
    )
    result = run("train", whole, *SMALL, "--out", tmp_path / "fresh")
    assert result.exit_code == 2
    assert "one sample with a new label would change every member" in result.stderr
    assert run("train", whole, *SMALL, "--classes", 10, "--out", tmp_path / "fresh").exit_code == 0
    np.testing.assert_array_equal(Run.open(out).ballots(), Run.open(tmp_path / "fresh").ballots())
    result = run("update", out, "--remove", tmp_path / "bad.npz")
    assert result.exit_code == 2
    assert "is not a training sample" in result.stderr
    assert run("update", out).exit_code == 2
    assert run("certify", out).exit_code == 0


def test_a_killed_update_leaves_no_ballots_of_the_old_samples(tmp_path, monkeypatch):
    data, out = datasets.load("digits"), tmp_path / "run"
    assert run("train", "digits", *SMALL, "--out", out).exit_code == 0
    np.savez(tmp_path / "bad.npz", x=data.x_train[:1], y=data.y_train[:1])
    written = []
    monkeypatch.setattr(Run, "write_manifest", lambda self: written.append(json.loads(json.dumps(self.manifest))))
    run("update", out, "--remove", tmp_path / "bad.npz", "--device", "cpu")
    for manifest in written:  # whichever of them is the last before a kill
        assert set(manifest["edits"]) <= set(manifest["files"])
        assert not manifest["edits"] or "ballots-1.npy" not in manifest["files"] or manifest is written[-1]


def test_an_update_that_failed_is_not_done_twice(tmp_path, two_seed_run, monkeypatch):
    edit = ("update", two_seed_run, "--add", tmp_path / "new.npz", "--device")
    before = files(two_seed_run)
    assert run(*edit, "cuda:99").exit_code == 2
    assert files(two_seed_run) == before

    def killed(*_):
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr(Work, "ballots", killed)
        assert run(*edit, "cpu").exit_code == 9
    assert run("certify", two_seed_run).exit_code == 2
    other = run("update", two_seed_run, "--remove", tmp_path / "bad.npz")
    assert other.exit_code == 2
    assert "has an update that is not finished: finish it first with `runoff update" in other.stderr
    assert run(*edit, "cpu").exit_code == 0
    opened = Run.open(two_seed_run)
    assert opened.manifest["edits"] == ["edits/000000-add.npz"]
    assert sum(opened.manifest["member_sizes"]) == 1437 + 1
    assert opened.seeds() == [2]  # as many networks as before
    again = run(*edit, "cpu", "--json")
    assert "the last edits" in again.stderr
    assert (json.loads(again.stdout)["trained"], json.loads(again.stdout)["edits"]) == (0, 1)
    assert run(*edit, "cpu", "--again", "--json").exit_code == 0
    assert Run.open(two_seed_run).manifest["edits"] == ["edits/000000-add.npz", "edits/000001-add.npz"]
    assert sum(Run.open(two_seed_run).manifest["member_sizes"]) == 1437 + 2
    made = Source.from_run(two_seed_run, pictures=False).made
    assert [line.endswith(" --again") for line in made[1:]] == [False, True]
    with monkeypatch.context() as patched:
        patched.setattr(Work, "ballots", killed)
        assert run("update", two_seed_run, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 9
    assert run("update", two_seed_run, "--device", "cpu").exit_code == 0  # finishes it
    assert sum(Run.open(two_seed_run).manifest["member_sizes"]) == 1437 + 1
    assert run("update", two_seed_run, "--device", "cpu").exit_code == 2  # nothing is left to do


def test_a_killed_update_is_not_finished_with_fewer_networks(two_seed_run, tmp_path, monkeypatch):
    def killed(*_):
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr(Work, "ballots", killed)
        assert run("update", two_seed_run, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 9
    result = run("train", "digits", *SMALL, "--out", two_seed_run)
    assert result.exit_code == 2
    assert "finish it first with `runoff update" in result.stderr
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", two_seed_run).exit_code == 0
    assert run("certify", two_seed_run).exit_code == 0


def test_an_update_deletes_results_of_the_old_samples(two_seed_run, tmp_path):
    assert run("train", "digits", *SMALL, "--out", two_seed_run).exit_code == 0
    for more in ((), ("--election", "plurality"), ("--bound", "paper", "--use-seeds", 1)):
        assert run("certify", two_seed_run, *more).exit_code == 0
    (two_seed_run / "certificates" / "of my own.csv").touch()
    assert run("update", two_seed_run, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 0
    assert [file.name for file in (two_seed_run / "certificates").iterdir()] == ["of my own.csv"]
    assert [file.name for file in two_seed_run.glob("ballots-*")] == ["ballots-2.npy"]
    Run.open(two_seed_run).begin("ballots-1.npy")
    (two_seed_run / "ballots-1.npy").write_bytes(b"")  # as a kill before it was recorded, or removed, would leave it
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", two_seed_run).exit_code == 0
    assert [file.name for file in two_seed_run.glob("ballots-*")] == ["ballots-2.npy"]


def test_networks_of_members_with_one_class_are_deleted(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (40, 4, 4, 1), dtype=np.uint8)
    y = np.repeat([0, 1], [38, 2])
    np.savez(tmp_path / "own.npz", x_train=x, y_train=y, x_test=x[:2], y_test=y[:2])
    out = tmp_path / "run"
    assert run("train", tmp_path / "own.npz", "--classes", 2, "--k", 1, *SMALL[2:], "--out", out).exit_code == 0
    assert len(list(out.glob("members/*"))) == 1
    np.savez(tmp_path / "bad.npz", x=x[38:], y=y[38:])
    assert run("update", out, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 0
    assert list(out.glob("members/*")) == []  # it had learnt from the samples that were removed
    assert run("certify", out).exit_code == 0


def test_an_update_refuses_altered_members(two_seed_run, tmp_path):
    file = two_seed_run / "members" / "member-000001-seed-0000.safetensors"
    _, state = checkpoints.read(file)
    state[checkpoints.SCORES] = state[checkpoints.SCORES].flip(1)
    with safe_open(file, framework="pt") as opened:
        metadata = {**opened.metadata(), "digest": checkpoints.digest(state)}
    file.write_bytes(save(state, metadata))
    before = files(two_seed_run)
    result = run("update", two_seed_run, "--remove", tmp_path / "bad.npz", "--device", "cpu")
    assert result.exit_code == 4
    assert files(two_seed_run) == before
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", two_seed_run).exit_code == 0
    assert run("update", two_seed_run, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 0


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY"])
def test_samples_that_cannot_be_read(trained_run, tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    before = files(trained_run)
    result = run("update", trained_run, "--add", tmp_path / "x.npz")
    assert result.exit_code == 2
    assert "x.npz" in result.stderr
    assert files(trained_run) == before


def test_the_hash_reads_images_before_resizing():
    draws = np.random.default_rng(0)
    small = draws.integers(0, 256, (30, 4, 4), dtype=np.uint8)
    digests, sums = draws.integers(0, 256, (30, 16), dtype=np.uint8), draws.integers(0, 9999, 30)
    a, b = samples.Resized(small, digests, sums), samples.Resized(255 - small, digests, sums)
    assert list(a.content()) == list(b.content())
    np.testing.assert_array_equal(a.pixel_sums()[:, 0], sums)
    rows = np.array([3, 1])
    assert list(a.select(rows).content()) == [list(a.content())[i] for i in rows]
    assert len(a.joined(b)) == 60
