"""Run the notebooks of examples/notebooks, and write them with their outputs as .ipynb files.

    python scripts/notebooks.py

Each notebook is a Python file whose cells begin with "# %%", a convention of many editors. `tests/test_docs.py` fails
when a notebook is out of date.
"""

import ast
import base64
import contextlib
import io
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "examples" / "notebooks"


def cells(source: str) -> list[tuple[str, str]]:
    """Return the cells of a file: their kind, "markdown" or "code", and their text."""
    found = []
    for part in source.split("# %%")[1:]:
        head, _, body = part.partition("\n")
        if head.strip() == "[markdown]":
            found.append(
                ("markdown", "\n".join(line.removeprefix("#").removeprefix(" ") for line in body.splitlines()).strip())
            )
        else:
            found.append(("code", body.strip()))
    return found


def outputs(code: str, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    """Run a cell, and return what a notebook shows below it."""
    from matplotlib import pyplot as plt

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(ast.parse(code), "a cell", "exec"), namespace)  # noqa: S102
    shown: list[dict[str, Any]] = []
    if printed.getvalue():
        shown.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)})
    for number in plt.get_fignums():
        picture = io.BytesIO()
        plt.figure(number).savefig(picture, format="png", dpi=80, metadata={"Software": None})
        encoded = base64.b64encode(picture.getvalue()).decode()
        shown.append({"output_type": "display_data", "metadata": {}, "data": {"image/png": encoded}})
        plt.close(number)
    return shown


def notebook(source: str) -> dict[str, Any]:
    """Run all cells of a file, and return the notebook."""
    import matplotlib
    from matplotlib import pyplot as plt

    matplotlib.use("agg")
    plt.close("all")  # close the figures of earlier code
    namespace: dict[str, Any] = {"__name__": "__main__"}
    written: list[dict[str, Any]] = []
    for i, (kind, text) in enumerate(cells(source)):
        cell = {"cell_type": kind, "id": f"cell-{i}", "metadata": {}, "source": text.splitlines(keepends=True)}
        if kind == "code":
            number = sum(known["cell_type"] == "code" for known in written) + 1
            cell |= {"execution_count": number, "outputs": outputs(text, namespace)}
        written.append(cell)
    language = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": written, "metadata": language, "nbformat": 4, "nbformat_minor": 5}


def main() -> None:
    """Write every notebook."""
    for path in sorted(FOLDER.glob("*.py")):
        target = path.with_suffix(".ipynb")
        target.write_text(json.dumps(notebook(path.read_text()), indent=1) + "\n")
        print(target)


if __name__ == "__main__":
    main()
