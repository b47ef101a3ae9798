"""Datasets: the classes, the folders that are searched, and the real datasets if they are present."""

import builtins
import dataclasses
import hashlib
import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dataset_helpers import PUBLIC, error_message, images, own_arrays, picture, run
from dataset_helpers import elsewhere as elsewhere
from runoff import datasets
from runoff.datasets import catalogue, places

REAL = os.environ.get("RUNOFF_DATA")  # before the tests hide it


# The dataset itself


def small(**changes):
    fields = {
        "name": "small",
        "x_train": np.arange(24, dtype=np.uint8).reshape(4, 2, 3),
        "y_train": np.array([0, 1, 1, 0]),
        "x_test": np.zeros((2, 2, 3), np.uint8),
        "y_test": np.array([1, 0]),
        "classes": ("a", "b"),
    }
    return datasets.Dataset(**fields | changes)


def test_the_fingerprint_is_of_the_content_alone():
    dataset = small()
    assert repr(dataset) == "Dataset('small', 4 + 2 images of 2x3, 2 classes)"
    stream = b"runoff dataset 1\nx_train uint8 4,2,3\n" + bytes(range(24)) + b"y_train int64 4\n"
    stream += struct.pack("<4q", 0, 1, 1, 0) + b"x_test uint8 2,2,3\n" + bytes(12) + b"y_test int64 2\n"
    stream += struct.pack("<2q", 1, 0) + b"original_digests none\noriginal_sums none\n"
    assert dataset.fingerprint == hashlib.sha256(stream).hexdigest()
    assert dataset.fingerprint == small(name="other").fingerprint
    strided = np.arange(48, dtype=np.uint8).reshape(4, 2, 6)
    strided[..., ::2] = dataset.x_train
    assert small(x_train=strided[..., ::2]).fingerprint == dataset.fingerprint
    assert small(y_train=np.array([0, 1, 1, 0], np.uint8)).fingerprint == dataset.fingerprint
    changed = [
        small(y_train=np.array([0, 1, 0, 0])),
        small(x_train=dataset.x_train + np.uint8(1)),
        small(x_train=dataset.x_train.reshape(4, 3, 2), x_test=dataset.x_test.reshape(2, 3, 2)),
        small(x_train=dataset.x_train[..., None], x_test=dataset.x_test[..., None]),
        small(y_test=np.array([1, 1])),
        small(original_sums=np.zeros(4, np.int64)),
        small(original_sums=np.ones(4, np.int64)),
        small(original_digests=np.zeros((4, 16), np.uint8)),
    ]
    assert len({d.fingerprint for d in [dataset, *changed]}) == 1 + len(changed)
    with pytest.raises(dataclasses.FrozenInstanceError):
        dataset.name = "other"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x_train": np.zeros((4, 2, 3))}, "x_train must be 8-bit images, uint8 .* got float64 \\(4, 2, 3\\)"),
        ({"x_test": np.zeros((2, 6), np.uint8)}, "x_test must be 8-bit images"),
        ({"x_test": np.zeros((2, 3, 2), np.uint8)}, "must have the same shape, got \\(2, 3\\) and \\(3, 2\\)"),
        ({"y_train": np.zeros(3, int)}, "one for each of 4 images in x_train, got int64 \\(3,\\)"),
        ({"y_train": np.zeros(4)}, "y_train must be integers"),
        ({"y_test": np.array([0, 2])}, "y_test must be classes 0 to 1, got 2"),
        ({"y_test": np.array([0, -1])}, "y_test must be classes 0 to 1, got -1"),
        ({"classes": ("a", "a")}, "classes with different names, got 2"),
        ({"original_sums": np.zeros(3, np.int64)}, "original_sums must have one row per training image"),
        ({"original_digests": np.zeros((4, 8), np.uint8)}, "original_digests must have one row"),
    ],
)
def test_what_is_no_dataset_is_refused(changes, message):
    with pytest.raises(datasets.DatasetError, match=message):
        small(**changes)


# Locations


def test_where_data_is_looked_for(monkeypatch, tmp_path):
    assert places.data_directory("here") == Path("here")
    assert places.data_directory(None) == tmp_path / "cache" / "runoff"
    monkeypatch.setenv("RUNOFF_DATA", "/somewhere")
    assert places.data_directory(None) == Path("/somewhere")
    assert places.data_directory("here") == Path("here")
    monkeypatch.setenv("RUNOFF_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", "/home/user")
    assert places.data_directory(None) == Path("/home/user/.cache/runoff")


def test_a_missing_home_directory_gets_a_message(monkeypatch):
    def homeless():
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    for command in ("list", "check"):
        result = run(command)
        assert result.exit_code == 2
        assert "no home directory to store data in: pass data_dir or set RUNOFF_DATA" in result.stderr


def test_the_package_stays_light():
    code = "import sys, runoff, runoff.cli; print([m for m in sys.modules if 'datasets' in m or m == 'PIL'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
    code = "import sys, runoff.datasets; print([m for m in ('PIL', 'sklearn', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["mnist", "cifar10", "gtsrb", "spamassassin"])
def test_missing_files_are_named_with_address_and_checksum(name):
    with pytest.raises(datasets.MissingError) as told:
        datasets.load(name, "my data")
    message = str(told.value)
    assert "\n" not in message
    assert f"{name} is missing in my data: run runoff data fetch {name} --data-dir 'my data', or put" in message
    assert f"into my data/{name}" in message
    for archive in catalogue.CATALOGUE[name].archives:
        assert f"{archive.file} ({archive.algorithm} {archive.checksum})" in message
        assert archive.url_base in message


def test_invalid_names_and_paths():
    with pytest.raises(datasets.DatasetError, match=r"'cifar11' is neither a dataset \(digits, mnist, cifar10, gtsrb"):
        datasets.load("cifar11")
    with pytest.raises(datasets.DatasetError, match="size applies to folders of images only, not to 'digits'"):
        datasets.load("digits", size=(4, 4))
    with pytest.raises(datasets.DatasetError, match="classes applies to your own data only, not to 'digits': leave"):
        datasets.load("digits", classes=10)
    with pytest.raises(datasets.DatasetError, match=r"must be one of digits, .*, gtsrb, spamassassin, got 'cifar11'"):
        datasets.located("cifar11")


def test_paths_that_the_system_does_not_know():
    nobody = "'~nobody-at-all/x' begins with the home directory of an unknown user: write the path in full"
    assert error_message(datasets.load, "~nobody-at-all/x") == nobody
    assert error_message(datasets.load, Path("~nobody-at-all/x")) == nobody
    assert error_message(datasets.located, "mnist", "~nobody-at-all/x") == nobody
    assert error_message(datasets.fetch, "mnist", "~nobody-at-all/x") == nobody
    long = "x" * 300
    assert error_message(datasets.load, long) == f"{long} cannot be read: File name too long"
    for call in (datasets.load, datasets.located):
        assert error_message(call, "mnist", long).endswith(" cannot be read: File name too long")
    assert f"{long}/mnist cannot be created (File name too long); run" in error_message(datasets.fetch, "mnist", long)


def test_unreadable_files_are_named(tmp_path, monkeypatch):
    np.savez("mine.npz", **own_arrays())
    picture(tmp_path / "mine/train/a/0.png", images(4, 4))

    def denied(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "open", denied)
        patched.setattr(io, "open", denied)
        assert error_message(datasets.load, "mine.npz") == "mine.npz cannot be read: Permission denied"
    monkeypatch.setattr(Path, "iterdir", denied)
    result = run("check", "mine", "digits", "--json")
    assert result.exit_code == 1
    assert [row["ok"] for row in json.loads(result.stdout)] == [False, True]
    assert json.loads(result.stdout)[0]["error"] == "mine/train cannot be read: Permission denied"
    assert result.stderr == "Error: mine/train cannot be read: Permission denied\n"


@pytest.mark.parametrize("name", ["mnist", "cifar10", "gtsrb"])
def test_the_real_data_where_it_is(name):
    if not REAL or datasets.located(name, REAL) is None:
        pytest.skip(f"set RUNOFF_DATA to a folder that has {name}")
    dataset = datasets.load(name, REAL)
    entry = catalogue.CATALOGUE[name]
    assert dataset.fingerprint == PUBLIC[name]
    assert dataset.x_train.shape == (entry.n_train, *entry.shape)
    assert dataset.x_test.shape == (entry.n_test, *entry.shape)
    assert (dataset.original_sums is not None) == (name == "gtsrb")
