"""Reader for plain values in pickles, such as the Python version of CIFAR-10, without calling anything in them.

Python's unpickler calls any function that a file names, so it is never used. This reader only interprets the opcodes
for bytes, text, integers, tuples, lists and dictionaries, and recognises, by exact name and arguments, the few
that describe an array of uint8. Names are never imported; a file with any other name or opcode is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff._io.opcodes import Interpreter
from runoff._io.text import one_line

MOST_DIMENSIONS = 32


class PickleError(ValueError):
    """A file that contains something other than plain values; the message says what."""


@dataclass(frozen=True)
class _Name:
    """A name that the file refers to; it is never imported."""

    module: str
    name: str


class _Array:
    """An array, empty until its state is set."""

    value: NDArray[np.uint8] | None = None


class _Uint8:
    """The dtype of all arrays."""


_NDARRAY = _Name("numpy", "ndarray")
_DTYPE = _Name("numpy", "dtype")
_ENCODE = _Name("_codecs", "encode")
_RECONSTRUCT = (_Name("numpy.core.multiarray", "_reconstruct"), _Name("numpy._core.multiarray", "_reconstruct"))
ALLOWED = frozenset({_NDARRAY, _DTYPE, _ENCODE, *_RECONSTRUCT})


def loads(data: bytes) -> Any:
    """Return the value of a pickle of bytes, text, integers, lists, dictionaries and uint8 arrays."""
    try:
        return _Reader().run(data)
    except PickleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise PickleError(f"it is not a pickle of plain values ({type(error).__name__})") from None


class _Reader(Interpreter):
    """An interpreter of the opcodes that describe plain values and arrays of uint8."""

    error = PickleError
    plain = frozenset({
        "BININT", "BININT1", "BININT2", "LONG1", "BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES",
    })  # fmt: skip
    keys = (str, bytes)

    def finished(self, value: Any) -> Any:
        """Return a value with arrays instead of placeholders."""
        return _plain(value)

    def do_binstring(self, text: str) -> None:
        """Push a string of Python 2 as bytes."""
        self.stack.append(text.encode("latin-1"))

    do_short_binstring = do_binstring

    def do_frame(self, _: Any) -> None:
        """Ignore the size of a frame."""

    def do_memoize(self, _: Any) -> None:
        """Store the top of the stack under the next number."""
        self.memo[len(self.memo)] = self.stack[-1]

    def do_global(self, argument: str) -> None:
        self.push_name(*argument.split(" ", 1))

    def do_stack_global(self, _: Any) -> None:
        self.push_name(*self.popped(2))

    def push_name(self, module: Any, name: Any) -> None:
        if type(module) is not str or type(name) is not str:  # not quoted: as text, tuples of tuples can be endless
            raise PickleError("it has a name that is not text")
        if (reference := _Name(module, name)) not in ALLOWED:
            raise PickleError(f"it names {one_line(f'{module}.{name}', 60)}, which is never called")
        self.stack.append(reference)

    def do_reduce(self, _: Any) -> None:
        """Push the equivalent of calling a known name with known arguments, without a call."""
        called, arguments = self.popped(2)
        match called, arguments:
            case _Name(), (str(text), "latin1") if called == _ENCODE:
                self.stack.append(text.encode("latin-1"))
            case _Name(), ("u1" | b"u1", 0 | False, 1 | True) if called == _DTYPE:
                self.stack.append(_Uint8())
            case _Name(), (_Name() as kind, (0,), "b" | b"b") if called in _RECONSTRUCT and kind == _NDARRAY:
                self.stack.append(_Array())
            case _:
                raise PickleError("it makes a call that does not describe an array of uint8")

    def do_build(self, _: Any) -> None:
        """Fill an array from its state; the state of a dtype is ignored."""
        state = self.popped(1)[0]
        match self.stack[-1], state:
            case _Array() as array, (1, tuple(shape), _Uint8(), 0 | False, bytes(data)) if array.value is None:
                if len(shape) > MOST_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
                    raise PickleError("it has an array of an impossible shape")
                if int(np.prod(shape, dtype=object)) != len(data):
                    raise PickleError(f"it has an array {one_line(shape, 60)} of {len(data)} bytes")
                array.value = np.frombuffer(data, np.uint8).reshape(shape)
            case _Uint8(), tuple():
                pass
            case _:
                raise PickleError("it sets a state that does not describe an array of uint8")


def _plain(value: Any) -> Any:
    """Return a value for the caller, with arrays instead of placeholders."""
    if isinstance(value, _Array):
        if value.value is None:
            raise PickleError("it has an array without content")
        return value.value
    if isinstance(value, (_Name, _Uint8)):
        raise PickleError("it holds a name where a value should be")
    return value
