"""Print how large the package is to a reader: modules, private names that cross packages, repeated code, three walks.

python scripts/import_graph.py [SOURCE]     # SOURCE: a folder that holds the package, src by default
"""

import ast
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

WALKS = {
    "certify(scores)": "runoff.certify(np.random.default_rng(0).normal(size=(4, 5, 3)))",
    "fit": "runoff.RunoffClassifier(n_partitions=2, classes=[0, 1]).fit(np.arange(20.0)[:, None], np.arange(20) % 2)",
    "runoff train": "from click.testing import CliRunner; from runoff.cli import main; CliRunner().invoke(main, "
    "'train digits --k 2 --network small --recipe quick --device cpu --dry-run --out nowhere'.split())",
}
REPEATED = 6  # lines


def files_of(source: Path) -> dict[str, Path]:
    """Return the modules of the package by name."""
    files = sorted((source / "runoff").rglob("*.py"))
    return {".".join(file.relative_to(source).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def package_of(name: str, file: Path) -> str:
    """Return the package that a module belongs to: itself, if it is a package."""
    return name if file.stem == "__init__" else name.rpartition(".")[0]


def is_private(name: str) -> bool:
    """Return whether a name has one leading underscore."""
    return name.startswith("_") and not name.startswith("__")


def private_definitions(tree: ast.AST) -> set[str]:
    """Return the private functions, classes, variables and attributes that a module defines."""
    names = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    for node in ast.walk(tree):
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return {name for name in names if is_private(name)}


def crossings(source: Path) -> list[str]:
    """Return where a package uses private modules, functions or attributes that only other packages define.

    `a.b._c` may be used in `a.b` and below it. Packages at the top are taken whole: `runoff.torch.training` may use
    what `runoff.torch` defines. Modules beside each other at the top of `runoff` are packages of their own.
    """
    files = files_of(source)
    trees = {name: ast.parse(file.read_text()) for name, file in files.items()}
    rooms = defaultdict(set)  # of the packages that define a private name
    for name, tree in trees.items():
        for private in private_definitions(tree):
            rooms[private].add(".".join(name.split(".")[:2]))
    found = []
    for name, tree in trees.items():
        room = ".".join(name.split(".")[:2])
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and rooms[node.attr] - {room}:
                own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
                above = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "super"
                if not own and not above and room not in rooms[node.attr]:
                    found.append(f"{name}:{node.lineno} {ast.unparse(node)}")
            elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "runoff":
                for alias in node.names:
                    target = f"{node.module}.{alias.name}".split(".")
                    private = next((i for i, part in enumerate(target) if is_private(part)), None)
                    package = package_of(name, files[name])
                    home = ".".join(target[:private])
                    if private is None or target[private] in ("_version", "_io", "_kernels"):
                        continue
                    if package != home and not package.startswith(f"{home}."):
                        found.append(f"{name}:{node.lineno} imports {'.'.join(target)}")
    return sorted(found)


def repeats(source: Path) -> int:
    """Return the number of pairs of places with the same lines of code, ignoring imports, comments and layout."""
    places = defaultdict(list)
    for name, file in files_of(source).items():
        lines = [line.split("#")[0].strip() for line in file.read_text().splitlines()]
        lines = [line for line in lines if len(line) > 3 and not line.startswith(("import ", "from "))]
        for at in range(len(lines) - REPEATED + 1):
            places["\n".join(lines[at : at + REPEATED])].append((name, at))
    pairs = {(a, b) for several in places.values() for i, a in enumerate(several) for b in several[i + 1 :]}
    follows = {(a, b) for a, b in pairs if ((a[0], a[1] - 1), (b[0], b[1] - 1)) in pairs}
    return len(pairs) - len(follows)


def loaded(source: Path, code: str) -> str:
    """Return the number of modules of the package that are loaded after some code."""
    program = f"import sys, numpy as np, runoff\n{code}\nprint(sum(m.split('.')[0] == 'runoff' for m in sys.modules))"
    environment = {**os.environ, "PYTHONPATH": str(source)}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    return done.stdout.strip() or done.stderr.strip().splitlines()[-1]


def main(source: Path) -> None:
    """Print one figure per line."""
    files = files_of(source)
    flat = [file for file in (source / "runoff").glob("*.py") if file.stem not in ("__init__", "__main__", "_version")]
    across = crossings(source)
    print(f"{'modules':52}{len(files):>7,}")
    print(f"{'modules directly under src/runoff':52}{len(flat):>7}")
    print(
        f"{'private names that cross packages':52}{len(across):>7}", *across, sep="\n  ".rstrip(" ") if across else ""
    )
    print(f"{f'pairs of places with {REPEATED} equal lines of code':52}{repeats(source):>7}")
    for walk, code in WALKS.items():
        print(f"{f'modules that {walk} loads':52}{loaded(source, code):>7}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "src").resolve())
