"""A sample's content to a bucket: keyed BLAKE2b over a form of the content that nothing else can influence.

What is hashed is the sample's value alone. The type of the array around it is not part of it, because others decide
that: one inserted row with a missing value turns a column of integers into floats. So 3, 3.0 and uint8(3) are the same,
as are 0.0 and -0.0, all NaNs, and texts that Unicode holds to be equal. The label is left out.
"""

import datetime
import hashlib
import secrets
import unicodedata
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.errors import InputError

Digests = NDArray[np.uint64]  # (n, 2): 128 bits a sample

DIGEST_BYTES = 16
ROWS = 4096  # at a time


class Key(bytes):
    """A secret hash key. It is not shown."""

    def __repr__(self) -> str:
        return "<secret key>"

    __str__ = __repr__


def new_key() -> Key:
    """A fresh secret key for `RunoffClassifier(hash_key=...)`.

    Whoever does not know it cannot aim samples at a bucket of his choice. The radius holds without it too.
    """
    return Key(secrets.token_bytes(32))


def derived_key(seed: int) -> Key:
    """The key of a seed, for those who need fits to repeat and no secret."""
    return Key(hashlib.blake2b(f"runoff hash key {seed}".encode(), digest_size=32).digest())


def digests(rows: Iterable[Any], key: bytes) -> Digests:
    """The keyed digest of each row of bytes."""
    found = [hashlib.blake2b(row, key=key, digest_size=DIGEST_BYTES).digest() for row in rows]
    return np.frombuffer(b"".join(found), "<u8").reshape(-1, 2).astype(np.uint64)


def number_rows(array: NDArray[Any]) -> Iterable[memoryview]:
    """The bytes of each row of a numeric array: its shape, then its values in the narrowest of three exact forms."""
    shape = np.array(array.shape[1:], "<i8").tobytes()
    for start in range(0, len(array), ROWS):
        block = array[start : start + ROWS]
        flat = block.reshape(len(block), -1)
        if flat.dtype == np.uint8:
            kinds = np.zeros(len(flat), np.int8)
        else:
            flat = plain_floats(flat)  # integers too: beyond 2**53 others' fractions would round them, so all are
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
    """As float64, with one zero and one NaN."""
    floats = array.astype(np.float64) + 0.0
    floats[np.isnan(floats)] = np.nan
    return floats


def plain_text(text: str) -> str:
    """A text in Unicode's composed form."""
    return unicodedata.normalize("NFC", text)


def as_float(value: Any) -> float:
    """A number as a float; integers that are too large for one become infinite."""
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def as_moment(value: Any) -> str:
    """A date, a time or a duration as text, whichever library it comes from."""
    if isinstance(value, datetime.timedelta):
        whole = (value.days * 86400 + value.seconds) * 10**9 + value.microseconds * 1000
        return f"{whole + getattr(value, 'nanoseconds', 0)} ns"
    return value.isoformat() if isinstance(value, datetime.datetime) else f"{value.isoformat()}T00:00:00"


def cell(value: Any) -> bytes:
    """The bytes of one value of a table: its kind and, for texts, its length go first, so that cells cannot blend."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return b"-"
    if isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating)):
        number = as_float(value)
        return b"-" if number != number else b"f" + np.float64(number + 0.0).tobytes()
    if isinstance(value, str):
        text = plain_text(value).encode("utf-8", "surrogatepass")
        return b"s" + len(text).to_bytes(8, "little") + text
    if isinstance(value, bytes):
        return b"b" + len(value).to_bytes(8, "little") + value
    if isinstance(value, (datetime.date, datetime.timedelta)):  # pandas' own kinds too
        text = as_moment(value).encode()
        return b"t" + len(text).to_bytes(8, "little") + text
    raise InputError(f"a table must hold numbers, texts and dates, got a {type(value).__name__}: convert it beforehand")


def pixel_sums(array: NDArray[Any]) -> Digests:
    """The paper's hash: the sum of a sample's pixels. Predictable and uneven; for comparison with its figures."""
    if array.dtype.kind not in "bui":
        raise InputError(f"the pixel-sum hash needs integer pixels as they came, got dtype {array.dtype}")
    sums = array.reshape(len(array), -1).sum(axis=1, dtype=np.int64).astype(np.uint64)
    return np.stack([sums, np.zeros_like(sums)], axis=1)
