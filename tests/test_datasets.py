"""Datasets: read from every layout, checked, refused when they are wrong, and fetched."""

import builtins
import dataclasses
import errno
import gzip
import hashlib
import io
import json
import os
import pickle
import socket
import stat
import struct
import subprocess
import sys
import tarfile
import threading
import zipfile
from contextlib import nullcontext
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from runoff import _files, cli, datasets, hashing
from runoff.datasets import _archives, _catalogue, _fetch, _gtsrb, _npz, _pickles, _places

RNG = np.random.default_rng(0)
REAL = os.environ.get("RUNOFF_DATA")  # before the tests hide it
PUBLIC = {  # the same wherever they are read from
    "digits": "5a882f9271785133dfc62d2f6beccd1c186423ad695a835755c5767b04b7900b",
    "mnist": "700bb9cae65b1249b05a6e455c3673b65cf9e1b0f2e63c7be78e78f12b6c704c",
    "cifar10": "1f6bdc69c1b99ab0de63801e492c9452d44c8a20a2393ec04b62445ee6839636",
    "gtsrb": "cfbd11f3857cd3281e9624c815baa3644061606b2ca7cccf1a0358761c2ab8c3",
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RUNOFF_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(_fetch, "PAUSE", 0.0)


def run(*arguments):
    return CliRunner().invoke(cli.main, ["data", *map(str, arguments)])


def sha(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


def expect(monkeypatch, name, x_train, y_train, x_test, y_test, **changes):
    """Make these the official content of a dataset."""
    entry = dataclasses.replace(
        _catalogue.CATALOGUE[name],
        n_train=len(x_train),
        n_test=len(x_test),
        shape=x_train.shape[1:],
        pixels=sha(x_train, x_test),
        labels=sha(y_train.astype(np.uint8), y_test.astype(np.uint8)),
        **changes,
    )
    monkeypatch.setitem(_catalogue.CATALOGUE, name, entry)
    return entry


def same(dataset, x_train, y_train, x_test, y_test):
    arrays = (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)
    assert [a.dtype for a in arrays] == [np.uint8, np.int64, np.uint8, np.int64]
    assert all(a.flags.c_contiguous for a in arrays)
    for got, expected in zip(arrays, (x_train, y_train, x_test, y_test), strict=True):
        np.testing.assert_array_equal(got, expected)


def images(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


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
        ({"x_train": np.zeros((4, 2, 3))}, "x_train must be images of 8 bits, uint8 .* got float64 \\(4, 2, 3\\)"),
        ({"x_test": np.zeros((2, 6), np.uint8)}, "x_test must be images of 8 bits"),
        ({"x_test": np.zeros((2, 3, 2), np.uint8)}, "must be alike, got \\(2, 3\\) and \\(3, 2\\)"),
        ({"y_train": np.zeros(3, int)}, "one for each of 4 images in x_train, got int64 \\(3,\\)"),
        ({"y_train": np.zeros(4)}, "y_train must be whole numbers"),
        ({"y_test": np.array([0, 2])}, "y_test must be classes 0 to 1, got 2"),
        ({"y_test": np.array([0, -1])}, "y_test must be classes 0 to 1, got -1"),
        ({"classes": ("a", "a")}, "classes with different names, got 2"),
        ({"original_sums": np.zeros(3, np.int64)}, "original_sums must have one row for each training image"),
        ({"original_digests": np.zeros((4, 8), np.uint8)}, "original_digests must have one row"),
    ],
)
def test_what_is_no_dataset_is_refused(changes, message):
    with pytest.raises(datasets.DatasetError, match=message):
        small(**changes)


# Where they are


def test_where_data_is_looked_for(monkeypatch, tmp_path):
    assert _places.data_directory("here") == Path("here")
    assert _places.data_directory(None) == tmp_path / "cache" / "runoff"
    monkeypatch.setenv("RUNOFF_DATA", "/somewhere")
    assert _places.data_directory(None) == Path("/somewhere")
    assert _places.data_directory("here") == Path("here")
    monkeypatch.setenv("RUNOFF_DATA", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/user")
    assert _places.data_directory(None) == Path("/home/user/.cache/runoff")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert _places.data_directory(None) == Path("/home/user/Library/Caches/runoff")
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", "/local")
    assert _places.data_directory(None) == Path("/local/runoff")


def test_nobody_without_a_home_is_left_in_the_dark(monkeypatch):
    def homeless():
        raise RuntimeError

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr(Path, "home", homeless)
    for command in ("list", "check"):
        result = run(command)
        assert result.exit_code == 2
        assert "no home directory to keep data in: give data_dir or set RUNOFF_DATA" in result.stderr


def test_the_package_stays_light():
    code = "import sys, runoff, runoff.cli; print([m for m in sys.modules if 'datasets' in m or m == 'PIL'])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
    code = "import sys, runoff.datasets; print([m for m in ('PIL', 'sklearn', 'torch') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"


@pytest.mark.parametrize("name", ["mnist", "cifar10", "gtsrb"])
def test_what_is_missing_is_told_with_file_address_and_checksum(name):
    with pytest.raises(datasets.MissingError) as told:
        datasets.load(name, "my data")
    message = str(told.value)
    assert "\n" not in message
    assert f"{name} is missing in my data: run runoff data fetch {name} --data-dir 'my data', or put" in message
    assert f"into my data/{name}" in message
    for archive in _catalogue.CATALOGUE[name].archives:
        assert f"{archive.file} ({archive.algorithm} {archive.checksum})" in message
        assert archive.url_base in message


def test_names_and_paths_that_are_none():
    with pytest.raises(datasets.DatasetError, match=r"'cifar11' is neither a dataset \(digits, mnist, cifar10, gtsrb"):
        datasets.load("cifar11")
    with pytest.raises(datasets.DatasetError, match="size is for folders of images, got it with 'digits'"):
        datasets.load("digits", size=(4, 4))
    with pytest.raises(datasets.DatasetError, match="classes is for your own data, those of 'digits' are known: leave"):
        datasets.load("digits", classes=10)
    with pytest.raises(datasets.DatasetError, match="must be one of digits, mnist, cifar10, gtsrb, got 'cifar11'"):
        datasets.located("cifar11")


def told_of(call, *arguments):
    """The sentence of the error."""
    with pytest.raises(datasets.DatasetError) as told:
        call(*arguments)
    assert "\n" not in str(told.value)
    return str(told.value)


def test_paths_that_the_system_does_not_know():
    nobody = "'~nobody-at-all/x' begins with a home directory that nobody has: write it out"
    assert told_of(datasets.load, "~nobody-at-all/x") == nobody
    assert told_of(datasets.load, Path("~nobody-at-all/x")) == nobody
    assert told_of(datasets.located, "mnist", "~nobody-at-all/x") == nobody
    assert told_of(datasets.fetch, "mnist", "~nobody-at-all/x") == nobody
    long = "x" * 300
    assert told_of(datasets.load, long) == f"{long} cannot be read: File name too long"
    for call in (datasets.load, datasets.located):
        assert told_of(call, "mnist", long).endswith(" cannot be read: File name too long")
    assert f"{long}/mnist cannot be made (File name too long); run" in told_of(datasets.fetch, "mnist", long)


def test_what_may_not_be_read_is_told(tmp_path, monkeypatch):
    np.savez("mine.npz", **own_arrays())
    picture(tmp_path / "mine/train/a/0.png", images(4, 4))

    def denied(path, *_, **__):
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(builtins, "open", denied)
        patched.setattr(io, "open", denied)
        assert told_of(datasets.load, "mine.npz") == "mine.npz cannot be read: Permission denied"
    monkeypatch.setattr(Path, "iterdir", denied)
    result = run("check", "mine", "digits", "--json")
    assert result.exit_code == 1
    assert [row["ok"] for row in json.loads(result.stdout)] == [False, True]
    assert json.loads(result.stdout)[0]["error"] == "mine/train cannot be read: Permission denied"
    assert result.stderr == "Error: mine/train cannot be read: Permission denied\n"


# Digits


def test_digits_come_with_scikit_learn(monkeypatch):
    from sklearn.datasets import load_digits

    dataset = datasets.load("digits")
    bunch, test = load_digits(), np.arange(1797) % 5 == 0
    same(dataset, bunch.images[~test], bunch.target[~test], bunch.images[test], bunch.target[test])
    assert dataset.x_train.max() == 16
    assert dataset.fingerprint == PUBLIC["digits"]
    assert dataset.original_digests is None
    assert dataset.original_sums is None
    altered = dataclasses.replace(_catalogue.DIGITS, labels="0" * 64)
    monkeypatch.setitem(_catalogue.CATALOGUE, "digits", altered)
    with pytest.raises(datasets.IntegrityError, match=r"its labels have SHA-256 9ac6.*install scikit-learn again"):
        datasets.load("digits")


# MNIST

IDX = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]


@pytest.fixture
def mnist(monkeypatch):
    arrays = (images(6, 5, 4), RNG.integers(0, 10, 6), images(3, 5, 4), RNG.integers(0, 10, 3))
    expect(monkeypatch, "mnist", *arrays)
    return arrays


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.astype("u1").tobytes()


def put_mnist(folder, arrays, compressed=(False,) * 4):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array, small in zip(IDX, arrays, compressed, strict=True):
        if small:
            (folder / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
        else:
            (folder / name).write_bytes(idx(array))


@pytest.mark.parametrize("place", [".", "mnist", "MNIST/raw", "mnist/MNIST/raw"])
@pytest.mark.parametrize("compressed", [(False,) * 4, (True,) * 4, (True, False, False, True)])
def test_mnist_in_all_its_places(mnist, tmp_path, place, compressed):
    put_mnist(tmp_path / "d" / place, mnist, compressed)
    dataset = datasets.load("mnist", tmp_path / "d")
    same(dataset, *mnist)
    assert dataset.classes == tuple("0123456789")
    assert datasets.located("mnist", tmp_path / "d") == str(tmp_path / "d" / place)


def test_only_the_files_that_are_missing_are_named(mnist, tmp_path):
    put_mnist(tmp_path / "MNIST" / "raw", mnist)
    (tmp_path / "MNIST" / "raw" / IDX[2]).unlink()
    with pytest.raises(datasets.MissingError, match=r"put t10k-images-idx3-ubyte.gz .sha256 8d42\w*. from https"):
        datasets.load("mnist", tmp_path)


def damage_mnist(how, folder):
    images_file, labels_file = folder / IDX[0], folder / IDX[1]
    data = images_file.read_bytes()
    if how == "pixel":
        images_file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "label":
        labels_file.write_bytes(labels_file.read_bytes()[:-1] + bytes([(labels_file.read_bytes()[-1] + 1) % 10]))
    elif how == "no label":
        labels_file.write_bytes(labels_file.read_bytes()[:-1] + b"\xff")
    elif how == "short":
        images_file.write_bytes(data[:-1])
    elif how == "long":
        images_file.write_bytes(data + b"\0")
    elif how == "header":
        images_file.write_bytes(b"\0\0\x0d\x03" + data[4:])
    elif how == "bomb":
        images_file.unlink()
        (folder / f"{IDX[0]}.gz").write_bytes(gzip.compress(data + bytes(10**7)))
    elif how == "no gzip":
        images_file.unlink()
        (folder / f"{IDX[0]}.gz").write_bytes(data)
    else:
        images_file.unlink()
        (folder / f"{IDX[0]}.gz").write_bytes(gzip.compress(data)[:-9])


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("pixel", "its pixels have SHA-256 [0-9a-f]{16}..., expected [0-9a-f]{16}...; remove it and run: runoff data"),
        ("label", "its labels have SHA-256"),
        ("no label", "must be classes 0 to 9, got 255"),
        ("short", "train-images-idx3-ubyte must have 136 bytes, got 135"),
        ("long", "train-images-idx3-ubyte has more than 136 bytes"),
        ("header", "train-images-idx3-ubyte is not an idx file of 6 x 5 x 4 bytes"),
        ("bomb", "train-images-idx3-ubyte.gz has more than 136 bytes"),
        ("no gzip", "Not a gzipped file"),
        ("cut", "Compressed file ended before"),
    ],
)
def test_an_altered_mnist_is_refused(mnist, tmp_path, how, message):
    put_mnist(tmp_path / "mnist", mnist)
    damage_mnist(how, tmp_path / "mnist")
    with pytest.raises(datasets.IntegrityError, match=f"mnist in .*mnist is not the official dataset: .*{message}"):
        datasets.load("mnist", tmp_path)
    result = run("check", "mnist", "--data-dir", tmp_path)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith("Error: mnist in ")
    assert len(result.stderr.splitlines()) == 1


def test_what_cannot_be_read_is_not_called_altered(mnist, tmp_path, monkeypatch):
    put_mnist(tmp_path, mnist)
    opened = Path.open

    def refuse(path, *arguments, **options):
        if path.name == IDX[3]:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(datasets.MissingError, match="t10k-labels-idx1-ubyte cannot be read: Permission denied"):
        datasets.load("mnist", tmp_path)


# CIFAR-10

BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]


@pytest.fixture
def cifar10(monkeypatch):
    arrays = (images(10, 4, 3, 3), RNG.integers(0, 10, 10), images(3, 4, 3, 3), RNG.integers(0, 10, 3))
    expect(monkeypatch, "cifar10", *arrays)
    return arrays


def batches(arrays):
    x_train, y_train, x_test, y_test = arrays
    for i in range(5):
        yield BATCHES[i], x_train[2 * i : 2 * i + 2], y_train[2 * i : 2 * i + 2]
    yield BATCHES[5], x_test, y_test


def planes(x):
    return np.ascontiguousarray(x.transpose(0, 3, 1, 2).reshape(len(x), -1))


def binary_files(arrays):
    return {
        f"cifar-10-batches-bin/{name}.bin": np.c_[y.astype(np.uint8), planes(x)].tobytes()
        for name, x, y in batches(arrays)
    }


def python2_pickle(x, y):
    """As Python 2 wrote the official files."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    array = b"cnumpy.core.multiarray\n_reconstruct\nq\x02cnumpy\nndarray\nq\x03K\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01K" + bytes([len(x)]) + b"K" + bytes([x.shape[1]]) + b"\x86cnumpy\ndtype\n" + text(b"u1")
    array += b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array += b"\x89T" + struct.pack("<i", x.size) + x.tobytes() + b"tb"
    labels = b"](" + b"".join(b"K" + bytes([label]) for label in y) + b"e"
    pairs = text(b"data") + array + text(b"labels") + labels + text(b"batch_label") + text(b"one")
    return b"\x80\x02}q\x01(" + pairs + b"u."


def python_files(arrays, protocol):
    found = {}
    for name, x, y in batches(arrays):
        x, y = planes(x), [int(label) for label in y]
        batch = {"data": x, "labels": y, "filenames": ["a.png"] * len(y), "batch_label": b"one"}
        found[f"cifar-10-batches-py/{name}"] = pickle.dumps(batch, protocol) if protocol else python2_pickle(x, y)
    return found


def tar(path, files, **options):
    with tarfile.open(path, "w:gz", **options) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def put(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


@pytest.mark.parametrize("place", [".", "cifar10"])
@pytest.mark.parametrize("version", ["binary", "python 2", "python 3", "python 3 as bytes"])
@pytest.mark.parametrize("packed", [False, True])
def test_cifar10_in_all_its_forms(cifar10, tmp_path, place, version, packed):
    protocols = {"python 2": 0, "python 3": 2, "python 3 as bytes": 4}
    files = binary_files(cifar10) if version == "binary" else python_files(cifar10, protocols[version])
    folder = tmp_path / "d" / place
    folder.mkdir(parents=True, exist_ok=True)
    if packed:
        kind = "binary" if version == "binary" else "python"
        tar(folder / f"cifar-10-{kind}.tar.gz", {"cifar-10-batches-bin/readme.html": b"x" * 700} | files)
    else:
        put(folder, files)
    dataset = datasets.load("cifar10", tmp_path / "d")
    same(dataset, *cifar10)
    assert dataset.classes[3] == "cat"
    assert dataset.fingerprint == datasets.Dataset("x", *cifar10, dataset.classes).fingerprint


def test_an_altered_cifar10_is_refused(cifar10, tmp_path):
    files = binary_files(cifar10)
    name = "cifar-10-batches-bin/data_batch_2.bin"
    for wrong, message in (
        (files[name][:-1] + bytes([files[name][-1] ^ 1]), "its pixels have SHA-256"),
        (files[name][:-1], "a batch must have 2 images of 37 bytes, got 73 bytes"),
        (files[name] + bytes(10**5), "has more than"),
    ):
        put(tmp_path, files | {name: wrong})
        with pytest.raises(datasets.IntegrityError, match=message):
            datasets.load("cifar10", tmp_path)


def hostile_tar(how, files):
    name = "cifar-10-batches-bin/data_batch_1.bin"
    path = Path("cifar-10-binary.tar.gz")
    if how == "absent":
        tar(path, {k: v for k, v in files.items() if k != name})
    elif how == "huge":
        tar(path, files | {name: bytes(10**6)})
    elif how == "padding":
        tar(path, {"other": bytes(2**25)} | files)
    elif how == "climbing":
        tar(path, {f"../{k}": v for k, v in files.items()})
    elif how == "cut":
        tar(path, files)
        data = gzip.decompress(path.read_bytes())
        path.write_bytes(gzip.compress(data[:700]))
    elif how == "negative":
        tar(path, files)
        data = bytearray(gzip.decompress(path.read_bytes()))
        data[124:136] = b"\xff" * 11 + b"\0"  # a size of -256, in base 256
        path.write_bytes(gzip.compress(bytes(data)))
    else:
        with tarfile.open(path, "w:gz") as archive:
            for member in files:
                info = tarfile.TarInfo(member)
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(info)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("absent", "it has no cifar-10-batches-bin/data_batch_1.bin"),
        ("huge", "data_batch_1.bin has more than"),
        ("padding", "it holds more than the official archive"),
        ("climbing", "it has no cifar-10-batches-bin/data_batch_1.bin"),
        ("cut", "is cut short"),
        ("negative", "a header has no size"),
        ("links", "it has no cifar-10-batches-bin/data_batch_1.bin"),
    ],
)
def test_hostile_tar_files(cifar10, how, message):
    hostile_tar(how, binary_files(cifar10))
    with pytest.raises(datasets.IntegrityError, match=message):
        datasets.load("cifar10", ".")


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_members_are_those_of_the_standard_library(kind):
    files = {"a": b"", "b/c": bytes(512), "d": bytes(range(200))}
    tar("x.tar.gz", {"x" * 60 + "/" + "x" * 60 + "/d": b"long"} | files, format=kind)
    assert _archives.tar_members(Path("x.tar.gz"), dict.fromkeys(files, 600)) == files


# Pickles


class Call:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def hostile_pickles():
    touch = "__import__('os').system('touch owned')"
    calls = [
        Call(os.system, "touch owned"),
        Call(builtins.eval, touch),
        Call(builtins.exec, touch),
        Call(builtins.getattr, os, "system"),
        Call(subprocess.Popen, ["touch", "owned"]),
        Call(pickle.loads, pickle.dumps(Call(os.system, "touch owned"))),
        Call(Path, "owned"),
        Call(bytearray, 10),
    ]
    for call in calls[:3] + calls[4:]:
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            yield pickle.dumps(call, protocol)
            yield pickle.dumps({"data": call, "labels": [0]}, protocol)
    encode, array = b"c_codecs\nencode\n", b"cnumpy.core.multiarray\n_reconstruct\n"
    yield b"cos\nsystem\n(S'touch owned'\ntR."
    yield b"(S'touch owned'\nios\nsystem\n."  # INST
    yield b"(cos\nsystem\nS'touch owned'\no."  # OBJ
    yield b"\x80\x02cos\nsystem\n)\x81."  # NEWOBJ
    yield b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c\x0btouch owned\x85R."
    yield b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."  # an attribute of what is allowed
    yield b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93."
    yield b"\x80\x04K\x01K\x02\x93."
    yield encode + b"X\x01\x00\x00\x00aX\x05\x00\x00\x00rot13\x86R."
    yield encode + b"X\x01\x00\x00\x00aX\x0e\x00\x00\x00unicode_escape\x86R."
    yield encode + b"X\x01\x00\x00\x00a\x85R."
    yield b"c_codecs\ndecode\nC\x01aX\x06\x00\x00\x00latin1\x86R."
    yield b"c_codecs\nlookup\nX\x06\x00\x00\x00latin1\x85R."
    yield b"ccodecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00latin1\x86R."
    yield array + b"cnumpy\ndtype\nK\x00\x85C\x01b\x87R."  # another class
    yield array + b"cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85C\x01b\x87R."  # a large one
    yield array + b"cnumpy\nndarray\nK\x00\x85C\x01b\x87R."  # never filled
    yield b"cnumpy\ndtype\nX\x01\x00\x00\x00OK\x00K\x01\x87R."  # objects
    yield b"cnumpy\ndtype\nX\x02\x00\x00\x00u1K\x00K\x01\x87R."  # a type is no value
    yield b"cnumpy\nndarray\n."
    yield b"cnumpy\nndarray\n)R."
    yield b"}X\x01\x00\x00\x00a\x86b."  # state for a dictionary
    yield b"]]a}b."
    yield b"}](K\x01e]s."  # a key that is none
    yield b"K\x01K\x02a."
    yield b"Pname\n."  # persistent
    yield b"X\x01\x00\x00\x00aQ."
    yield b"\x82\x01."  # registered extension
    yield b"h\x05."  # nothing remembered
    yield b"e."
    yield b"t."
    yield b"0."
    yield b"."
    yield b""
    yield b"\x80\x02}"
    yield b"T\xff\xff\xff\x7fabc."
    yield b"\x8b\xff\xff\xff\x7f\x00."
    yield b"F1.5\n."
    for shape, dtype, order, data in (
        (b"K\x02\x85", b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R", b"\x89", b"C\x01a"),
        (b"J\xff\xff\xff\xff\x85", b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R", b"\x89", b"C\x01a"),
        (b"K\x01\x85", b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R", b"\x88", b"C\x01a"),
        (b"K\x01\x85", b"N", b"\x89", b"C\x01a"),
        (b"K\x01\x85", b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R", b"\x89", b"]"),
    ):
        yield array + b"cnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01" + shape + dtype + order + data + b"tb."


HOSTILE = list(hostile_pickles())


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_pickles_do_nothing(data, monkeypatch):
    def never(*_):
        raise AssertionError("called")

    for owner, name in ((os, "system"), (builtins, "eval"), (builtins, "exec"), (subprocess, "Popen")):
        monkeypatch.setattr(owner, name, never)
    with pytest.raises(_pickles.PickleError):
        _pickles.loads(data)
    assert not Path("owned").exists()


def test_a_hostile_pickle_is_an_integrity_error(cifar10, tmp_path):
    files = python_files(cifar10, 2)
    files["cifar-10-batches-py/data_batch_3"] = pickle.dumps(Call(os.system, "touch owned"), 2)
    put(tmp_path, files)
    result = run("check", "cifar10", "--data-dir", tmp_path)
    assert result.exit_code == 4
    assert f"it names {os.name}.system, which is never called" in result.stderr
    assert not Path("owned").exists()


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ([1], "a batch must be a dictionary, got list"),
        ({"labels": [0, 1]}, r"a batch must have 'data' \(2, 36\), got NoneType"),
        ({"data": np.zeros((2, 35), np.uint8), "labels": [0, 1]}, r"got \(2, 35\)"),
        ({"data": np.zeros((2, 36), np.uint8), "labels": [0]}, "'labels', 2 whole numbers"),
        ({"data": np.zeros((2, 36), np.uint8), "labels": [0, 256]}, "'labels', 2 whole numbers"),
        ({"data": np.zeros((2, 36), np.float32), "labels": [0, 1]}, "not that of an array of uint8"),
    ],
)
def test_pickles_that_hold_no_batch(cifar10, tmp_path, batch, message):
    put(tmp_path, python_files(cifar10, 2) | {"cifar-10-batches-py/data_batch_1": pickle.dumps(batch, 2)})
    with pytest.raises(datasets.IntegrityError, match=message):
        datasets.load("cifar10", tmp_path)


X = np.arange(12, dtype=np.uint8).reshape(2, 6)


@given(st.sampled_from([2, 3, 4, 5, 0]), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4))
def test_a_damaged_pickle_is_read_or_refused(protocol, changes):
    batch = {"data": X.tobytes() if protocol == 5 else X, "labels": [3, 4]}
    data = bytearray(pickle.dumps(batch, protocol) if protocol else python2_pickle(X, [3, 4]))
    for place, value in changes:
        data[place % len(data)] = value
    try:
        _pickles.loads(bytes(data))
    except _pickles.PickleError:
        assert changes


# GTSRB


def ppm(pixels):
    return b"P6\n%d %d\n255\n" % pixels.shape[1::-1] + pixels.tobytes()


def listing(rows):
    head = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\r\n"
    return (head + "".join(f"{name};9;9;1;1;8;8;{label}\r\n" for name, label in rows)).encode()


class Signs:
    """A small GTSRB: its files by archive, and what reading them must give."""

    def __init__(self, monkeypatch):
        self.train, self.test, self.truth = {}, {}, {}
        pixels, y_train = [], []
        for label in range(3):
            folder, rows = f"GTSRB/Final_Training/Images/{label:05d}", []
            for i in range(2 + label):
                pixels.append(images(*RNG.integers(15, 70, 2), 3))
                y_train.append(label)
                rows.append((f"{i // 2:05d}_{i % 2:05d}.ppm", label))
                self.train[f"{folder}/{rows[-1][0]}"] = ppm(pixels[-1])
            self.train[f"{folder}/GT-{label:05d}.csv"] = listing(rows)
        tests, y_test = [images(*RNG.integers(15, 70, 2), 3) for _ in range(4)], [2, 0, 1, 2]
        for i, test in enumerate(tests):
            self.test[f"GTSRB/Final_Test/Images/{i:05d}.ppm"] = ppm(test)
        self.test["GTSRB/Final_Test/Images/GT-final_test.test.csv"] = b"Filename;Width;Height\r\n"
        self.truth["GT-final_test.csv"] = listing([(f"{i:05d}.ppm", label) for i, label in enumerate(y_test)])
        small = [np.stack([self.resized(p) for p in part]) for part in (pixels, tests)]
        self.arrays = small[0], np.array(y_train), small[1], np.array(y_test)
        self.sums = np.array([p.sum(dtype=np.int64) for p in pixels])
        heads = [b"\0" + np.array(p.shape, "<i8").tobytes() for p in pixels]
        found = [hashlib.blake2b(h + p.tobytes(), digest_size=16).digest() for h, p in zip(heads, pixels, strict=True)]
        self.digests = np.frombuffer(b"".join(found), np.uint8).reshape(-1, 16)
        originals = sha(self.digests, self.sums)
        expect(monkeypatch, "gtsrb", *self.arrays, originals=originals, classes=("stop", "go", "wait"))

    @staticmethod
    def resized(pixels):
        return np.asarray(Image.fromarray(pixels).resize((48, 48), Image.Resampling.BILINEAR))

    def archives(self):
        names = [archive.file for archive in _catalogue.GTSRB.archives]
        return dict(zip(names, (self.train, self.test, self.truth), strict=True))

    def zip(self, folder, only=None):
        folder.mkdir(parents=True, exist_ok=True)
        for name, files in self.archives().items():
            if only is None or name == only:
                with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
                    for file, data in files.items():
                        archive.writestr(file, data)

    def tree(self, folder, truth="GT-final_test.csv"):
        put(folder, self.train | self.test | {truth: self.truth["GT-final_test.csv"]})


@pytest.fixture
def signs(monkeypatch):
    return Signs(monkeypatch)


@pytest.mark.parametrize("place", [".", "gtsrb"])
@pytest.mark.parametrize(
    "form",
    ["zip", "GT-final_test.csv", "GTSRB/Final_Test/Images/GT-final_test.csv", "GTSRB/GT-final_test.csv", "mixed"],
)
def test_gtsrb_in_all_its_forms(signs, tmp_path, place, form):
    folder = tmp_path / "d" / place
    if form == "zip":
        signs.zip(folder)
    elif form == "mixed":
        put(folder, signs.test)
        for name in ("GTSRB_Final_Training_Images.zip", "GTSRB_Final_Test_GT.zip"):
            signs.zip(folder, name)
    else:
        signs.tree(folder, form)
    dataset = datasets.load("gtsrb", tmp_path / "d")
    same(dataset, *signs.arrays)
    np.testing.assert_array_equal(dataset.original_sums, signs.sums)
    np.testing.assert_array_equal(dataset.original_digests, signs.digests)
    assert dataset.classes == ("stop", "go", "wait")


def test_the_digest_is_that_of_an_image_that_was_never_resized(signs, tmp_path):
    signs.tree(tmp_path)
    dataset = datasets.load("gtsrb", tmp_path)
    with Image.open(tmp_path / "GTSRB/Final_Training/Images/00001/00001_00000.ppm") as image:
        row = np.asarray(image)[None]
    digest = hashing.digests(hashing.number_rows(row), b"").astype("<u8").view(np.uint8).reshape(16)
    np.testing.assert_array_equal(dataset.original_digests[4], digest)


def test_gtsrb_is_decoded_once(signs, tmp_path, monkeypatch):
    signs.tree(tmp_path / "gtsrb")
    first = datasets.load("gtsrb", tmp_path)
    cache = tmp_path / "gtsrb" / _gtsrb.CACHE
    assert datasets.located("gtsrb", tmp_path) == str(cache)
    decoded = _gtsrb._read

    def never(*_):
        raise AssertionError("decoded again")

    monkeypatch.setattr(_gtsrb, "_read", never)
    again = datasets.load("gtsrb", tmp_path)
    same(again, *signs.arrays)
    assert again.fingerprint == first.fingerprint
    monkeypatch.setattr(_gtsrb, "_read", decoded)
    whole = cache.read_bytes()
    for wrong in (whole[:-30], whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:], b"", b"PK"):
        cache.write_bytes(wrong)
        assert datasets.load("gtsrb", tmp_path).fingerprint == first.fingerprint
        assert cache.read_bytes() == whole
    assert sorted(f.name for f in (tmp_path / "gtsrb").iterdir()) == ["GT-final_test.csv", "GTSRB", _gtsrb.CACHE]


@pytest.mark.parametrize("field", ["x_train", "y_train", "x_test", "y_test", "original_digests", "original_sums"])
def test_a_cache_that_was_altered_with_care_is_not_used(signs, tmp_path, field):
    signs.tree(tmp_path)
    first = datasets.load("gtsrb", tmp_path)
    names = ("x_train", "y_train", "x_test", "y_test", "original_digests", "original_sums")
    arrays = {name: getattr(first, name).copy() for name in names}
    arrays[field].flat[0] = 1 - min(1, arrays[field].flat[0])
    _npz.write(tmp_path / _gtsrb.CACHE, arrays)
    assert datasets.load("gtsrb", tmp_path).fingerprint == first.fingerprint
    arrays[field] = arrays[field][:-1]
    _npz.write(tmp_path / _gtsrb.CACHE, arrays)
    assert datasets.load("gtsrb", tmp_path).fingerprint == first.fingerprint


def test_a_cache_goes_to_the_users_directory_or_nowhere(signs, tmp_path, monkeypatch):
    signs.tree(tmp_path / "d")
    written, refused = _npz.write, []

    def write(path, arrays):
        if path.parent in refused:
            raise PermissionError(13, "Permission denied")
        written(path, arrays)

    monkeypatch.setattr(_npz, "write", write)
    refused += [tmp_path / "d", tmp_path / "cache" / "runoff"]
    fingerprint = datasets.load("gtsrb", tmp_path / "d").fingerprint
    assert list(tmp_path.rglob("*.npz")) == []
    refused.pop()
    assert datasets.load("gtsrb", tmp_path / "d").fingerprint == fingerprint
    assert list(tmp_path.rglob("*.npz")) == [tmp_path / "cache" / "runoff" / _gtsrb.CACHE]
    assert datasets.located("gtsrb", tmp_path / "d") == str(tmp_path / "cache" / "runoff" / _gtsrb.CACHE)


def test_a_full_disk_leaves_no_part_of_a_cache(signs, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    signs.tree(tmp_path / "d")
    monkeypatch.setattr(os, "fsync", full)
    same(datasets.load("gtsrb", tmp_path / "d"), *signs.arrays)
    assert sorted(f.name for f in (tmp_path / "d").iterdir()) == ["GT-final_test.csv", "GTSRB"]


CLASS_1 = "GTSRB/Final_Training/Images/00001/GT-00001.csv"
IMAGE = "GTSRB/Final_Training/Images/00001/00000_00001.ppm"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (CLASS_1, listing([("../../../secret.ppm", 1)]), "must list Filename;...;ClassId, got '../../../secret.ppm'"),
        (CLASS_1, listing([("/etc/passwd", 1)]), "got '/etc/passwd'"),
        (CLASS_1, listing([("00000_00000.ppm", 2)] * 3), "lists images of another class"),
        (CLASS_1, listing([("00000_00000.ppm", 7)]), "lists class 7, expected 0 to 2"),
        (CLASS_1, listing([("00000_00000.ppm", -1)]), "of class '-1'"),
        (CLASS_1, listing([("00000_00000.ppm", 1)]), "it lists 7 training images, expected 9"),
        (CLASS_1, b"Filename;ClassId\n" + b"x" * 200000, "is not a list with semicolons"),
        (CLASS_1, b"\xff\xfe", "codec can't decode"),
        (CLASS_1, b"x" * (2**22 + 1), "has more than 4194304 bytes"),
        (IMAGE, b"P6\n30 30\n255\n", "00000_00001.ppm cannot be read as an image"),
        (IMAGE, b"P5\n1 1\n255\nx", "must be an RGB image"),
        (IMAGE, b"P6\n9000 9000\n255\n", "00000_00001.ppm must have at most 67108864 pixels, got 9000 x 9000"),
        (IMAGE, b"P6\n30000 30000\n255\n", "00000_00001.ppm cannot be read as an image"),
        (IMAGE, b"\x89PNG\r\n\x1a\n", "cannot be read as an image"),
        (IMAGE, ppm(np.zeros((20, 20, 3), np.uint8)), "its pixels have SHA-256"),
        (IMAGE, None, "(it has|there is) no .*00000_00001.ppm"),
    ],
)
def test_a_wrong_gtsrb_is_refused(signs, tmp_path, packed, name, data, message):
    if data is None:
        del signs.train[name]
    else:
        signs.train[name] = data
    (signs.zip if packed else signs.tree)(tmp_path)
    with pytest.raises(datasets.IntegrityError, match=message):
        datasets.load("gtsrb", tmp_path)


def test_zip_files_that_are_none(signs, tmp_path):
    signs.zip(tmp_path)
    path = tmp_path / "GTSRB_Final_Training_Images.zip"
    whole = path.read_bytes()
    for wrong in (b"", whole[:-10], b"\0" * 100, whole[:60] + b"\0\0\0\0" + whole[64:]):
        path.write_bytes(wrong)
        with pytest.raises(datasets.IntegrityError):
            datasets.load("gtsrb", tmp_path)
    truth = tmp_path / "GTSRB_Final_Test_GT.zip"
    with zipfile.ZipFile(truth, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("GT-final_test.csv", RNG.bytes(1000))
    packed = truth.read_bytes()
    truth.write_bytes(packed[:60] + b"\xaa" * 100 + packed[160:])
    with pytest.raises(datasets.IntegrityError, match="Corrupt input data"):
        datasets.load("gtsrb", tmp_path)


def test_only_the_archives_that_are_missing_are_named(signs, tmp_path):
    put(tmp_path, signs.train)
    signs.zip(tmp_path / "gtsrb", "GTSRB_Final_Test_Images.zip")
    with pytest.raises(datasets.MissingError, match=r"put GTSRB_Final_Test_GT.zip .md5 fe31\w*. from https://sid"):
        datasets.load("gtsrb", tmp_path)


def test_images_need_pillow_and_say_so(signs, tmp_path, monkeypatch):
    signs.tree(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"needs Pillow. Install it with: pip install runoff\[datasets\]"):
        datasets.load("gtsrb", tmp_path)
    result = run("check", "gtsrb", "--data-dir", tmp_path)
    assert result.exit_code == 1
    assert "pip install runoff[datasets]" in result.stderr


# The user's own


def own_arrays(**changes):
    arrays = {"x_train": images(5, 3, 4), "y_train": np.array([0, 2, 1, 1, 0]), "x_test": images(2, 3, 4)}
    return arrays | {"y_test": np.array([1, 2], np.uint8)} | changes


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_file(save):
    arrays = own_arrays(x_train=np.asfortranarray(images(5, 3, 4)), unused=np.zeros(3))
    save("mine.npz", **arrays)
    dataset = datasets.load("mine.npz")
    same(dataset, *(arrays[name] for name in ("x_train", "y_train", "x_test", "y_test")))
    assert (dataset.name, dataset.classes) == ("mine.npz", ("0", "1", "2"))
    assert not dataset.classes_fixed
    save("mine.npz", **arrays, classes=np.array(["a", "b", "c", "d"]))
    named = datasets.load(Path("mine.npz"))
    assert named.classes == ("a", "b", "c", "d")
    assert named.classes_fixed
    assert named.fingerprint == dataset.fingerprint


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (3, ("0", "1", "2")),
        (np.int64(12), tuple(map(str, range(12)))),
        (["a", "b", "c"], ("a", "b", "c")),
        (np.array(["a", "b", "c", "d"]), ("a", "b", "c", "d")),
    ],
)
def test_classes_that_are_decided_beforehand(classes, names):
    """The number of outputs does not follow from the samples."""
    np.savez("mine.npz", **own_arrays())
    dataset = datasets.load("mine.npz", classes=classes)
    assert dataset.classes == names
    assert all(type(name) is str for name in dataset.classes)
    assert dataset.classes_fixed
    np.savez("mine.npz", **own_arrays(y_train=np.array([0, 2, 1, 1, 30])))
    assert not datasets.load("mine.npz").classes_fixed
    with pytest.raises(datasets.DatasetError, match=f"y_train must be classes 0 to {len(names) - 1}, got 30"):
        datasets.load("mine.npz", classes=classes)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (0, "classes must be from 1 to 65536, got 0"),
        (10**9, "classes must be from 1 to 65536, got 1000000000"),
        ([], "classes must have from 1 to 65536 names, got 0"),
        (True, "classes must be a number of classes or a list of their names, got True"),
        (3.0, "classes must be a number of classes or a list of their names, got 3.0"),
        ("abc", "classes must be a number of classes or a list of their names, got 'abc'"),
        ({"a": 0, "b": 1, "c": 2}, "classes must be a number of classes or a list of their names, got {"),
        (np.array([["a", "b", "c"]]), "classes must be a number of classes or a list of their names, got array"),
        (range(3), "classes must be names, which are texts, got 0 of type int"),
        ([["a"], "b", "c"], "classes must be names, which are texts, got ['a'] of type list"),
        (["a", "b", "a"], "classes must have different names, got 'a' twice: remove one of them"),
        (["a", " ", "c"], "classes must have no empty names, got one in place 2: remove it"),
    ],
)
def test_classes_that_will_not_do(classes, message, tmp_path):
    np.savez("mine.npz", **own_arrays())
    picture(tmp_path / "mine/train/a/0.png", images(4, 4))
    picture(tmp_path / "mine/test/a/0.png", images(4, 4))
    for path in ("mine.npz", "mine"):
        with pytest.raises(datasets.DatasetError) as told:
            datasets.load(path, classes=classes)
        assert str(told.value).startswith(message)


def test_classes_must_agree_with_those_that_are_stored(tmp_path):
    names = ["a", "b", "c"]
    np.savez("mine.npz", **own_arrays(classes=np.array(names)))
    picture(tmp_path / "mine/train/a/0.png", images(4, 4))
    picture(tmp_path / "mine/test/c/0.png", images(4, 4))
    (tmp_path / "mine/classes.txt").write_text("a\nb\nc\n")
    for path, where in (("mine.npz", "the classes in mine.npz"), ("mine", "mine/classes.txt")):
        for classes in (None, names, 3):
            dataset = datasets.load(path, classes=classes)
            assert (dataset.classes, dataset.classes_fixed) == (("a", "b", "c"), True)
        for classes, told in ((4, "4 of them in place of 3"), (["a", "c", "b"], "'c' in place of 'b'")):
            with pytest.raises(datasets.DatasetError) as error:
                datasets.load(path, classes=classes)
            assert str(error.value) == f"classes must agree with {where}, got {told}: leave classes out"


def test_an_npz_file_of_another_program():
    """Arrays of more than one chunk, and headers of every version."""
    array = images(3, 2**12, 2**11)
    with zipfile.ZipFile("mine.npz", "w") as archive:
        for name, value, version in (
            ("x_train", array, (2, 0)),
            ("y_train", np.arange(3), (3, 0)),
            ("x_test", array[:1], (1, 0)),
            ("y_test", np.zeros(1, ">i4"), (1, 0)),
        ):
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, value, version)
    same(datasets.load("mine.npz"), array, np.arange(3), array[:1], [0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "mine.npz must hold x_train, y_train, x_test, y_test, and has no y_test"),
        ({"y_test": np.array([{}, {}])}, "got pickled objects in y_test, which are never loaded"),
        ({"x_test": np.zeros((2, 3, 4))}, "mine.npz: x_test must be images of 8 bits.* got float64"),
        ({"y_train": np.array([0, 1, 2, 3, -4])}, "y_train must be classes 0 to 3, got -4"),
        ({"y_train": np.array([0, 1, 2, 3, 2**60])}, "y_train must be classes 0 to 65535, got 1152921504606846976"),
        ({"y_train": np.array(["a"] * 5)}, "y_train must be whole numbers"),
        ({"y_train": np.zeros(0, int)}, "y_train must be whole numbers"),
        ({"classes": np.arange(3)}, "classes must be a list of texts, got int64"),
        ({"classes": np.array(["a", "b"])}, "y_train must be classes 0 to 1, got 2"),
        ({"classes": np.array(["a", "b", "a"])}, "mine.npz: classes must have different names, got 'a' twice"),
        ({"classes": np.array(["a", "", "b"])}, "mine.npz: classes must have no empty names, got one in place 2"),
    ],
)
def test_npz_files_that_will_not_do(changes, message):
    arrays = {name: array for name, array in own_arrays(**changes).items() if array is not None}
    np.savez("mine.npz", **arrays)
    with pytest.raises(datasets.DatasetError, match=message):
        datasets.load("mine.npz")
    result = run("check", "mine.npz")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_damaged_npz_files():
    np.savez("mine.npz", **own_arrays())
    whole = Path("mine.npz").read_bytes()
    hostile = b"cos\nsystem\n(S'touch owned'\ntR."
    at = whole.index(b"\x93NUMPY")
    for wrong in (whole[:-40], b"", hostile, whole[: at + 130] + b"\xaa\xbb\xcc" + whole[at + 133 :]):
        Path("mine.npz").write_bytes(wrong)
        with pytest.raises(datasets.DatasetError, match=r"mine.npz cannot be read as a .npz file"):
            datasets.load("mine.npz")
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        stored = {name: archive.read(name) for name in archive.namelist()}
    for n, message in (
        (9, "is damaged: x_train promises 108 bytes and has fewer"),
        (4, "more bytes than it promises"),
        (-5, "cannot be read as a .npz file: it has a header of version"),
        (f"0, {2**70}", "cannot be read as a .npz file: "),
    ):
        wrong = stored["x_train.npy"].replace(b"'shape': (5, 3, 4)", f"'shape': ({n}, 3, 4)".encode())
        with zipfile.ZipFile("mine.npz", "w") as archive:
            for name, data in (stored | {"x_train.npy": wrong}).items():
                archive.writestr(name, data)
        with pytest.raises(datasets.DatasetError, match=message):
            datasets.load("mine.npz")
    for offset in (2**62, 2**63):  # further than a file can be
        with zipfile.ZipFile("mine.npz", "w") as archive:
            for name, data in stored.items():
                archive.writestr(name, data)
            archive.infolist()[0].header_offset = offset
        with pytest.raises(datasets.DatasetError, match=r"mine.npz cannot be read as a .npz file"):
            datasets.load("mine.npz")
    assert not Path("owned").exists()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_npz_files_of_every_compression(method):
    """Some bytes of the first array, then each byte that says how it is compressed."""
    arrays = own_arrays(x_train=images(5, 30, 40), x_test=images(2, 30, 40))  # of more than one read
    with zipfile.ZipFile("mine.npz", "w", method) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
    whole = Path("mine.npz").read_bytes()
    same(datasets.load("mine.npz"), *arrays.values())
    end = whole.index(b"PK\x03\x04", 4)
    central = whole.index(b"PK\x01\x02")
    refused = []
    places = [*range(30, 200), *range(200, end, 97), *range(central, central + 46)]
    for i in places:
        damaged = bytearray(whole)
        damaged[i] ^= 0x55
        Path("mine.npz").write_bytes(damaged)
        try:
            datasets.load("mine.npz")
        except datasets.DatasetError as error:
            refused.append(str(error))
    assert len(refused) > len(places) // 2
    assert {told.split()[0] for told in refused} <= {"mine.npz", "mine.npz:"}


HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }"


def npy_file(header, data=bytes(48), version=1):
    text = header.encode("latin-1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    Path("array.npy").write_bytes(b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text + data)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER.replace("}", ""), "must be a .npy file as numpy.save writes it, got something else"),
        (HEADER.replace("(2", "(-2"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("(2", "(-2, -1"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("(2", "(True"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("(2", f"(0, {2**70}"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("(2", f"({'1, ' * 70} 2"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("(2", f"({2**70}"), "is truncated: its header promises "),
        (HEADER.replace("{", "{[]: 0, "), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("{", "{0: 0, "), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("'<f8'", "('<f8',)"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("'<f8'", "'|V0'"), "must hold numbers, got values of no bytes: save a plain array"),
        (HEADER.replace("'<f8'", "'|O'"), "must hold numbers, got pickled objects, which are never loaded"),
    ],
)
def test_headers_that_will_not_do(header, message):
    npy_file(header)
    with pytest.raises(ValueError, match=r"^array.npy ") as told:
        _files.open_array("array.npy")
    assert str(told.value).startswith(f"array.npy {message}")
    assert "\n" not in str(told.value)


def test_headers_that_will_do():
    npy_file(HEADER)
    np.testing.assert_array_equal(_files.open_array("array.npy"), np.zeros((2, 3)))
    npy_file(HEADER.replace("(2", "(0"), b"")
    assert _files.open_array("array.npy").shape == (0, 3)
    npy_file(HEADER, version=9)
    with pytest.raises(ValueError, match=r"array.npy must be a .npy file as numpy.save writes it"):
        _files.open_array("array.npy")


def picture(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return pixels


def test_a_folder_of_images(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    cat = [picture(folder / "train/cat" / name, images(4, 5, 3)) for name in ("a.png", "b.PPM", "c.bmp")]
    dog = [picture(folder / "train/dog" / name, images(4, 5, 3)) for name in ("0.png", "1.tiff")]
    tests = [picture(folder / "test/dog/x.png", images(4, 5, 3))]
    (folder / "train/empty").mkdir()
    (folder / "train/cat/notes.txt").write_text("not an image")
    (folder / "train/cat/inner.png").mkdir()
    (folder / "train/readme.png").write_text("not in a class")
    for hidden in ("train/.hidden/a.png", "train/cat/._a.png"):
        picture(folder / hidden, images(4, 5, 3))
    picture(tmp_path / "outside/a.png", images(4, 5, 3))
    (folder / "train/linked").symlink_to(tmp_path / "outside")
    (folder / "train/cat/z.png").symlink_to(tmp_path / "outside/a.png")
    dataset = datasets.load(folder)
    assert (dataset.name, dataset.classes) == ("mine", ("cat", "dog", "empty"))
    assert not dataset.classes_fixed
    same(dataset, np.stack(cat + dog), [0, 0, 0, 1, 1], np.stack(tests), [1])
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: sorted(listed(path), reverse=True))
    assert datasets.load(str(folder)).fingerprint == dataset.fingerprint
    monkeypatch.setattr(Path, "iterdir", lambda path: sorted(listed(path)))
    assert datasets.load(str(folder)).fingerprint == dataset.fingerprint


def test_a_folder_of_images_of_many_sizes(tmp_path):
    big, small = images(9, 7, 3), images(4, 5, 3)
    picture(tmp_path / "train/a/0.png", big)
    picture(tmp_path / "train/b/0.png", small)
    picture(tmp_path / "test/a/0.png", small)
    with pytest.raises(datasets.DatasetError, match=r"one size, got 4 x 5 in .*b.0.png and 9 x 7 in .* give size="):
        datasets.load(tmp_path)
    dataset = datasets.load(tmp_path, size=(4, 5))
    expected = np.asarray(Image.fromarray(big).resize((5, 4), Image.Resampling.BILINEAR))
    same(dataset, np.stack([expected, small]), [0, 1], small[None], [0])
    for size in ((0, 4), (4,), 5, (4.5, 4), (10**6, 1), "ab"):
        with pytest.raises(datasets.DatasetError, match="size must be "):
            datasets.load(tmp_path, size=size)
    np.savez("mine.npz", **own_arrays())
    with pytest.raises(datasets.DatasetError, match="size is for folders of images"):
        datasets.load("mine.npz", size=(4, 5))


def test_grey_stays_grey_and_nothing_is_changed_by_its_neighbour(tmp_path):
    grey = picture(tmp_path / "train/a/0.png", images(4, 4))
    picture(tmp_path / "test/a/0.png", grey)
    assert datasets.load(tmp_path).x_train.shape == (1, 4, 4)
    picture(tmp_path / "train/a/1.png", images(4, 4, 3))
    with pytest.raises(datasets.DatasetError, match=r"1.png is in colour and .*0.png is grey: convert one of them"):
        datasets.load(tmp_path)
    Image.fromarray(images(4, 4, 4)).save(tmp_path / "train/a/1.png")
    with pytest.raises(datasets.DatasetError, match="must be a grey or RGB image of 8 bits, got mode RGBA"):
        datasets.load(tmp_path)
    palette = Image.fromarray(images(4, 4, 3)).quantize(4)
    for part in ("train/a/0.png", "train/a/1.png", "test/a/0.png"):
        palette.save(tmp_path / part, transparency=bytes([0, 9]))
    np.testing.assert_array_equal(datasets.load(tmp_path).x_test[0], np.asarray(palette.convert("RGB")))


def test_folders_that_will_not_do(tmp_path):
    refused = partial(pytest.raises, datasets.DatasetError)
    with refused(match=r"must be a folder of images, train/<class>/\* and test/<class>/\*: it has no train"):
        datasets.load(tmp_path)
    picture(tmp_path / "train/a/0.png", images(4, 4))
    with refused(match="it has no test"):
        datasets.load(tmp_path)
    picture(tmp_path / "test/b/0.png", images(4, 4))
    with refused(match="has test/b and no train/b"):
        datasets.load(tmp_path)
    (tmp_path / "train/b").mkdir()
    (tmp_path / "test/b/0.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with refused(match=r"0.png cannot be read as an image .*: replace or remove it"):
        datasets.load(tmp_path)
    (tmp_path / "test/b/0.png").unlink()
    with refused(match="test must hold images in folders named by class, got none"):
        datasets.load(tmp_path)


def two_pictures(tmp_path):
    return picture(tmp_path / "train/cat/0.png", images(4, 4)), picture(tmp_path / "test/dog/0.png", images(4, 4))


@pytest.mark.parametrize("text", ["dog\nbird\ncat\n", "dog\nbird\ncat", "\ufeffdog\r\nbird \r\n cat\r\n"])
def test_a_folder_with_a_list_of_its_classes(tmp_path, text):
    cat, dog = two_pictures(tmp_path)
    (tmp_path / "classes.txt").write_bytes(text.encode())
    dataset = datasets.load(tmp_path)  # no folder for birds, none for dogs in train
    assert (dataset.classes, dataset.classes_fixed) == (("dog", "bird", "cat"), True)
    same(dataset, cat[None], [2], dog[None], [0])
    for part in ("train", "test"):
        (tmp_path / part / "eel").mkdir()
        with pytest.raises(datasets.DatasetError, match=f"has the folder {part}/eel, which is none of its 3 classes: "):
            datasets.load(tmp_path)
        (tmp_path / part / "eel").rmdir()
    (tmp_path / "classes.txt").unlink()
    given = datasets.load(tmp_path, classes=["dog", "bird", "cat"])
    assert (given.fingerprint, given.classes_fixed) == (dataset.fingerprint, True)


def test_numbered_folders(tmp_path):
    picture(tmp_path / "train/10/0.png", images(4, 4))
    picture(tmp_path / "train/2/0.png", images(4, 4))
    picture(tmp_path / "test/9/0.png", images(4, 4))
    dataset = datasets.load(tmp_path, classes=11)
    assert (dataset.y_train.tolist(), dataset.y_test.tolist()) == ([2, 10], [9])
    with pytest.raises(datasets.DatasetError, match="has the folder train/10, which is none of its 10 classes"):
        datasets.load(tmp_path, classes=10)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "must have no empty names, got one in place 1"),
        (b"cat\n\ndog\n", "must have no empty names, got one in place 2"),
        (b"cat\n \ndog\n", "must have no empty names, got one in place 2"),
        (b"cat\ndog\ncat\n", "must have different names, got 'cat' twice"),
        (b"cat\nd\xffg\n", "must be text in UTF-8, got other bytes at 5: save it as UTF-8"),
        (b"cat\ndog\n" + b"x" * 2**22, "cannot be read: classes.txt has more than 4194304 bytes"),
        (b"\n".join(b"%d" % i for i in range(65537)), "must have from 1 to 65536 names, got 65537"),
    ],
)
def test_lists_of_classes_that_will_not_do(tmp_path, data, message):
    two_pictures(tmp_path)
    (tmp_path / "classes.txt").write_bytes(data)
    assert told_of(datasets.load, tmp_path).startswith(f"{tmp_path}/classes.txt {message}")


def test_a_list_of_classes_leads_nowhere_else(tmp_path):
    folder = tmp_path / "mine"
    cat, dog = two_pictures(folder)
    picture(tmp_path / "secret/0.png", images(4, 4))
    (folder / "test/cat").symlink_to(tmp_path / "secret")
    names = ["cat", "dog", "../../secret", str(tmp_path / "secret")]
    same(datasets.load(folder, classes=names), cat[None], [0], dog[None], [1])
    (tmp_path / "names").write_text("cat\ndog\n")
    for link in (tmp_path / "names", tmp_path / "nothing"):
        (folder / "classes.txt").symlink_to(link)
        assert "classes.txt must be a plain file with the name of one class a line" in told_of(datasets.load, folder)
        (folder / "classes.txt").unlink()
    (folder / "classes.txt").mkdir()
    assert "classes.txt must be a plain file with the name of one class a line" in told_of(datasets.load, folder)


# Files


def test_a_rename_is_synced_too(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def note(descriptor):
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), (tmp_path / "a").exists()))
        fsync(descriptor)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", note)
    with _files.written_whole(tmp_path / "a") as file:
        file.write("all of it")
    (temporary, early), (folder, late) = synced
    assert (temporary.parent, early, folder, late) == (tmp_path, False, tmp_path, True)


@pytest.mark.parametrize(("number", "told"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_directories_that_cannot_be_synced(tmp_path, monkeypatch, number, told):
    fsync = os.fsync

    def partly(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, "not here")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", partly)
    with (
        pytest.raises(OSError, match="not here") if told else nullcontext(),
        _files.written_whole(tmp_path / "a") as file,
    ):
        file.write("all of it")
    assert (tmp_path / "a").read_text() == "all of it"
    assert _files.leftovers(tmp_path) == []


def test_what_a_killed_program_leaves_is_found(tmp_path):
    code = "import os, sys; from runoff import _files\nopen = [_files.written_whole(name) for name in sys.argv[1:]]\n"
    code += "for one in open: one.__enter__()\nos.kill(os.getpid(), 9)"
    (tmp_path / "inner").mkdir()
    names = ["manifest.json", "a\nb", "inner/x"]
    subprocess.run([sys.executable, "-c", code, *(tmp_path / name for name in names)], check=False)
    others = ["manifest.json", ".hidden", ".manifest.json.original", ".vimrc.abcdefgh", ".x.abcdefg.runoff-tmp"]
    others += ["x.abcdefgh.runoff-tmp", ".x.ABCDEFGH.runoff-tmp", ".x.abcdefgh.runoff-tmp~"]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".d.abcdefgh.runoff-tmp").mkdir()
    (tmp_path / ".l.abcdefgh.runoff-tmp").symlink_to(tmp_path / "manifest.json")
    found = _files.leftovers(tmp_path)
    assert sorted(file.name[: -len(".abcdefgh.runoff-tmp")] for file in found) == [".a\nb", ".manifest.json"]
    for file in found:
        file.unlink()
    assert _files.leftovers(str(tmp_path)) == []
    assert len(_files.leftovers(tmp_path / "inner")) == 1


# Fetching


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked, self.habits = files, [], []

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}/files"

    def handle_error(self, request, client_address):
        """A client that goes away is no matter."""


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        server.asked.append(self.headers.get("Range"))
        habit = server.habits.pop(0) if server.habits else ""
        data = server.files.get(self.path.removeprefix("/files/"))
        if habit.isdigit() or data is None:
            self.send_error(int(habit) if habit else 404)
            return
        if habit.startswith("to "):
            self.send_response(302)
            self.send_header("Location", habit[3:])
            self.end_headers()
            return
        start = 0
        if self.headers.get("Range") and habit != "no range":
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            told = 0 if habit == "other part" else start
            self.send_header("Content-Range", f"bytes {told}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        if habit != "no length":
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        rest = data[start:]
        self.wfile.write(rest[: len(rest) // 2] if habit == "break" else rest)
        self.close_connection = True


@pytest.fixture
def server(monkeypatch):
    files = {name: RNG.bytes(300000 + i) for i, name in enumerate(f"{n}.gz" for n in IDX)}
    archives = tuple(
        _catalogue.Archive(name, "https://example.invalid/mnist/", "sha256", hashlib.sha256(data).hexdigest())
        for name, data in files.items()
    )
    monkeypatch.setitem(_catalogue.CATALOGUE, "mnist", dataclasses.replace(_catalogue.MNIST, archives=archives))
    server = Server(files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fetched(folder):
    return {file.name: file.read_bytes() for file in (folder / "mnist").iterdir()}


FIRST = f"{IDX[0]}.gz"


def test_a_whole_download(server, tmp_path):
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 0, result.stderr
    assert fetched(tmp_path) == server.files
    assert result.stdout.splitlines() == [f"{tmp_path}/mnist/{name}: right by its checksum" for name in server.files]
    assert server.asked == [None] * 4
    assert datasets.fetch("mnist", tmp_path, url_base=f"{server.address}/") == [
        tmp_path / "mnist" / name for name in server.files
    ]
    assert len(server.asked) == 4  # what is there is not asked for again


def test_a_broken_connection_is_resumed(server, tmp_path):
    server.habits = ["break", "503", "break"]
    seen = []
    datasets.fetch("mnist", tmp_path, url_base=server.address, progress=lambda *told: seen.append(told))
    assert fetched(tmp_path) == server.files
    assert server.asked[:4] == [None, "bytes=150000-", "bytes=150000-", "bytes=225000-"]
    assert [told for told in seen if told[0] == FIRST][-1] == (FIRST, 300000, 300000)


def test_a_download_is_resumed_by_the_next_command(server, tmp_path, monkeypatch):
    monkeypatch.setattr(_fetch, "ATTEMPTS", 1)
    server.habits = ["break"]
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 1
    error = result.stderr.splitlines()[-1]
    assert f"Error: {FIRST} cannot be downloaded (the connection broke off after 150000 of 300000 bytes); run" in error
    assert f"put {FIRST} (sha256 {hashlib.sha256(server.files[FIRST]).hexdigest()}) from {server.address}" in error
    assert f"into {tmp_path}/mnist and run: runoff data check mnist --data-dir {tmp_path}" in error
    assert list(fetched(tmp_path)) == [f"{FIRST}.part"]
    assert run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address).exit_code == 0
    assert server.asked[1] == "bytes=150000-"
    assert fetched(tmp_path) == server.files


@pytest.mark.parametrize("habit", ["no range", "no length", "other part"])
def test_servers_that_do_not_know_parts(server, tmp_path, habit):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / f"{FIRST}.part").write_bytes(server.files[FIRST][:1000])
    server.habits = [habit]
    datasets.fetch("mnist", tmp_path, url_base=server.address)
    assert fetched(tmp_path) == server.files


@pytest.mark.parametrize("beyond", [b"", b"more"])
def test_a_part_that_is_complete_or_too_long(server, tmp_path, beyond):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / f"{FIRST}.part").write_bytes(server.files[FIRST] + beyond)
    datasets.fetch("mnist", tmp_path, url_base=server.address)
    assert fetched(tmp_path) == server.files


@pytest.mark.parametrize("n", [1, 1000, 299999])
def test_a_part_of_something_else_is_not_the_servers_fault(server, tmp_path, n):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / f"{FIRST}.part").write_bytes(bytes(n))
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 0, result.stderr
    assert fetched(tmp_path) == server.files
    assert server.asked == [f"bytes={n}-", None, None, None, None]


def test_a_wrong_server_is_asked_from_zero_once(server, tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / f"{FIRST}.part").write_bytes(server.files[FIRST][:1000])
    server.files[FIRST] = bytes(300000)
    server.habits = ["", "break"]
    with pytest.raises(datasets.IntegrityError, match=r"is not the official file: .* get it from elsewhere"):
        datasets.fetch("mnist", tmp_path, url_base=server.address)
    assert server.asked == ["bytes=1000-", None, "bytes=150000-"]
    assert fetched(tmp_path) == {}


def test_a_wrong_checksum_is_refused_and_the_part_removed(server, tmp_path):
    server.files[FIRST] = b"something else"
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 4
    assert f"{FIRST} from {server.address}/{FIRST} is not the official file: its sha256 is" in result.stderr
    assert fetched(tmp_path) == {}


def test_a_wrong_file_that_is_there_is_left_alone(server, tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / FIRST).write_bytes(b"mine")
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 4
    assert "remove it and run the command again" in result.stderr
    assert fetched(tmp_path) == {FIRST: b"mine"}
    assert server.asked == []


def test_an_endless_file_is_cut_off(server, tmp_path, monkeypatch):
    monkeypatch.setattr(_fetch, "LARGEST", 1000)
    with pytest.raises(datasets.IntegrityError, match="sends more than 1000 bytes"):
        datasets.fetch("mnist", tmp_path, url_base=server.address)
    assert fetched(tmp_path) == {}


def test_a_file_that_the_server_does_not_have(server, tmp_path):
    del server.files[FIRST]
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 1
    assert f"{FIRST} cannot be downloaded (the server answers 404 Not Found); run" in result.stderr
    assert len(server.asked) == 1
    server.files[FIRST], server.habits = b"", ["500"] * 4
    assert run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address).exit_code == 1
    assert len(server.asked) == 5


def test_redirections_keep_to_the_rule(server, tmp_path):
    server.habits = [f"to {server.address}/{FIRST}"]
    datasets.fetch("mnist", tmp_path / "a", url_base=server.address)
    assert fetched(tmp_path / "a") == server.files
    for address in ("ftp://127.0.0.1/x", "file:///etc/passwd"):
        server.habits = [f"to {address}"]
        with pytest.raises(datasets.DownloadError):
            datasets.fetch("mnist", tmp_path / "b", url_base=server.address)
    for address, right in (
        ("https://example.org/x", True),
        ("http://example.org/x", False),
        ("http://127.0.0.1:8000/x", True),
        ("http://[::1]/x", True),
        ("http://localhost/x", True),
        ("http://localhost.example.org/x", False),
        ("http://127.0.0.1.example.org/x", False),
        ("file:///etc/passwd", False),
    ):
        if right:
            _fetch._check_scheme(address, plain_http=False)
        else:
            with pytest.raises(datasets.DownloadError, match="only https is"):
                _fetch._check_scheme(address, plain_http=False)
    redirects = _fetch._Redirects(plain_http=False)  # as after https
    with pytest.raises(datasets.DownloadError, match="only https is"):
        redirects.redirect_request(None, io.BytesIO(), 302, "", {}, "http://example.org/x")


def test_without_a_network(server, tmp_path):
    closed = server.address.replace(f":{server.server_port}", ":9")
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", closed)
    assert result.exit_code == 1
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"Error: {FIRST} cannot be downloaded (")
    assert f"put {FIRST} (sha256 " in error
    assert f"from {closed}/{FIRST} into {tmp_path}/mnist" in error


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), TimeoutError("timed out")])
def test_an_address_that_nobody_knows_is_asked_once(server, tmp_path, monkeypatch, error):
    asked = []

    def connect(address, *_, **__):
        asked.append(address)
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(datasets.DownloadError, match=f"cannot be downloaded .*{error.args[-1]}"):
        datasets.fetch("mnist", tmp_path)
    assert asked == [("example.invalid", 443)] * (1 if isinstance(error, socket.gaierror) else _fetch.ATTEMPTS)
    assert server.asked == []


def test_a_disk_that_cannot_be_written(server, tmp_path):
    (tmp_path / "mnist").write_text("a file")
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 1
    assert "mnist cannot be made (File exists)" in result.stderr
    (tmp_path / "d" / "mnist" / f"{FIRST}.part").mkdir(parents=True)
    result = run("fetch", "mnist", "--data-dir", tmp_path / "d", "--url-base", server.address)
    assert result.exit_code == 1
    assert ".part cannot be written (Is a directory)" in result.stderr


def test_a_full_disk_keeps_the_part(server, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 1
    assert f"{FIRST} cannot be written (No space left on device); run the command again" in result.stderr
    assert list(fetched(tmp_path)) == [f"{FIRST}.part"]
    datasets.fetch("mnist", tmp_path, url_base=server.address)
    assert fetched(tmp_path) == server.files


def test_fetching_what_cannot_be_fetched():
    assert "comes with scikit-learn: there is nothing to fetch" in run("fetch", "digits").stdout
    result = run("fetch", "imagenet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "must be one of digits, mnist, cifar10, gtsrb, got 'imagenet'" in result.stderr
    for base in ("ftp://example.org", "file:///data", "data", "https://"):
        result = run("fetch", "mnist", "--url-base", base)
        assert result.exit_code == 2
        assert f"url_base must be the address of a folder, as in https://example.org/data/, got {base}" in result.stderr


# The command line


def test_the_list(mnist, tmp_path):
    tmp_path = tmp_path / "[red]x[/red]"  # a name, not a colour
    put_mnist(tmp_path / "MNIST" / "raw", mnist)
    rows = json.loads(run("list", "--json", "--data-dir", tmp_path).stdout)
    assert [row["name"] for row in rows] == ["digits", "mnist", "cifar10", "gtsrb"]
    assert [row["found"] for row in rows] == ["scikit-learn", str(tmp_path / "MNIST" / "raw"), None, None]
    assert rows[1] == {
        "name": "mnist", "train": 6, "test": 3, "shape": [5, 4], "classes": 10, "found": str(tmp_path / "MNIST/raw")
    }  # fmt: skip
    result = run("list", "--data-dir", tmp_path)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == f"looked in {tmp_path}"
    assert "1,437" in result.stdout
    assert "48x48x3" in result.stdout
    assert result.stdout.count("missing") == 2
    assert str(tmp_path / "MNIST" / "raw") in result.stdout


def test_paths_are_printed_as_they_are(mnist, tmp_path, monkeypatch):
    """Neither taken for colours nor cut into lines."""
    monkeypatch.setenv("COLUMNS", "40")
    folder = tmp_path / "a-rather-long-directory-name-of-somebody" / "q[/red]"
    put_mnist(folder, mnist)
    np.savez(folder / "mine.npz", **own_arrays())
    assert run("list", "--data-dir", folder).stdout.splitlines()[2].endswith(f"  {folder}")
    assert f"from {folder}, fingerprint " in run("check", "mnist", "--data-dir", folder).stdout
    right, classes = run("check", folder / "mine.npz").stdout.splitlines()
    assert right.startswith(f"{folder}/mine.npz: right, Dataset('mine.npz'")
    assert classes.startswith(f"{folder}/mine.npz: its classes were taken from its samples, so one more sample could")
    assert f"Error: {folder} must be a folder of images" in run("check", folder).stderr
    np.savez(folder / "mine.npz", **own_arrays(classes=np.array(["a", "b", "c"])))
    assert len(run("check", folder / "mine.npz").stdout.splitlines()) == 1


def test_a_path_that_is_no_text(tmp_path):
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    try:
        Path(folder).mkdir()
    except OSError:
        pytest.skip("this file system knows text only")
    np.savez(f"{folder}/mine.npz", **own_arrays())
    command = [sys.executable, "-m", "runoff", "data", "check", f"{folder}/mine.npz"]
    strict = os.environ | {"PYTHONIOENCODING": "utf-8:strict"}
    done = subprocess.run(command, capture_output=True, text=True, env=strict, check=True)
    assert f"from {tmp_path}/?/mine.npz, fingerprint " in done.stdout


def test_a_data_directory_that_is_not_there(tmp_path):
    nowhere = tmp_path / "nowhere"
    result = run("list", "--data-dir", nowhere)
    assert (result.exit_code, result.stdout.count("missing")) == (0, 3)
    assert result.stdout.splitlines()[-1] == f"looked in {nowhere}, which is no folder"
    assert [row["found"] for row in json.loads(run("list", "--json", "--data-dir", nowhere).stdout)][1:] == [None] * 3
    result = run("check", "--data-dir", nowhere)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: {nowhere} is not there: name the folder that the datasets are in\n"
    assert run("check", "digits", "--data-dir", nowhere).exit_code == 0
    for command in ("list", "check"):
        for odd in ("~nobody-at-all", "x" * 300):
            result = run(command, "--data-dir", odd)
            assert result.exit_code in (1, 2)
            assert result.stderr.startswith("Error: ")
            assert len(result.stderr.splitlines()) == 1


def test_the_check(mnist, tmp_path):
    put_mnist(tmp_path, mnist)
    fingerprint = datasets.load("mnist", tmp_path).fingerprint
    result = run("check", "--data-dir", tmp_path)  # whatever is there
    assert result.exit_code == 0
    assert f"fingerprint {PUBLIC['digits']}" in result.stdout
    assert f"from {tmp_path}, fingerprint {fingerprint}" in result.stdout
    result = run("check", "cifar10", "mnist", "--data-dir", tmp_path, "--json")
    assert result.exit_code == 1
    missing, found = json.loads(result.stdout)
    assert (missing["name"], missing["ok"]) == ("cifar10", False)
    assert missing["error"].startswith("cifar10 is missing in ")
    assert found == {
        "name": "mnist", "ok": True, "found": str(tmp_path), "train": 6, "test": 3, "shape": [5, 4], "classes": 10,
        "classes_fixed": True, "fingerprint": fingerprint,
    }  # fmt: skip
    damage_mnist("pixel", tmp_path)
    assert run("check", "cifar10", "mnist", "--data-dir", tmp_path).exit_code == 4
    assert run("check", "nothing").exit_code == 2


def test_help():
    assert {"list", "check", "fetch"} <= set(cli.main.commands["data"].commands)
    for command in ("list", "check", "fetch"):
        assert f"Example: runoff data {command}" in run(command, "--help").stdout


@pytest.mark.parametrize("name", ["mnist", "cifar10", "gtsrb"])
def test_the_real_data_where_it_is(name):
    if not REAL or datasets.located(name, REAL) is None:
        pytest.skip(f"set RUNOFF_DATA to a folder that has {name}")
    dataset = datasets.load(name, REAL)
    entry = _catalogue.CATALOGUE[name]
    assert dataset.fingerprint == PUBLIC[name]
    assert dataset.x_train.shape == (entry.n_train, *entry.shape)
    assert dataset.x_test.shape == (entry.n_test, *entry.shape)
    assert (dataset.original_sums is not None) == (name == "gtsrb")
