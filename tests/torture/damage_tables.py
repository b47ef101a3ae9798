"""Damage to CSV and Parquet tables: cells, rows, headers, encodings, types of columns."""

import csv
import datetime
import decimal
import io
from typing import Any

from tests.torture.damage import Random, in_bytes, pick

CELLS = [
    "", " ", "nan", "NaN", "None", "-", "+", ".", "1e", "1e400", "-1e-400", "0x10", "1_000", "1,5", "٣", "−1", "00",
    "-0", 'a"b', "a\nb", "a\r\nb", "\0", "=1+1", "9" * 400, "9" * 5000, "x" * 140_000, "\ufeff", "True", "\u00e9",
    "e\u0301", "\u2028", "1" + "0" * 17, "-5", "3.0", "m1", "c0", "yes", "inf", "\ud7ff", "a;b\tc", "'", "\\",
]  # fmt: skip


def written(rows: list[list[str]], **how: Any) -> bytes:
    """Rows as CSV."""
    out = io.StringIO()
    csv.writer(out, **{"lineterminator": "\n", **how}).writerows(rows)
    return out.getvalue().encode()


def one_cell(rng: Random, data: bytes) -> tuple[bytes, int]:
    """Another value in one cell below the header; the index of its row."""
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    row, column = int(rng.integers(len(rows) - 1)), int(rng.integers(len(rows[0])))
    rows[row + 1][column] = pick(rng, CELLS)
    return written(rows), row


def in_csv(rng: Random, data: bytes) -> bytes:
    """Change cells, rows, columns, the header, quotes, separators, line ends or the encoding."""
    rows = list(csv.reader(io.StringIO(data.decode(), newline="")))
    how = int(rng.integers(12))
    at, column = int(rng.integers(len(rows))), int(rng.integers(len(rows[0])))
    if how <= 1:
        for _ in range(int(rng.integers(1, 4))):
            rows[int(rng.integers(len(rows)))][int(rng.integers(len(rows[0])))] = pick(rng, CELLS)
    elif how == 2:
        rows[at] = pick(rng, [rows[at][:-1], [*rows[at], "1"], [], rows[at] * 2, ["", "", ""], rows[at][::-1]])
    elif how == 3:
        rows[0][column] = pick(rng, [*rows[0], "", "extra", "score ", "Label"])
    elif how == 4:
        rows = pick(rng, [rows[:at], rows[at:], [*rows, rows[at]], rows[::-1], rows[:1], [], [rows[0], *rows]])
    elif how == 5:
        rows = [[cell for i, cell in enumerate(row) if i != column] for row in rows]
    elif how == 6:
        return written(
            rows, **pick(rng, [{"delimiter": ";"}, {"lineterminator": "\r"}, {"quotechar": "'"}, {"quoting": 1}])
        )
    elif how == 7:
        text = data.decode()
        return text.encode(pick(rng, ["utf-16", "utf-8-sig", "latin-1", "utf-7", "utf-32"]), "replace")
    elif how == 8:
        place = int(rng.integers(len(data)))
        return (
            data[:place] + pick(rng, [b'"', b"\0", b"\n", b"\r", b",", b"\xff", b'"""', b"\xef\xbb\xbf"]) + data[place:]
        )
    elif how == 9:
        values = [row[column] for row in rows[1:]]
        order = rng.permutation(len(values))
        for row, i in zip(rows[1:], order, strict=True):
            row[column] = values[i]
    elif how == 10:
        rows = [[*row, str(i)] for i, row in enumerate(rows)]
    else:
        return in_bytes(rng, data)
    return written(rows)


def parquet(columns: Any, **how: Any) -> bytes:
    """Columns as Parquet."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    out = io.BytesIO()
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, out, **how)
    return out.getvalue()


def in_parquet(rng: Random, columns: dict[str, list[Any]]) -> bytes:
    """Write a table with other types, names or sizes of columns, or packed in another way."""
    import pyarrow as pa

    columns = {name: list(values) for name, values in columns.items()}
    name = pick(rng, list(columns))
    n = len(columns[name])
    how = int(rng.integers(7))
    if how == 0:
        columns[name][int(rng.integers(n))] = None
    elif how == 1:
        columns.pop(name)
    elif how == 2:
        names, values = list(columns), [pa.array(column) for column in columns.values()]
        names[int(rng.integers(len(names)))] = pick(rng, [*names, "", "a\0b", "x" * 3000])
        return parquet(pa.Table.from_arrays(values, names=names))
    elif how == 3:
        times = int(pick(rng, [0, 1, 2, 500]))
        columns = {key: values[:1] * times for key, values in columns.items()}
    elif how == 4:
        packing = pick(rng, ["snappy", "gzip", "brotli", "zstd", "none"])
        return parquet(columns, compression=packing, version=pick(rng, ["1.0", "2.4", "2.6"]))
    else:
        odd: Any = dict(columns)
        odd[name] = pick(rng, _odd_columns(pa, n))
        return parquet(odd)
    return parquet(columns)


def _odd_columns(pa: Any, n: int) -> list[Any]:
    day = datetime.date(2000, 1, 1)
    values: list[tuple[list[Any], Any]] = [
        ([None], pa.null()),
        ([[1, 2]], pa.list_(pa.int8())),
        ([{"a": 1}], pa.struct([("a", pa.int8())])),
        ([[("a", 1)]], pa.map_(pa.string(), pa.int8())),
        ([decimal.Decimal("1.50")], pa.decimal128(38, 2)),
        ([day], pa.date32()),
        ([2**60], pa.timestamp("us")),
        ([2**62], pa.timestamp("ns")),
        ([-(2**50)], pa.timestamp("s")),
        ([0], pa.timestamp("ms", "Europe/Oslo")),
        ([0], pa.timestamp("ms", "Mars/Olympus")),
        ([2**62], pa.duration("ns")),
        ([1], pa.time64("ns")),
        ([b"\xff\x00"], pa.binary()),
        (["x" * 70_000], pa.large_string()),
        ([2**64 - 1], pa.uint64()),
        ([-(2**31)], pa.int32()),
        ([float("nan")], pa.float32()),
        ([float("inf")], pa.float64()),
        ([True], pa.bool_()),
        (["a\0b"], pa.string()),
        ([b"abc"], pa.binary(3)),
    ]
    found = [pa.array(value * n, type=kind) for value, kind in values]
    return [*found, pa.array(["a"] * n).dictionary_encode(), pa.array([float("1.5")] * n, pa.float16())]
