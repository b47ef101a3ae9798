"""`runoff verify` accepts correct runs and detects every change, even if the digests were recomputed."""

import csv
import hashlib
import json
import os
import shutil
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import runoff
from helpers import rehash, run, scores, write_manifest
from reference import ballots_of, true_cost
from runoff import check, datasets, hashing, spreads, verify
from runoff.partition import Partition
from runoff.verify import _programs, _radii, attestation, directory
from runoff.verify._report import Report


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two runs on the same small dataset: `alone`, one bucket per member; `spread`, edited, two networks per member."""
    folder = tmp_path_factory.mktemp("verify")
    draws = np.random.default_rng(0)
    y = np.arange(90) % 3
    x = draws.integers(0, 60, (90, 4, 4, 1), dtype=np.uint8)
    x[np.arange(90), y] += 150
    np.savez(folder / "data.npz", x_train=x[:70], y_train=y[:70], x_test=x[70:], y_test=y[70:])
    np.savez(folder / "bad.npz", x=x[:1], y=y[:1])
    np.savez(folder / "new.npz", x=x[70:71], y=y[70:71])
    options = ("--classes", 3, "--network", "small", "--recipe", "quick", "--device", "cpu")
    train = ("train", folder / "data.npz", *options)
    assert run(*train, "--k", 5, "--out", folder / "alone").exit_code == 0
    assert run(*train, "--k", 3, "--d", 2, "--n-seeds", 2, "--out", folder / "spread").exit_code == 0
    edits = ("--remove", folder / "bad.npz", "--add", folder / "new.npz", "--device", "cpu")
    assert run("update", folder / "spread", *edits).exit_code == 0
    for name in ("alone", "spread"):
        for bound in ("tight", "paper"):
            assert run("certify", folder / name, "--bound", bound).exit_code == 0
        assert run("certify", folder / name, "--election", "maximin").exit_code == 0
    assert run("certify", folder / "alone", "--format", "parquet").exit_code == 0
    return folder


@pytest.fixture
def copy(folder, tmp_path):
    def make(name="alone"):
        return shutil.copytree(folder / name, tmp_path / name)

    return make


def verified(path, folder, **options):
    return verify.run(path, datasets.load(folder / "data.npz", classes=3), **{"sample": 3, "seed": 0, **options})


def failure(path, folder, **options):
    report = verified(path, folder, **options)
    assert report.failures, report.checked
    return report.exit_code, str(report.failures[0])


# --- correct runs -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["alone", "spread"])
def test_a_run_that_is_right_passes(name, folder):
    result = run("verify", folder / name, "--sample", 4, "--retrain", 2, "--device", "cpu", "--seed", 5)
    assert result.exit_code == 0, result.output
    for expected in ("the SHA-256 of", "the key, the spread", "the dataset's fingerprint", "the training sets of",
                     "ranked again from their stored scores", "computed from their weights", "runoff-tight",
                     "runoff-paper", "maximin-tight",
                     "2 networks retrained, bit for bit the same", "seed 5"):  # fmt: skip
        assert expected in result.output
    assert ("with 2 edits applied" in result.output) == (name == "spread")
    assert "Not checked" not in result.output


def test_full_and_json(folder):
    result = run("verify", folder / "alone", "--full", "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["failures"] == []
    assert "20 by integer programming" in " ".join(told["checked"])
    assert any("--retrain" in line for line in told["not_checked"])


def test_what_cannot_be_checked_is_listed(copy):
    slim = copy()
    shutil.rmtree(slim / "members")
    (slim / "certificates" / "runoff-paper-1.csv").unlink()
    (slim / "notes.txt").write_text("mine")
    report = verify.run(slim, lambda: (None, "it was lost"))
    assert report.exit_code == 0
    told = " ".join(report.not_checked)
    for expected in ("members/ is not in the directory", "but missing", "notes.txt", "the dataset: it was lost",
                     "no network is in the directory"):  # fmt: skip
        assert expected in told
    assert any("runoff-tight-1.csv" in line for line in report.checked)


@pytest.mark.parametrize("name", ["alone", "spread"])
def test_a_run_is_exported_with_its_partition(name, folder, tmp_path, capsys):
    result = run("certify", folder / name, "--export", tmp_path / "proof.json", "--json")
    assert result.exit_code == 0, result.output
    proof = json.loads((tmp_path / "proof.json").read_text())
    manifest = json.loads((folder / name / "manifest.json").read_text())
    assert proof["partition"] == manifest["partition"]["fingerprint"]
    assert proof["source"]["sha256"] == manifest["files"][proof["source"]["file"]]
    assert proof["classes"] == manifest["dataset"]["classes"]
    assert check.main([str(tmp_path / "proof.json")]) == 0
    assert "Proven: 20 radii" in capsys.readouterr().out


# --- one byte ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["alone", "spread"])
def test_one_changed_byte_in_any_file_is_caught(name, copy, folder):
    path = copy(name)
    listed = json.loads((path / "manifest.json").read_text())["files"]
    there = {str(f.relative_to(path)) for f in path.rglob("*") if f.is_file()} - {".lock", "manifest.json"}
    assert there == set(listed)
    for file in listed:
        whole = (path / file).read_bytes()
        for at in (0, len(whole) // 2, len(whole) - 1):
            (path / file).write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            code, told = failure(path, folder)
            assert code == 4
            assert told.startswith(f"{file}: does not match the SHA-256")
        (path / file).write_bytes(whole)
    assert verified(path, folder).exit_code == 0


def test_one_changed_byte_in_the_manifest_is_caught(copy):
    path = copy()
    whole = (path / "manifest.json").read_bytes()
    for at in range(0, len(whole), 23):
        for flip in (1, 2, 128):
            (path / "manifest.json").write_bytes(whole[:at] + bytes([whole[at] ^ flip]) + whole[at + 1 :])
            report = Report("")
            assert directory.open_directory(path, report) is None, (at, flip)
            assert report.exit_code == 4
    (path / "manifest.json").write_bytes(whole.replace(b": ", b":\t", 1))
    assert directory.open_directory(path, Report("")) is None


@pytest.mark.parametrize("kind", ["absent", "fifo", "link", "folder", "large"])
def test_files_that_are_no_plain_files_are_named(kind, copy, folder, tmp_path):
    path = copy()
    file = path / "labels.npy"
    data = file.read_bytes()
    file.unlink()
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "link":
        (tmp_path / "elsewhere").write_bytes(data)
        file.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        file.mkdir()
    elif kind == "large":
        with file.open("wb") as opened:
            opened.truncate(3 * 10**7)
    code, told = failure(path, folder)
    assert code == 4
    assert told.startswith("labels.npy: ")


@pytest.mark.parametrize(
    "data", [b"", b"[" * 10**5, b"{}", b'{"format": "runoff run", "version": 9}', b'{"a": 1, "a": 2}', b'{"a": NaN}']
)
def test_an_invalid_manifest_is_rejected(data, tmp_path):
    (tmp_path / "manifest.json").write_bytes(data)
    result = run("verify", tmp_path)
    assert result.exit_code == 4
    assert result.stderr.startswith("Error: manifest.json: ")
    assert result.stderr.count("\n") == 1


def test_names_outside_of_the_directory_are_refused(copy):
    path = copy()
    rehash(path)
    for name in ("../labels.npy", "/etc/hostname", "a//b", ""):
        manifest = json.loads((path / "manifest.json").read_text())
        manifest["files"][name] = "0" * 64
        write_manifest(path, manifest)
        report = Report("")
        assert directory.open_directory(path, report) is None
        assert "outside the directory" in str(report.failures[0])
        del manifest["files"][name]


# --- changes with recomputed digests ----------------------------------------------------------------------------------


def edit_rows(file, change):
    with file.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    change(rows)
    with file.open("w", newline="") as opened:
        writer = csv.DictWriter(opened, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


@pytest.mark.parametrize(("name", "claim", "step"), [
    ("alone", "runoff-tight", 1), ("alone", "runoff-tight", -1), ("alone", "runoff-paper", 1),
    ("alone", "runoff-paper", -1), ("alone", "maximin-tight", 1), ("spread", "runoff-tight", 1),
    ("spread", "runoff-paper", 1), ("spread", "runoff-paper", -1), ("spread", "maximin-tight", 1),
])  # fmt: skip
def test_an_edited_radius_is_named(name, claim, step, copy, folder):
    path = copy(name)
    file = next((path / "certificates").glob(f"{claim}-*.csv"))
    at = []

    def change(rows):
        at.append(next(i for i, row in enumerate(rows) if int(row["radius"]) > 0))
        rows[at[0]]["radius"] = int(rows[at[0]]["radius"]) + step

    edit_rows(file, change)
    rehash(path)
    code, told = failure(path, folder)
    assert code == 3
    assert told.startswith(f"certificates/{file.name}, input {at[0]}: ")
    assert "claimed" in told


@pytest.mark.parametrize("election", ["runoff", "maximin"])
@pytest.mark.parametrize("column", ["prediction", "runner_up"])
def test_an_edited_prediction_is_named(column, election, copy, folder):
    path = copy()
    edit_rows(
        path / "certificates" / f"{election}-tight-1.csv",
        lambda rows: rows[7].update({column: (int(rows[7][column]) + 1) % 3}),
    )
    rehash(path)
    code, told = failure(path, folder)
    assert code == 3
    assert f"{election}-tight-1.csv, input 7: the" in told


def test_an_edited_parquet_file_is_named(copy, folder):
    path = copy()
    file = path / "certificates" / "runoff-tight-1.parquet"
    table = parquet.read_table(file)
    radius = table["radius"].to_numpy().copy()
    radius[3] += 1
    at = table.column_names.index("radius")
    parquet.write_table(table.set_column(at, "radius", [radius]), file)
    rehash(path)
    code, told = failure(path, folder)
    assert code == 3
    assert "runoff-tight-1.parquet, input 3: " in told


@pytest.mark.parametrize("text", ["", "input\n", "input,prediction,radius,runner_up\n0,0,x,1\n", "a" * 10**6, "\x00\n"])
def test_invalid_rows_are_rejected(text, copy, folder):
    path = copy()
    (path / "certificates" / "runoff-tight-1.csv").write_text(text)
    rehash(path)
    code, told = failure(path, folder)
    assert code == 4
    assert told.startswith("certificates/runoff-tight-1.csv: ")


def swap(a, b):
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)


def test_two_swapped_members_are_named(copy, folder):
    path = copy()
    first, second = (path / "members" / f"member-{m:06d}-seed-0000.safetensors" for m in (1, 3))
    swap(first, second)
    assert failure(path, folder)[1].startswith(
        "members/member-000001-seed-0000.safetensors: does not match the SHA-256"
    )
    rehash(path)
    code, told = failure(path, folder)
    assert code == 4
    assert told.startswith("ballots-1.npy, member 1: does not rank input")
    # Their ballots and certificates are swapped, too: only retraining detects this.
    ballots = np.load(path / "ballots-1.npy")
    ballots[:, [1, 3]] = ballots[:, [3, 1]]
    np.save(path / "ballots-1.npy", ballots)
    rehash(path)
    result = run("verify", path, "--data", folder / "data.npz", "--retrain", 5, "--device", "cpu")
    assert result.exit_code == 4
    assert "member-000001-seed-0000.safetensors: differs from the retrained network of member 1" in result.stderr


def test_scores_that_are_not_those_of_the_weights_are_named(copy, folder):
    from safetensors import safe_open
    from safetensors.torch import save

    path = copy()
    file = path / "members" / "member-000002-seed-0000.safetensors"
    with safe_open(file, framework="pt") as opened:
        state, metadata = {name: opened.get_tensor(name) for name in opened.keys()}, opened.metadata()  # noqa: SIM118
    state["runoff:scores"] = state["runoff:scores"].flip(1)
    file.write_bytes(save(state, metadata))
    rehash(path)
    result = run("verify", path, "--data", folder / "data.npz", "--device", "cpu")
    assert result.exit_code == 4
    assert "member-000002-seed-0000.safetensors: does not give the stored scores" in result.stderr


def change_array(name, change):
    def apply(path, _):
        array = np.load(path / name)
        np.save(path / name, change(array))

    return apply


def one_ballot(ballots):
    ballots[4, 2] = ballots[4, 2][::-1]
    return ballots


def other_key(path, manifest):
    (path / "key").write_bytes(bytes(32))
    settings_ = manifest["settings"]
    partition = Partition(settings_["n_partitions"], settings_["spread"], tuple(manifest["partition"]["offsets"]),
                          hashing.Key(bytes(32)), "content")  # fmt: skip
    manifest["partition"]["fingerprint"] = partition.fingerprint


def other_seed(path, manifest):
    key = hashing.derived_key(7)
    (path / "key").write_bytes(key)
    settings_ = manifest["settings"]
    settings_["random_state"] = 7
    partition = Partition.make(settings_["n_partitions"], settings_["spread"], 7, key)
    manifest["partition"] = {"offsets": list(partition.offsets), "fingerprint": partition.fingerprint}
    np.save(path / "spread.npy", partition.spread)


def other_offsets(path, manifest):
    manifest["partition"]["offsets"] = [0, 1]
    np.save(path / "spread.npy", spreads.cyclic(6, [0, 1]))


ATTACKS = {
    "another spread": ("spread", change_array("spread.npy", lambda a: a[::-1]), "spread.npy: is not the spread"),
    "a spread that reaches nobody": ("spread", change_array("spread.npy", lambda a: a[:, :1]), "spread.npy: "),
    "other offsets": ("spread", other_offsets, "manifest.json: records the offsets"),
    "another key": ("alone", other_key, "key: is not the key"),
    "another seed": ("alone", other_seed, "member "),
    "one ballot": ("alone", change_array("ballots-1.npy", one_ballot), "ballots-1.npy, member 2: does not rank"),
    "ballots that rank nothing": ("alone", change_array("ballots-1.npy", np.zeros_like), "ballots-1.npy: has a ballot"),
    "fewer ballots": ("alone", change_array("ballots-1.npy", lambda a: a[:-1]), "ballots-1.npy: must hold"),
    "other labels": ("alone", change_array("labels.npy", lambda a: (a + 1) % 3), "labels.npy: does not hold"),
    "an edit less": ("spread", lambda _, m: m["edits"].pop(), "member "),
    "edits in another order": ("spread", lambda _, m: m["edits"].append(m["edits"].pop(0)), None),
    "another dataset": ("alone", lambda _, m: m["settings"].update(fingerprint="0" * 64), "the dataset: does not"),
    "a size": ("alone", lambda _, m: m["member_sizes"].__setitem__(2, 1), "member 2: has"),
    "a training set": (
        "alone",
        lambda _, m: m["training_sets"].__setitem__(4, "0" * 64),
        "member 4: was not trained on",
    ),
    "millions of members": ("alone", lambda _, m: m["settings"].update(n_partitions=3 * 10**7), "manifest.json: must"),
    "a fingerprint": ("alone", lambda _, m: m["partition"].update(fingerprint="0" * 64), "manifest.json: records"),
    "no settings": ("alone", lambda _, m: m.update(settings=None), "manifest.json: has no settings"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attacker_who_fixes_the_digests_is_caught(name, copy, folder):
    which, change, expected = ATTACKS[name]
    path = copy(which)
    rehash(path, lambda manifest: change(path, manifest))
    if expected is None:  # the same samples in the end: nothing is wrong
        assert verified(path, folder).exit_code == 0
        return
    code, told = failure(path, folder)
    assert code == 4
    assert told.startswith(expected)


def test_a_forged_recipe_is_never_retrained_in_silence(copy, folder):
    path = copy()
    rehash(path, lambda manifest: manifest["settings"]["recipe"].update(epochs=99))
    result = run("verify", path, "--data", folder / "data.npz", "--device", "cpu", "--sample", 1, "--retrain", 2)
    told = " ".join(result.output.split())
    assert "Not checked: 2 networks retrained: the run was trained with another version of the code, or with" in told


def test_other_samples_are_caught(folder, copy, tmp_path):
    path = copy()
    with np.load(folder / "data.npz") as data:
        arrays = dict(data)
    arrays["x_train"] = arrays["x_train"].copy()
    arrays["x_train"][5, 0, 0, 0] ^= 1
    np.savez(tmp_path / "other.npz", **arrays)
    result = run("verify", path, "--data", tmp_path / "other.npz", "--device", "cpu")
    assert result.exit_code == 4
    assert "Error: the dataset: does not have the fingerprint" in result.stderr
    other = datasets.load(tmp_path / "other.npz", classes=3)
    rehash(path, lambda manifest: manifest["settings"].update(fingerprint=other.fingerprint))
    report = verify.run(path, other)
    assert report.exit_code == 4
    assert report.failures[0].where.startswith("member ")


# --- attestations -----------------------------------------------------------------------------------------------------


def test_an_attestation_fits_its_run_alone(folder, copy, tmp_path):
    path = copy()
    options = ("--data", folder / "data.npz", "--device", "cpu", "--sample", 2)
    assert run("verify", path, *options, "--attest", tmp_path / "a.json").exit_code == 0
    said = json.loads((tmp_path / "a.json").read_text())
    manifest = (path / "manifest.json").read_bytes()
    assert said["_type"] == "https://in-toto.io/Statement/v1"
    assert said["subject"] == [{"name": "manifest.json", "digest": {"sha256": hashlib.sha256(manifest).hexdigest()}}]
    predicate = said["predicate"]
    assert predicate["dataset"]["fingerprint"] == json.loads(manifest)["settings"]["fingerprint"]
    assert {c["file"] for c in predicate["certificates"]} > {"certificates/runoff-tight-1.csv"}
    assert run("verify", path, *options, "--attestation", tmp_path / "a.json").exit_code == 0
    result = run("verify", folder / "spread", *options, "--attestation", tmp_path / "a.json")
    assert result.exit_code == 4
    assert "attests to a manifest.json other than" in result.stderr
    predicate["certificates"][0]["certified_accuracy"]["0"] = 0.123
    (tmp_path / "better.json").write_text(json.dumps(said))
    result = run("verify", path, *options, "--attestation", tmp_path / "better.json")
    assert result.exit_code == 4
    assert "claims a certified accuracy that differs" in result.stderr
    (tmp_path / "none.json").write_text("{}")
    assert run("verify", path, *options, "--attestation", tmp_path / "none.json").exit_code == 4
    report = verify.run(path, seed=0)
    for field, value in (("subject", said["subject"] * 2), ("predicate", {**predicate, "certificates": True})):
        (tmp_path / "odd.json").write_text(json.dumps({**said, field: value}))
        attestation.compare(tmp_path / "odd.json", report)
        assert str(report.failures.pop()).endswith("odd.json: is not an attestation of a run")
    assert run("verify", path, "--signature", tmp_path / "a.sig").exit_code == 2


@pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen is not installed")
def test_a_signature_is_checked(folder, tmp_path):
    path, statement = folder / "alone", tmp_path / "a.json"
    options = ("--data", folder / "data.npz", "--device", "cpu", "--sample", 1)
    assert run("verify", path, *options, "--attest", statement).exit_code == 0

    def keygen(*arguments):
        subprocess.run(["ssh-keygen", *map(str, arguments)], check=True, capture_output=True)  # noqa: S607

    for name in ("ours", "other"):
        keygen("-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name)
    keygen("-Y", "sign", "-n", "runoff", "-f", tmp_path / "ours", statement)
    public = (tmp_path / "ours.pub").read_text()
    (tmp_path / "allowed").write_text(f"releases@example.org {public}")
    (tmp_path / "others").write_text(f"releases@example.org {(tmp_path / 'other.pub').read_text()}")
    signed = (*options, "--attestation", statement, "--signature", f"{statement}.sig", "--signer")

    def said(signer="releases@example.org", allowed="allowed"):
        return run("verify", path, *signed, signer, "--allowed-signers", tmp_path / allowed)

    good = said()
    assert good.exit_code == 0, good.output
    assert "a.json.sig is a signature of releases@example.org over a.json" in good.output
    for result in (said(allowed="others"), said(signer="somebody@example.org")):
        assert result.exit_code == 4
        assert "is not a valid signature of" in result.stderr
    statement.write_text(statement.read_text() + " ")
    assert said().exit_code == 4


# --- two routes to a radius -------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_integer_programming_finds_what_the_exhaustive_adversary_does(data):
    k, n_classes = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 4))
    rows = data.draw(st.lists(st.permutations(range(n_classes)), min_size=k, max_size=k))
    spread = None
    if data.draw(st.booleans()):
        bucket = st.lists(st.integers(0, k - 1), unique=True, max_size=k)
        spread = data.draw(st.lists(bucket, min_size=1, max_size=4))
    election = data.draw(st.sampled_from(check.ELECTIONS))
    n_buckets = k if spread is None else len(spread)
    exact = min(true_cost(election, ballots_of(rows), spread, sensible=True), n_buckets + 1)
    placed = None if spread is None else check.Spread(spread, k)
    low, high = _programs.by_programming(election, [bytes(row) for row in rows], placed, exact)
    assert (low, high) == (exact, exact)
    low, high = _programs.by_programming(election, [bytes(row) for row in rows], placed, exact - 1)
    assert low == exact <= high


def test_what_the_search_gives_up_on_is_solved(monkeypatch):
    ballots = runoff.rank(scores(4, 12, 3, seed=363, clear=1.0)[0])[:1]
    spread = [[0, 1, 6, 8], [0, 1, 8, 9], [0, 1, 6, 9], [0, 1, 4, 11]]
    monkeypatch.setattr(_radii, "NODES", 1)
    found = np.array([0]), np.array([1]), np.array([2])
    for more, code in ((0, 0), (1, 3)):
        report = Report("")
        _radii.prove(
            _radii.Certificates("rows", "runoff", "tight", *found[:2], found[2] + more), ballots, spread, [], report
        )
        assert report.exit_code == code, report
    assert "by integer programming, claimed 3" in str(report.failures[0])


# --- entries of other kinds -------------------------------------------------------------------------------------------

ENTRIES = ("format", "version", "settings", "dataset", "partition", "edits", "files", "member_sizes", "training_sets",
           "settings.n_partitions", "settings.spread", "settings.random_state", "settings.hash", "dataset.classes",
           "partition.offsets", "partition.fingerprint", "files.key", "files.ballots-2.npy", "edits.0")  # fmt: skip


@pytest.mark.parametrize("entry", ENTRIES)
def test_an_entry_of_another_kind_is_no_traceback(entry, copy, folder):
    path = copy("spread")
    whole = json.loads((path / "manifest.json").read_text())
    data = datasets.load(folder / "data.npz", classes=3)
    for value in (None, [], 10**30, "x", {"a": 1}):
        manifest = json.loads(json.dumps(whole))
        holder, (*parts, last) = manifest, entry.split(".", 1)
        for part in parts:
            holder = holder[part]
        holder[int(last) if isinstance(holder, list) else last] = value
        write_manifest(path, manifest)
        report = verify.run(path, data, sample=0)
        assert report.exit_code in (0, 4)
        assert report.exit_code == 4 or (entry, value) in (("member_sizes", None), ("training_sets", None))
