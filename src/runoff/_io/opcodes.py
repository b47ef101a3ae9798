"""An interpreter of the opcodes of pickles that calls nothing and imports no name.

Python's unpickler calls any function that a file names, so it is never used. Subclasses list the opcodes that they
allow, and describe the few names and calls that their files need by values of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pickletools import genops  # parses opcodes without executing them
from typing import IO, Any, ClassVar

_PUT = frozenset({"BINPUT", "LONG_BINPUT"})
_GET = frozenset({"BINGET", "LONG_BINGET"})
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_TUPLES = {"EMPTY_TUPLE": 0, "TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_EMPTY: Mapping[str, type] = {"EMPTY_DICT": dict, "EMPTY_LIST": list}


class Interpreter:
    """The stack of a pickle. An opcode that has neither a rule here nor a method `do_opcode` is refused."""

    error: ClassVar[type[ValueError]]  # raised for everything that is refused
    plain: ClassVar[frozenset[str]]  # opcodes whose argument is the value
    keys: ClassVar[tuple[type, ...]]  # types of keys of dictionaries

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def run(self, data: bytes | IO[bytes]) -> Any:
        """Return the value of the next pickle."""
        for opcode, argument, _ in genops(data):
            if opcode.name == "STOP":
                return self.finished(self.popped(1)[0])
            self.step(opcode.name, argument)
        raise self.error("it is truncated")

    def finished(self, value: Any) -> Any:
        """Return a value as it is stored in lists and dictionaries, and given to the caller."""
        return value

    def step(self, code: str, argument: Any) -> None:
        """Interpret one opcode."""
        if code in self.plain:
            self.stack.append(argument)
        elif code in _CONSTANTS:
            self.stack.append(_CONSTANTS[code])
        elif code in _EMPTY:
            self.stack.append(_EMPTY[code]())
        elif code in _TUPLES:
            self.stack.append(tuple(self.popped(_TUPLES[code])))
        elif code in _PUT:
            self.memo[argument] = self.stack[-1]
        elif code in _GET:
            self.stack.append(self.memo[argument])
        else:
            handler = getattr(self, f"do_{code.lower()}", None)
            if handler is None:
                raise self.error(f"it holds the opcode {code}, which is not allowed")
            handler(argument)

    def popped(self, n: int) -> list[Any]:
        """Remove the last n values from the stack, and return them."""
        if not 0 <= n <= len(self.stack):
            raise self.error("its stack is too short")
        values = self.stack[len(self.stack) - n :]
        del self.stack[len(self.stack) - n :]
        return values

    def marked(self) -> list[Any]:
        """Remove the values since the last mark, and return them."""
        return self.popped(len(self.stack) - self.marks.pop())

    def extend(self, values: list[Any]) -> None:
        """Append values to the list on top of the stack."""
        if type(self.stack[-1]) is not list:
            raise self.error("it appends to something that is not a list")
        self.stack[-1].extend(map(self.finished, values))

    def update(self, pairs: list[Any]) -> None:
        """Add keys and values, in turn, to the dictionary on top of the stack."""
        keys, values = pairs[::2], pairs[1::2]
        if type(self.stack[-1]) is not dict or not all(type(key) in self.keys for key in keys):
            raise self.error("it has a dictionary whose keys are not strings")
        self.stack[-1].update(zip(keys, map(self.finished, values), strict=True))

    def do_proto(self, _: Any) -> None:
        """Ignore the protocol version: only the opcodes matter."""

    def do_mark(self, _: Any) -> None:
        """Mark the top of the stack."""
        self.marks.append(len(self.stack))

    def do_tuple(self, _: Any) -> None:
        """Make a tuple of the values since the last mark."""
        self.stack.append(tuple(self.marked()))

    def do_append(self, _: Any) -> None:
        """Append one value to a list."""
        self.extend(self.popped(1))

    def do_appends(self, _: Any) -> None:
        """Append the values since the last mark to a list."""
        self.extend(self.marked())

    def do_setitem(self, _: Any) -> None:
        """Add one key and value to a dictionary."""
        self.update(self.popped(2))

    def do_setitems(self, _: Any) -> None:
        """Add the keys and values since the last mark to a dictionary."""
        self.update(self.marked())
