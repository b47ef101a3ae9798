"""Tables from CSV and Parquet files, in which no cell affects how another one is parsed."""

from __future__ import annotations

import csv
import io
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runoff._io import text
from runoff._io.files import LARGEST, open_regular
from runoff.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".parquet")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
# Of a Parquet file that has less than one byte per ten values, or per hundred bytes of them.
MOST_VALUES, MOST_BYTES = 2**21, 2**26
BATCH = 1024  # rows
MISSING = ("", "na", "nan", "null", "none")


def is_table(path: Path) -> bool:
    """Return whether a file name has the suffix of a table."""
    return path.suffix.lower() in SUFFIXES


def columns(path: Path) -> dict[str, list[Any]]:
    """Return the columns of a table by name; cells of CSV files are strings."""
    try:
        table = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or text.one_line(error)}") from None
    if not any(table.values()):
        raise InputError(f"{path} must have at least one row below its header, got none")
    return table


def samples(
    path: Path, label_column: str | None, group_column: str | None = None
) -> tuple[pd.DataFrame, list[str] | None, list[Any] | None]:
    """Return the feature columns of a table as samples, the label column as strings, and the column of sources.

    Each cell is parsed by itself, as a number, a string or missing: if types of columns were inferred, one inserted
    cell could turn a column of numbers into strings, for all samples.
    """
    try:
        import pandas as pd
    except ImportError:
        raise MissingExtraError(f"{path} needs pandas. Install it with: pip install 'runoff[pandas]'") from None
    table = columns(path)
    for what, name in (("label", label_column), ("group", group_column)):
        if name is not None and name not in table:
            raise InputError(f"{path} must have the {what} column {name!r}, got {text.one_line(', '.join(table))}")
    if label_column is not None and label_column == group_column:
        raise InputError(f"the label column and the group column must be two columns, got {label_column!r} twice")
    labels = None if label_column is None else [str(value) for value in table.pop(label_column)]
    groups = None if group_column is None else [None if value == "" else value for value in table.pop(group_column)]
    if not table:
        raise InputError(
            f"{path} must have other columns than the label{'' if groups is None else ' and the group'}, got none"
        )
    as_read = path.suffix.lower() != ".csv"
    cells = {name: values if as_read else [_cell(value) for value in values] for name, values in table.items()}
    return pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in cells.items()}), labels, groups


def _cell(value: str) -> float | str | None:
    """Return the value of a cell of a CSV file."""
    stripped = value.strip()
    if stripped.lower() in MISSING:
        return None
    return float(stripped) if NUMBER.fullmatch(stripped) else value


def _csv(path: Path) -> dict[str, list[Any]]:
    with open_regular(path, LARGEST) as binary, io.TextIOWrapper(binary, "utf-8-sig", newline="") as file:
        before = csv.field_size_limit(2**31 - 1)  # by default one long mail, which anyone can send, would stop training
        try:
            rows = list(csv.reader(file, strict=True))  # else a quotation mark that is not closed hides all later rows
        except (csv.Error, UnicodeDecodeError) as error:
            raise InputError(f"{path} cannot be read as CSV: {error}") from None
        finally:
            csv.field_size_limit(before)  # of the whole process
    header = rows[0] if rows else []
    if len({*header}) < len(header):
        raise InputError(f"{path} must have columns of different names, got {text.one_line(', '.join(header))}")
    short = next((i for i, row in enumerate(rows) if row and len(row) != len(header)), None)
    if short is not None:
        width = len(rows[short])
        raise InputError(f"{path} must have {len(header)} cells in every row, got {width} in row {short + 1}")
    body = [row for row in rows[1:] if row]
    return {name: [row[i] for row in body] for i, name in enumerate(header)}


def _parquet(path: Path) -> dict[str, list[Any]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError:
        raise MissingExtraError(f"{path} needs pyarrow. Install it with: pip install 'runoff[parquet]'") from None
    with open_regular(path, LARGEST) as file:
        try:
            return _unpacked(path, parquet.ParquetFile(file), os.fstat(file.fileno()).st_size)
        except InputError:
            raise
        except (ArrowException, OSError, ValueError, OverflowError) as error:
            raise InputError(f"{path} cannot be read as Parquet: {text.one_line(error)}") from None


def _unpacked(path: Path, content: Any, n_bytes: int) -> dict[str, list[Any]]:
    """Return the columns of a Parquet file, which may hold any number of copies of a value in a few bytes.

    Its metadata is not asked for sizes: in a damaged file, pyarrow ends the process.
    """
    from pyarrow import types

    schema = content.schema_arrow
    if len({*schema.names}) < len(schema.names):
        raise InputError(f"{path} must have columns of different names, got {text.one_line(', '.join(schema.names))}")
    if nested := next((field for field in schema if types.is_nested(field.type)), None):
        name, kind = text.one_line(nested.name, 40), text.one_line(nested.type, 40)
        raise InputError(f"{path} must have one value in every cell, got {kind} in the column {name}")
    n_values = n_unpacked = 0
    for batch in content.iter_batches(BATCH):  # before any value becomes an object, which takes far more memory
        n_values += batch.num_rows * batch.num_columns
        n_unpacked += batch.nbytes
        if n_values > max(MOST_VALUES, 10 * n_bytes) or n_unpacked > max(MOST_BYTES, 100 * n_bytes):
            raise InputError(
                f"{path} has more than {n_values:,} values in {text.size(n_bytes)}, which looks like a decompression "
                "bomb: if the file is yours, save it as CSV"
            )
    columns: dict[str, list[Any]] = {name: [] for name in schema.names}
    for batch in content.iter_batches(BATCH):
        for name, column in zip(schema.names, batch.columns, strict=True):
            plain = column.dictionary_decode() if types.is_dictionary(column.type) else column
            columns[name] += plain.to_pylist()
    return columns
