"""The content of samples as bytes, and their keyed digests.

Implements the definition in docs/guarantee.md, independently of the code that it checks: a sample is identified by its
values, whatever the type of the array, and without its label.

| kind | bytes |
| --- | --- |
| numbers, images | a byte for the form, the shape as 8-byte integers, the values: form 0 as bytes if all are integers from 0 to 255, form 1 as 8-byte integers if all are integers, form 2 as 8-byte floats |
| resized images | FE, then the digest of the image before it was resized |
| sparse rows | the number of columns, the columns of the entries that are not 0, their values |
| strings | "s", the length, the string in Unicode's composed form |
| sources | FD, then the name as a string; whole numbers are written in decimal, so that 7, 7.0, "7" and "7.0" are the same |
| rows of tables | as numbers if all values are numbers; else FF, then each value with its kind and, for strings, its length |

All numbers are little-endian. Zeros of both signs have the same bytes, and so have all NaNs.
"""  # noqa: E501

from __future__ import annotations

import datetime
import hashlib
import unicodedata
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING = ("NAType", "NaTType")


def number_row(row: NDArray[Any]) -> bytes:
    """Return the bytes of one sample of numbers."""
    shape = b"".join(int(n).to_bytes(8, "little") for n in row.shape)
    if row.dtype == np.uint8:
        return b"\0" + shape + row.tobytes()
    values = np.asarray(row, np.float64).ravel() + 0.0  # -0.0 + 0.0 is 0.0
    if np.isfinite(values).all() and (values == np.trunc(values)).all():
        least, most = min(values, default=0.0), max(values, default=0.0)
        if least >= 0 and most <= 255:
            return b"\0" + shape + values.astype(np.uint8).tobytes()
        if least > -(2.0**63) and most < 2.0**63:
            return b"\1" + shape + values.astype("<i8").tobytes()
    values[np.isnan(values)] = np.nan
    return b"\2" + shape + values.astype("<f8").tobytes()


def text_cell(text: str) -> bytes:
    """Return the bytes of a string."""
    data = unicodedata.normalize("NFC", text).encode("utf-8", "surrogatepass")
    return b"s" + len(data).to_bytes(8, "little") + data


def number_of(value: Any) -> float | None:
    """Return a value of a table as a number, NaN if it is missing, None if it is not a number."""
    if value is None or type(value).__name__ in MISSING:
        return float("nan")
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        try:
            return float(value)
        except OverflowError:
            return float("inf") if value > 0 else float("-inf")
    return None


def table_cell(value: Any) -> bytes:
    """Return the bytes of one value of a table."""
    number = number_of(value)
    if number is not None:
        return b"-" if number != number else b"f" + np.array(number + 0.0, "<f8").tobytes()
    if isinstance(value, str):
        return text_cell(value)
    if isinstance(value, bytes):
        return b"b" + len(value).to_bytes(8, "little") + value
    if isinstance(value, datetime.timedelta):
        whole = (value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000
        text = f"{whole + getattr(value, 'nanoseconds', 0)} ns"
    elif isinstance(value, datetime.datetime):
        text = value.isoformat()
    elif isinstance(value, datetime.date):
        text = f"{value.isoformat()}T00:00:00"
    else:
        raise ValueError(f"a table must hold numbers, strings and dates, got a {type(value).__name__}")
    return b"t" + len(text.encode()).to_bytes(8, "little") + text.encode()


def table_row(values: tuple[Any, ...]) -> bytes:
    """Return the bytes of one row of a table."""
    numbers = [number_of(value) for value in values]
    if all(number is not None for number in numbers):
        return number_row(np.array(numbers, np.float64))
    return b"\xff" + b"".join(table_cell(value) for value in values)


def sparse_rows(matrix: Any) -> Iterator[bytes]:
    """Yield the bytes of each row of a sparse matrix."""
    matrix = matrix.tocoo()
    entries: list[dict[int, float]] = [{} for _ in range(matrix.shape[0])]
    for i, j, value in zip(matrix.row.tolist(), matrix.col.tolist(), matrix.data.tolist(), strict=True):
        entries[i][j] = entries[i].get(j, 0.0) + float(value)
    for row in entries:
        kept = sorted((j, value) for j, value in row.items() if value != 0)
        values = np.array([value for _, value in kept], "<f8")
        values[np.isnan(values)] = np.nan
        yield (
            int(matrix.shape[1]).to_bytes(8, "little")
            + np.array([j for j, _ in kept], "<i8").tobytes()
            + values.tobytes()
        )


def source_bytes(value: Any) -> bytes:
    """Return the bytes of the source of a sample: a string, or a whole number that no array has rounded."""
    bits = np.finfo(value.dtype).nmant + 1 if isinstance(value, np.floating) else 53
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if value != value or value in (np.inf, -np.inf) or value != int(value):
            raise ValueError(f"the groups must be strings or whole numbers, got {value!r:.40}")
        if isinstance(value, float) and abs(int(value)) >> bits:
            raise ValueError(f"the groups have {value!r:.40}, which may have been rounded: use integers or strings")
        return b"\xfd" + text_cell(str(int(value)))
    if not isinstance(value, str):
        raise ValueError(f"the groups must be strings or whole numbers, got {value!r:.40}")
    text = unicodedata.normalize("NFC", value)
    while text.endswith("\0"):
        text = text[:-1]
    mantissa, _, exponent = text.removeprefix("-").partition("e+")
    first, *rest = mantissa.split(".", 1)
    floating = len(first) == 1 and all(_is_decimal(digits) for digits in (first, *rest, exponent))
    if floating or (text[:1] == "(" and text[-2:] == "j)"):
        raise ValueError(f"the groups have {text!r:.40}, a number that an array has spelled: use integers or strings")
    sign, whole = ("-", text[1:]) if text[:1] == "-" else ("", text)
    shortened = whole.removesuffix(".0")
    if _is_decimal(shortened) and (shortened == "0" or shortened[0] != "0"):
        if shortened != whole and (len(shortened) > 16 or int(shortened) >> 53):
            raise ValueError(f"the groups have {text!r:.40}, which may have been rounded: use integers or strings")
        text = shortened if shortened == "0" else sign + shortened
    return b"\xfd" + text_cell(text)


def _is_decimal(text: str) -> bool:
    return text.isascii() and text.isdigit()


def source_digests(groups: Any, n: int, key: bytes) -> list[bytes]:
    """Return the keyed digest of the source of each of n samples, 16 bytes."""
    values = groups if isinstance(groups, (list, tuple)) else list(np.asarray(groups))
    if len(values) != n:
        raise ValueError(f"has {n} samples and {len(values)} groups")
    return [hashlib.blake2b(source_bytes(value), key=key, digest_size=16).digest() for value in values]


def contents(X: Any, original_digests: Any = None) -> Iterator[bytes]:
    """Yield the bytes of each sample of X: an array, a sparse matrix, a DataFrame, or strings."""
    if original_digests is not None:
        yield from (b"\xfe" + bytes(digest) for digest in np.asarray(original_digests, np.uint8))
    elif hasattr(X, "iloc") and hasattr(X, "columns"):
        columns = [X.iloc[:, c].tolist() for c in range(X.shape[1])]
        yield from (table_row(row) for row in zip(*columns, strict=True))
    elif hasattr(X, "tocoo"):
        yield from sparse_rows(X)
    else:
        array = X if isinstance(X, np.ndarray) else np.array(X, dtype=object if _are_texts(X) else None)
        if array.ndim == 1 and _are_texts(array):
            yield from (text_cell(text) for text in array)
        else:
            yield from (number_row(row) for row in (array.astype(np.float64) if array.dtype.kind == "O" else array))


def _are_texts(X: Any) -> bool:
    return len(X) > 0 and all(isinstance(text, str) for text in X)


def digests(X: Any, key: bytes, original_digests: Any = None) -> list[bytes]:
    """Return the keyed digest of each sample, 16 bytes."""
    return [hashlib.blake2b(data, key=key, digest_size=16).digest() for data in contents(X, original_digests)]


def pixel_sums(X: Any, original_sums: Any = None) -> list[int]:
    """Return the sum of the pixels of each sample, which the paper uses as a hash."""
    if original_sums is not None:
        return [int(value) for value in original_sums]
    return [int(row.sum(dtype=np.int64)) for row in np.asarray(X)]
