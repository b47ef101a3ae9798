"""Pickles of CIFAR-10 are read without calling anything."""

import builtins
import os
import pickle
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dataset_helpers import cifar10 as cifar10
from dataset_helpers import elsewhere as elsewhere
from dataset_helpers import put, python2_pickle, python_files, run
from runoff import datasets
from runoff.datasets import _pickles


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
    yield b"cnumpy\ndtype\nX\x02\x00\x00\x00u1K\x00K\x01\x87R."  # a type instead of a value
    yield b"cnumpy\nndarray\n."
    yield b"cnumpy\nndarray\n)R."
    yield b"}X\x01\x00\x00\x00a\x86b."  # state for a dictionary
    yield b"]]a}b."
    yield b"}](K\x01e]s."  # an invalid key
    yield b"K\x01K\x02a."
    yield b"Pname\n."  # persistent
    yield b"X\x01\x00\x00\x00aQ."
    yield b"\x82\x01."  # registered extension
    yield b"h\x05."  # an empty memo
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


ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R(K\x01"
REST = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R\x89C\x01atb."
DEEP = {"deep": b"K\x01" + b"\x85" * 10**5, "doubled 60 times": b"K\x01" + b"q\xffh\xff\x86" * 60}


@pytest.mark.parametrize("value", DEEP.values(), ids=DEEP)
def test_hostile_names_and_shapes_are_not_quoted(value):
    """As text, tuples of tuples can be too deep for Python, and far larger than any memory."""
    with pytest.raises(_pickles.PickleError, match="it has a name that is not text"):
        _pickles.loads(b"\x80\x04" + value + b"\x8c\x01a\x93.")
    with pytest.raises(_pickles.PickleError, match="it has an array of an impossible shape"):
        _pickles.loads(ARRAY + value + b"\x85" + REST)


def test_a_hostile_shape_with_many_dimensions_is_refused_at_once():
    started = time.process_time()
    with pytest.raises(_pickles.PickleError, match="it has an array of an impossible shape"):
        _pickles.loads(ARRAY + b"(" + (b"\x8a\xff" + b"\x7f" * 255) * 2**15 + b"t" + REST)
    assert time.process_time() - started < 2


def test_long_names_are_cut_in_messages():
    with pytest.raises(_pickles.PickleError, match="which is never called") as raised:
        _pickles.loads(b"c" + b"a" * 5000 + b"\nsystem\n.")
    assert len(str(raised.value)) < 200


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
        ({"data": np.zeros((2, 36), np.uint8), "labels": [0]}, "'labels', 2 integers"),
        ({"data": np.zeros((2, 36), np.uint8), "labels": [0, 256]}, "'labels', 2 integers"),
        ({"data": np.zeros((2, 36), np.float32), "labels": [0, 1]}, "does not describe an array of uint8"),
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
