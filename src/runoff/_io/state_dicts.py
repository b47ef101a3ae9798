"""Reader of tensors from PyTorch's older file format, pickles followed by numbers, which calls nothing in them.

Such a file has five pickles (a magic number, a version, the machine's sizes, a dictionary of tensors, the order of
their storages) and then the storages. The pickles are interpreted opcode by opcode. Names are compared, never imported;
a file with any other name, opcode or layout is refused.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff._io.opcodes import Interpreter
from runoff._io.text import one_line

MAGIC, VERSION = 0x1950A86A20F9469CFC6C, 1001
DTYPES = {"torch FloatStorage": "<f4", "torch LongStorage": "<i8"}
REBUILD, ORDERED = "torch._utils _rebuild_tensor_v2", "collections OrderedDict"
NAMES = {*DTYPES, REBUILD, ORDERED}
MOST_VALUES = 2**31  # of one storage


class StateDictError(ValueError):
    """A file that contains something other than a dictionary of tensors; the message says what."""


@dataclass(frozen=True)
class _Name:
    name: str


@dataclass(frozen=True)
class _Storage:
    dtype: np.dtype[Any]
    key: str
    size: int


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read(data: bytes) -> dict[str, NDArray[Any]]:
    """Return the tensors of a file as arrays."""
    file = io.BytesIO(data)
    try:
        magic, version = _value(file), _value(file)
        if (magic, version) != (MAGIC, VERSION):
            raise StateDictError("it is not a file of PyTorch's older format")
        sizes, tensors, order = _value(file), _value(file), _value(file)
        if not isinstance(sizes, dict) or sizes.get("little_endian") is not True:
            raise StateDictError("its numbers are not little-endian")
        if not isinstance(tensors, dict) or not all(isinstance(value, _Tensor) for value in tensors.values()):
            raise StateDictError("it does not hold a dictionary of tensors")
        storages = _storages(file, tensors, order)
        return {name: _array(tensor, storages[tensor.storage.key]) for name, tensor in tensors.items()}
    except StateDictError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise StateDictError(f"it is not a file of tensors ({type(error).__name__})") from None


def _storages(file: io.BytesIO, tensors: dict[str, _Tensor], order: Any) -> dict[str, NDArray[Any]]:
    """Return the storages, which follow the pickles, each after its number of values."""
    described = {tensor.storage.key: tensor.storage for tensor in tensors.values()}
    are_keys = isinstance(order, list) and all(type(key) is str for key in order)
    if not are_keys or sorted(order) != sorted(described):
        raise StateDictError("its list of storages is not that of its tensors")
    storages = {}
    for key in order:
        storage = described[key]
        size = int.from_bytes(file.read(8), "little")
        content = file.read(size * storage.dtype.itemsize) if size == storage.size <= MOST_VALUES else b""
        if len(content) != size * storage.dtype.itemsize:
            raise StateDictError("it is truncated")
        storages[key] = np.frombuffer(content, storage.dtype)
    if file.read(1):
        raise StateDictError("it holds more than tensors")
    return storages


def _array(tensor: _Tensor, storage: NDArray[Any]) -> NDArray[Any]:
    """Return a copy of a tensor's values, after checking that all lie in its storage.

    Only numbers are quoted in messages: tuples of tuples can be deeper, and as text far longer, than their file.
    """
    shape, strides = tensor.shape, tensor.strides
    if not all(type(n) is int and n >= 0 for n in (tensor.offset, *shape, *strides)) or len(shape) != len(strides):
        raise StateDictError("it has a tensor whose shape or strides are not whole numbers, one per dimension")
    last = tensor.offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if tensor.storage.size != len(storage) or 0 in shape or last >= len(storage):
        raise StateDictError(f"it has a tensor of shape {one_line(shape, 60)} beyond its {len(storage)} values")
    count = 1
    for n in shape:
        count *= n
        if count > len(storage):  # at once: the product of very many numbers takes minutes
            raise StateDictError(f"it has a tensor of shape {one_line(shape, 60)} with {len(storage)} values")
    steps = [step * storage.itemsize for step in strides]
    return np.lib.stride_tricks.as_strided(storage[tensor.offset :], shape, steps, writeable=False).copy()


class _Reader(Interpreter):
    """An interpreter of the opcodes that describe a dictionary of tensors."""

    error = StateDictError
    plain = frozenset({"BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE"})
    keys = (str,)

    def do_global(self, argument: str) -> None:
        if argument not in NAMES:
            raise StateDictError(f"it names {one_line(argument.replace(' ', '.'), 60)}, which is never called")
        self.stack.append(_Name(argument))

    def do_binpersid(self, _: Any) -> None:
        self.stack.append(_storage(self.popped(1)[0]))

    def do_reduce(self, _: Any) -> None:
        called, arguments = self.popped(2)
        self.stack.append(_result(called, arguments))

    def do_build(self, _: Any) -> None:
        """Drop attributes of the dictionary: versions of layers, which are not needed."""
        self.popped(1)


def _value(file: io.BytesIO) -> Any:
    """Return the value of the next pickle."""
    return _Reader().run(file)


def _storage(described: Any) -> _Storage:
    match described:
        case ("storage", _Name(kind), str(key), "cpu", int(size), None) if kind in DTYPES:
            return _Storage(np.dtype(DTYPES[kind]), key, size)
    raise StateDictError("it refers to something that is not a storage of numbers")


def _result(called: Any, arguments: Any) -> Any:
    """Return the equivalent of calling a known name with known arguments, without a call."""
    match called, arguments:
        case _Name(name), () if name == ORDERED:
            return {}
        case _Name(name), (_Storage() as storage, offset, tuple(shape), tuple(strides), False, {}) if name == REBUILD:
            return _Tensor(storage, offset, shape, strides)
    raise StateDictError("it makes a call that does not describe a tensor")
