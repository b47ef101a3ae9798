"""Content hashes: keyed BLAKE2b of a canonical form of a sample, which no other sample can influence.

Only the value of the sample is hashed, not the type of the array, which depends on other samples: one inserted row with
a missing value turns a column of integers into floats. So 3, 3.0 and uint8(3) are equal, as are 0.0 and -0.0, all NaNs,
and strings with the same composed form in Unicode. The label is not hashed.
"""

import datetime
import hashlib
import re
import secrets
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.errors import InputError

Digests = NDArray[np.uint64]  # (n, 2): 128 bits per sample

DIGEST_BYTES = 16
ROWS = 4096  # per block
NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.0)?")  # a whole number, as NumPy writes integers and floats
REWRITTEN = re.compile(r"-?[0-9](?:\.[0-9]+)?e\+[0-9]+|\(.*j\)", re.DOTALL)  # other forms that NumPy writes


class Key(bytes):
    """A secret hash key, hidden when printed."""

    def __repr__(self) -> str:
        return "<secret key>"

    __str__ = __repr__


def new_key() -> Key:
    """Return a new secret key for `RunoffClassifier(hash_key=...)`.

    An attacker who does not know the key cannot choose a sample's bucket. The radius holds even if the key leaks.
    """
    return Key(secrets.token_bytes(32))


def derived_key(seed: int) -> Key:
    """Return the key derived from a seed, with which fits are reproducible but the key is not secret."""
    return Key(hashlib.blake2b(f"runoff hash key {seed}".encode(), digest_size=32).digest())


def digests(rows: Iterable[Any], key: bytes) -> Digests:
    """Return the keyed digest of each row of bytes."""
    hashed = [hashlib.blake2b(row, key=key, digest_size=DIGEST_BYTES).digest() for row in rows]
    return np.frombuffer(b"".join(hashed), "<u8").reshape(-1, 2).astype(np.uint64)


def number_rows(array: NDArray[Any]) -> Iterable[memoryview]:
    """Yield the bytes of each row of a numeric array: the shape, and the values in the narrowest of three forms."""
    shape = np.array(array.shape[1:], "<i8").tobytes()
    for start in range(0, len(array), ROWS):
        block = array[start : start + ROWS]
        flat = block.reshape(len(block), -1)
        if flat.dtype == np.uint8:
            kinds = np.zeros(len(flat), np.int8)
        else:
            flat = plain_floats(flat)  # integers too, as a fraction in another sample would round those beyond 2**53
            kinds = np.full(len(flat), 2, np.int8)
            whole = np.flatnonzero((flat == np.floor(flat)).all(axis=1))
            least, most = flat[whole].min(axis=1, initial=0), flat[whole].max(axis=1, initial=0)
            kinds[whole[(least > -(2.0**63)) & (most < 2.0**63)]] = 1
            kinds[whole[(least >= 0) & (most <= 255)]] = 0
        cuts = np.flatnonzero(np.diff(kinds)) + 1  # between runs of one kind
        for a, b in zip([0, *cuts], [*cuts, len(flat)], strict=True):
            kind = int(kinds[a])
            head = np.frombuffer(bytes([kind]) + shape, np.uint8)
            values = np.ascontiguousarray(flat[a:b], ("u1", "<i8", "<f8")[kind]).view(np.uint8).reshape(b - a, -1)
            packed = np.empty((b - a, len(head) + values.shape[1]), np.uint8)
            packed[:, : len(head)], packed[:, len(head) :] = head, values
            yield from _rows(packed)


def _rows(packed: NDArray[np.uint8]) -> Iterable[memoryview]:
    width, whole = packed.shape[1], memoryview(packed.reshape(-1).data)
    return (whole[start : start + width] for start in range(0, len(whole), width))


def plain_floats(array: NDArray[Any]) -> NDArray[np.float64]:
    """Return an array as float64 in C order, with one zero and one NaN.

    The order in memory decides the order of sums, and one inserted row may change it: images with the channels moved to
    the end by a transpose become contiguous when they are joined with others.
    """
    with np.errstate(invalid="ignore"):  # of signalling NaNs
        floats = np.ascontiguousarray(array, np.float64) + 0.0
    floats[np.isnan(floats)] = np.nan
    return floats


def plain_text(text: str) -> str:
    """Return a string in Unicode's composed form."""
    return unicodedata.normalize("NFC", str.__str__(text))  # members of an enumeration are strings, too


def as_float(value: Any) -> float:
    """Return a number as a float, or infinity for integers that are too large."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def as_moment(value: Any) -> str:
    """Return a date, time or duration of any library as a string."""
    if isinstance(value, (np.datetime64, np.timedelta64)):
        value = _as_pandas(value)
    if isinstance(value, datetime.timedelta):
        whole = (value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000
        return f"{whole + getattr(value, 'nanoseconds', 0)} ns"
    return value.isoformat() if isinstance(value, datetime.datetime) else f"{value.isoformat()}T00:00:00"


def _as_pandas(value: np.datetime64 | np.timedelta64) -> Any:
    """Return a moment of NumPy as that of pandas, which a column holds unless another cell makes it one of objects."""
    import pandas as pd

    try:
        return pd.Timestamp(value) if isinstance(value, np.datetime64) else pd.Timedelta(value)
    except ValueError as error:
        raise InputError(f"a table must hold dates that pandas can represent, got {value!r:.60}: {error}") from None


def cell(value: Any) -> bytes:
    """Return the bytes of a value of a table, with its kind and length, so that different rows have different bytes."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return b"-"
    if isinstance(value, (np.datetime64, np.timedelta64)):  # first: NumPy's durations are integers as well
        value = None if np.isnat(value) else _as_pandas(value)
        return cell(value)
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        number = as_float(value)
        return b"-" if number != number else b"f" + np.float64(number + 0.0).tobytes()
    if isinstance(value, str):
        text = plain_text(value).encode("utf-8", "surrogatepass")
        return b"s" + len(text).to_bytes(8, "little") + text
    if isinstance(value, bytes):
        return b"b" + len(value).to_bytes(8, "little") + value
    if isinstance(value, (datetime.date, datetime.timedelta)):  # pandas' types derive from these
        text = as_moment(value).encode()
        return b"t" + len(text).to_bytes(8, "little") + text
    raise InputError(f"a table must hold numbers, strings and dates, got a {type(value).__name__}: convert it first")


def source_name(value: Any) -> str:
    """Return the name of a source in a canonical form, which no other source can influence.

    One inserted name can turn all numbers of an array into strings, or all integers into floats. So 7, 7.0, "7" and
    "7.0" are one source, and trailing NUL characters are ignored, as arrays of strings drop them. Values that an array
    could have rounded, or written in another form, are an error: floats that their type cannot distinguish from the
    next whole number, and "1e+07", which an array of strings contains for float32(10000000) but not for
    float64(10000000).
    """
    exact = 2.0 ** (np.finfo(value.dtype).nmant + 1 if isinstance(value, np.floating) else 53)
    if isinstance(value, np.generic) and value.dtype.kind in "iufU":
        value = value.item()
    if isinstance(value, float) and value.is_integer() and abs(value) < exact:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() <= 512:
        return str(int(value))
    if isinstance(value, str) and not REWRITTEN.fullmatch(text := plain_text(value).rstrip("\0")):
        number = NUMBER.fullmatch(text)
        if number is None:
            return text
        if number[2] is None or (len(text) < 20 and abs(int(number[1])) < exact):
            return number[1] if number[1] != "-0" else "0"
    raise InputError(f"a source must be a string or a whole number, got {value!r:.60}")


def sources(groups: Any, n: int, key: bytes) -> Digests:
    """Return the keyed digest of the source of each of n samples."""
    if np.ma.is_masked(groups):  # np.asarray would read the values below the mask
        raise InputError(
            "groups must name the source of each sample, got masked names: give samples of unknown origin a name, too"
        )
    values = groups if isinstance(groups, (list, tuple)) else np.asarray(groups)
    if isinstance(values, np.ndarray) and values.ndim == 0:
        raise InputError(f"groups must be a list or an array of one name per sample, got a {type(groups).__name__}")
    if isinstance(values, np.ndarray) and values.ndim != 1:
        raise InputError(f"groups must be one name per sample, in one dimension, got shape {values.shape}")
    if len(values) != n:
        raise InputError(f"groups must name the source of each of {n} samples, got {len(values)} names")
    known: dict[tuple[type, Any], int] = {}
    names: dict[str, int] = {}
    which = np.empty(n, np.int64)
    for i, value in enumerate(values):
        try:
            number = known.get((type(value), value))
            if number is None:
                number = known[type(value), value] = names.setdefault(source_name(value), len(names))
        except (InputError, TypeError):
            raise InputError(
                f"groups must name each sample's source by a string or a whole number, got {value!r:.60} for sample "
                f"{i}: convert it to a string, and give samples of unknown origin a name, too"
            ) from None
        which[i] = number
    return digests((b"\xfd" + cell(name) for name in names), key)[which]


def source_sizes(sources: Digests) -> tuple[int, float]:
    """Return the number of sources, and the share of the samples of the largest."""
    _, counts = np.unique(sources, axis=0, return_counts=True)
    return len(counts), float(counts.max() / counts.sum())


def pixel_sums(array: NDArray[Any]) -> Digests:
    """Return the hash of the paper, the sum of pixels, which is predictable and uneven; for comparison only."""
    if array.dtype.kind not in "bui":
        raise InputError(f"the pixel-sum hash needs the original integer pixels, got dtype {array.dtype}")
    sums = array.reshape(len(array), -1).sum(axis=1, dtype=np.int64).astype(np.uint64)
    return np.stack([sums, np.zeros_like(sums)], axis=1)
