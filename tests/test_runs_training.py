"""Training of runs: the same bits after a kill, and nothing retrained or kept by mistake."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import runoff
from helpers import COMMAND, SMALL, files, run
from runoff import datasets
from runoff.isolation import seeds_of
from runoff.runs import Run
from runoff.runs.work import Work
from runoff.torch import RECIPES, Job, TorchClassifier, Trainer, identities, networks


def test_a_run_equals_the_classifier(trained_run):
    data = datasets.load("digits")
    classifier = TorchClassifier("small", "quick", n_partitions=5, spread=2, classes=range(10), device="cpu")
    classifier.fit(data.x_train, data.y_train)
    opened = Run.open(trained_run)
    opened.verify()
    np.testing.assert_array_equal(opened.ballots(), runoff.rank(classifier.scores(data.x_test).values))
    np.testing.assert_array_equal(opened.spread(), classifier.partition_.spread)
    assert opened.manifest["partition"]["fingerprint"] == classifier.partition_.fingerprint
    assert opened.manifest["settings"]["fingerprint"] == data.fingerprint
    complete = {name for name in map(str, files(trained_run)) if name not in ("manifest.json", ".lock")}
    listed = set(opened.manifest["files"])
    certified = {name for name in listed | complete if name.startswith("certificates/")}  # by other tests of this run
    assert listed - certified == complete - certified


def test_members_without_a_network_are_reported(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 1), dtype=np.uint8)
    for n, expected in ((3, "3 of 3 members"), (12, None)):
        y = np.arange(n) % 3
        np.savez(tmp_path / "own.npz", x_train=x[:n], y_train=y if n > 3 else 0 * y, x_test=x[:2], y_test=y[:2])
        options = ("--classes", 3, "--k", 3 if expected else 1, *SMALL[2:])
        result = run("train", tmp_path / "own.npz", *options, "--out", tmp_path / f"run{n}")
        assert result.exit_code == 0, result.output
        assert ("and no network" in result.stderr) == (expected is not None)
        assert expected is None or f"Warning: {expected} have samples of fewer than two classes" in result.stderr


def test_the_same_command_again_trains_nothing_and_changes_nothing(trained_run):
    before = files(trained_run)
    result = run("train", "digits", *SMALL, "--d", 2, "--out", trained_run, "--json")
    assert json.loads(result.stdout)["trained"] == 0
    after = files(trained_run)
    assert {name for name in before if before[name] != after[name]} <= {Path("timings.json"), Path("manifest.json")}


def test_a_killed_run_continues_to_the_same_bytes_and_seeds_can_be_added(tmp_path, trained_run):
    out = tmp_path / "run"
    arguments = ["train", "digits", *map(str, SMALL), "--d", "2", "--out", str(out)]
    for wait in (1, 4):
        process = subprocess.Popen([sys.executable, "-c", COMMAND, *arguments], start_new_session=True)
        while process.poll() is None and len(list(out.glob("members/*.safetensors"))) < wait:
            time.sleep(0.005)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert run("certify", out).exit_code == 2  # not finished
    kept = {f: f.stat().st_mtime_ns for f in out.glob("members/*.safetensors")}
    assert 4 <= len(kept) < 10
    assert run(*arguments).exit_code == 0
    assert all(f.stat().st_mtime_ns == stamp for f, stamp in kept.items())
    assert (out / "ballots-1.npy").read_bytes() == (trained_run / "ballots-1.npy").read_bytes()
    assert run(*arguments, "--n-seeds", 2).exit_code == 0
    assert Run.open(out).seeds() == [1, 2]
    assert all(f.stat().st_mtime_ns == stamp for f, stamp in kept.items())
    assert run("certify", out, "--use-seeds", 1).exit_code == run("certify", out).exit_code == 0


def test_an_altered_network_is_retrained(two_seed_run):
    assert run("certify", two_seed_run).exit_code == 0
    before = files(two_seed_run)
    file = two_seed_run / "members" / "member-000001-seed-0000.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"refused":""', b'"refused":"x"', 1))  # a header of another length
    assert run("certify", two_seed_run).exit_code == 4
    file.write_bytes(before[Path("members") / file.name][:-4] + b"abcd")
    assert run("certify", two_seed_run).exit_code == 4
    result = run("train", "digits", *SMALL, "--n-seeds", 2, "--out", two_seed_run, "--json")
    assert json.loads(result.stdout)["trained"] == 1
    assert (two_seed_run / "ballots-2.npy").read_bytes() == before[Path("ballots-2.npy")]
    Run.open(two_seed_run).verify()
    assert not [name for name in Run.open(two_seed_run).manifest["files"] if name.startswith("certificates/")]


def test_certificates_are_removed_when_their_ballots_change(two_seed_run, monkeypatch):
    assert run("certify", two_seed_run).exit_code == 0
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", two_seed_run).exit_code == 0
    assert "certificates/runoff-tight-2.csv" in Run.open(two_seed_run).manifest["files"]
    plain = Work.ballots
    monkeypatch.setattr(Work, "ballots", lambda *given: plain(*given)[..., ::-1])
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", two_seed_run).exit_code == 0
    assert "certificates/runoff-tight-2.csv" not in Run.open(two_seed_run).manifest["files"]
    assert (
        run("train", "digits", *SMALL, "--out", two_seed_run).exit_code == 0
    )  # members of both seeds stay listed in the manifest
    assert sum(name.startswith("members/") for name in Run.open(two_seed_run).manifest["files"]) == 10


def test_networks_of_other_code_have_another_identity(monkeypatch):
    trainer = Trainer(networks.small, RECIPES["quick"], (8, 8, 1), 10, device="cpu")
    data = datasets.load("digits")
    job = Job(0, 0, seeds_of(0, 0, 1)[0], data.x_train[..., None], np.arange(50), data.y_train[:50])
    ours = identities.Identities(trainer).identity(job)
    assert ours == identities.Identities(trainer).identity(job)
    monkeypatch.setattr(identities, "sources", lambda: "other")
    assert ours != identities.Identities(trainer).identity(job)


def test_networks_of_another_device_or_version_are_retrained_on_request_only(two_seed_run, tmp_path, monkeypatch):
    assert run("certify", two_seed_run).exit_code == 0
    before = files(two_seed_run)
    commands = (
        ("train", "digits", *SMALL, "--n-seeds", 2, "--out", two_seed_run),
        ("update", two_seed_run, "--remove", tmp_path / "bad.npz", "--device", "cpu"),
    )
    for target, value, message in (
        ("runoff.torch.identities.sources", lambda: "other", "another version of the training code"),
        ("runoff.torch.devices.describe", lambda _: "a laptop", "not a laptop"),
    ):
        monkeypatch.setattr(target, value)
        for command in commands:
            result = run(*command)
            assert result.exit_code == 2
            assert f"{message}, so all of its networks would have to be retrained" in result.stderr
            assert files(two_seed_run) == before
    result = run(*commands[0], "--retrain", "--json")
    assert json.loads(result.stdout)["trained"] == 10
    assert Run.open(two_seed_run).manifest["device"] == "a laptop"
    assert run(*commands[1]).exit_code == 0


def test_networks_of_other_samples_or_other_code_are_deleted(two_seed_run, tmp_path, monkeypatch):
    members = two_seed_run / "members"
    shutil.copy(members / "member-000003-seed-0001.safetensors", members / "member-000003-seed-0007.safetensors")
    for folder in (two_seed_run, two_seed_run / "certificates"):  # as kills leave them
        folder.mkdir(exist_ok=True)
        (folder / ".ballots-1.npy.abcdefgh.runoff-tmp").touch()
    assert run("update", two_seed_run, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 0
    assert len(list(members.iterdir())) == 10
    assert not list(two_seed_run.glob("**/*.runoff-tmp"))
    monkeypatch.setattr(identities, "sources", lambda: "other")
    assert run("train", "digits", *SMALL, "--retrain", "--out", two_seed_run).exit_code == 0
    assert sorted(f.name[-16:-12] for f in members.iterdir()) == ["0000"] * 5
    opened = Run.open(two_seed_run)
    opened.verify()
    assert opened.seeds() == [1]
    assert len([name for name in opened.manifest["files"] if name.startswith("members/")]) == 5
    timings = json.loads((two_seed_run / "timings.json").read_text())
    assert timings["timed"] == len(timings["networks"]) == 5  # not of those before, too


def test_runs_that_do_not_record_what_trained_them(two_seed_run):
    assert run("certify", two_seed_run).exit_code == 0
    manifest = json.loads((two_seed_run / "manifest.json").read_text())
    del manifest["trained_by"], manifest["election"], manifest["files"]["timings.json"]
    (two_seed_run / "manifest.json").write_text(json.dumps(manifest))
    before = files(two_seed_run)
    command = ("train", "digits", *SMALL, "--n-seeds", 2, "--out", two_seed_run, "--json")
    result = run(*command)
    assert result.exit_code == 2
    assert (
        "was trained with an unknown version of the training code, so all of its networks would have" in result.stderr
    )
    assert files(two_seed_run) == before
    assert json.loads(run(*command, "--retrain").stdout)["trained"] == 0  # the networks are the same
    assert Run.open(two_seed_run).manifest["trained_by"]["code"]


def test_what_is_refused_does_not_harm_a_run_without_members(trained_run, tmp_path, monkeypatch):
    slim = tmp_path / "slim"
    shutil.copytree(trained_run, slim, ignore=shutil.ignore_patterns("members"))
    monkeypatch.setattr(identities, "sources", lambda: "other")
    assert run("train", "digits", *SMALL, "--d", 2, "--out", slim).exit_code == 2
    assert run("certify", slim).exit_code == 0
    (slim / "members").mkdir()
    assert run("certify", slim).exit_code == 0


def test_networks_of_this_machine_are_not_retrained(two_seed_run):
    before = files(two_seed_run)
    result = run("train", "digits", *SMALL, "--retrain", "--out", two_seed_run, "--json")
    assert json.loads(result.stdout)["trained"] == 0
    assert {name: data for name, data in files(two_seed_run).items() if name.parts[0] == "members"} == {
        name: data for name, data in before.items() if name.parts[0] == "members"
    }
    assert run("certify", two_seed_run, "--use-seeds", 2).exit_code == 0
