"""Hostile files: nothing hangs, no file of the user is deleted, and every error is one sentence."""

import json
import os
import time
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyarrow import parquet
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline

import runoff
from helpers import a_run
from runoff import RunoffClassifier, attacks, datasets
from runoff._io import directories, manifests
from runoff._io.files import open_array, sha256_of
from runoff._kernels import compiling
from runoff.cli import main
from runoff.errors import CheckpointError, RunoffError, StorageError
from runoff.fitting import labels
from runoff.recipes import Recipe
from runoff.runs import Run, Settings
from runoff.runs.work import trainer_settings
from runoff.saving import long_form, tables, trusted
from runoff.torch import networks
from runoff.verify._report import Report


def certify(path, *more):
    return CliRunner().invoke(main, ["certify", str(path), *more])


def rehash(run, *names):
    """Recompute digests, like an attacker who changes files and then the manifest."""
    manifest = json.loads((run / "manifest.json").read_text())
    for name in names:
        manifest["files"][name] = sha256_of(run / name)
    (run / "manifest.json").write_text(json.dumps(manifest))


# --- only what the manifest lists is deleted --------------------------------------------------------------------------


def forget(path):
    """Delete ballots, as every command does that replaces them."""
    run = Run.open(path)
    run.replace([], "ballots-", "certificates/")
    return run


def test_files_of_the_user_stay(tmp_path):
    run = a_run(tmp_path / "run", seeds=(1, 2))
    assert certify(run).exit_code == 0
    theirs = [
        run / "certificates" / name for name in ("sales-report-2023.csv", "runoff-tight-notes.csv", "plots-for-1.csv")
    ]
    theirs += [run / "ballots-notes.npy", run / "ballots-7.npy"]
    for file in theirs:
        file.write_text("mine")
    forget(run)
    assert [file.read_text() for file in theirs] == ["mine"] * 5
    assert not (run / "ballots-1.npy").exists()
    assert not (run / "certificates" / "runoff-tight-2.csv").exists()
    assert "stale" not in json.loads((run / "manifest.json").read_text())


def test_links_are_not_followed(tmp_path):
    run, elsewhere = a_run(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "runoff-tight-1.csv").write_text("mine")
    (run / "certificates").symlink_to(elsewhere)
    for result in (certify(run), CliRunner().invoke(main, ["update", str(run), "--add", "x.npz"])):
        assert result.exit_code == 4
        assert "certificates must be a folder of the run, got a symbolic link" in result.stderr
    assert os.listdir(elsewhere) == ["runoff-tight-1.csv"]  # noqa: PTH208
    (run / "certificates").unlink()
    assert certify(run).exit_code == 0
    (run / "ballots-1.npy").rename(tmp_path / "ballots")
    (run / "ballots-1.npy").symlink_to(tmp_path / "ballots")
    forget(run)
    assert (tmp_path / "ballots").exists()


def test_a_manifest_cannot_have_other_files_deleted(tmp_path):
    run = a_run(tmp_path / "run")
    (run / "notes.txt").write_text("mine")
    for name in ("notes.txt", "../run/notes.txt", "certificates/../notes.txt", "labels.npy", "key", 3):
        manifest = json.loads((run / "manifest.json").read_text())
        (run / "manifest.json").write_text(json.dumps(manifest | {"stale": [name]}))
        with pytest.raises(StorageError, match="stale in its manifest is invalid"):
            Run.open(run)
        (run / "manifest.json").write_text(json.dumps(manifest))


def test_what_a_kill_leaves_is_known_and_goes(tmp_path):
    run = Run.open(a_run(tmp_path / "run"))
    (run.path / "certificates").mkdir()
    (run.path / "edits").mkdir()
    run.begin("certificates/plurality-paper-1.csv")
    (run.path / "certificates" / "plurality-paper-1.csv").write_text("written, and then killed")
    for folder in ("edits", "certificates", "."):
        (run.path / folder / ".000000-add.npz.abcdefgh.runoff-tmp").write_text("samples")
    again = Run.open(run.path)
    assert again.manifest["stale"] == ["certificates/plurality-paper-1.csv"]
    again.verify()
    again.sweep()
    assert [file.name for file in run.path.rglob("*") if "tmp" in file.name or "plurality" in file.name] == []


# --- the spread of a run follows from its partition -------------------------------------------------------------------


def test_a_spread_of_another_partition_is_detected(tmp_path):
    run = a_run(tmp_path / "run", k=5, d=2)
    true = np.load(run / "spread.npy")
    zeros = [np.zeros((10, 0), np.int64), np.zeros((10, 1), np.int64)]
    for forged in (*zeros, true[:, :1], true[::-1], true[:5], true.view("V8"), true.astype(float)):
        np.save(run / "spread.npy", forged)
        rehash(run, "spread.npy")
        result = certify(run, "--json")
        assert result.exit_code == 4, result.output
        assert "was altered: spread.npy does not match its partition" in result.stderr
    np.save(run / "spread.npy", true)
    rehash(run, "spread.npy")
    assert certify(run).exit_code == 0


def test_manifests_without_what_a_run_needs_are_refused(tmp_path):
    run = a_run(tmp_path / "run")
    whole = json.loads((run / "manifest.json").read_text())
    for change in ({"settings": {k: v for k, v in whole["settings"].items() if k != "n_partitions"}}, {"stale": 3}):
        (run / "manifest.json").write_text(json.dumps(whole | change))
        with pytest.raises(StorageError, match=r"does not describe a run: .* in its manifest is invalid"):
            Run.open(run)


@pytest.mark.parametrize(
    "offsets", [[[], {}], [[0], [1]], [0, 0], [0], [0, 99], [0, -1], [0, "1"], "01", None, [0, 1.0]]
)
def test_offsets_that_no_partition_has_are_refused(tmp_path, offsets):
    run = a_run(tmp_path / "run", k=5, d=2)
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["partition"]["offsets"] = offsets
    (run / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(StorageError, match=r"does not describe a run|does not match its fingerprint"):
        Run.open(run)


# --- pipes, sparse files and bombs ------------------------------------------------------------------------------------


def quickly(seconds=20.0):
    """Limit the processor time of one case, which does not depend on other programs."""
    started = time.process_time()
    return lambda: time.process_time() - started < seconds


@pytest.mark.parametrize(
    "name", ["manifest.json", "key", "labels.npy", "spread.npy", "ballots-1.npy", ".lock", "timings.json"]
)
def test_a_pipe_in_a_run_does_not_hang(tmp_path, name):
    run = a_run(tmp_path / "run")
    (run / name).unlink(missing_ok=True)
    os.mkfifo(run / name)
    within = quickly()
    result = certify(run)
    assert within()
    assert result.exit_code in ((0,) if name == "timings.json" else (1, 4)), result.output
    assert "Traceback" not in result.output
    if name != "timings.json":
        assert "regular file" in result.stderr or "not a run" in result.stderr


READ = {".npy": open_array, ".npz": datasets.load, ".csv": tables.columns, ".parquet": tables.columns}


@pytest.mark.parametrize("suffix", READ)
def test_a_pipe_for_an_array_or_a_table_does_not_hang(tmp_path, suffix):
    path = tmp_path / f"mine{suffix}"
    os.mkfifo(path)
    within = quickly()
    with pytest.raises(ValueError, match=r"cannot be read|is neither a dataset"):
        READ[suffix](path)
    assert within()


def test_a_pipe_in_the_place_of_weights_does_not_hang(tmp_path):
    from runoff.torch import starting
    from runoff.torch.checkpoints import Checkpoints
    from runoff.torch.training.jobs import Job

    store, job = Checkpoints(tmp_path), Job(0, 0, np.random.SeedSequence(0), *[np.arange(2)] * 3)
    os.mkfifo(store.file(0, 0))
    within = quickly()
    for call in (lambda: store.get(job, "a", None), lambda: store.has(job, "a", None)):
        with pytest.raises(CheckpointError, match="is not the file of a network: remove it"):
            call()
    (tmp_path / "loop").symlink_to("loop")
    for path in (store.file(0, 0), tmp_path / "loop"):
        with pytest.raises(ValueError, match=r"a safetensors file, but .* cannot be read"):
            starting.get(path, "small")
    assert within()


def test_a_small_parquet_file_of_very_many_values_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "many.parquet"
    parquet.write_table(pa.table({name: pa.nulls(10**7) for name in "ab"}), path)
    assert path.stat().st_size < 10**5
    with pytest.raises(ValueError, match=r"many.parquet has more than [0-9,]+ values in .* decompression bomb"):
        tables.columns(path)
    monkeypatch.setattr(tables, "MOST_BYTES", 10**6)
    parquet.write_table(pa.table({"a": ["x" * 10**5] * 200}), path)  # one string, many times
    with pytest.raises(ValueError, match="decompression bomb"):
        tables.columns(path)


def test_no_value_of_a_parquet_file_that_is_refused_becomes_an_object(tmp_path):
    """Each of 3 million copies of a string would take 52 bytes, from a file of some kilobytes."""
    path = tmp_path / "strings.parquet"
    strings = pa.array(["spam"] * 3 * 10**6).dictionary_encode()
    parquet.write_table(pa.table({"a": strings}), path)
    assert path.stat().st_size < 10**5
    tracemalloc.start()
    with pytest.raises(ValueError, match="decompression bomb"):
        tables.columns(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10**7
    parquet.write_table(pa.table({"a": strings[:5], "b": pa.array(["x", None, "y"] * 2)[:5]}), path)
    assert tables.columns(path) == {"a": ["spam"] * 5, "b": ["x", None, "y", "x", None]}


@pytest.mark.parametrize(
    ("values", "kind", "told"),
    [
        ([2**60], pa.timestamp("us"), "cannot be read as Parquet: "),  # no date of Python
        ([[1.0, 2.0]], None, "must have one value in every cell, got list<.*> in the column score"),
    ],
)
def test_odd_columns_of_parquet_files_get_a_sentence(tmp_path, values, kind, told):
    path = tmp_path / "scores.parquet"
    columns = {name: ["a"] for name in ("input", "member", "class")}
    parquet.write_table(pa.table({**columns, "score": pa.array(values, kind)}), path)
    with pytest.raises(ValueError, match=told) as raised:
        long_form.read_scores(path)
    assert "\n" not in str(raised.value)


def test_a_damaged_parquet_file_does_not_end_the_process(tmp_path):
    path = tmp_path / "scores.parquet"
    parquet.write_table(pa.table({"input": [1, 2], "score": [0.5, 1.0]}), path)
    whole = path.read_bytes()
    refused = []
    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        try:
            tables.columns(path)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 100
    assert "\n" not in "".join(refused)


def test_columns_of_parquet_files_have_different_names(tmp_path):
    path = tmp_path / "twice.parquet"
    parquet.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    with pytest.raises(ValueError, match="must have columns of different names, got a, a"):
        tables.columns(path)


def test_names_with_line_breaks_are_told_in_one_line(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text('input,member,class,score\n0,"a\nb",c,1\n0,"a\nb",d,1\n0,e,c,1\n')
    with pytest.raises(ValueError, match="member e for class d of input 0 is missing"):
        long_form.read_scores(path)
    path.write_text('input,member,class,score\n0,"a\nb",c,1\n0,e,c,1\n0,e,d,1\n')
    with pytest.raises(ValueError, match="member a b for class d of input 0 is missing"):
        long_form.read_scores(path)
    path.write_text('input,"mem\nber",class,score\n0,a,c,1\n')
    with pytest.raises(ValueError, match="got input, mem ber, class, score"):
        long_form.read_scores(path)


@pytest.mark.parametrize("name", ["\x1b[31mred", "back\x08wards", "right\u202eto left", "\x9b2J"])
def test_names_cannot_control_the_terminal(name, tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text(f"input,member,class,score\n0,{name},c,1\n0,e,c,1\n0,e,d,1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="for class d of input 0 is missing") as told:
        long_form.read_scores(path)
    assert str(told.value).isprintable()
    assert "\\u" in str(told.value)


LONG = "long\nname " * 2000


def user_arrays(path, **changed):
    """Write a small dataset with some arrays replaced, and return its path."""
    arrays = {"x_train": np.zeros((2, 3, 3), np.uint8), "y_train": np.arange(2)}
    arrays |= {"x_test": arrays["x_train"], "y_test": arrays["y_train"]}
    np.savez(path / "data.npz", **arrays | changed)
    return path / "data.npz"


def records(path):
    """Write an array of records with a long name."""
    np.save(path / "scores.npy", np.zeros(2, [(LONG[:2000], "f4"), ("b", "f4")]))
    return path / "scores.npy"


FORGED_RUN = Settings(
    dataset="a", fingerprint="0", n_partitions=2, network="small", recipe={"epochs": 1, "milestones": [LONG]}
)

NAMES = {
    "a file of a manifest": lambda path: manifests.check_file(path, LONG, ""),
    "an impossible file of a manifest": lambda path: manifests.check_file(path, "a\0b" + LONG, ""),
    "records": lambda path: open_array(records(path)),
    "records of a dataset": lambda path: datasets.load(user_arrays(path, y_train=np.zeros(2, [(LONG[:2000], "i8")]))),
    "a class twice": lambda path: datasets.load(user_arrays(path, classes=np.array([LONG, LONG]))),
    "another class": lambda path: datasets.load(user_arrays(path, classes=np.array([LONG, "b"])), classes=["a", "b"]),
    "a dataset": lambda _: datasets.load(LONG),
    "a recipe": lambda _: Recipe.from_dict({LONG: 1}),
    "a schedule": lambda _: Recipe(epochs=1, schedule=LONG),
    "a network": lambda _: networks.get(LONG),
    "a network from a file": lambda _: networks.get(f"{LONG}.py:f"),
    "a milestone of a run": lambda _: trainer_settings(FORGED_RUN, np.zeros((1, 4, 4, 1), np.uint8), 3, device="cpu"),
    "a label": lambda _: labels.codes([LONG], np.array(["a", "b"])),
}


@pytest.mark.parametrize("read", NAMES.values(), ids=NAMES)
def test_long_names_in_files_are_cut_in_messages(read, tmp_path):
    with pytest.raises(RunoffError) as raised:
        read(tmp_path)
    assert len(str(raised.value).replace(str(tmp_path), "")) < 1500
    assert "\n" not in str(raised.value)


def test_types_of_a_hostile_member_are_cut_in_the_message():
    many = trusted.refusal([f"evil.module.Name{i}" for i in range(1000)])
    assert len(many) < 1500
    assert "trusted=('mine.Model',)" in trusted.refusal(["mine.Model"])


def test_names_of_a_hostile_directory_are_cut_in_reports():
    report = Report("run")
    report.files(LONG, LONG)
    report.skipped(LONG, LONG)
    for told in (str(report.failures[0]), report.not_checked[0]):
        assert len(told) < 1500
        assert "\n" not in told


def test_a_run_whose_manifest_lists_an_impossible_file_is_refused(tmp_path):
    run = a_run(tmp_path / "run")
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["files"]["a\0b"] = "0" * 64
    (run / "manifest.json").write_text(json.dumps(manifest))
    result = certify(run)
    assert (result.exit_code, "which is not a valid file name: its manifest was altered" in result.stderr) == (4, True)


def test_deep_and_huge_manifests_get_a_sentence(tmp_path, monkeypatch):
    run = a_run(tmp_path / "run")
    whole = (run / "manifest.json").read_text()
    (run / "manifest.json").write_text('{"format":' + "[" * 200_000 + "]" * 200_000 + "}")
    result = certify(run)
    assert (result.exit_code, "manifest.json is not JSON" in result.stderr) == (4, True)
    (run / "manifest.json").write_text(whole)
    for k in (30_000_000, 10**30):
        manifest = json.loads(whole)
        manifest["settings"]["n_partitions"] = k
        (run / "manifest.json").write_text(json.dumps(manifest))
        within = quickly()
        with pytest.raises(StorageError, match="n_partitions in its manifest is invalid"):
            Run.open(run)
        assert within()
    monkeypatch.setattr(manifests, "LARGEST_MANIFEST", 100)
    with pytest.raises(
        StorageError, match=r"manifest.json cannot be read \(1.\d kB, more than the limit of 100 bytes\)"
    ):
        Run.open(run)


def test_a_sparse_file_of_60_gb_is_refused_at_once(tmp_path):
    run = a_run(tmp_path / "run")
    with (run / "labels.npy").open("r+b") as file:
        file.truncate(60 * 10**9)
    within = quickly()
    result = certify(run)
    assert within()
    assert result.exit_code == 4
    assert "labels.npy cannot be read (60 GB, more than the limit of 8.6 GB)" in result.stderr


def test_arrays_that_are_much_larger_in_memory_are_refused(tmp_path, monkeypatch):
    from runoff.datasets import npz

    monkeypatch.setattr(npz, "LARGE", 2**20)
    bomb = np.zeros((2**12, 2**10), np.uint8)
    labels = np.zeros(2**12, np.int64)
    np.savez_compressed(tmp_path / "bomb.npz", x_train=bomb, y_train=labels, x_test=bomb, y_test=labels)
    with pytest.raises(datasets.DatasetError, match=r"would take 4.2 MB of memory for x_train, from 4.\d kB on disk"):
        datasets.load(tmp_path / "bomb.npz", classes=2)
    np.savez_compressed(tmp_path / "add.npz", x=bomb, y=labels)
    with pytest.raises(datasets.DatasetError, match="looks like a decompression bomb"):
        npz.read(tmp_path / "add.npz", ["x", "y"])
    np.savez(tmp_path / "plain.npz", x=bomb, y=labels)
    assert npz.read(tmp_path / "plain.npz", ["x", "y"])["x"].shape == bomb.shape


def test_saved_classifiers_with_pipes_and_impossible_sizes(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    RunoffClassifier(RidgeClassifier(), n_partitions=3, classes=[0, 1]).fit(X, y).save(tmp_path / "model")
    whole = (tmp_path / "model" / "manifest.json").read_text()
    for partition in (
        [30_000_000, 1, [0], "content"],
        [3, 2, [0], "content"],
        [0, 1, [0], "content"],
        [-3, -1, [], "content"],
    ):
        (tmp_path / "model" / "manifest.json").write_text(json.dumps(json.loads(whole) | {"partition": partition}))
        with pytest.raises(StorageError, match=r"claims -?\d+ parts and -?\d members per bucket"):
            RunoffClassifier.load(tmp_path / "model")
    forged = json.dumps(json.loads(whole) | {"partition": [10**4000, 1, [0], "content"]})
    (tmp_path / "model" / "manifest.json").write_text(forged)
    with pytest.raises(StorageError, match=r"claims 10{39} parts and 1 members per bucket"):
        RunoffClassifier.load(tmp_path / "model")
    for width in (["x" * 3000, [3]], ["dense", ["3"]], ["table", [3]], ["dense", 3], [["dense"], [3]]):
        (tmp_path / "model" / "manifest.json").write_text(json.dumps(json.loads(whole) | {"width": width}))
        with pytest.raises(StorageError, match="has samples of an invalid form: its manifest was altered"):
            RunoffClassifier.load(tmp_path / "model")
    (tmp_path / "model" / "manifest.json").write_text(whole)
    (tmp_path / "model" / "members" / "000001.skops").unlink()
    os.mkfifo(tmp_path / "model" / "members" / "000001.skops")
    with pytest.raises(StorageError, match=r"members/000001.skops cannot be read \(not a regular file\)"):
        RunoffClassifier.load(tmp_path / "model")


def test_what_a_killed_save_left_goes_with_the_next_and_what_is_being_saved_stays(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    fitted = RunoffClassifier(RidgeClassifier(), n_partitions=3, classes=[0, 1]).fit(X, y)
    dead, other = tmp_path / ".model.abcdefgh.runoff-tmp", tmp_path / ".other.abcdefgh.runoff-tmp"
    for folder in (dead, other):
        folder.mkdir()
        (folder / "key").write_text("secret")
    slower = directories.new_directory(tmp_path / "model")
    begun = slower.__enter__()
    (begun / "key").write_text("of somebody who is still writing")
    assert not dead.exists()
    fitted.save(tmp_path / "model")
    assert (begun / "key").exists()
    with pytest.raises(FileExistsError, match="already exists"):
        slower.__exit__(None, None, None)
    assert sorted(file.name for file in tmp_path.iterdir()) == [".other.abcdefgh.runoff-tmp", "model"]
    assert len(RunoffClassifier.load(tmp_path / "model").predict(X)) == 40


def test_certify_removes_what_a_killed_certify_left(tmp_path):
    run = a_run(tmp_path / "run")
    (run / "certificates").mkdir()
    for left in (".manifest.json.abcdefgh.runoff-tmp", "certificates/.runoff-tight-1.csv.abcdefgh.runoff-tmp"):
        (run / left).write_text("half")
    assert certify(run).exit_code == 0
    assert [file for file in run.rglob("*") if "runoff-tmp" in file.name] == []


def test_a_forged_member_of_another_shape_is_refused(tmp_path):
    import skops.io as sio

    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    model = tmp_path / "model"
    RunoffClassifier(RidgeClassifier(), n_partitions=3, classes=[0, 1]).fit(X, y).save(model)
    name = "members/000001.skops"
    state = sio.loads((model / name).read_bytes())
    for change in ({"shares": np.ones(3)}, {"shares": np.array([np.nan, 1])}, {"classes": np.array([[0, 1]])}):
        (model / name).write_bytes(sio.dumps(state | change))
        rehash(model, name)
        with pytest.raises(StorageError, match=r"000001.skops is not member 1 of this classifier"):
            RunoffClassifier.load(model).predict(X)


CLASSES = ("sklearn.linear_model._ridge.RidgeClassifier",)  # skops trusts objects of this class, but not the class


@pytest.mark.parametrize("value", ["a string", 3, RidgeClassifier, {"fit": 1}, [None]])
def test_something_else_in_the_place_of_an_estimator_is_refused(tmp_path, value):
    import skops.io as sio

    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    model = tmp_path / "model"
    RunoffClassifier(RidgeClassifier(), n_partitions=3, classes=[0, 1]).fit(X, y).save(model)
    whole = (model / "estimator.skops").read_bytes()
    for state in ({"estimator": value}, value, {}):
        (model / "estimator.skops").write_bytes(sio.dumps(state))
        rehash(model, "estimator.skops")
        with pytest.raises(
            StorageError, match=r"estimator.skops contains no estimator, but an object of type \w+: it was"
        ):
            RunoffClassifier.load(model, trusted=CLASSES)
    (model / "estimator.skops").write_bytes(whole)
    name = "members/000001.skops"
    state = sio.loads((model / name).read_bytes())
    for fitted in ([value], [*state["fitted"], value]):
        (model / name).write_bytes(sio.dumps(state | {"fitted": fitted}))
        rehash(model, "estimator.skops", name)
        loaded = RunoffClassifier.load(model, trusted=CLASSES)
        with pytest.raises(
            StorageError, match=r"000001.skops contains no fitted estimator, but an object of type \w+: it"
        ):
            loaded.predict(X)


def test_an_estimator_without_one_of_its_settings_is_refused(tmp_path):
    import skops.io as sio

    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    model = tmp_path / "model"
    RunoffClassifier(RidgeClassifier(), n_partitions=3, classes=[0, 1]).fit(X, y).save(model)
    incomplete = RidgeClassifier()
    del incomplete.alpha
    (model / "estimator.skops").write_bytes(sio.dumps({"estimator": incomplete}))
    rehash(model, "estimator.skops")
    with pytest.raises(StorageError, match=r"estimator.skops contains an incomplete estimator \(.*'alpha'\): it was"):
        RunoffClassifier.load(model)


def test_a_compressed_file_with_60_gb_of_zeros_behind_it_is_refused_at_once(tmp_path):
    import gzip

    from runoff.datasets import _archives

    with gzip.open(tmp_path / "labels.gz", "wb") as file:
        file.write(bytes(1000))
    assert _archives.read_bounded(tmp_path / "labels.gz", 1000) == bytes(1000)
    with (tmp_path / "labels.gz").open("r+b") as file:
        file.truncate(60 * 10**9)
    within = quickly()
    with pytest.raises(ValueError, match="has more than 1000 bytes"):
        _archives.read_bounded(tmp_path / "labels.gz", 1000)
    assert within()


# --- keys, caches, replays --------------------------------------------------------------------------------------------


def test_a_key_given_as_bytes_shows_nowhere():
    key = bytes(range(65, 97))
    inner = RunoffClassifier(RidgeClassifier(), n_partitions=3, classes=[0, 1], hash_key=key)
    outer = make_pipeline(inner)
    for shown in (
        repr(outer),
        str(outer),
        outer._repr_html_(),
        str(outer._repr_mimebundle_()),
        repr(inner),
        inner._repr_html_(),
    ):
        assert "ABCDEFGH" not in shown
    X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
    assert bytes(outer.fit(X, y)[-1].partition_.key) == key
    from sklearn.base import clone

    assert bytes(clone(outer)[-1].hash_key) == key
    assert "ABCDEFGH" not in repr(outer) + repr(outer.get_params())


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="no such rights on this system")
def test_machine_code_is_not_kept_where_others_can_write(tmp_path):
    ours = tmp_path / "ours"
    assert compiling._writable(ours / "cache")
    (ours / "cache").chmod(0o777)
    assert not compiling._writable(ours / "cache")
    (ours / "cache").chmod(0o700)
    ours.chmod(0o777)  # others can put another directory in its place
    assert not compiling._writable(ours / "cache")
    ours.chmod(0o1777)  # as in /tmp: others cannot replace it
    assert compiling._writable(ours / "cache")
    if os.getuid() == 0:
        ours.chmod(0o755)
        os.chown(ours / "cache", 12345, 12345)
        assert not compiling._writable(ours / "cache")


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int8", "int64", "uint64", "float16", "float32", "float64", ">f4", "longdouble"]
)
def test_an_attack_can_be_replayed_whatever_the_type_of_the_scores(dtype):
    scores = np.random.default_rng(0).integers(0, 2 if dtype == "bool" else 5, size=(30, 9, 4)).astype(dtype)
    certificates = runoff.certify(scores)
    for i in range(30):
        attack = certificates.attack(i)
        after = attack.apply(scores[i])
        again = runoff.certify(after[None])
        assert again.prediction[0] == attack.prediction != certificates.prediction[i]
        assert np.flatnonzero((after != runoff.rank(scores[i : i + 1])[0]).any(axis=1)).size <= len(attack)
    assert isinstance(attack, attacks.Attack)
