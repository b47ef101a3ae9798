"""Samples: the kinds of X that can be certified, and the form in which members see their own rows.

A member must not learn anything from other members' samples: not the type that a column got because of them, not their
categories, not the index or the order. `take` therefore gives rows in a form that depends on those rows alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff import hashing

Rows = NDArray[np.int64]


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

    @abstractmethod
    def take(self, rows: Rows) -> Any:
        """These rows as a member sees them."""

    def kinds(self, part: Any) -> tuple[bool, ...]:  # noqa: ARG002
        """Which columns of a member's part are numbers, where that can differ."""
        return ()

    def like(self, kinds: tuple[bool, ...]) -> Any:  # noqa: ARG002
        """All rows as inputs for a member whose part had these kinds of columns."""
        if not self._inputs:
            self._inputs[None] = self.take(np.arange(len(self)))
        return self._inputs[None]

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


class Sparse(Samples):
    """A sparse matrix. Stored zeros and the order of entries do not matter."""

    kind = "sparse"

    def __init__(self, data: Any) -> None:
        data = data.tocsr().copy()
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
        if all(dtype.kind in "biuf" for dtype in self.data.dtypes):
            return hashing.number_rows(self.data.to_numpy())
        columns = [self.data.iloc[:, c].tolist() for c in range(self.data.shape[1])]
        return map(self._row, zip(*columns, strict=True))

    @staticmethod
    def _row(values: tuple[Any, ...]) -> Any:
        """A row of numbers is hashed as in an array, whatever other rows hold."""
        cells = [hashing.cell(value) for value in values]
        if all(cell[:1] in (b"-", b"i", b"f") for cell in cells):
            numbers = [np.nan if cell == b"-" else float(value) for cell, value in zip(cells, values, strict=True)]
            return next(iter(hashing.number_rows(np.array([numbers]))))
        return b"\xff" + b"".join(cells)

    def take(self, rows: Rows) -> Any:
        own = self.data.iloc[rows]
        return self._typed(own, [_is_number(own.iloc[:, c]) for c in range(own.shape[1])])

    def like(self, kinds: tuple[bool, ...]) -> Any:
        if kinds not in self._inputs:
            self._inputs[kinds] = self._typed(self.data, kinds)
        return self._inputs[kinds]

    def kinds(self, part: Any) -> tuple[bool, ...]:
        return tuple(bool(dtype == np.float64) for dtype in part.dtypes)

    @staticmethod
    def _typed(frame: Any, numbers: Sequence[bool]) -> Any:
        import pandas as pd

        columns = {}
        for c, number in enumerate(numbers):
            column = frame.iloc[:, c]
            if number:
                values: Any = hashing.plain_floats(
                    pd.to_numeric(column, errors="coerce").to_numpy(np.float64, na_value=np.nan)
                )
            else:
                texts = [None if hashing.cell(v) == b"-" else hashing.plain_text(str(v)) for v in column.tolist()]
                values = pd.Categorical(texts, categories=sorted({text for text in texts if text is not None}))
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


def _is_number(column: Any) -> bool:
    return all(hashing.cell(value)[:1] in (b"-", b"i", b"f") for value in column.tolist())


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
        raise ValueError(f"X must hold numbers, got dtype {array.dtype}: use a DataFrame for tables of mixed kinds")
    return Dense(array)


def _array(X: Sequence[Any]) -> NDArray[Any]:
    if isinstance(X, (list, tuple)) and X and isinstance(X[0], str):
        return np.array(X, dtype=object)
    return np.asarray(X)
