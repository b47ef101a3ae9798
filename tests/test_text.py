"""Numbers formatted for people."""

import pytest

from runoff._io.text import count, duration


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0, "0.0 s"), (4.21, "4.2 s"), (42.4, "42 s"), (59.7, "1 min 0 s"), (200, "3 min 20 s"), (600, "10 min"),
        (3599, "1 h 0 min"), (10566, "2 h 56 min"),
    ],
)  # fmt: skip
def test_durations(seconds, expected):
    assert duration(seconds) == expected


def test_counts():
    assert [count(n, "edit") for n in (0, 1, 2, 1200)] == ["0 edits", "1 edit", "2 edits", "1,200 edits"]
