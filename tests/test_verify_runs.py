"""The whole report on small runs: correct ones, and forged ones whose digests an attacker has recomputed."""

import io
import json
import shutil
from functools import partial
from types import SimpleNamespace

import numpy as np
import pyarrow
import pytest
from pyarrow import csv as tables
from pyarrow import parquet

import runoff
from runoff import check, verify
from runoff.verify import _run, directory, networks
from verified import (
    IMAGES,
    TENSOR,
    Trainer,
    Y,
    a_run,
    certify,
    dataset,
    floats,
    listed,
    network_file,
    safetensors,
)

FILES = "the SHA-256 of 19 files, before any of them was parsed"
PARTITION = "the key, the spread and the fingerprint of the partition, derived again from key and settings"
DATASET = "the dataset's fingerprint and the labels of the inputs"
SETS = "the training sets of 6 members, 60 rows in total, hashed and divided again"
BALLOTS = "the ballots of 6 members for all inputs, ranked again from their stored scores"
SCORES = "the stored scores of 12 networks for 3 inputs, computed from their weights"
TIGHT = (
    "certificates/runoff-tight-{}.csv: 8 predictions and radii (runoff, tight bound); for 8 an attack on radius + 1 "
    "buckets was replayed, so they are exact; {} by integer programming too"
)
ALL = [FILES, PARTITION, DATASET, SETS, BALLOTS, SCORES, TIGHT.format(1, 3), TIGHT.format(2, 3)]
UNUSABLE = "that 2 networks could not be trained, as the files say: --retrain shows this for those that it picks "
UNUSABLE += "(of members 4)"
RETRAIN = "that retraining gives the same networks: --retrain N checks N of them"


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return a_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def path(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def verified(path, data=None, **options):
    options = {"trainer": Trainer(), "sample": 3, "seed": 0, **options}
    return verify.run(path, dataset() if data is None else data, **options)


def failures(report):
    assert report.exit_code == max(failure.code for failure in report.failures)
    return [(failure.code, str(failure)) for failure in report.failures]


# --- correct runs -----------------------------------------------------------------------------------------------------


def test_the_report_on_a_run(path):
    report = verified(path, retrain=2)
    assert report.checked == [*ALL, "2 networks retrained, bit for bit the same: members 1, 5 (seed 1)"]
    assert (report.not_checked, report.failures, report.exit_code, report.subject) == ([], [], 0, str(path))
    manifest = json.loads((path / "manifest.json").read_text())
    assert set(report.facts) == {
        "seed", "manifest_sha256", "dataset", "versions", "trained_by", "settings", "election", "edits", "certificates",
    }  # fmt: skip
    assert report.facts["seed"] == 0
    assert report.facts["manifest_sha256"] == directory.sha256(path / "manifest.json")
    assert report.facts["dataset"] == {"name": "small", "fingerprint": manifest["settings"]["fingerprint"]}
    for name in ("versions", "trained_by", "settings", "election"):
        assert report.facts[name] == manifest[name]
    assert report.facts["edits"] == 0
    accuracy = []
    for n in (1, 2):
        found = runoff.certify(np.load(path / f"ballots-{n}.npy"), spread=np.load(path / "spread.npy"))
        right = found.prediction == np.arange(8) % 3
        radii = range(found.radius.max() + 1)
        accuracy.append({str(r): round(float((right & (found.radius >= r)).mean()), 6) for r in radii})
    assert report.facts["certificates"] == [
        {
            "file": f"certificates/runoff-tight-{n}.csv", "election": "runoff", "bound": "tight",
            "networks_per_member": n, "inputs": 8, "certified_accuracy": accuracy[n - 1],
        }
        for n in (1, 2)
    ]  # fmt: skip
    told = report.to_dict()
    assert told == {
        "subject": str(path), "exit_code": 0, "checked": report.checked, "not_checked": [], "failures": [],
        **report.facts,
    }  # fmt: skip


def test_nothing_but_the_run_itself(path):
    report = verify.run(path, seed=4)
    assert report.checked == [FILES, PARTITION, BALLOTS, TIGHT.format(1, 8), TIGHT.format(2, 8)]
    assert report.not_checked == [
        "the dataset: the dataset is not available",
        "the training sets of the members: the dataset is not available",
        "that the stored scores are those of the stored weights: the dataset is not available",
        RETRAIN,
    ]
    report = verify.run(path, lambda: (None, "it was lost"), sample=0, retrain=1, trainer=Trainer(), seed=4)
    assert report.checked == [FILES, PARTITION, BALLOTS, TIGHT.format(1, 0), TIGHT.format(2, 0)]
    assert report.not_checked == [
        "the dataset: it was lost",
        "the training sets of the members: it was lost",
        "that the stored scores are those of the stored weights: the dataset is not available",
        "1 network retrained: this needs the stored networks and the dataset",
    ]


def test_steps_are_told_and_full_means_all(path):
    told = []
    report = verified(path, full=True, sample=1, progress=told.append, retrain=1)
    assert report.checked[5:8] == [SCORES.replace("3 inputs", "8 inputs"), TIGHT.format(1, 8), TIGHT.format(2, 8)]
    assert told[:4] == [
        "hashing the samples", "ranking the stored scores", "proving certificates/runoff-tight-1.csv",
        "proving certificates/runoff-tight-2.csv",
    ]  # fmt: skip
    assert told[4].startswith("training member ")
    assert len(told) == 5


def test_without_a_seed_the_sample_cannot_be_predicted(path):
    seeds = {verify.run(path, sample=0).facts["seed"] for _ in range(4)}
    assert len(seeds) == 4
    assert 2**32 < max(seeds) < 2**64
    told = [verified(path, seed=seed, sample=1, retrain=3).checked[-1] for seed in range(3)]
    assert len({*told}) > 1
    assert told[0] == verified(path, seed=0, sample=1, retrain=3).checked[-1]


def test_arguments_may_be_functions_that_are_called_late(path):
    calls = []

    def late(name, result):
        calls.append(name)
        return result, f"no {name}"

    class Holder:
        def find(self):
            return late("method", None)

    for function in (partial(late, "partial", None), lambda: late("lambda", None), Holder().find):
        report = verify.run(path, function, trainer=function, sample=0)
        assert report.not_checked[0] == f"the dataset: no {calls[-1]}"
    assert len(calls) == 6
    report = verify.run(path, dataset(), trainer=lambda: late("trainer", None), sample=0, retrain=1)
    assert report.not_checked == [
        "that the stored scores are those of the stored weights: no trainer", "1 network retrained: no trainer",
    ]  # fmt: skip
    report = verify.run(path, dataset(), sample=0, retrain=2)
    assert report.not_checked == [
        "that the stored scores are those of the stored weights: no training code was passed",
        "2 networks retrained: no training code was passed",
    ]
    (path / "key").write_bytes(b"x")
    calls.clear()
    assert verify.run(path, lambda: late("never", None)).exit_code == 4
    assert calls == []


def test_another_machine_neither_scores_nor_trains(path):
    elsewhere = Trainer()
    elsewhere.why = "other hardware"
    report = verified(path, trainer=elsewhere, retrain=1)
    assert report.checked == [FILES, PARTITION, DATASET, SETS, BALLOTS, TIGHT.format(1, 3), TIGHT.format(2, 3)]
    assert report.not_checked == [
        "that the stored scores are those of the stored weights: other hardware", "1 network retrained: other hardware",
    ]  # fmt: skip


def test_what_networks_started_from_is_told(path):
    def facts(**settings):
        listed(path, lambda manifest: manifest["settings"].update(settings))
        return verified(path, sample=1)

    trusted = "they are trusted: nothing shows that they do not depend on the training samples"
    encoder = "it is trusted: nothing shows who could edit what it was trained on"
    assert facts(encoder={"given": "lite"}).not_checked == [f"the encoder lite: {encoder}", RETRAIN]
    assert facts(encoder="x").not_checked == [f"the encoder of this run: {encoder}", RETRAIN]
    report = facts(encoder=None, first_weights={"given": "mine", "sha256": "ab"})
    assert report.not_checked == [f"the initial weights mine (SHA-256 ab): {trusted}", RETRAIN]
    assert facts(first_weights=7).not_checked == [f"the initial weights None (SHA-256 None): {trusted}", RETRAIN]
    shipped = json.loads((directory.Path(verify.__file__).parents[1] / "torch/weights/manifest.json").read_text())
    sha256 = shipped["nin"]["procedural"]["sha256"]
    report = facts(first_weights={"given": "procedural", "sha256": sha256})
    assert report.checked[2] == (
        f"networks started from weights of this package, trained on procedural images (SHA-256 {sha256})"
    )
    assert report.not_checked == [RETRAIN]


def test_runs_without_networks_and_certificates(path):
    shutil.rmtree(path / "members")
    report = verified(path)
    assert report.not_checked == [
        "12 networks: members/ is not in the directory",
        "that the ballots are those of the stored networks: no network is in the directory",
        RETRAIN,
    ]
    assert report.checked[0] == "the SHA-256 of 7 files, before any of them was parsed"
    for n in (1, 2):
        (path / "certificates" / f"runoff-tight-{n}.csv").unlink()
        report = verified(path)
        files = "1 file" if n == 1 else "2 files"
        assert report.not_checked[1] == f"{files} of certificates: listed in the manifest, but missing"
    assert report.not_checked[-2] == "radii: the run has no certificates: `runoff certify` writes them"
    assert report.exit_code == 0
    for name in ("notes", "b", "c", "a"):
        (path / name).write_text("mine")
        (path / ".lock").write_text("")
    (path / "folder").mkdir()
    unlisted = "4 files that the manifest does not list: a, b, c, ..."
    assert unlisted in verified(path).not_checked
    (path / "a").unlink()
    assert "3 files that the manifest does not list: b, c, notes" in verified(path).not_checked


def test_an_unfinished_run(path):
    for n in (1, 2):
        (path / f"ballots-{n}.npy").unlink()
        (path / "certificates" / f"runoff-tight-{n}.csv").unlink()
    (path / "labels.npy").unlink()
    (path / "spread.npy").unlink()
    listed(path)
    report = verified(path, retrain=12)
    assert report.checked == [
        "the SHA-256 of 13 files, before any of them was parsed", PARTITION, DATASET, SETS,
        "12 networks retrained, bit for bit the same: members 0, 0 (seed 1), 1, 1 (seed 1), 2, 2 (seed 1), 3, 3 (seed "
        "1), 4, 4 (seed 1), 5, 5 (seed 1)",
    ]  # fmt: skip
    assert report.not_checked == ["ballots and certificates: the run is not finished"]


def test_records_of_older_releases_may_be_missing(path):
    listed(path, lambda m: (m.pop("member_sizes"), m.pop("training_sets")))
    report = verified(path)
    assert report.not_checked == [
        "the sizes of the training sets: they are not recorded",
        "the SHA-256 of the training sets: they are not recorded",
        RETRAIN,
    ]
    assert SETS not in report.checked


def test_a_bucket_may_be_a_source_or_a_label(tmp_path):
    data = dataset(groups=np.array([f"s{i % 7}" for i in range(30)]))
    path = a_run(tmp_path / "sources", unit="sources", data=data)
    assert verified(path, data, retrain=1).failures == []
    counted = "(runoff, tight bound; radii count sources, whatever they contribute)"
    assert any(counted in line for line in verified(path, data).checked)
    other = dataset(groups=np.roll(data.groups, 1))
    assert failures(verified(path, other)) == [
        (4, "the dataset: does not have the fingerprint that the run records: its samples differ")
    ]
    path = a_run(tmp_path / "labels", unit="labels")
    assert verified(path).failures == []
    path = a_run(tmp_path / "sums", hashed_by="pixel-sum", d=1, seeds=(1,))
    assert verified(path, retrain=1).failures == []
    path = a_run(tmp_path / "no groups", data=data)
    assert failures(verified(path, data)) == [(4, "edits/: and settings disagree on whether samples have sources")]


@pytest.mark.parametrize("unit", ["samples", "sources", "labels"])
def test_rows_say_what_the_radii_of_their_run_count(unit, tmp_path):
    data = dataset(groups=np.array([f"s{i % 7}" for i in range(30)])) if unit == "sources" else dataset()
    path = a_run(tmp_path / "run", unit=unit, data=data)
    labels = np.load(path / "labels.npy")
    for other in ("samples", "sources", "labels"):
        certify(path, "runoff", "tight", 1, np.load(path / "spread.npy"), labels, other)
        listed(path)
        expected = f"{ONE}: does not say that the radii of this run count {check.UNITS[unit]}"
        told = [str(failure) for failure in verified(path, data).failures]
        assert told == ([] if other == unit else [expected])


def test_columns_that_are_not_checked_are_listed(path):
    lines = (path / ONE).read_text().splitlines()
    (path / ONE).write_text("\n".join([lines[0] + ",odds", *(f"{line},9" for line in lines[1:])]) + "\n")
    listed(path)
    report = verified(path)
    assert report.failures == []
    assert f"the columns 'odds' of {ONE}: only proofs of radii are checked" in report.not_checked


def test_resized_images_are_divided_by_the_originals(tmp_path, monkeypatch):
    from runoff import samples

    digests = np.arange(30 * 16, dtype=np.uint8).reshape(30, 16)
    data = dataset(original_digests=digests, original_sums=np.arange(30) * 7)
    with monkeypatch.context() as patched:
        patched.setattr(samples, "from_any", lambda x: samples.Resized(x, digests, data.original_sums))
        paths = [a_run(tmp_path / name, data=data, hashed_by=name, seeds=(1,)) for name in ("content", "pixel-sum")]
    for path in paths:
        assert verified(path, data, retrain=1).failures == []


# --- edits ------------------------------------------------------------------------------------------------------------


def an_edited_run(tmp_path, groups=None):
    """Write a run whose third sample is a copy of the first, after two edits."""
    x, y = IMAGES[:30].copy(), Y.copy()
    x[2], y[2] = x[0], y[0]
    data = dataset(x_train=x, y_train=y, groups=groups)
    x_after, y_after = (
        np.concatenate([x[[*range(2), *range(3, 30)]], IMAGES[33:35]]),
        [*y[[*range(2), *range(3, 30)]], 1, 2],
    )
    after = None if groups is None else [*(g for i, g in enumerate(groups) if i != 2), "n", "m"]
    path = a_run(
        tmp_path / "edited", data=data, unit="samples" if groups is None else "sources",
        edited=(x_after, np.array(y_after), after),
    )  # fmt: skip
    (path / "edits").mkdir()
    removed, added = {"x": x[2:3], "y": y[2:3]}, {"x": IMAGES[33:35], "y": np.array([1, 2], np.uint8)}
    if groups is not None:
        removed["groups"], added["groups"] = np.array([groups[2]]), np.array(["n", "m"])
    np.savez(path / "edits" / "000000-remove.npz", **removed)
    np.savez(path / "edits" / "000001-add.npz", **added)
    listed(path, lambda m: m.update(edits=["edits/000000-remove.npz", "edits/000001-add.npz"]))
    return path, data, removed, added


@pytest.mark.parametrize("groups", [None, np.array([f"s{i % 7}" for i in range(30)])])
def test_edits_are_applied_in_order(tmp_path, groups):
    path, data, removed, added = an_edited_run(tmp_path, groups)
    report = verified(path, data, retrain=1)
    assert report.failures == []
    assert f"{DATASET}, with 2 edits applied" in report.checked
    assert report.facts["edits"] == 2
    name = "edits/000000-remove.npz"

    def told(change=lambda _: None, **arrays):
        np.savez(path / name, **arrays)
        listed(path, lambda m: (m.update(edits=[name, "edits/000001-add.npz"]), change(m)))
        return failures(verified(path, data))

    assert told(**removed | {"y": np.array([1])}) == [
        (4, f"edits/: remove a sample that is not a training sample: {name}")
    ]
    assert told(**removed | {"x": removed["x"] + 1}) == [
        (4, f"edits/: remove a sample that is not a training sample: {name}")
    ]
    twice = {key: np.concatenate([array] * 3) for key, array in removed.items()}
    assert told(**twice) == [(4, f"edits/: remove a sample that is not a training sample: {name}")]
    for wrong in ({"y": np.array([0, 1])}, {"x": removed["x"][:, :1]}, {"y": np.zeros((1, 1), int)}):
        assert told(**removed | wrong) == [(4, f"edits/: are not samples of the dataset's shape: {name}")]
    for missing in ("x", "y"):
        few = {key: array for key, array in removed.items() if key != missing}
        assert told(**few) == [(4, f"edits/: are not samples of the dataset's shape: {name}")]
    sources = f"edits/: do not have the sources of their samples: {name}"
    if groups is None:
        assert told(**removed, groups=np.array(["s1"])) == [(4, sources)]
    else:
        assert told(x=removed["x"], y=removed["y"]) == [(4, sources)]
        assert told(**removed | {"groups": np.array(["s1", "s2"])}) == [(4, sources)]
        assert told(**removed | {"groups": np.array(["s1"])}) == [
            (4, f"edits/: remove a sample that is not a training sample: {name}")
        ]
    for names in (["edits/000009-add.npz"], [7], ["labels.npy"], ["edits/00001-add.npz"]):
        assert told(lambda m, names=names: m.update(edits=names), **removed) == [
            (4, f"edits/: do not match the manifest: {names[0]!r}")
        ]
    (path / name).write_bytes(b"PK")
    listed(path, lambda m: m.update(edits=[name]))
    assert failures(verified(path, data)) == [(4, "edits/: is not a complete .npz file")]
    assert added["y"].dtype == np.uint8


def test_the_last_of_equal_samples_is_removed(tmp_path):
    path, data, _, _ = an_edited_run(tmp_path)
    steps = _run.RunVerifier(path, verify.Report(""), np.random.default_rng(0), full=False, sample=1)
    assert steps.open()
    x, y, groups = steps._edited(data.x_train, data.y_train, None)
    np.testing.assert_array_equal(x[:3], data.x_train[[0, 1, 3]])
    assert (len(x), y[-2:].tolist(), y.dtype, groups) == (31, [1, 2], np.int64, None)


# --- forged runs ------------------------------------------------------------------------------------------------------


def array_of(name, change):
    def apply(path):
        np.save(path / name, change(np.load(path / name)))

    return apply


def setting(change):
    return lambda path: listed(path, change)


def tensors_of(member, seed, change):
    """Change the metadata and the tensors of a network."""

    def apply(path):
        file = path / network_file(member, seed)
        metadata, tensors = networks.tensors(file.read_bytes())
        change(metadata, tensors)
        file.write_bytes(safetensors(tensors, **metadata))

    return apply


def flip(ballots):
    ballots[6, 3] = ballots[6, 3, ::-1]
    return ballots


def repeat(ballots):
    ballots[6, 3, 0] = ballots[6, 3, 1]
    return ballots


def csv_row(name, i, **changes):
    def apply(path):
        lines = (path / name).read_text().split("\n")
        head, row = lines[0].split(","), lines[1 + i].split(",")
        for column, value in changes.items():
            row[head.index(column)] = str(value(int(row[head.index(column)])) if callable(value) else value)
        lines[1 + i] = ",".join(row)
        (path / name).write_text("\n".join(lines))

    return apply


def scores_of(dtype):
    def apply(_, tensors):
        tensors["runoff:scores"] = TENSOR(dtype, (8, 3), bytes(24 * networks.SIZES[dtype]))

    return apply


NETWORK = network_file(2, 1)
ONE = "certificates/runoff-tight-1.csv"
COLUMNS = f"{ONE}: must have the columns input, prediction, radius, runner_up, with a row for each of 8 inputs in order"
FORGED = {
    "a spread": (array_of("spread.npy", lambda a: a[::-1]),
                 "spread.npy: is not the spread that follows from the settings"),
    "labels that are none": (array_of("labels.npy", lambda a: a + 1), "labels.npy: must hold classes 0 to 2"),
    "negative labels": (array_of("labels.npy", lambda a: a - 1), "labels.npy: must hold classes 0 to 2"),
    "labels as floats": (array_of("labels.npy", lambda a: a * 1.0), "labels.npy: must hold classes 0 to 2"),
    "labels in rows": (array_of("labels.npy", lambda a: a[:, None]), "labels.npy: must hold classes 0 to 2"),
    "no array": (lambda p: (p / "labels.npy").write_bytes(b"x"),
                 "labels.npy: is not a complete .npy file of plain numbers or strings"),
    "fewer labels": (array_of("labels.npy", lambda a: a[:-1]),
                     "ballots-1.npy: must hold ballots for the 7 inputs of labels.npy, got 8"),
    "ballots of another shape": (array_of("ballots-2.npy", lambda a: a[:, :-1]),
                                 "ballots-2.npy: must hold ballots of shape (inputs, 6, 3), got (8, 5, 3)"),
    "ballots in rows": (array_of("ballots-2.npy", lambda a: a[0]),
                        "ballots-2.npy: must hold ballots of shape (inputs, 6, 3), got (6, 3)"),
    "wide ballots": (array_of("ballots-2.npy", lambda a: a.astype(np.uint16)),
                     "ballots-2.npy: must hold ballots of shape (inputs, 6, 3), got (8, 6, 3)"),
    "a ballot that ranks a class twice": (array_of("ballots-2.npy", repeat),
                                          "ballots-2.npy: has a ballot that is not a ranking: input 6, member 3"),
    "a ballot": (array_of("ballots-2.npy", flip),
                 "ballots-2.npy, member 3: does not rank input 6 by the scores of its stored networks"),
    "sizes": (setting(lambda m: m["member_sizes"].__setitem__(3, 1)),
              "member 3: has {3} training samples, 1 are recorded"),
    "fewer sizes": (setting(lambda m: m["member_sizes"].pop()),
                    "member 5: has {5} training samples, none are recorded"),
    "more sizes": (setting(lambda m: m["member_sizes"].append(4)), "member 6: has no training samples, 4 are recorded"),
    "fewer training sets": (setting(lambda m: m["training_sets"].pop()),
                            "manifest.json: must record the training sets of 6 members"),
    "training sets that are no list": (setting(lambda m: m.update(training_sets={"a": 1})),
                                       "manifest.json: must record the training sets of 6 members"),
    "a training set": (setting(lambda m: m["training_sets"].__setitem__(2, "0" * 64)),
                       "member 2: was not trained on the samples that follow from data, key and spread"),
    "another class": (setting(lambda m: m["dataset"].update(classes=["cat", "dog", "cow"])),
                      "the dataset: does not have the classes that the run records"),
    "a key": (lambda p: (p / "key").write_bytes(bytes(32)), "key: is not the key that follows from the seed 5"),
    "a short key": (lambda p: (p / "key").write_bytes(bytes(15)), "manifest.json: must have a key of 16 to 64 bytes"),
    "a long key": (lambda p: (p / "key").write_bytes(bytes(65)), "manifest.json: has more than 64 bytes"),
    "no key": (lambda p: (p / "key").unlink(), "manifest.json: does not list the key"),
    "no settings": (setting(lambda m: m.update(settings=[])), "manifest.json: has no settings"),
    "no partitions": (setting(lambda m: m["settings"].update(n_partitions=0)),
                      "manifest.json: must have n_partitions from 1 to 1000000, got 0"),
    "a boolean": (setting(lambda m: m["settings"].update(n_partitions=True)),
                  "manifest.json: must have n_partitions from 1 to 1000000, got True"),
    "no spread": (setting(lambda m: m["settings"].update(spread=0)),
                  "manifest.json: must have spread from 1 to 333333, got 0"),
    "millions of members": (setting(lambda m: m["settings"].update(n_partitions=1001, spread=1000)),
                            "manifest.json: must have spread from 1 to 999, got 1000"),
    "a negative seed": (setting(lambda m: m["settings"].update(random_state=-1)),
                        "manifest.json: must have random_state from 0 to 9223372036854775808, got -1"),
    "a huge seed": (setting(lambda m: m["settings"].update(random_state=2**63 + 1)),
                    "manifest.json: must have random_state from 0 to 9223372036854775808, got 9223372036854775809"),
    "a hash": (setting(lambda m: m["settings"].update(hash="md5")),
               "manifest.json: must have a hash from content, pixel-sum, got 'md5'"),
    "a unit": (setting(lambda m: m["settings"].update(unit="people")),
               "manifest.json: must count one of samples, sources, labels, got 'people'"),
    "offsets": (setting(lambda m: m["partition"].update(offsets=[0, 1])),
                "manifest.json: records the offsets [0, 1], but {offsets} follow from the seed"),
    "a fingerprint": (setting(lambda m: m["partition"].update(fingerprint="0")),
                      "manifest.json: records a fingerprint of the partition that does not follow from key and "
                      "settings"),
    "no weights of one network": (lambda p: (p / NETWORK).unlink(), "member 2: has no stored network of seed 1"),
    "no scores": (tensors_of(2, 1, lambda _, t: t.pop("runoff:scores")), f"{NETWORK}: has no stored scores"),
    "scores of whole numbers": (tensors_of(2, 1, scores_of("I32")), f"{NETWORK}: holds scores of type I32"),
    "scores for other inputs": (
        tensors_of(2, 1, lambda m, _: m.update(asked="0")),
        f"{NETWORK}: has scores for inputs that are not those of the dataset (member 2, seed 1)",
    ),
    "weights": (
        tensors_of(2, 1, lambda _, t: t.update(bias=floats(np.array([90.0, 0, -90])))),
        f"{NETWORK}: does not give the stored scores for input {{input}} (seed 1, member 2)",
    ),
    "no table": (lambda p: (p / ONE).write_text(""), f"{ONE}: is not a table of integers"),
    "a fraction": (csv_row(ONE, 3, radius=0.5), f"{ONE}: is not a table of integers"),
    "a short row": (lambda p: (p / ONE).write_text((p / ONE).read_text() + "9,9\n"),
                    f"{ONE}: is not a table of integers"),
    "a missing column": (lambda p: (p / ONE).write_text((p / ONE).read_text().replace("runner_up", "other")), COLUMNS),
    "a column twice": (lambda p: (p / ONE).write_text((p / ONE).read_text().replace("runner_up", "radius")),
                       f"{ONE}: names a column twice"),
    "a missing row": (lambda p: (p / ONE).write_text("\n".join((p / ONE).read_text().split("\n")[:-2])), COLUMNS),
    "a row of another input": (csv_row(ONE, 3, input=4), COLUMNS),
    "a negative radius": (csv_row(ONE, 3, radius=-1), f"{ONE}: has the radius -1 for input 3"),
    "a huge radius": (csv_row(ONE, 3, radius=2**62), f"{ONE}: has the radius {2**62} for input 3"),
    "a label": (csv_row(ONE, 3, label=lambda label: (label + 1) % 3), f"{ONE}: has labels that differ from labels.npy"),
    "other seeds": (lambda p: (p / ONE.replace("1", "2")).rename(p / ONE.replace("1", "3")),
                    "certificates/runoff-tight-3.csv: needs ballots-3.npy, which does not exist"),
}  # fmt: skip


@pytest.mark.parametrize("name", FORGED)
def test_what_is_forged_is_named(name, path):
    change, expected = FORGED[name]
    manifest = json.loads((path / "manifest.json").read_text())
    before = (path / "manifest.json").read_text()
    change(path)
    if (path / "manifest.json").read_text() == before:
        listed(path)
    report = verified(path)
    sizes = manifest["member_sizes"]
    told = failures(report)
    at = expected.replace("{offsets}", str(manifest["partition"]["offsets"]))
    if "{input}" in at:
        at = at.split("{input}")
        assert told[0][1].startswith(at[0])
        assert told[0][1].endswith(at[1])
        return
    for m in range(6):
        at = at.replace(f"{{{m}}}", str(sizes[m]))
    assert told[0] == (4, at)


@pytest.mark.parametrize(
    ("column", "step"), [("radius", 1), ("prediction", 1), ("runner_up", 1), ("prediction", 2), ("runner_up", 2)]
)
def test_every_claim_that_is_off_is_named(column, step, path):
    for i in range(8):
        csv_row(ONE, i, **{column: lambda v: v + step if column == "radius" else (v + step) % 3})(path)
    listed(path)
    report = verified(path)
    told = failures(report)
    assert {code for code, _ in told} == {3}
    assert [text.split(": ")[0] for _, text in told] == [f"{ONE}, input {i}" for i in range(5)] + [ONE]
    assert told[-1][1] == f"{ONE}: 3 more certificates are wrong or not proven"
    assert all("claimed" in text for _, text in told[:-1])
    assert TIGHT.format(2, 3) in report.checked
    assert [entry["file"] for entry in report.facts["certificates"]] == ["certificates/runoff-tight-2.csv"]


def test_files_by_name_and_kind(path):
    spread, labels = np.load(path / "spread.npy"), np.load(path / "labels.npy")
    for election, bound in (("plurality", "tight"), ("runoff", "paper"), ("maximin", "tight")):
        certify(path, election, bound, 2, spread, labels)
    for name in ("mine.csv", "lottery-tight-1.csv", "runoff-loose-1.csv", "runoff-tight-01.csv"):
        (path / "certificates" / name).write_text("")
    table = tables.read_csv(path / ONE)
    parquet.write_table(table, path / "certificates" / "runoff-tight-1.parquet")
    listed(path)
    report = verified(path)
    assert report.failures == []
    assert [line.split(":")[0] for line in report.checked[6:]] == [
        f"certificates/{name}"
        for name in ("maximin-tight-2.csv", "plurality-tight-2.csv", "runoff-paper-2.csv", "runoff-tight-1.csv",
                     "runoff-tight-1.parquet", "runoff-tight-2.csv")
    ]  # fmt: skip
    assert "(maximin, tight bound)" in report.checked[6]
    assert report.not_checked == [
        *(
            f"certificates/{name}: its name is not ELECTION-BOUND-SEEDS with a known election"
            for name in ("lottery-tight-1.csv", "mine.csv", "runoff-loose-1.csv", "runoff-tight-01.csv")
        ),
        RETRAIN,
    ]
    parquet.write_table(table.drop_columns("radius"), path / "certificates" / "runoff-tight-1.parquet")
    listed(path)
    assert failures(verified(path))[0] == (4, COLUMNS.replace(".csv", ".parquet"))


def test_the_rows_of_a_table_alone(monkeypatch):
    text = b"input,prediction,radius,runner_up\n0,1,2,0\n1,0,3,1\n"
    columns, others = _run._rows(text, "csv", 2, "samples")
    assert ({name: list(column) for name, column in columns.items()}, others) == (
        {"input": [0, 1], "prediction": [1, 0], "radius": [2, 3], "runner_up": [0, 1]}, [],
    )  # fmt: skip
    with pytest.raises(directory.UnfitError, match="names a column twice"):
        _run._rows(text.replace(b"runner_up", b"radius"), "csv", 2, "samples")
    file = io.BytesIO()
    table = pyarrow.table({name: column.tolist() for name, column in columns.items()})
    parquet.write_table(table, file)
    [batch] = parquet.ParquetFile(file).iter_batches()
    monkeypatch.setattr(_run, "MOST_BYTES", batch.nbytes)
    assert _run._rows(file.getvalue(), "parquet", 2, "samples")[0]["radius"].tolist() == [2, 3]
    more = r"^must have a row for each of \d inputs in order, got more$"
    for rows in (1, 2):
        monkeypatch.setattr(_run, "BATCH", rows)
        with pytest.raises(directory.UnfitError, match=more):
            _run._rows(file.getvalue(), "parquet", 1, "samples")
    monkeypatch.setattr(_run, "MOST_BYTES", batch.nbytes - 1)
    with pytest.raises(directory.UnfitError, match=more):
        _run._rows(file.getvalue(), "parquet", 2, "samples")


def test_ballots_that_claim_a_billion_networks_take_no_time(path):
    shutil.copy(path / "ballots-2.npy", path / "ballots-999999999.npy")
    listed(path)
    missing = [(4, f"member 0: has no stored network of seed {seed}") for seed in range(2, 7)]
    assert failures(verified(path)) == missing
    assert failures(verify.run(path, None, sample=1, seed=0)) == missing  # a member with a network needs them all


def test_certificates_in_parquet_are_read_up_to_the_number_of_inputs(path, monkeypatch):
    name = ONE.replace(".csv", ".parquet")
    table = tables.read_csv(path / ONE)
    fractions = table.set_column(2, "radius", pyarrow.array([r + 0.5 for r in table["radius"].to_pylist()]))
    twice = pyarrow.table([*table.columns, table["radius"]], [*table.column_names, "radius"])
    more = f"{name}: must have a row for each of 8 inputs in order, got more"
    for wrong, told in (
        (pyarrow.concat_tables([table, table.slice(7)]), more),
        (pyarrow.table({column: pyarrow.nulls(10**7) for column in table.column_names}), more),
        (fractions, f"{name}: is not a table of integers"),
        (twice, f"{name}: names a column twice"),
    ):
        parquet.write_table(wrong, path / name)
        listed(path)
        assert failures(verified(path)) == [(4, told)]
    parquet.write_table(table, path / name)
    listed(path)
    assert verified(path).failures == []
    monkeypatch.setattr(_run, "BATCH", 3)
    assert verified(path).failures == []
    monkeypatch.setattr(_run, "MOST_BYTES", 10)
    assert failures(verified(path)) == [(4, more)]


def test_the_label_of_an_input_is_that_of_the_dataset(path):
    report = verified(path, dataset(y_test=(np.arange(8) + 1) % 3))
    assert failures(report) == [
        (4, "the dataset: does not have the fingerprint that the run records: its samples differ")
    ]
    array_of("labels.npy", lambda a: np.where(np.arange(8) == 5, (a + 1) % 3, a))(path)
    listed(path)
    report = verified(path)
    assert failures(report) == [(4, "labels.npy: does not hold the labels of the dataset: input 5")]
    assert SETS in report.checked
    assert DATASET not in report.checked
    assert BALLOTS not in report.checked  # not looked at


def test_members_that_vote_by_their_shares(tmp_path):
    """Members without networks, as their samples have one class or none: ballots follow from the shares."""
    data = dataset(x_train=IMAGES[:4], y_train=np.array([0, 1, 2, 2]))
    path = a_run(tmp_path / "few", data=data)
    manifest = json.loads((path / "manifest.json").read_text())
    report = verify.run(path, data, trainer=Trainer(), sample=1, seed=0)
    assert report.failures == []
    steps = _run.RunVerifier(path, verify.Report(""), np.random.default_rng(0), full=False, sample=1)
    assert steps.open()
    assert steps.compare_dataset(data, "")
    idle = [m for m in range(6) if np.count_nonzero(steps.divided.shares(m, 3)) < 2]
    busy = [m for m in range(6) if m not in idle]
    assert idle
    assert busy
    assert manifest["member_sizes"] == [len(rows) for rows in steps.divided.rows]
    for m in idle:
        for s in (0, 1):
            (path / network_file(m, s)).unlink()
        for n in (1, 2):
            shares = np.tile(steps.divided.shares(m, 3), (8, 1))

            def by_shares(ballots, m=m, shares=shares):
                ballots[:, m] = runoff.rank(shares[:, None])[:, 0]
                return ballots

            array_of(f"ballots-{n}.npy", by_shares)(path)
    for n in (1, 2):
        certify(path, "runoff", "tight", n, np.load(path / "spread.npy"), np.load(path / "labels.npy"))
    listed(path)
    assert verify.run(path, data, trainer=Trainer(), sample=1, seed=0).failures == []
    report = verify.run(path, None, trainer=Trainer(), sample=1, seed=0, retrain=1)
    assert report.failures == []
    members = "1 member" if len(idle) == 1 else f"{len(idle)} members"
    assert f"the ballots of {members}: they vote by their class shares, which need the dataset" in report.not_checked
    left = "1 member" if len(busy) == 1 else f"{len(busy)} members"
    assert f"the ballots of {left} for all inputs, ranked again from their stored scores" in report.checked
    array_of("ballots-1.npy", lambda a: np.where((np.arange(6) == idle[0])[:, None], a[..., ::-1], a))(path)
    listed(path)
    told = failures(verify.run(path, data, trainer=Trainer(), sample=1, seed=0))
    assert f"ballots-1.npy, member {idle[0]}: does not rank input " in told[0][1]


def test_a_network_that_was_refused_has_no_scores(path):
    """A member all of whose networks are refused votes by its shares."""
    for seed in (0, 1):
        tensors_of(4, seed, lambda m, t: (m.update(refused="yes"), t.clear()))(path)
    listed(path)
    told = failures(verified(path))
    assert told[0][1].startswith("ballots-1.npy, member 4: does not rank input ")
    steps = _run.RunVerifier(path, verify.Report(""), np.random.default_rng(0), full=False, sample=1)
    assert steps.open()
    assert steps.compare_dataset(dataset(), "")
    ballots = runoff.rank(np.tile(steps.divided.shares(4, 3).astype(np.float32), (8, 1, 1)).reshape(8, 1, 3))

    def by_shares(array):
        array[:, 4] = ballots[:, 0]
        return array

    for n in (1, 2):
        array_of(f"ballots-{n}.npy", by_shares)(path)
        certify(path, "runoff", "tight", n, np.load(path / "spread.npy"), np.load(path / "labels.npy"))
    listed(path)
    report = verified(path)
    assert report.failures == []
    assert report.checked[5] == SCORES.replace("12 networks", "10 networks")
    assert report.not_checked[0] == UNUSABLE

    class Failing(Trainer):
        """Training the networks of member 4 fails, whatever is stored."""

        def retrained(self, member, *given):
            trained = super().retrained(member, *given)
            return ({}, None) if member == 4 else trained

    report = verified(path, trainer=Failing(), retrain=12)
    assert report.failures == []
    assert report.checked[-1].startswith("12 networks retrained")


def test_a_network_that_is_only_said_to_be_unusable_is_caught(path):
    """An attacker who replaces a network by a note that its training failed makes the member vote by its shares."""
    for seed in (0, 1):
        tensors_of(4, seed, lambda m, t: (m.update(refused="its loss became infinite"), t.clear()))(path)
    tensors_of(3, 0, lambda m, _: m.update(refused="its loss became infinite"))(path)
    listed(path)
    report = verified(path)
    assert UNUSABLE.replace("2 networks", "3 networks").replace("members 4", "members 3, 4") in report.not_checked
    assert SCORES.replace("12 networks", "9 networks") in report.checked  # not those of networks that cannot be used
    is_not = "is stored as a network that cannot be used, but the retrained one can be used"
    assert [str(failure) for failure in failures_of_retraining(path)] == [
        f"{network_file(m, s)}: {is_not} (member {m})" for m, s in ((3, 0), (4, 0), (4, 1))
    ]

    class Failing(Trainer):
        def retrained(self, *given):
            return super().retrained(*given)[0], None

    can = "is stored as a network that can be used, but the retrained one cannot be used"
    assert str(failures_of_retraining(path, Failing())[0]) == f"{network_file(0, 0)}: {can} (member 0)"


def test_the_input_is_named_whose_scores_are_not_those_of_the_weights(path):
    class Off(Trainer):
        def scores(self, tensors, inputs):
            found = super().scores(tensors, inputs)
            found[1] = found[1, ::-1]
            return found

    listed(path, lambda m: m["dataset"].pop("weights"))
    assert SCORES in verified(path).checked  # weights are stored unless the manifest says otherwise
    second = np.sort(np.random.default_rng(0).permutation(8)[:3])[1]
    told = failures(verified(path, trainer=Off()))
    assert told[0] == (
        4, f"{network_file(0, 0)}: does not give the stored scores for input {second} (seed 0, member 0)",
    )  # fmt: skip


@pytest.mark.parametrize(("n_classes", "dtype"), [(256, np.uint8), (257, np.uint16)])
def test_ballots_have_one_byte_up_to_256_classes(n_classes, dtype):
    steps = _run.RunVerifier.__new__(_run.RunVerifier)
    steps.n_classes, steps.labels, steps.parts = n_classes, None, SimpleNamespace(n_members=2)
    ballots = np.tile(np.arange(n_classes), (3, 2, 1))
    for given in (np.uint8, np.uint16):
        steps.directory = SimpleNamespace(array=lambda _, given=given: ballots.astype(given))
        if given == dtype:
            assert steps._ballots("ballots-1.npy").shape == (3, 2, n_classes)
        else:
            with pytest.raises(ValueError, match="must hold ballots of shape"):
                steps._ballots("ballots-1.npy")


def test_five_damaged_networks_are_enough(path):
    for m in range(6):
        (path / network_file(m, 0)).write_bytes(b"x")
    listed(path)
    told = failures(verified(path))
    assert told == [(4, f"{network_file(m, 0)}: is not a safetensors file") for m in range(5)]


def test_five_members_with_wrong_ballots_are_named(path):
    array_of("ballots-1.npy", lambda a: a[..., ::-1])(path)
    listed(path)
    told = failures(verified(path))
    assert [text.split(": does")[0] for _, text in told[:5]] == [f"ballots-1.npy, member {m}" for m in range(5)]
    assert "ballots-1.npy" not in told[5][1]


def test_retrained_networks_are_compared_tensor_by_tensor(path):
    tensors_of(2, 1, lambda _, t: t.update(bias=floats(np.array([0.0, 1.0, 2.0 + 1e-6]))))(path)
    tensors_of(3, 0, lambda _, t: t.update(more=floats(np.array([0.0]))))(path)
    tensors_of(4, 0, lambda _, t: t.pop("bias"))(path)

    class Forgetful(Trainer):
        def scores(self, tensors, inputs):
            return super().scores({"bias": floats(np.arange(3.0)), **tensors}, inputs)

    listed(path)
    told = failures(verified(path, trainer=Forgetful(), retrain=12))
    assert told == [
        (4, f"{NETWORK}: differs from the retrained network of member 2: tensor 'bias'"),
        (4, f"{network_file(3, 0)}: differs from the retrained network of member 3: tensor 'more'"),
        (4, f"{network_file(4, 0)}: differs from the retrained network of member 4: tensor 'bias'"),
    ]


def failures_of_retraining(path, trainer=None):
    """Return what retraining alone finds."""
    steps = _run.RunVerifier(path, verify.Report(""), np.random.default_rng(0), full=False, sample=1)
    assert steps.open()
    assert steps.compare_dataset(dataset(), "")
    steps.retrain(12, trainer or Trainer(), "")
    return steps.report.failures


def test_scores_are_compared_where_weights_are_not_stored(path):
    """A slim run keeps scores only; retraining compares these."""

    class Other(Trainer):
        def scores(self, tensors, inputs):
            return super().scores(tensors, inputs) * np.float32(1 + 1e-6)

    for m in range(6):
        for s in (0, 1):
            tensors_of(m, s, lambda _, t: (t.pop("weight"), t.pop("bias")))(path)
    listed(path, lambda m: m["dataset"].update(weights=False))
    report = verified(path, retrain=12)
    assert report.failures == []
    assert report.not_checked == ["that the stored scores are those of the stored weights: the run stores no weights"]
    told = failures(verified(path, trainer=Other(), retrain=1))
    assert told == [(4, f"{network_file(1, 0)}: has scores that differ from the retrained network of member 1")]
    listed(path, lambda m: m["dataset"].update(weights=True))
    told = failures(verified(path, retrain=1))
    why = "has no weights, although the run stores them"
    assert told[0] == (4, f"{network_file(0, 0)}: {why} (seed 0, member 0)")
    assert (
        str(failures_of_retraining(path)[0])
        == f"{network_file(0, 0)}: differs from the retrained network of member 0: tensor 'bias'"
    )
