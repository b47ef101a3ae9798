"""Small datasets in the layout of the official files, and with their checksums patched to match."""

import dataclasses
import gzip
import hashlib
import pickle
import struct

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from runoff import cli, datasets
from runoff.datasets import _fetch, catalogue

RNG = np.random.default_rng(0)
PUBLIC = {  # the same wherever they are read from
    "digits": "5a882f9271785133dfc62d2f6beccd1c186423ad695a835755c5767b04b7900b",
    "mnist": "700bb9cae65b1249b05a6e455c3673b65cf9e1b0f2e63c7be78e78f12b6c704c",
    "cifar10": "1f6bdc69c1b99ab0de63801e492c9452d44c8a20a2393ec04b62445ee6839636",
    "gtsrb": "cfbd11f3857cd3281e9624c815baa3644061606b2ca7cccf1a0358761c2ab8c3",
    "spamassassin": "2a3541d4f2892df6de37abc7c6d7770c225ea67fbe70be6da360a42c285fff97",
}


@pytest.fixture(autouse=True)  # in the files that import it
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RUNOFF_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(_fetch, "PAUSE", 0.0)


def run(*arguments):
    return CliRunner().invoke(cli.main, ["data", *map(str, arguments)])


def error_message(call, *arguments):
    """Return the message of the error."""
    with pytest.raises(datasets.DatasetError) as told:
        call(*arguments)
    assert "\n" not in str(told.value)
    return str(told.value)


def sha(*arrays):
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()


def expect(monkeypatch, name, x_train, y_train, x_test, y_test, **changes):
    """Patch the checksums of a dataset so that these arrays are its official content."""
    entry = dataclasses.replace(
        catalogue.CATALOGUE[name],
        n_train=len(x_train),
        n_test=len(x_test),
        shape=x_train.shape[1:],
        pixels=sha(x_train, x_test),
        labels=sha(y_train.astype(np.uint8), y_test.astype(np.uint8)),
        **changes,
    )
    monkeypatch.setitem(catalogue.CATALOGUE, name, entry)
    return entry


def same(dataset, x_train, y_train, x_test, y_test):
    arrays = (dataset.x_train, dataset.y_train, dataset.x_test, dataset.y_test)
    assert [a.dtype for a in arrays] == [np.uint8, np.int64, np.uint8, np.int64]
    assert all(a.flags.c_contiguous for a in arrays)
    for got, expected in zip(arrays, (x_train, y_train, x_test, y_test), strict=True):
        np.testing.assert_array_equal(got, expected)


def images(*shape):
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def own_arrays(**changes):
    arrays = {"x_train": images(5, 3, 4), "y_train": np.array([0, 2, 1, 1, 0]), "x_test": images(2, 3, 4)}
    return arrays | {"y_test": np.array([1, 2], np.uint8)} | changes


def picture(path, pixels, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, **options)
    return pixels


def put(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


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


def python2_pickle(x, y):
    """Return a pickle as Python 2 wrote the official files."""

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
