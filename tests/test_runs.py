"""Runs from the command line: train, killed and resumed, certify, more seeds, update, and what is refused."""

import csv
import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from safetensors import safe_open
from safetensors.torch import save

import runoff
from helpers import run
from runoff import datasets, samples
from runoff._io import locks
from runoff.isolation import seeds_of
from runoff.report.source import Source
from runoff.runs import Run, training
from runoff.runs.work import Work
from runoff.torch import RECIPES, Job, TorchClassifier, Trainer, checkpoints, networks

SMALL = ("--k", 5, "--network", "small", "--recipe", "quick", "--device", "cpu")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "digits"
    result = run("train", "digits", *SMALL, "--d", 2, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["trained"] == 10
    return out


def files(folder):
    return {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_run_is_what_the_classifier_gives(done):
    data = datasets.load("digits")
    classifier = TorchClassifier("small", "quick", n_partitions=5, spread=2, classes=range(10), device="cpu")
    classifier.fit(data.x_train, data.y_train)
    opened = Run.open(done)
    opened.verify()
    np.testing.assert_array_equal(opened.ballots(), runoff.rank(classifier.scores(data.x_test).values))
    np.testing.assert_array_equal(opened.spread(), classifier.partition_.spread)
    assert opened.manifest["partition"]["fingerprint"] == classifier.partition_.fingerprint
    assert opened.manifest["settings"]["fingerprint"] == data.fingerprint
    complete = {name for name in map(str, files(done)) if name not in ("manifest.json", ".lock")}
    assert set(opened.manifest["files"]) == complete


def test_members_without_a_network_are_told(tmp_path):
    x = np.random.default_rng(0).integers(0, 256, (12, 4, 4, 1), dtype=np.uint8)
    for n, expected in ((3, "3 of 3 members"), (12, None)):
        y = np.arange(n) % 3
        np.savez(tmp_path / "own.npz", x_train=x[:n], y_train=y if n > 3 else 0 * y, x_test=x[:2], y_test=y[:2])
        options = ("--classes", 3, "--k", 3 if expected else 1, *SMALL[2:])
        result = run("train", tmp_path / "own.npz", *options, "--out", tmp_path / f"run{n}")
        assert result.exit_code == 0, result.output
        assert ("and no network" in result.stderr) == (expected is not None)
        assert expected is None or f"Warning: {expected} have samples of fewer than two classes" in result.stderr


def test_certify_a_run(done):
    result = run("certify", done, "--budgets", "0,1", "--bound", "paper", "--json")
    assert result.exit_code == 0, result.output
    summary = json.loads(result.stdout)
    opened = Run.open(done)
    certificates = runoff.certify(np.asarray(opened.ballots()), spread=opened.spread(), bound="paper")
    labels = datasets.load("digits").y_test
    assert summary["certified_accuracy"] == runoff.certified_accuracy(certificates, labels, [0, 1]).tolist()
    with (done / "certificates" / "runoff-paper-1.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["radius"]) for row in rows] == certificates.radius.tolist()
    assert "certificates/runoff-paper-1.csv" in opened.manifest["files"]
    assert run("certify", done, "--format", "parquet", "--require", "0:100").exit_code == 3  # kept all the same
    table = parquet.read_table(done / "certificates" / "runoff-tight-1.parquet")
    assert table["label"].to_pylist() == labels.tolist()
    assert "certificates/runoff-tight-1.parquet" in Run.open(done).manifest["files"]
    assert run("certify", done, "--labels", done / "labels.npy").exit_code == 2
    assert run("certify", done, "--use-seeds", 4).exit_code == 2


def test_a_run_without_its_members_can_be_certified(done, tmp_path):
    slim = tmp_path / "slim"
    shutil.copytree(done, slim, ignore=shutil.ignore_patterns("members"))
    whole, given = (run("certify", path, "--json") for path in (done, slim))
    assert given.exit_code == 0, given.output
    assert json.loads(given.stdout)["certified_accuracy"] == json.loads(whole.stdout)["certified_accuracy"]
    shutil.copytree(done, tmp_path / "holed")
    next((tmp_path / "holed" / "members").iterdir()).unlink()
    assert run("certify", tmp_path / "holed").exit_code == 4


def test_the_same_command_again_trains_nothing_and_changes_nothing(done):
    before = files(done)
    result = run("train", "digits", *SMALL, "--d", 2, "--out", done, "--json")
    assert json.loads(result.stdout)["trained"] == 0
    after = files(done)
    assert {name for name in before if before[name] != after[name]} <= {Path("timings.json"), Path("manifest.json")}


@pytest.mark.parametrize(
    "other", [("--d", 1), ("--d", 2, "--recipe", "paper-no-flip"), ("--d", 2, "--seed", 1), ("--d", 2, "--k", 6)]
)
def test_a_run_of_other_settings_is_refused(done, other):
    before = files(done)
    result = run("train", "digits", *SMALL, *other, "--out", done)
    assert result.exit_code == 2
    assert "give another directory" in result.stderr
    assert files(done) == before


def test_a_dry_run_writes_nothing(tmp_path):
    result = run("train", "digits", *SMALL, "--n-seeds", 3, "--out", tmp_path / "x", "--dry-run", "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert (told["networks"], told["missing"]) == (15, 15)
    assert told["seconds"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["ballots-1.npy", "labels.npy", "key", "members/member-000003-seed-0000.safetensors"])
def test_an_altered_file_is_found(done, name, tmp_path):
    copy = tmp_path / "copy"
    for file, data in files(done).items():
        (copy / file).parent.mkdir(parents=True, exist_ok=True)
        (copy / file).write_bytes(data)
    data = bytearray((copy / name).read_bytes())
    data[-1] ^= 1
    (copy / name).write_bytes(data)
    result = run("certify", copy)
    assert result.exit_code == 4
    assert "altered" in result.stderr


COMMAND = "from runoff.cli import main; main()"


def test_killed_it_goes_on_to_the_same_bytes_and_seeds_can_be_added(tmp_path, done):
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
    assert (out / "ballots-1.npy").read_bytes() == (done / "ballots-1.npy").read_bytes()
    assert run(*arguments, "--n-seeds", 2).exit_code == 0
    assert Run.open(out).seeds() == [1, 2]
    assert all(f.stat().st_mtime_ns == stamp for f, stamp in kept.items())
    assert run("certify", out, "--use-seeds", 1).exit_code == run("certify", out).exit_code == 0


def test_interrupted_it_says_so(tmp_path):
    out = tmp_path / "run"
    arguments = ["train", "digits", *map(str, SMALL), "--n-seeds", "40", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    while process.poll() is None and len(list(out.glob("members/*.safetensors"))) < 1:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Interrupted: finished work is kept." in told


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


def test_an_update_killed_in_its_midst_leaves_no_ballots_of_the_samples_before(tmp_path, monkeypatch):
    data, out = datasets.load("digits"), tmp_path / "run"
    assert run("train", "digits", *SMALL, "--out", out).exit_code == 0
    np.savez(tmp_path / "bad.npz", x=data.x_train[:1], y=data.y_train[:1])
    written = []
    monkeypatch.setattr(Run, "write_manifest", lambda self: written.append(json.loads(json.dumps(self.manifest))))
    run("update", out, "--remove", tmp_path / "bad.npz", "--device", "cpu")
    for manifest in written:  # whichever of them is the last before a kill
        assert set(manifest["edits"]) <= set(manifest["files"])
        assert not manifest["edits"] or "ballots-1.npy" not in manifest["files"] or manifest is written[-1]


@pytest.fixture
def twice(tmp_path):
    """A run with two networks per member, and samples to add and to remove."""
    data, out = datasets.load("digits"), tmp_path / "run"
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", out).exit_code == 0
    np.savez(tmp_path / "bad.npz", x=data.x_train[:1], y=data.y_train[:1])
    np.savez(tmp_path / "new.npz", x=data.x_test[:1], y=data.y_test[:1])
    return out


def test_an_update_that_failed_is_not_done_twice(tmp_path, twice, monkeypatch):
    edit = ("update", twice, "--add", tmp_path / "new.npz", "--device")
    before = files(twice)
    assert run(*edit, "cuda:99").exit_code == 2
    assert files(twice) == before

    def killed(*_):
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr(Work, "ballots", killed)
        assert run(*edit, "cpu").exit_code == 9
    assert run("certify", twice).exit_code == 2
    other = run("update", twice, "--remove", tmp_path / "bad.npz")
    assert other.exit_code == 2
    assert "has an update that is not finished: finish it first with `runoff update" in other.stderr
    assert run(*edit, "cpu").exit_code == 0
    opened = Run.open(twice)
    assert opened.manifest["edits"] == ["edits/000000-add.npz"]
    assert sum(opened.manifest["member_sizes"]) == 1437 + 1
    assert opened.seeds() == [2]  # as many networks as before
    again = run(*edit, "cpu", "--json")
    assert "the last edits" in again.stderr
    assert (json.loads(again.stdout)["trained"], json.loads(again.stdout)["edits"]) == (0, 1)
    assert run(*edit, "cpu", "--again", "--json").exit_code == 0
    assert Run.open(twice).manifest["edits"] == ["edits/000000-add.npz", "edits/000001-add.npz"]
    assert sum(Run.open(twice).manifest["member_sizes"]) == 1437 + 2
    made = Source.from_run(twice, pictures=False).made
    assert [line.endswith(" --again") for line in made[1:]] == [False, True]
    with monkeypatch.context() as patched:
        patched.setattr(Work, "ballots", killed)
        assert run("update", twice, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 9
    assert run("update", twice, "--device", "cpu").exit_code == 0  # finishes it
    assert sum(Run.open(twice).manifest["member_sizes"]) == 1437 + 1
    assert run("update", twice, "--device", "cpu").exit_code == 2  # nothing is left to do


def test_one_command_at_a_time(tmp_path, twice, monkeypatch):
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    with locks.locked(twice):
        for command in (
            ("train", "digits", *SMALL, "--out", twice),
            ("update", twice, "--add", tmp_path / "new.npz"),
            ("certify", twice),
        ):
            result = run(*command)
            assert result.exit_code == 1
            assert "is in use by another command" in result.stderr
    assert run("certify", twice).exit_code == 0


def test_a_run_that_can_only_be_read(done, monkeypatch):
    plain = os.open

    def refuse(path, flags, *more, **options):
        if Path(path).name == locks.LOCK and flags & os.O_CREAT:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return plain(path, flags, *more, **options)

    expected = json.loads(run("certify", done, "--json").stdout)
    (done / "certificates" / "runoff-tight-1.csv").unlink(missing_ok=True)
    before = files(done)
    monkeypatch.setattr(os, "open", refuse)
    result = run("certify", done, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["certified_accuracy"] == expected["certified_accuracy"]
    assert "is read-only, so the rows of these certificates are not written there" in result.stderr
    assert files(done) == before
    assert run("train", "digits", *SMALL, "--d", 2, "--out", done).exit_code == 1
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    with (done / locks.LOCK).open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # somebody who may write
        assert "is in use by another command" in run("certify", done).stderr


def test_a_run_keeps_its_classes(tmp_path):
    data = datasets.load("digits")
    arrays = {name: getattr(data, name) for name in ("x_train", "y_train", "x_test", "y_test")}
    names = [*"abcdefghij"]
    np.savez(tmp_path / "own.npz", **arrays, classes=np.array(names))
    command = ("train", tmp_path / "own.npz", *SMALL, "--out", tmp_path / "run")
    assert run(*command).exit_code == 0
    for others in (names[::-1], [*names, "k"]):
        np.savez(tmp_path / "own.npz", **arrays, classes=np.array(others))
        result = run(*command)
        assert result.exit_code == 2
        assert "is a run with classes =" in result.stderr


def test_ballots_go_with_the_networks_they_rest_on(twice):
    assert run("train", "digits", *SMALL, "--out", twice).exit_code == 0  # ballots of one network, too
    for seeds in (1, 2):
        assert run("certify", twice, "--use-seeds", seeds).exit_code == 0
    opened = Run.open(twice)
    opened.forget(2)
    assert len(opened.manifest["files"]) == len(Run.open(twice).manifest["files"])
    opened.forget(1)
    assert opened.seeds() == [1]
    assert [name for name in opened.manifest["files"] if name.startswith("cert")] == ["certificates/runoff-tight-1.csv"]
    shutil.rmtree(twice / "members")
    vouched = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(training, "publish", lambda run, *_: vouched.append(dict(run.manifest["files"])))
        run("train", "digits", *SMALL, "--out", twice)
    assert not [name for name in vouched[0] if name.startswith(("ballots-", "certificates/"))]


def test_a_network_that_was_altered_is_trained_again(twice):
    assert run("certify", twice).exit_code == 0
    before = files(twice)
    file = twice / "members" / "member-000001-seed-0000.safetensors"
    file.write_bytes(file.read_bytes().replace(b'"refused":""', b'"refused":"x"', 1))  # a header of another length
    assert run("certify", twice).exit_code == 4
    file.write_bytes(before[Path("members") / file.name][:-4] + b"abcd")
    assert run("certify", twice).exit_code == 4
    result = run("train", "digits", *SMALL, "--n-seeds", 2, "--out", twice, "--json")
    assert json.loads(result.stdout)["trained"] == 1
    assert (twice / "ballots-2.npy").read_bytes() == before[Path("ballots-2.npy")]
    Run.open(twice).verify()
    assert not [name for name in Run.open(twice).manifest["files"] if name.startswith("certificates/")]


def test_certificates_go_when_their_ballots_change(twice, monkeypatch):
    assert run("certify", twice).exit_code == 0
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", twice).exit_code == 0
    assert "certificates/runoff-tight-2.csv" in Run.open(twice).manifest["files"]
    plain = Work.ballots
    monkeypatch.setattr(Work, "ballots", lambda *given: plain(*given)[..., ::-1])
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", twice).exit_code == 0
    assert "certificates/runoff-tight-2.csv" not in Run.open(twice).manifest["files"]
    assert run("train", "digits", *SMALL, "--out", twice).exit_code == 0  # members of both seeds stay vouched for
    assert sum(name.startswith("members/") for name in Run.open(twice).manifest["files"]) == 10


def test_what_a_kill_or_a_user_removed(twice, tmp_path):
    half = tmp_path / "half"
    half.mkdir()
    shutil.copy(twice / "key", half / "key")  # killed before the manifest was there
    (half / ".manifest.json.abc").touch()
    assert run("train", "digits", *SMALL, "--out", half).exit_code == 0
    (twice / "timings.json").write_text("{}")
    assert run("certify", twice).exit_code == 4
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", twice).exit_code == 0
    assert run("certify", twice).exit_code == 0
    file = twice / "certificates" / "runoff-tight-2.csv"
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    result = run("certify", twice)
    assert result.exit_code == 4
    assert "remove it and certify again" in result.stderr
    file.unlink()
    assert run("certify", twice).exit_code == 0
    assert file.read_bytes() == content
    manifest = json.loads((twice / "manifest.json").read_text())
    del manifest["edits"]
    (twice / "manifest.json").write_text(json.dumps(manifest))
    result = run("train", "digits", *SMALL, "--out", twice)
    assert result.exit_code == 4
    assert "has no edits" in result.stderr


def test_paths_are_no_markup(tmp_path):
    out = tmp_path / "q[red]run"
    result = run("train", "digits", *SMALL, "--out", out)
    assert result.exit_code == 0
    assert f"Next: runoff certify '{out}'" in result.stdout


@pytest.mark.parametrize("content", [b"", b"PK", b"\x93NUMPY"])
def test_samples_that_cannot_be_read(done, tmp_path, content):
    (tmp_path / "x.npz").write_bytes(content)
    before = files(done)
    result = run("update", done, "--add", tmp_path / "x.npz")
    assert result.exit_code == 2
    assert "x.npz" in result.stderr
    assert files(done) == before


def test_networks_of_other_code_are_not_taken_for_these(monkeypatch):
    trainer = Trainer(networks.small, RECIPES["quick"], (8, 8, 1), 10, device="cpu")
    data = datasets.load("digits")
    job = Job(0, 0, seeds_of(0, 0, 1)[0], data.x_train[..., None], np.arange(50), data.y_train[:50])
    ours = checkpoints.Identities(trainer).identity(job)
    assert ours == checkpoints.Identities(trainer).identity(job)
    monkeypatch.setattr(checkpoints, "sources", lambda: "other")
    assert ours != checkpoints.Identities(trainer).identity(job)


def test_a_run_that_cannot_be_written_to(done, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    before = files(done)
    monkeypatch.setattr(os, "fsync", full)
    result = run("certify", done, "--election", "plurality")
    assert result.exit_code == 1
    assert "cannot be written: No space left on device" in result.stderr
    assert files(done) == before
    result = run("train", "digits", *SMALL, "--d", 2, "--out", done)
    assert result.exit_code == 1
    assert f"Error: {done / 'ballots-1.npy'}: No space left on device" in result.stderr
    assert files(done) == before


def test_what_is_refused(tmp_path):
    for arguments, code, told in (
        (("train", "digit", *SMALL, "--out", tmp_path / "x"), 2, "neither a dataset"),
        (("train", "cifar10", *SMALL, "--data-dir", tmp_path, "--out", tmp_path / "x"), 1, "cifar"),
        (("train", "digits", *SMALL, "--recipe", "papr", "--out", tmp_path / "x"), 2, "for '--recipe'"),
        (
            ("train", "digits", *SMALL, "--network", "resnet", "--out", tmp_path / "x"),
            2,
            "Invalid value for '--network'",
        ),
        (("train", "digits", *SMALL, "--out", Path(__file__).parent), 2, "holds files that are not a run"),
        (("train", "digits", *SMALL, "--out", __file__), 2, "is a file: give another directory"),
        (
            ("train", "digits", *SMALL, "--classes", 3, "--out", tmp_path / "x"),
            2,
            "--classes applies to your own data only, not to digits",
        ),
        (("certify", tmp_path), 2, "is not a run: it has no manifest.json"),
        (("update", tmp_path / "nothing", "--add", "x.npz"), 2, "nothing is not a run: it has no manifest.json"),
    ):
        result = run(*arguments)
        assert result.exit_code == code, result.output
        assert told in result.stderr
    assert not (tmp_path / "x").exists()


def test_the_hash_reads_what_images_were_before_they_were_resized():
    draws = np.random.default_rng(0)
    small = draws.integers(0, 256, (30, 4, 4), dtype=np.uint8)
    digests, sums = draws.integers(0, 256, (30, 16), dtype=np.uint8), draws.integers(0, 9999, 30)
    a, b = samples.Resized(small, digests, sums), samples.Resized(255 - small, digests, sums)
    assert list(a.content()) == list(b.content())
    np.testing.assert_array_equal(a.pixel_sums()[:, 0], sums)
    rows = np.array([3, 1])
    assert list(a.select(rows).content()) == [list(a.content())[i] for i in rows]
    assert len(a.joined(b)) == 60


def test_what_rests_on_the_samples_before_is_gone_after_an_update(twice, tmp_path):
    assert run("train", "digits", *SMALL, "--out", twice).exit_code == 0
    for more in ((), ("--election", "plurality"), ("--bound", "paper", "--use-seeds", 1)):
        assert run("certify", twice, *more).exit_code == 0
    (twice / "certificates" / "of my own.csv").touch()
    assert run("update", twice, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 0
    assert [file.name for file in (twice / "certificates").iterdir()] == ["of my own.csv"]
    assert [file.name for file in twice.glob("ballots-*")] == ["ballots-2.npy"]
    Run.open(twice).begin("ballots-1.npy")
    (twice / "ballots-1.npy").write_bytes(b"")  # as a kill before it was recorded, or removed, would leave it
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", twice).exit_code == 0
    assert [file.name for file in twice.glob("ballots-*")] == ["ballots-2.npy"]


def test_members_that_lost_their_network_keep_none(tmp_path):
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


def test_an_update_does_not_vouch_for_altered_members(twice, tmp_path):
    file = twice / "members" / "member-000001-seed-0000.safetensors"
    _, state = checkpoints.read(file)
    state[checkpoints.SCORES] = state[checkpoints.SCORES].flip(1)
    with safe_open(file, framework="pt") as opened:
        metadata = {**opened.metadata(), "digest": checkpoints.digest(state)}
    file.write_bytes(save(state, metadata))
    before = files(twice)
    result = run("update", twice, "--remove", tmp_path / "bad.npz", "--device", "cpu")
    assert result.exit_code == 4
    assert files(twice) == before
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", twice).exit_code == 0
    assert run("update", twice, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 0


def test_networks_of_another_device_or_version_are_not_trained_anew_unasked(twice, tmp_path, monkeypatch):
    assert run("certify", twice).exit_code == 0
    before = files(twice)
    commands = (
        ("train", "digits", *SMALL, "--n-seeds", 2, "--out", twice),
        ("update", twice, "--remove", tmp_path / "bad.npz", "--device", "cpu"),
    )
    for target, value, told in (
        ("runoff.torch.checkpoints.sources", lambda: "other", "another version of the training code"),
        ("runoff.torch.devices.describe", lambda _: "a laptop", "not a laptop"),
    ):
        monkeypatch.setattr(target, value)
        for command in commands:
            result = run(*command)
            assert result.exit_code == 2
            assert f"{told}, so all of it would have to be retrained" in result.stderr
            assert files(twice) == before
    result = run(*commands[0], "--retrain", "--json")
    assert json.loads(result.stdout)["trained"] == 10
    assert Run.open(twice).manifest["device"] == "a laptop"
    assert run(*commands[1]).exit_code == 0


def test_somebody_elses_folder_is_left_as_it_is(tmp_path):
    (tmp_path / "key").write_text("my own")
    result = run("train", "digits", *SMALL, "--out", tmp_path)
    assert result.exit_code == 2
    assert "holds files that are not a run" in result.stderr
    assert files(tmp_path) == {Path("key"): b"my own"}


def test_the_election_of_a_run(tmp_path, done):
    out = tmp_path / "run"
    shutil.copytree(done, out)
    assert json.loads(run("certify", out, "--json").stdout)["election"] == "runoff"
    assert run("train", "digits", *SMALL, "--d", 2, "--election", "plurality", "--out", out).exit_code == 0
    assert json.loads(run("certify", out, "--json").stdout)["election"] == "plurality"
    assert json.loads(run("certify", out, "--election", "runoff", "--json").stdout)["election"] == "runoff"
    assert run("train", "digits", *SMALL, "--d", 2, "--out", out).exit_code == 0
    assert Run.open(out).election == "plurality"


def test_a_run_keeps_weights_or_not(done):
    result = run("train", "digits", *SMALL, "--d", 2, "--no-weights", "--out", done)
    assert result.exit_code == 2
    assert "is a run with weights = true, not false" in result.stderr


def test_a_folder_that_only_others_can_write_to(done, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("runoff.saving.rows.write", refuse)
    result = run("certify", done, "--bound", "paper", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["inputs"] == 360
    assert "are not written there" in result.stderr


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        ((), "n_seeds", None),
        ((), "n_seeds", "x"),
        ((), "edits", ["edits/000000-add.npz"]),
        ((), "edits", [3]),
        ((), "election", "lottery"),
        (("settings",), "random_state", "x"),
        (("dataset",), "given", None),
        (("dataset",), "classes", [1, 2]),
        (("dataset",), "weights", 1),
        (("files",), "ballots-x.npy", "0"),
        (("files",), "labels.npy", 5),
    ],
)
def test_damaged_manifests(done, tmp_path, place, name, value):
    out = tmp_path / "run"
    shutil.copytree(done, out)
    manifest = json.loads((out / "manifest.json").read_text())
    inner = manifest
    for key in place:
        inner = inner[key]
    inner[name] = value
    (out / "manifest.json").write_text(json.dumps(manifest))
    np.savez(tmp_path / "new.npz", x=np.zeros((1, 8, 8), np.uint8), y=np.zeros(1, np.int64))
    for command in (
        ("certify", out),
        ("update", out, "--add", tmp_path / "new.npz"),
        ("train", "digits", *SMALL, "--d", 2, "--out", out),
        ("report", out, "--out", tmp_path / "r.html"),
    ):
        result = run(*command)
        assert result.exit_code == 4, (command, result.output)
        assert "was altered" in result.stderr


def test_images_that_are_too_small_and_edits_of_nothing(tmp_path, done):
    x = np.zeros((8, 3, 3, 1), np.uint8)
    np.savez(tmp_path / "own.npz", x_train=x, y_train=np.arange(8) % 2, x_test=x, y_test=np.arange(8) % 2)
    for network in ("small", "nin"):
        options = ("--classes", 2, "--k", 1, "--network", network, "--recipe", "quick", "--out", tmp_path / "run")
        result = run("train", tmp_path / "own.npz", *options)
        assert result.exit_code == 2
        assert "is for images from 4 x 4 up, got 3 x 3" in result.stderr
    assert not (tmp_path / "run").exists()
    np.savez(tmp_path / "none.npz", x=np.zeros((0, 8, 8), np.uint8), y=np.zeros(0, np.int64))
    result = run("update", done, "--add", tmp_path / "none.npz")
    assert result.exit_code == 2
    assert "holds no samples" in result.stderr


def test_networks_of_other_samples_or_other_code_do_not_stay(twice, tmp_path, monkeypatch):
    members = twice / "members"
    shutil.copy(members / "member-000003-seed-0001.safetensors", members / "member-000003-seed-0007.safetensors")
    for folder in (twice, twice / "certificates"):  # as kills leave them
        folder.mkdir(exist_ok=True)
        (folder / ".ballots-1.npy.abcdefgh.runoff-tmp").touch()
    assert run("update", twice, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 0
    assert len(list(members.iterdir())) == 10
    assert not list(twice.glob("**/*.runoff-tmp"))
    monkeypatch.setattr(checkpoints, "sources", lambda: "other")
    assert run("train", "digits", *SMALL, "--retrain", "--out", twice).exit_code == 0
    assert sorted(f.name[-16:-12] for f in members.iterdir()) == ["0000"] * 5
    opened = Run.open(twice)
    opened.verify()
    assert opened.seeds() == [1]
    assert len([name for name in opened.manifest["files"] if name.startswith("members/")]) == 5
    timings = json.loads((twice / "timings.json").read_text())
    assert timings["timed"] == len(timings["networks"]) == 5  # not of those before, too


def test_an_update_that_was_killed_is_not_finished_with_fewer_networks(twice, tmp_path, monkeypatch):
    def killed(*_):
        raise SystemExit(9)

    with monkeypatch.context() as patched:
        patched.setattr(Work, "ballots", killed)
        assert run("update", twice, "--remove", tmp_path / "bad.npz", "--device", "cpu").exit_code == 9
    result = run("train", "digits", *SMALL, "--out", twice)
    assert result.exit_code == 2
    assert "finish it first with `runoff update" in result.stderr
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", twice).exit_code == 0
    assert run("certify", twice).exit_code == 0


def test_runs_that_do_not_say_what_trained_them(twice, monkeypatch):
    assert run("certify", twice).exit_code == 0
    manifest = json.loads((twice / "manifest.json").read_text())
    del manifest["trained_by"], manifest["election"], manifest["files"]["timings.json"]
    (twice / "manifest.json").write_text(json.dumps(manifest))
    before = files(twice)
    command = ("train", "digits", *SMALL, "--n-seeds", 2, "--out", twice, "--json")
    with monkeypatch.context() as patched:
        patched.setattr(checkpoints, "sources", lambda: "other")
        result = run(*command)
        assert result.exit_code == 2
        assert "another version of the training code" in result.stderr
        assert files(twice) == before
    assert json.loads(run(*command).stdout)["trained"] == 0
    assert Run.open(twice).manifest["trained_by"]["code"]


def test_what_is_refused_does_not_harm_a_run_without_members(done, tmp_path, monkeypatch):
    slim = tmp_path / "slim"
    shutil.copytree(done, slim, ignore=shutil.ignore_patterns("members"))
    monkeypatch.setattr(checkpoints, "sources", lambda: "other")
    assert run("train", "digits", *SMALL, "--d", 2, "--out", slim).exit_code == 2
    assert run("certify", slim).exit_code == 0
    (slim / "members").mkdir()
    assert run("certify", slim).exit_code == 0


def test_retraining_is_for_networks_of_elsewhere_alone(twice):
    before = files(twice)
    result = run("train", "digits", *SMALL, "--retrain", "--out", twice, "--json")
    assert json.loads(result.stdout)["trained"] == 0
    assert {name: data for name, data in files(twice).items() if name.parts[0] == "members"} == {
        name: data for name, data in before.items() if name.parts[0] == "members"
    }
    assert run("certify", twice, "--use-seeds", 2).exit_code == 0
