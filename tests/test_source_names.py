"""Names of sources and values of tables, one by one: what is one name, what is refused, and the bytes of each."""

import datetime
import enum
import hashlib
import re

import numpy as np
import pandas as pd
import pytest

from runoff import hashing
from runoff.errors import InputError

KEY = bytes(range(16))


class Word(str, enum.Enum):  # noqa: UP042 - as users write it
    """A string of an enumeration prints as its member."""

    HAM = "ham"


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (7, "7"), (-7, "-7"), (0, "0"), (-0.0, "0"), (7.0, "7"), (np.int8(-3), "-3"),
        (np.uint64(2**64 - 1), str(2**64 - 1)),
        (np.float32(7), "7"), (np.float16(2047), "2047"), (np.float32(2**24 - 1), "16777215"),
        (2.0**53 - 1, str(2**53 - 1)), (-(2.0**53) + 1, str(-(2**53) + 1)), (2**512 - 1, str(2**512 - 1)),
        ("7", "7"), ("7.0", "7"), ("-7.0", "-7"), ("-0", "0"), ("-0.0", "0"), ("0.0", "0"), ("70", "70"),
        (np.str_("7.0"), "7"), ("07", "07"), ("7.", "7."), ("7.00", "7.00"), ("7.5", "7.5"), (".0", ".0"), ("+7", "+7"),
        ("", ""), ("\0", ""), ("a\0\0", "a"), ("a\0b", "a\0b"), ("cafe\u0301", "caf\u00e9"), (Word.HAM, "ham"),
        (str(2**53 - 1) + ".0", str(2**53 - 1)), (str(-(2**53) + 1) + ".0", str(-(2**53) + 1)), ("a?", "a?"),
        (str(2**53 + 1), str(2**53 + 1)), ("9" * 40, "9" * 40),
        ("1e7", "1e7"), ("1e-07", "1e-07"), ("12e+07", "12e+07"), ("a1e+07", "a1e+07"), ("1e+07b", "1e+07b"),
        ("(1j", "(1j"), ("1j)", "1j)"), ("a(1j)", "a(1j)"), ("nan", "nan"), ("True", "True"), ("\uff17", "\uff17"),
    ],
)  # fmt: skip
def test_the_name_of_a_source(value, name):
    assert hashing.source_name(value) == name
    assert type(hashing.source_name(value)) is str


@pytest.mark.parametrize(
    "value",
    [
        True, np.True_, None, 0.5, np.nan, np.inf, -np.inf, 2.0**53, -(2.0**53), np.float32(2**24), np.float16(2048),
        2**512, -(2**512), 1j, b"a", "1e+07", "-1e+07", "1.5e+10", "1e+7", "(1j)", "(1+2j)", "(\n1j)", f"{2**53}.0",
        "9" * 18 + ".0", "1" + "0" * 19 + ".0", np.datetime64(1, "D"), np.bytes_(b"a"), ("a",), pd.NA,
    ],
)  # fmt: skip
def test_what_is_no_name(value):
    with pytest.raises(InputError, match="a source must be a string or a whole number, got"):
        hashing.source_name(value)


def test_digests_of_sources():
    expected = [
        np.frombuffer(hashlib.blake2b(b"\xfd" + hashing.cell(name), key=KEY, digest_size=16).digest(), "<u8").tolist()
        for name in ("7", "a", "7")
    ]
    for groups in ([7, "a", "7.0"], (7.0, "a", 7), np.array([7, "a", 7.0], object), pd.Series([7, "a", "7"])):
        found = hashing.sources(groups, 3, KEY)
        assert (found.tolist(), found.dtype, found.shape) == (expected, np.uint64, (3, 2))
    assert hashing.sources([], 0, KEY).shape == (0, 2)
    twice = hashing.sources([1, True + 1, 1.0, "1", 2], 5, KEY).tolist()
    assert twice[0] == twice[2] == twice[3] != twice[1] == twice[4]


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        ("abc", "groups must be a list or an array of one name per sample, got a str"),
        ({"a"}, "groups must be a list or an array of one name per sample, got a set"),
        (np.array([["a"] * 3]), "groups must be one name per sample, in one dimension, got shape (1, 3)"),
        (["a", "b"], "groups must name the source of each of 3 samples, got 2 names"),
        (np.array(list("abcd")), "groups must name the source of each of 3 samples, got 4 names"),
        (np.ma.array(["a", "b", "c"], mask=[0, 1, 0]), "got masked names: give samples of unknown origin a name, too"),
        (["a", None, "b"], "got None for sample 1: convert it to a string, and give samples of unknown origin a name"),
        (["a", "b", ["c"]], "got ['c'] for sample 2: convert it to a string"),
        ([True, "b", "c"], "got True for sample 0: convert it to a string"),
        ([1, True, "c"], "got True for sample 1: convert it to a string"),
    ],
)
def test_groups_that_are_refused(groups, told):
    with pytest.raises(InputError, match=re.escape(told)):
        hashing.sources(groups, 3, KEY)


def test_the_sizes_of_sources():
    digests = np.array([[1, 1], [1, 2], [1, 1], [2, 1], [1, 1]], np.uint64)
    assert hashing.source_sizes(digests) == (3, 0.6)
    assert [type(part) for part in hashing.source_sizes(digests)] == [int, float]


def text(letter, value):
    return letter + len(value).to_bytes(8, "little") + value


DAY = datetime.datetime(2020, 1, 2, 3, 4, 5, 6)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, b"-"), (pd.NA, b"-"), (pd.NaT, b"-"), (np.nan, b"-"), (np.float32(np.nan), b"-"),
        (np.datetime64("NaT"), b"-"), (np.timedelta64("NaT"), b"-"),
        (1, b"f" + np.float64(1).tobytes()), (True, b"f" + np.float64(1).tobytes()),
        (np.False_, b"f" + bytes(8)), (-0.0, b"f" + bytes(8)), (np.int8(-2), b"f" + np.float64(-2).tobytes()),
        (np.float32(0.5), b"f" + np.float64(0.5).tobytes()), (10**400, b"f" + np.float64(np.inf).tobytes()),
        (-(10**400), b"f" + np.float64(-np.inf).tobytes()),
        ("e\u0301", text(b"s", b"\xc3\xa9")), ("\ud800", text(b"s", b"\xed\xa0\x80")), ("", text(b"s", b"")),
        (Word.HAM, text(b"s", b"ham")), (b"ab", text(b"b", b"ab")),
        (DAY, text(b"t", b"2020-01-02T03:04:05.000006")), (DAY.date(), text(b"t", b"2020-01-02T00:00:00")),
        (pd.Timestamp(DAY), text(b"t", b"2020-01-02T03:04:05.000006")),
        (np.datetime64("2020-01-02"), text(b"t", b"2020-01-02T00:00:00")),
        (datetime.timedelta(2, 3, 4), text(b"t", b"172803000004000 ns")),
        (pd.Timedelta(7, "ns"), text(b"t", b"7 ns")), (np.timedelta64(5, "us"), text(b"t", b"5000 ns")),
        (datetime.timedelta(-1), text(b"t", b"-86400000000000 ns")),
    ],
    ids=repr,
)  # fmt: skip
def test_the_bytes_of_a_value(value, expected):
    assert hashing.cell(value) == expected


def test_values_that_are_refused():
    for value in ([1], 1j, datetime.time(1), object()):
        told = f"a table must hold numbers, strings and dates, got a {type(value).__name__}: convert it first"
        with pytest.raises(InputError, match=re.escape(told)):
            hashing.cell(value)
    with pytest.raises(InputError, match="a table must hold dates that pandas can represent, got"):
        hashing.cell(np.datetime64(10**17, "D"))


def test_moments_of_any_library_are_one():
    same = (datetime.timedelta(1), pd.Timedelta(1, "D"), np.timedelta64(1, "D"))
    assert {hashing.as_moment(value) for value in same} == {"86400000000000 ns"}
    same = (
        datetime.datetime(2020, 1, 2),
        pd.Timestamp(2020, 1, 2),
        np.datetime64("2020-01-02"),
        datetime.date(2020, 1, 2),
    )
    assert {hashing.as_moment(value) for value in same} == {"2020-01-02T00:00:00"}


def test_floats_in_the_order_of_rows_with_one_zero_and_one_nan():
    odd = np.array([0xFFF8000000000001], np.uint64).view(np.float64)[0]
    floats = hashing.plain_floats(np.array([[-0.0, odd], [1, 2]], order="F"))
    assert floats.flags.c_contiguous
    assert floats.tobytes() == np.array([[0.0, np.nan], [1, 2]]).tobytes()
    assert hashing.plain_floats(np.array([3], np.uint8)).dtype == np.float64
    assert hashing.as_float(10**400) == np.inf
    assert hashing.as_float(-(10**400)) == -np.inf
