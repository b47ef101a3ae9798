"""Mutants are the described changes, and the list of equivalent mutants names only mutants that exist."""

import ast
import os
import sys
import types

import pytest

from tests.mutants import report
from tests.mutants.operators import mutants
from tests.mutants.parts import PACKAGE, PARTS, ROOT
from tests.mutants.swapping import Swap

SOURCE = '''
"""A module."""
LIMIT = 3


def total(values: list[int], start: int = 0) -> int:
    """Add up."""
    for value in values:
        if value < LIMIT and not value == 1:
            start += value
    return max(start, 0)


class Thing:
    """A class."""

    @property
    def size(self) -> int:
        """A size."""
        return 5 - 2

    def check(self, value: int) -> None:
        """Refuse."""
        if value > 1:
            raise ValueError(f"{value + 1} is too much")
'''


def test_every_mutant_compiles_differs_and_has_a_name_of_its_own():
    plain = ast.unparse(ast.parse(SOURCE))
    found = [(mutant, ast.unparse(tree)) for mutant, tree in mutants("toy.py", SOURCE)]
    assert len({mutant.key for mutant, _ in found}) == len({text for _, text in found}) == len(found)
    assert all(text != plain for _, text in found)
    assert all(compile(text, "toy", "exec") for _, text in found)
    told = {mutant.change for mutant, _ in found}
    assert {
        "value < LIMIT -> value <= LIMIT",
        "value < LIMIT -> value >= LIMIT",
        "not value == 1 -> value == 1",
    } <= told
    assert {
        "start += value -> start -= value",
        "start += value -> pass",
        "for value in values -> for value in ()",
    } <= told
    assert {"LIMIT = 3 : 3 -> 4", "return max(start, 0) : max -> min", "if value > 1 -> if not value > 1"} <= told
    assert not any("too much" in change and "pass" not in change for change in told)  # the words of messages


def test_changes_reach_functions_that_others_hold_already():
    module = types.ModuleType("runoff.toy")
    exec(compile(SOURCE, "toy.py", "exec"), vars(module))  # noqa: S102
    total, thing = module.total, module.Thing()
    assert (total([1, 2, 5]), thing.size) == (2, 3)
    swap = Swap(module, SOURCE)
    for mutant, tree in mutants("toy.py", SOURCE):
        assert swap.reaches(mutant.where) or mutant.where == "Thing"
        if mutant.change in ("value < LIMIT -> value >= LIMIT", "5 - 2 -> 5 + 2"):
            swap.apply(mutant.where, tree)
    assert (total([1, 2, 5]), thing.size) == (5, 7)


def test_a_changed_constant_goes_wherever_it_was_imported(monkeypatch):
    module, user = types.ModuleType("runoff.toy"), types.ModuleType("runoff.user")
    exec(compile(SOURCE, "toy.py", "exec"), vars(module))  # noqa: S102
    user.LIMIT = module.LIMIT
    monkeypatch.setitem(sys.modules, "runoff.toy", module)
    monkeypatch.setitem(sys.modules, "runoff.user", user)
    tree = next(tree for mutant, tree in mutants("toy.py", SOURCE) if mutant.change == "LIMIT = 3 : 3 -> 4")
    Swap(module, SOURCE).apply("", tree)
    assert module.LIMIT == user.LIMIT == 4


def test_what_cannot_matter_is_about_mutants_that_exist():
    known = report.equivalents()
    files = {file for file, _, _, _ in known}
    existing = {mutant.key for file in files for mutant, _ in mutants(file, (PACKAGE / file).read_text())}
    numbered = {key[:3] for key in existing}
    assert not [key for key in known if key[:3] not in numbered]
    assert all(why.endswith(".") for why in known.values())


@pytest.mark.slow
def test_a_part_is_run_in_forks():
    import subprocess

    environment = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    command = [sys.executable, "-m", "tests.mutants", "--part", "hashing", "--match", "derived_key", "--jobs", "2"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "| hashing |" in done.stdout
    assert "100.0 %" in done.stdout


def test_parts_name_files_and_tests_that_exist():
    for name, part in PARTS.items():
        if name != "verify":
            assert part.present()
            assert all((ROOT / "tests" / test).exists() for test in part.tests)
