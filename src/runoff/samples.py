"""Samples: the kinds of X that can be certified, and the form in which members see their own rows.

A member must not learn anything from other members' samples: not the type that a column got because of them, not their
categories, not the index or the order. `take` therefore gives rows in a form that depends on those rows alone.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff import hashing
from runoff.errors import InputError

Rows = NDArray[np.int64]
Kinds = tuple[tuple[str, ...] | None, ...]  # of a table's columns: None for numbers, else a member's own categories


class Samples(ABC):
    """A sequence of samples of one kind."""

    kind: str

    def __init__(self, data: Any) -> None:
        self.data = data
        self._inputs: dict[Any, Any] = {}  # as members see them: most see them alike

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inputs": {}}

    def __len__(self) -> int:
        return int(self.data.shape[0])

    @abstractmethod
    def content(self) -> Iterable[Any]:
        """The bytes that stand for each sample."""

    def pixel_sums(self) -> hashing.Digests:
        """What the paper's hash reads."""
        return hashing.pixel_sums(np.asarray(self.data))

    @abstractmethod
    def take(self, rows: Rows) -> Any:
        """These rows as a member sees them."""

    def kinds(self, part: Any) -> Kinds:  # noqa: ARG002
        """What the columns of a member's part are, where that can differ."""
        return ()

    def like(self, kinds: Kinds) -> Any:
        """All rows as inputs for a member whose part had these kinds of columns: a copy that it may write to."""
        if kinds not in self._inputs:
            self._inputs = {kinds: self._as_inputs(kinds)}
        return copy.copy(self._inputs[kinds]) if self.kind == "texts" else self._inputs[kinds].copy()

    def _as_inputs(self, kinds: Kinds) -> Any:  # noqa: ARG002
        return self.take(np.arange(len(self)))

    @abstractmethod
    def joined(self, other: Samples) -> Samples:
        """These samples followed by others of the same kind."""

    @abstractmethod
    def kept(self, rows: Rows) -> Samples:
        """Some of these samples, as they came."""

    def width(self) -> Any:
        """What must agree between training samples and inputs."""
        return self.data.shape[1:]


class Dense(Samples):
    """Numbers: (n, features), or images (n, height, width, ...). Members see float64."""

    kind = "dense"

    def content(self) -> Iterable[Any]:
        return hashing.number_rows(self.data)

    def take(self, rows: Rows) -> NDArray[np.float64]:
        return hashing.plain_floats(self.data[rows])

    def joined(self, other: Samples) -> Dense:
        return Dense(np.concatenate([self.data, other.data]))

    def kept(self, rows: Rows) -> Dense:
        return Dense(self.data[rows])


class Resized(Dense):
    """Images that were resized to one size: the hash reads what they were before, by digests and sums of pixels."""

    def __init__(self, data: Any, original_digests: NDArray[np.uint8], original_sums: NDArray[np.int64]) -> None:
        super().__init__(data)
        self.original_digests, self.original_sums = original_digests, original_sums

    def content(self) -> Iterable[bytes]:
        return (b"\xfe" + digest.tobytes() for digest in self.original_digests)

    def pixel_sums(self) -> hashing.Digests:
        return hashing.pixel_sums(self.original_sums[:, None])

    def joined(self, other: Samples) -> Resized:
        if not isinstance(other, Resized):
            raise InputError("samples that were resized can only be joined with others that were, too")
        return Resized(
            np.concatenate([self.data, other.data]),
            np.concatenate([self.original_digests, other.original_digests]),
            np.concatenate([self.original_sums, other.original_sums]),
        )

    def kept(self, rows: Rows) -> Resized:
        return Resized(self.data[rows], self.original_digests[rows], self.original_sums[rows])


class Sparse(Samples):
    """A sparse matrix. Stored zeros and the order of entries do not matter."""

    kind = "sparse"

    def __init__(self, data: Any) -> None:
        data = data.tocsr().astype(np.float64)
        data.sum_duplicates()
        data.eliminate_zeros()
        super().__init__(data)

    def content(self) -> Iterable[bytes]:
        values = hashing.plain_floats(self.data.data).astype("<f8")
        columns = self.data.indices.astype("<i8")
        width = int(self.data.shape[1]).to_bytes(8, "little")
        for start, end in zip(self.data.indptr[:-1], self.data.indptr[1:], strict=True):
            yield width + columns[start:end].tobytes() + values[start:end].tobytes()

    def take(self, rows: Rows) -> Any:
        own = self.data[rows].astype(np.float64)
        own.data = hashing.plain_floats(own.data)
        if max(own.nnz, *own.shape) < 2**31:  # whether the whole matrix needs wider indices is up to others' samples
            own.indices, own.indptr = own.indices.astype(np.int32), own.indptr.astype(np.int32)
        return own

    def joined(self, other: Samples) -> Sparse:
        from scipy import sparse

        return Sparse(sparse.vstack([self.data, other.data], format="csr"))

    def kept(self, rows: Rows) -> Sparse:
        return Sparse(self.data[rows])


class Texts(Samples):
    """A sequence of texts. Members see them in Unicode's composed form."""

    kind = "texts"

    def __init__(self, data: Any) -> None:
        super().__init__(np.array([hashing.plain_text(text) for text in data], dtype=object))

    def content(self) -> Iterable[bytes]:
        return (hashing.cell(text) for text in self.data)

    def take(self, rows: Rows) -> list[str]:
        return [self.data[i] for i in rows]

    def joined(self, other: Samples) -> Texts:
        return Texts([*self.data, *other.data])

    def kept(self, rows: Rows) -> Texts:
        return Texts(self.data[rows])


class Frame(Samples):
    """A pandas DataFrame. Members see float64 where all their own values are numbers, else categories of their own."""

    kind = "table"

    def content(self) -> Iterable[Any]:
        if all(_is_plain(dtype) for dtype in self.data.dtypes):
            return hashing.number_rows(self.data.to_numpy())
        columns = [self.data.iloc[:, c].tolist() for c in range(self.data.shape[1])]
        return map(self._row, zip(*columns, strict=True))

    @staticmethod
    def _row(values: tuple[Any, ...]) -> Any:
        """A row of numbers is hashed as in an array, whatever other rows hold."""
        cells = [hashing.cell(value) for value in values]
        if all(cell[:1] in (b"-", b"f") for cell in cells):
            numbers = [_number(value) for value in values]
            return next(iter(hashing.number_rows(np.array([numbers]))))
        return b"\xff" + b"".join(cells)

    def take(self, rows: Rows) -> Any:
        own = self.data.iloc[rows]
        return self._typed(own, [None if _is_number(own.iloc[:, c]) else () for c in range(own.shape[1])])

    def kinds(self, part: Any) -> Kinds:
        columns = [part.iloc[:, c] for c in range(part.shape[1])]
        return tuple(None if column.dtype == np.float64 else tuple(column.cat.categories) for column in columns)

    def _as_inputs(self, kinds: Kinds) -> Any:
        return self._typed(self.data, kinds)

    @staticmethod
    def _typed(frame: Any, kinds: Sequence[tuple[str, ...] | None]) -> Any:
        import pandas as pd

        columns = {}
        for c, known in enumerate(kinds):
            column = frame.iloc[:, c]
            if known is None:
                plain = _is_plain(column.dtype)
                numbers = column.to_numpy() if plain else np.array([_number(value) for value in column.tolist()])
                values: Any = hashing.plain_floats(numbers)
            else:
                texts = [_category(value) for value in column.tolist()]
                new = sorted({text for text in texts if text is not None} - set(known))
                values = pd.Categorical(texts, categories=[*known, *new])
            columns[c] = pd.Series(values)
        typed = pd.DataFrame(columns)
        typed.columns = frame.columns
        return typed

    def joined(self, other: Samples) -> Frame:
        import pandas as pd

        objects = [self.data.astype(object), other.data.astype(object)]
        return Frame(pd.concat(objects, ignore_index=True))

    def kept(self, rows: Rows) -> Frame:
        return Frame(self.data.iloc[rows])

    def width(self) -> Any:
        return tuple(map(str, self.data.columns))


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def _is_number(column: Any) -> bool:
    return _is_plain(column.dtype) or all(hashing.cell(value)[:1] in (b"-", b"f") for value in column.tolist())


def _number(value: Any) -> float:
    """A number, or NaN for whatever is none."""
    return hashing.as_float(value) if hashing.cell(value)[:1] == b"f" else np.nan


def _category(value: Any) -> str | None:
    """A value of a column that is not all numbers, as text; equal numbers give equal texts."""
    kind = hashing.cell(value)[:1]
    if kind == b"-":
        return None
    if kind == b"f":
        number = hashing.as_float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    return hashing.as_moment(value) if kind == b"t" else hashing.plain_text(str(value))


def of(X: Any) -> Samples:
    """The samples of X: a numeric array, a sparse matrix, a DataFrame, or texts."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return Frame(X)
    if hasattr(X, "tocsr"):
        return Sparse(X)
    array = X if isinstance(X, np.ndarray) else _array(X)
    if array.ndim == 1 and len(array) and all(isinstance(text, str) for text in array):
        return Texts(array)
    if array.dtype.kind == "O":
        array = array.astype(np.float64)  # numbers kept as objects; anything else is not for an array
    if array.dtype.kind not in "biuf":
        raise InputError(f"X must hold numbers, got dtype {array.dtype}: use a DataFrame for tables of mixed kinds")
    return Dense(array)


def _array(X: Sequence[Any]) -> NDArray[Any]:
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], str):
        return np.array(X, dtype=object)
    return np.asarray(X)
