"""Text from files, in the output of commands: it cannot control the terminal."""

import csv

import pytest
from click.testing import CliRunner

from runoff.cli import main
from runoff.cli.output import cell, printable

NAMES = ("\x1b[31mred", "b\u202elue\x9b2J")


@pytest.fixture
def files(tmp_path):
    scores = [(i, m, c, (i + m) % 3 + j) for i in range(4) for m in range(5) for j, c in enumerate(NAMES)]
    for name, header, rows in (
        ("scores.csv", ("input", "member", "class", "score"), scores),
        ("labels.csv", ("input", "label"), [(i, NAMES[i % 2]) for i in range(4)]),
    ):
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([header, *rows])
    return str(tmp_path / "scores.csv"), str(tmp_path / "labels.csv")


def test_names_of_classes_are_printed_without_controlling_the_terminal(files):
    scores, labels = files
    for options in (
        ("--labels", labels),
        ("--labels", labels, "--to", NAMES[1]),
        ("--to", "\x1b[2J"),
    ):
        result = CliRunner().invoke(main, ["certify", scores, *options])
        text = result.output.replace("\n", "")
        assert "\\u" in text, options
        assert text.isprintable(), repr(text)


def test_what_is_replaced():
    assert printable("one\ntwo\t\x07 \udce9 é\u200d") == "one\ntwo\\u0009\\u0007 ? é\u200d"
    assert cell("[red]\x1b") == "\\[red]\\u001b"
