"""The package: fast imports, and a safe cache of compiled kernels."""

import ast
import os
import runpy
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import runoff

PACKAGE = Path(runoff.__file__).parent
CERTIFY = """
import numpy as np, runoff
print(runoff.certify(np.random.default_rng(0).normal(size=(5, 9, 3)), election="plurality").radius.tolist())
"""

UNPICKLING = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal"}


def python(code, *, source=PACKAGE.parent, **environment):
    env = os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"} | environment
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_light():
    heavy = ["numba", "sklearn", "pandas", "torch", "ray", "matplotlib", "scipy", "joblib"]
    loaded = python(f"import sys, runoff, runoff.cli; print([m for m in {heavy} if m in sys.modules])")
    assert loaded.strip() == "[]"


def test_the_mathematics_needs_neither_torch_nor_scikit_learn():
    blocked = "import sys; sys.modules.update(dict.fromkeys(['torch', 'sklearn', 'scipy', 'pandas', 'ray']))"
    assert python(f"{blocked}\n{CERTIFY}") == python(CERTIFY)


def test_the_top_of_the_package_stays_small():
    assert len(list(PACKAGE.glob("*.py"))) <= 20, "make packages of modules that belong together"


def test_no_private_name_crosses_packages():
    script = runpy.run_path(str(PACKAGE.parent.parent / "scripts" / "import_graph.py"))
    assert script["crossings"](PACKAGE.parent) == []


def test_private_names_that_cross_packages_are_found(tmp_path):
    script = runpy.run_path(str(PACKAGE.parent.parent / "scripts" / "import_graph.py"))
    for name, code in {
        "a": "class A:\n    def __init__(self):\n        self._x = 1\n",
        "b": "def f(a):\n    return a._x + a._asdict\n",
        "c/__init__": "",
        "c/_d": "",
        "e": "from runoff.c import _d\nfrom runoff.a import _g\n",
    }.items():
        (tmp_path / "runoff" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "runoff" / f"{name}.py").write_text(code)
    assert script["crossings"](tmp_path) == [
        "runoff.b:2 a._x",
        "runoff.e:1 imports runoff.c._d",
        "runoff.e:2 imports runoff.a._g",
    ]


def test_the_verifier_may_share_files_and_errors_only():
    """A new package must be forbidden to the verifier, or allowed here."""
    contracts = tomllib.loads((PACKAGE.parent.parent / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    [forbidden] = [
        set(c["forbidden_modules"]) for c in contracts if c.get("source_modules") == ["runoff.verify", "runoff.check"]
    ]
    modules = {
        f"runoff.{path.stem}" for path in PACKAGE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    itself = {"runoff.verify", "runoff.check", "runoff.__init__", "runoff.__main__", "runoff._version"}
    assert modules - forbidden - itself == {"runoff._io", "runoff.errors"}


def test_types_are_shipped_and_dependencies_are_few():
    assert (PACKAGE / "py.typed").exists()
    core = {requirement.split(">")[0] for requirement in requires("runoff") if "extra" not in requirement}
    assert core == {"numpy", "numba", "scikit-learn", "click", "rich", "platformdirs", "portalocker"}


def test_the_lock_matches_the_constraints():
    """`make lock` writes the former from the latter; a package that is added needs both."""
    root = PACKAGE.parent.parent

    def versions(name):
        lines = [line.split()[0] for line in (root / name).read_text().splitlines() if line and line[0] != "#"]
        return {canonicalize_name(line.split("==")[0]): line.split("==")[1].split("+")[0] for line in lines}

    lock, constraints = versions("requirements.lock"), versions("constraints.txt")
    assert {name: lock[name] for name in lock if name in constraints} == {
        name: constraints[name] for name in lock if name in constraints
    }
    needed = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = needed["optional-dependencies"]
    named = [*needed["dependencies"], *(line for name, extra in extras.items() if name != "docs" for line in extra)]
    wanted = {canonicalize_name(Requirement(line).name) for line in named}
    installed = {canonicalize_name(Requirement(line).name) for line in [*needed["dependencies"], *extras["dev"]]}
    assert installed - {"runoff"} <= set(lock)
    assert wanted - {"runoff", "triton"} <= set(constraints)  # PyTorch requires its own version of triton


def test_nothing_is_unpickled_by_us():
    for source in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, (ast.Import, ast.ImportFrom)) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not UNPICKLING & {name.split(".")[0] for name in names}, source
            if isinstance(node, ast.ImportFrom) and node.module in ("torch", "joblib"):
                assert "load" not in names, source
            if isinstance(node, ast.Call):
                given = {word.arg: word.value for word in node.keywords}
                allowed = given.get("allow_pickle", ast.Constant(False))
                assert isinstance(allowed, ast.Constant), source
                assert allowed.value is False, source
                called = ast.unparse(node.func)
                assert called not in ("torch.load", "np.lib.format.read_array") or "allow_pickle" in given, (
                    source,
                    called,
                )


@pytest.fixture
def copy(tmp_path):
    """Copy the files of the package to another folder, without compiled code."""
    shutil.copytree(PACKAGE, tmp_path / "src" / "runoff", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "src"


def kept(folder):
    return sorted({path.parent for path in folder.rglob("*.nbi")})


def test_machine_code_of_another_version_is_never_used(copy, tmp_path):
    """Numba checks only the file of a kernel, but these kernels call each other across files."""
    cache = {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    before = python(CERTIFY, source=copy, **cache)
    assert len({path.parent for path in kept(tmp_path / "cache")}) == 1
    count = copy / "runoff" / "_kernels" / "counting.py"  # called by plurality's kernel, which does not change
    count.write_text(count.read_text().replace("votes[choice] += 1", "votes[0] += 1"))
    after = python(CERTIFY, source=copy, **cache)
    assert before != after
    assert len({path.parent for path in kept(tmp_path / "cache")}) == 2


def test_a_home_and_a_package_that_cannot_be_written(copy, tmp_path):
    """Root can write to every directory, so files take the places of the directories."""
    for folder in copy.rglob("*"):
        if folder.is_dir():
            (folder / "__pycache__").write_text("")
    home = tmp_path / "home"
    home.write_text("")
    without = {"HOME": str(home), "XDG_CACHE_HOME": str(home / "cache"), "NUMBA_CACHE_DIR": ""}
    assert python(CERTIFY, source=copy, **without) == python(CERTIFY)
    assert kept(tmp_path) == []


def test_a_full_disk_keeps_nothing(copy, tmp_path):
    compiled = copy / "runoff" / "_kernels" / "compiling.py"
    compiled.write_text(compiled.read_text().replace("FREE_BYTES = 64 * 2**20", "FREE_BYTES = 2**80"))
    assert python(CERTIFY, source=copy, NUMBA_CACHE_DIR=str(tmp_path / "cache")) == python(CERTIFY)
    assert kept(tmp_path) == []
