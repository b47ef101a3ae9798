"""Samples: the kinds of X that can be certified, and the form of training rows for members.

A member must not learn anything from samples of other members: not the type of a column that depends on them, not their
categories, not the index or the order. So `take` returns rows in a form that depends on these rows only.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff import hashing
from runoff.errors import InputError

Rows = NDArray[np.int64]
Kinds = tuple[tuple[str, ...] | None, ...]  # per column of a table: None for numbers, else the categories of the member


class Samples(ABC):
    """A sequence of samples of one kind."""

    kind: str

    numbers: np.dtype[Any] = np.dtype(np.float64)  # type of numbers for members, whatever the type of X

    def __init__(self, data: Any) -> None:
        self.data = data
        self._inputs: dict[Any, Any] = {}  # in the form of the last member; most members share one form

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_inputs": {}}

    def __len__(self) -> int:
        return int(self.data.shape[0])

    def with_numbers(self, numbers: np.dtype[Any]) -> Samples:
        """Return the same samples with another type of numbers for members; their hashes do not change."""
        if numbers == self.numbers:
            return self
        same = copy.copy(self)
        same.numbers, same._inputs = numbers, {}
        return same

    def _like_these(self, samples: Samples) -> Samples:
        """Return samples derived from these, with the same type of numbers."""
        samples.numbers = self.numbers
        return samples

    def _cast(self, numbers: NDArray[np.float64]) -> NDArray[Any]:
        """Return numbers in the type for members; numbers that are too large become infinite."""
        if numbers.dtype == self.numbers:
            return numbers
        with np.errstate(over="ignore"):
            return numbers.astype(self.numbers)

    @abstractmethod
    def content(self) -> Iterable[Any]:
        """Yield the bytes to hash of each sample."""

    def plain(self) -> Iterator[tuple[Rows, Any]]:
        """Yield samples and their rows for hash functions of users, in a form that depends on no other sample."""
        for start in range(0, len(self), hashing.ROWS):
            rows = np.arange(start, min(start + hashing.ROWS, len(self)))
            yield from self._plain(rows)

    def _plain(self, rows: Rows) -> Iterator[tuple[Rows, Any]]:
        yield rows, self.data[rows]

    def pixel_sums(self) -> hashing.Digests:
        """Return the hash of the paper for each sample."""
        return hashing.pixel_sums(np.asarray(self.data))

    @abstractmethod
    def take(self, rows: Rows) -> Any:
        """Return these rows in the form for a member."""

    def kinds(self, part: Any) -> Kinds:  # noqa: ARG002
        """Return the kinds of the columns of the part of a member, for samples whose columns can differ in kind."""
        return ()

    def as_inputs(self, kinds: Kinds) -> Any:
        """Return a copy of all rows as inputs for a member whose part has columns of these kinds."""
        if kinds not in self._inputs:
            self._inputs = {kinds: self._converted(kinds)}
        return self._inputs[kinds].copy()

    def _converted(self, kinds: Kinds) -> Any:  # noqa: ARG002
        return self.take(np.arange(len(self)))

    @abstractmethod
    def joined(self, other: Samples) -> Samples:
        """Return these samples followed by others of the same kind."""

    @abstractmethod
    def select(self, rows: Rows) -> Samples:
        """Return these rows, without conversion."""

    def width(self) -> Any:
        """Return the shape or the column names, which must be equal for training samples and inputs."""
        return self.data.shape[1:]


class Dense(Samples):
    """An array of numbers, (n, features) or (n, height, width, ...)."""

    kind = "dense"

    def _plain(self, rows: Rows) -> Iterator[tuple[Rows, Any]]:
        """Yield samples of whole numbers as int64, others as float64: the type of the array depends on all of them."""
        numbers = hashing.plain_floats(self.data[rows])
        flat = numbers.reshape(len(rows), -1)
        whole = ((flat == np.floor(flat)) & (np.abs(flat) < 2.0**63)).all(axis=1)
        if whole.any():
            yield rows[whole], numbers[whole].astype(np.int64)
        if not whole.all():
            yield rows[~whole], numbers[~whole]

    def content(self) -> Iterable[Any]:
        return hashing.number_rows(self.data)

    def take(self, rows: Rows) -> NDArray[Any]:
        return self._cast(hashing.plain_floats(self.data[rows]))

    def joined(self, other: Samples) -> Samples:
        return self._like_these(Dense(np.concatenate([self.data, other.data])))

    def select(self, rows: Rows) -> Samples:
        return self._like_these(Dense(self.data[rows]))


class Resized(Dense):
    """Images resized to one size, hashed by the digests and pixel sums of the original images."""

    def __init__(self, data: Any, original_digests: NDArray[np.uint8], original_sums: NDArray[np.int64]) -> None:
        super().__init__(data)
        self.original_digests, self.original_sums = original_digests, original_sums

    def content(self) -> Iterable[bytes]:
        return (b"\xfe" + digest.tobytes() for digest in self.original_digests)

    def pixel_sums(self) -> hashing.Digests:
        return hashing.pixel_sums(self.original_sums[:, None])

    def joined(self, other: Samples) -> Resized:
        if not isinstance(other, Resized):
            raise InputError("resized samples can only be joined with resized samples")
        return Resized(
            np.concatenate([self.data, other.data]),
            np.concatenate([self.original_digests, other.original_digests]),
            np.concatenate([self.original_sums, other.original_sums]),
        )

    def select(self, rows: Rows) -> Resized:
        return Resized(self.data[rows], self.original_digests[rows], self.original_sums[rows])


class Sparse(Samples):
    """A sparse matrix, without stored zeros and with sorted entries."""

    kind = "sparse"

    def __init__(self, data: Any) -> None:
        from scipy import sparse

        # Converted first, as sums of entries may overflow another type. A matrix, as rows joined with a sparse array
        # become one, and the two differ in what * means.
        data = sparse.csr_matrix(data.astype(np.float64).tocsr())
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
        part = self.data[rows].astype(np.float64)
        part.data = self._cast(hashing.plain_floats(part.data))
        if max(part.nnz, *part.shape) < 2**31:  # other samples may cause wider indices in the full matrix
            part.indices, part.indptr = part.indices.astype(np.int32), part.indptr.astype(np.int32)
        return part

    def joined(self, other: Samples) -> Samples:
        from scipy import sparse

        return self._like_these(Sparse(sparse.vstack([self.data, other.data], format="csr")))

    def select(self, rows: Rows) -> Samples:
        return self._like_these(Sparse(self.data[rows]))


class Texts(Samples):
    """A sequence of strings, in the composed form of Unicode."""

    kind = "texts"

    def __init__(self, data: Any) -> None:
        super().__init__(np.array([hashing.plain_text(text) for text in data], dtype=object))

    def content(self) -> Iterable[bytes]:
        return (hashing.cell(text) for text in self.data)

    def take(self, rows: Rows) -> list[str]:
        return [self.data[i] for i in rows]

    def joined(self, other: Samples) -> Texts:
        return Texts([*self.data, *other.data])

    def select(self, rows: Rows) -> Texts:
        return Texts(self.data[rows])


class Frame(Samples):
    """A pandas DataFrame, whose columns are floats or categorical in the part of a member."""

    kind = "table"

    def content(self) -> Iterable[Any]:
        if all(_is_plain(dtype) for dtype in self.data.dtypes):
            return hashing.number_rows(self.data.to_numpy())
        columns = [self.data.iloc[:, c].tolist() for c in range(self.data.shape[1])]
        return map(self._row, zip(*columns, strict=True))

    @staticmethod
    def _row(values: tuple[Any, ...]) -> Any:
        """Return the bytes of a row; a row of numbers is hashed as in an array, whatever other rows contain."""
        cells = [hashing.cell(value) for value in values]
        if all(cell[:1] in (b"-", b"f") for cell in cells):
            numbers = [_number(value) for value in values]
            return next(iter(hashing.number_rows(np.array([numbers]))))
        return b"\xff" + b"".join(cells)

    def _plain(self, rows: Rows) -> Iterator[tuple[Rows, Any]]:
        """Yield samples in groups whose cells are of the same kinds: numbers as float64, others as strings."""
        columns = [self.data.iloc[rows, c] for c in range(self.data.shape[1])]
        numbers = np.stack([_are_numbers(column) for column in columns], axis=1)
        patterns, group = np.unique(numbers, axis=0, return_inverse=True)
        for g, pattern in enumerate(patterns):
            chosen = rows[group.reshape(-1) == g]
            typed = self._typed(self.data.iloc[chosen], [None if known else () for known in pattern])
            names = typed.columns
            typed.columns = range(len(pattern))
            typed = typed.astype({c: object for c, known in enumerate(pattern) if not known})
            typed.columns = names
            yield chosen, typed

    def take(self, rows: Rows) -> Any:
        part = self.data.iloc[rows]
        return self._typed(part, [None if _is_number(part.iloc[:, c]) else () for c in range(part.shape[1])])

    def kinds(self, part: Any) -> Kinds:
        columns = [part.iloc[:, c] for c in range(part.shape[1])]
        return tuple(None if column.dtype == self.numbers else tuple(column.cat.categories) for column in columns)

    def _converted(self, kinds: Kinds) -> Any:
        return self._typed(self.data, kinds)

    def _typed(self, frame: Any, kinds: Sequence[tuple[str, ...] | None]) -> Any:
        import pandas as pd

        columns = {}
        for c, known in enumerate(kinds):
            column = frame.iloc[:, c]
            if known is None:
                plain = _is_plain(column.dtype)
                numbers = column.to_numpy() if plain else np.array([_number(value) for value in column.tolist()])
                values: Any = self._cast(hashing.plain_floats(numbers))
            else:
                texts = [_category(value) for value in column.tolist()]
                unseen = sorted({text for text in texts if text is not None} - set(known))
                values = pd.Categorical(texts, categories=[*known, *unseen])
            columns[c] = pd.Series(values)
        typed = pd.DataFrame(columns)
        typed.columns = frame.columns
        return typed

    def joined(self, other: Samples) -> Samples:
        import pandas as pd

        # Names that are equal as strings, such as 0 and "0", are the same column.
        objects = [self.data.astype(object), other.data.set_axis(self.data.columns, axis=1).astype(object)]
        return self._like_these(Frame(pd.concat(objects, ignore_index=True)))

    def select(self, rows: Rows) -> Samples:
        return self._like_these(Frame(self.data.iloc[rows]))

    def width(self) -> Any:
        return tuple(map(str, self.data.columns))


def _is_plain(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "biuf"


def _is_number(column: Any) -> bool:
    return _is_plain(column.dtype) or bool(_are_numbers(column).all())


def _are_numbers(column: Any) -> NDArray[np.bool_]:
    """Return which cells of a column are numbers, or missing."""
    if _is_plain(column.dtype):
        return np.ones(len(column), bool)
    return np.array([hashing.cell(value)[:1] in (b"-", b"f") for value in column.tolist()], bool)


def _number(value: Any) -> float:
    """Return a number, or NaN for any other value."""
    return hashing.as_float(value) if hashing.cell(value)[:1] == b"f" else np.nan


def _category(value: Any) -> str | None:
    """Return a value of a categorical column as a string; equal numbers give equal strings."""
    kind = hashing.cell(value)[:1]
    if kind == b"-":
        return None
    if kind == b"f":
        number = hashing.as_float(value)
        return str(int(number)) if number.is_integer() else repr(number)
    return (
        hashing.as_moment(value)
        if kind == b"t"
        else hashing.plain_text(value if isinstance(value, str) else str(value))
    )


def from_any(X: Any) -> Samples:
    """Return the samples of X: a numeric array, a sparse matrix, a DataFrame, or strings."""
    if hasattr(X, "iloc") and hasattr(X, "columns"):
        return Frame(X)
    if hasattr(X, "tocsr"):
        return Sparse(X)
    array = X if isinstance(X, np.ndarray) else _array(X)
    if array.ndim == 1 and len(array) and all(isinstance(text, str) for text in array):
        return Texts(array)
    if array.dtype.kind == "O":
        array = _numbers(array)
    if array.dtype.kind not in "biuf":
        raise InputError(f"X must hold numbers, got dtype {array.dtype}: use a DataFrame for columns of mixed types")
    return Dense(array)


def _numbers(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return Python objects as floats, or raise an error for anything but numbers."""
    try:
        return array.astype(np.float64)
    except OverflowError:  # of integers that are too large, which are infinite, as in a table
        floats = [hashing.as_float(value) if isinstance(value, int) else value for value in array.reshape(-1)]
        return np.array(floats, object).astype(np.float64).reshape(array.shape)


def _array(X: Sequence[Any]) -> NDArray[Any]:
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], str):
        return np.array(X, dtype=object)
    return np.asarray(X)


def find_copies(wanted: Iterable[Hashable], existing: Iterable[Hashable]) -> Rows:
    """Return the index of an existing item for each wanted one, each used once, or -1 for items without a match."""
    wanted = list(wanted)
    positions: dict[Hashable, list[int]] = {item: [] for item in wanted}
    for i, item in enumerate(existing):
        if item in positions:
            positions[item].append(i)
    return np.array([positions[item].pop() if positions[item] else -1 for item in wanted], np.int64)
