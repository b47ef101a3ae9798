"""Break the kernels one expression at a time: do the tests notice?

    python -m tests.mutants [--every N] [--jobs N] [FILE...]

Each mutant is a copy of the package with one change in one kernel, run uncompiled against the tests whose output is a
proof. A survivor is either a gap in the tests or a change that cannot matter, such as a cut that is taken later
`ACCEPTED` says of those why they are harmless.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parent.parent
KERNELS = [
    "_count.py",
    "_cover.py",
    "elections/_plurality_kernels.py",
    "elections/_runoff_kernels.py",
    "elections/_runoff_spread_kernels.py",
    "elections/runoff.py",
    "elections/plurality.py",
    "ballots.py",
    "spreads.py",
]
TESTS = ["test_cover.py", "test_adversary.py", "test_reference.py", "test_relations.py", "test_inputs.py"]
SWAPS = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"min": "max", "max": "min"}


def changes(tree):
    """Functions that each make one change to the tree, with the line and what is done there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            yield node, "ops", [SWAPS[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, (ast.BinOp, ast.AugAssign, ast.BoolOp)) and type(node.op) in SWAPS:
            yield node, "op", SWAPS[type(node.op)]()
        elif isinstance(node, ast.Constant) and type(node.value) is int:
            yield node, "value", node.value + 1
        elif isinstance(node, ast.Name) and node.id in NAMES:
            yield node, "id", NAMES[node.id]


def mutants(name):
    """The text of every mutant of a file, with a line that says what was changed."""
    source = (ROOT / "src" / "runoff" / name).read_text()
    count = sum(1 for _ in changes(ast.parse(source)))
    for number in range(count):
        tree = ast.parse(source)
        node, field, value = list(changes(tree))[number]
        before = ast.unparse(node)
        setattr(node, field, value)
        yield f"{name}:{node.lineno}: {before}  ->  {ast.unparse(node)}", name, ast.unparse(tree)


def survives(mutant):
    what, name, text = mutant
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "src", "runoff")
        shutil.copytree(ROOT / "src" / "runoff", package, ignore=shutil.ignore_patterns("__pycache__"))
        (package / name).write_text(text)
        shutil.copytree(ROOT / "tests", Path(folder, "tests"), ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "pyproject.toml", folder)
        env = os.environ | {"PYTHONPATH": str(package.parent), "NUMBA_DISABLE_JIT": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        quiet = ["-p", "no:cacheprovider", "-W", "ignore:invalid value:RuntimeWarning"]  # numpy warns, numba does not
        command = [sys.executable, "-m", "pytest", "-x", "-q", *quiet]
        try:
            tests = [str(Path(folder, "tests", test)) for test in TESTS]
            done = subprocess.run([*command, *tests], cwd=folder, env=env, capture_output=True, timeout=180)
        except subprocess.TimeoutExpired:
            return None  # a mutant that never ends is noticed
    return what if done.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", default=KERNELS)
    parser.add_argument("--every", type=int, default=1, help="only every Nth mutant")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    todo = [mutant for name in given.files for mutant in mutants(name)][:: given.every]
    with ThreadPoolExecutor(given.jobs) as pool:
        survivors = []
        for done, what in enumerate(pool.map(survives, todo), start=1):
            if what:
                survivors.append(what)
                print(f"survived  {what}", flush=True)
            if done % 20 == 0:
                print(f"{done} of {len(todo)}", file=sys.stderr, flush=True)
    print(f"{len(todo) - len(survivors)} of {len(todo)} mutants were noticed")


if __name__ == "__main__":
    main()
