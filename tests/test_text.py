"""Numbers formatted for people, and the wording of docstrings, comments and messages."""

import ast
import re
import tokenize
from pathlib import Path

import pytest

from runoff import recipes
from runoff._io.text import count, duration, size
from runoff.runs import Settings

SOURCE = Path(__file__).parents[1] / "src" / "runoff"

# Turns that read like a translation, with what to write instead.
TURNS = {
    r"\banew\b": "again, or re- as in retrain",
    r"\bbeforehand\b": "in advance",
    r"\bso many\b": "the number, or N",
    r"(?<!there )\b(?:is|are|was|were) none\b(?! of)": "is not one, is invalid, does not exist",
    r"\bwhich (?:is|are) no\b(?! longer| more)": "which is not a",
    r"\bsomebody\b|\beverybody\b": "the caller, a user, anyone",
    r"\bvouched for\b|\bwritten down\b": "listed, recorded",
    r"\bcomes? to (?:its|an) end\b|\bends? with code\b": "completes, exits with code",
    r"\b(?:is|are|was|were) (?:told|asked)\b": "is passed, is given; scores, predicts",
    r"\bgo(?:es)? on\b|\bthrown out\b": "continue, advance; eliminated",
    r"\bthere already\b|\bis already there\b": "already exists",
    r"\ba kill\b": "an interruption",
    r"\bof its own\b|\bin any company\b": "separate; together with any others",
    r"\bhowever (?:many|much|deeply)\b": "any number of, at any depth",
    r"\b(?:wherein|thereof|thereby|hereby|whence|lest|albeit|amongst|whilst|upon)\b": "a modern word",
    r"(?<![+-] )(?<![\d.,])\b1 (?:edits|files|images|inputs|members|networks|runs|samples|sources|tasks)\b": "1 edit",
}
HEADLESS = ("What ", "Where ", "Which ", "Who ", "Whose ", "How ", "But ", "So ", "Its ", "Their ", "Return what ")


def prose():
    """Yield the file, the line and the text of all docstrings, comments and messages."""
    for path in sorted(SOURCE.rglob("*.py")):
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.COMMENT:
                    yield path, token.start[0], token.string
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
                yield path, node.lineno, " ".join(node.value.split())


def test_no_turn_of_a_translation_comes_back():
    found = [
        f"{path.relative_to(SOURCE)}:{line}: {match[0]!r} -> {better}"
        for path, line, text in prose()
        for turn, better in TURNS.items()
        for match in re.finditer(turn, text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "a network is trained anew", "labels fixed beforehand", "and data.txt is none: leave it out",
        "the folder which is no run", "it is there already", "after a kill", "1 networks trained", "8 members, 1 edits",
    ],
)  # fmt: skip
def test_turns_are_recognised(text):
    assert any(re.search(turn, text) for turn in TURNS)


@pytest.mark.parametrize("text", ["a radius of 1 input", "11 members", "radius + 1 members", "there are none of them"])
def test_plain_text_is_accepted(text):
    assert not any(re.search(turn, text) for turn in TURNS)


def test_first_lines_of_docstrings_have_a_head():
    """A first line starts with a noun phrase or a verb, not with a relative clause or a pointer."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bad = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            first = (ast.get_docstring(node) or "").split("\n")[0] if isinstance(node, kinds) else ""
            if first.startswith(HEADLESS):
                bad.append(f"{path.relative_to(SOURCE)}: {first}")
    assert not bad, "\n".join(bad)


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


def test_a_run_of_one_epoch_is_described():
    quick = recipes.get("quick")
    described = [
        Settings(
            dataset="own", fingerprint="0", n_partitions=2, recipe=recipes.with_epochs(quick, n).to_dict()
        ).describe()
        for n in (1, 2)
    ]
    assert described[0] == "own, k = 2, nin, recipe quick with 1 epoch, hash content"
    assert "with 2 epochs" in described[1]


def test_sizes():
    assert [size(n) for n in (812, 3_400, 56e6, 1.2e9)] == ["812 bytes", "3.4 kB", "56 MB", "1.2 GB"]
