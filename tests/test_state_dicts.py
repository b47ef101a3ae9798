"""Files of PyTorch's older format: tensors are read without calling anything."""

import io
import os
import pickle
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from runoff._io.state_dicts import StateDictError, read


def older(state):
    file = io.BytesIO()
    torch.save(state, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


def example():
    draws = torch.Generator().manual_seed(0)
    return {
        "plain": torch.randn(3, 4, generator=draws),
        "transposed": torch.randn(5, 2, 3, generator=draws).permute(2, 0, 1),
        "part": torch.randn(10, generator=draws)[3:7],
        "count": torch.tensor(7),
        "one": torch.ones(1),
    }


def test_tensors_are_read():
    state = example()
    found = read(older(state))
    assert list(found) == list(state)
    for name, value in state.items():
        np.testing.assert_array_equal(found[name], value.numpy())
        assert found[name].dtype == value.numpy().dtype


INTACT = older(example())


class Call:
    def __reduce__(self):
        return os.system, ("touch owned",)


@pytest.mark.parametrize(
    "data",
    [
        older({"a": Call()}),
        older(Call()),
        pickle.dumps(Call(), 2),
        b"",
        b"\x80\x02.",
        older([torch.ones(2)]),
        older({"a": {"b": torch.ones(2)}}),
        older({1: torch.ones(2)}),
        older({"a": torch.ones(2, dtype=torch.float64)}),
        older({"a": torch.ones(2)}) + b"more",
        older({"a": torch.ones(2)})[:-1],
        older(torch.nn.Linear(2, 2)),
    ],
    ids=[f"file-{i}" for i in range(12)],  # the bytes hold addresses, which differ between processes
)
def test_anything_else_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StateDictError):
        read(data)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"K\x00K\x03K\x04\x86", b"K\x01K\x03K\x04\x86"),  # an offset, with which the last value is outside
        (b"K\x03K\x04\x86", b"K\x04K\x04\x86"),  # a larger shape
        (b"K\x04K\x01\x86", b"K\x05K\x01\x86"),  # larger strides
        (b"K\x04K\x01\x86", b"K\x00K\x00\x86"),  # strides that repeat values are inside, and harmless
    ],
)
def test_no_tensor_reaches_beyond_its_storage(before, after):
    data = older({"plain": example()["plain"]})
    assert before in data
    changed = data.replace(before, after)
    if after == b"K\x00K\x00\x86":
        assert len(np.unique(read(changed)["plain"])) == 1
    else:
        with pytest.raises(StateDictError, match="tensor of shape"):
            read(changed)


def test_long_names_are_cut_in_messages():
    data = older({"plain": example()["plain"]}).replace(b"FloatStorage", b"9" * 5000)
    with pytest.raises(StateDictError, match="which is never called") as raised:
        read(data)
    assert len(str(raised.value)) < 200


SHAPE = b"K\x03K\x04\x86"  # of "plain"


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (b"K\x03" + b"\x85" * 10**5 + b"K\x04\x86", "whose shape or strides are not whole numbers"),
        (b"K\x03" + b"q\xffh\xff\x86" * 60 + b"K\x04\x86", "whose shape or strides are not whole numbers"),
        (b"(" + (b"\x8a\xff" + b"\x7f" * 255) * 2**16 + b"t", "whose shape or strides are not whole numbers"),
    ],
    ids=["deep", "doubled 60 times", "long"],
)
def test_a_hostile_shape_is_not_quoted(shape, message):
    """As text, tuples of tuples can be too deep for Python, and far larger than any memory."""
    data = older({"plain": example()["plain"]})
    assert SHAPE in data
    with pytest.raises(StateDictError, match=message) as raised:
        read(data.replace(SHAPE, shape))
    assert len(str(raised.value)) < 200


def test_the_size_of_a_tensor_with_many_dimensions_is_computed_at_once():
    n, zeros = 2**15, b"K\x00" * 2**15
    data = older({"plain": example()["plain"]}).replace(SHAPE, b"(" + (b"\x8a\xff" + b"\x7f" * 255) * n + b"t")
    data = data.replace(b"K\x04K\x01\x86", b"(" + zeros + b"t")
    started = time.process_time()
    with pytest.raises(StateDictError, match=r"tensor of shape \(\d+ with 12 values"):
        read(data)
    assert time.process_time() - started < 2


@pytest.mark.parametrize("deep", [b"]" + b"\x85" * 10**5, b"]" + b"q\xffh\xff\x86" * 60], ids=["deep", "doubled"])
def test_hostile_names_of_storages_are_not_compared(deep):
    data = older({"plain": example()["plain"]})
    head, key = data.rpartition(b"]")[0], b"X\x01\x00\x00\x00a"
    with pytest.raises(StateDictError, match="its list of storages is not that of its tensors"):
        read(head + b"](" + deep + key + deep + key + b"e.")


@settings(max_examples=50)
@given(st.data())
def test_damaged_files_are_refused_or_read_as_tensors(data):
    content = bytearray(INTACT)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = read(bytes(content))
    except StateDictError:
        return
    assert all(isinstance(value, np.ndarray) for value in found.values())
