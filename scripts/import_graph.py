"""Print the import graph in numbers: modules, imports of private modules, and the modules that three walks load.

python scripts/import_graph.py [SOURCE]     # SOURCE: a folder that holds the package, src by default
"""

import ast
import os
import subprocess
import sys
from pathlib import Path

WALKS = {
    "certify(scores)": "runoff.certify(np.random.default_rng(0).normal(size=(4, 5, 3)))",
    "fit": "runoff.RunoffClassifier(n_partitions=2, classes=[0, 1]).fit(np.arange(20.0)[:, None], np.arange(20) % 2)",
    "runoff train": "from click.testing import CliRunner; from runoff.cli import main; CliRunner().invoke(main, "
    "'train digits --k 2 --network small --recipe quick --device cpu --dry-run --out nowhere'.split())",
}


def imports(file: Path, name: str) -> set[str]:
    """Return the modules of the package that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {one for one in found if one.split(".")[0] == name.split(".")[0]}


def main(source: Path) -> None:
    """Print the table."""
    files = {
        ".".join(file.relative_to(source).with_suffix("").parts): file for file in (source / "runoff").rglob("*.py")
    }
    names = {name.removesuffix(".__init__"): file for name, file in files.items()}
    print("modules:", len(files), "with", sum(len(file.read_text().splitlines()) for file in files.values()), "lines")
    flat = [file for file in (source / "runoff").glob("*.py") if file.stem not in ("__init__", "__main__", "_version")]
    print("flat modules:", len(flat))
    crossings = {
        (name, target)
        for name, file in names.items()
        for target in imports(file, name)
        if target in names and target.split(".")[-1].startswith("_") and target != "runoff._version"
        and target.count(".") > 0 and not name.startswith(target.rpartition(".")[0])
    }  # fmt: skip
    print("private modules imported by other packages:", len(crossings), *sorted(f"{a} -> {b}" for a, b in crossings))
    for walk, code in WALKS.items():
        program = (
            f"import sys, numpy as np, runoff\n{code}\nprint(sum(m.split('.')[0] == 'runoff' for m in sys.modules))"
        )
        environment = {**os.environ, "PYTHONPATH": str(source)}
        done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
        print(f"modules that {walk} loads:", done.stdout.strip() or done.stderr.strip().splitlines()[-1])


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "src").resolve())
