"""Write docs/gallery.md: every file of examples/ with its output and a picture of its certificates.

    python scripts/gallery.py

It runs the examples (about a minute). `tests/test_docs.py` fails when the page is out of date.
"""

import ast
import contextlib
import io
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "gallery"
HEAD = """# Examples

Every file of `examples/`, with its output and a picture of what it certifies. `python scripts/gallery.py` writes this
page.

## Notebooks

With their outputs, for three kinds of users: [practitioners](../examples/notebooks/practitioner.ipynb)
(choose settings, compare with the undefended model, forget a sample),
[researchers](../examples/notebooks/researcher.ipynb) (elections, bounds and attacks on your scores), and
[security teams](../examples/notebooks/security.ipynb) (sources, targets, gates, proofs).
`python scripts/notebooks.py` runs them, from the Python files beside them.
"""
ONE_CURVE = """from matplotlib import pyplot as plt

figure, ax = plt.subplots(figsize=(4.5, 2.8), layout="constrained")
certificates.plot({labels}, ax=ax)
figure.savefig("{name}.svg")
"""
# The order of the page, each with the block that draws the picture.
EXAMPLES = {
    "digits": ONE_CURVE.format(labels="y_test", name="digits"),
    "text": ONE_CURVE.format(labels="labels[test]", name="text"),
    "tabular": ONE_CURVE.format(labels="y_test", name="tabular"),
    "encoder": """from matplotlib import pyplot as plt

figure, ax = plt.subplots(figsize=(4.5, 2.8), layout="constrained")
for name, curve in certificates.items():
    curve.plot(y_inputs, ax=ax, label=name)
ax.legend()
figure.savefig("encoder.svg")
""",
    "networks": ONE_CURVE.format(labels="y_test", name="networks"),
}


def parts(name: str) -> tuple[str, str, str]:
    """Return the title, the introduction and the code of an example."""
    source = (ROOT / "examples" / f"{name}.py").read_text()
    tree = ast.parse(source)
    title, _, introduction = (ast.get_docstring(tree) or "").partition("\n")
    code = source.split("\n", tree.body[0].end_lineno or 0)[-1].strip()
    return title.rstrip("."), introduction.strip(), code


def section(name: str, output: str) -> str:
    """Return the part of the page on one example."""
    title, introduction, code = parts(name)
    lines = [f"## {title}", f"[examples/{name}.py](../examples/{name}.py)", introduction]
    lines += [f"```python\n{code}\n```", f"```text\n{output.strip()}\n```", f"```python\n{EXAMPLES[name]}```"]
    lines.append(f"![Certified accuracy by number of edits](gallery/{name}.svg)")
    return "\n\n".join(line for line in lines if line) + "\n"


def main() -> None:
    """Run the examples, and write the page and the pictures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "runoff"  # the same picture has the same bytes
    matplotlib.rcParams["svg.fonttype"] = "none"
    PICTURES.mkdir(exist_ok=True)
    page = [HEAD]
    for name, picture in EXAMPLES.items():
        _, _, code = parts(name)
        printed, namespace = io.StringIO(), {"__name__": "__main__"}
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"examples/{name}.py", "exec"), namespace)  # noqa: S102
        page.append(section(name, printed.getvalue()))
        with contextlib.chdir(PICTURES):
            exec(picture.replace('.svg")', '.svg", metadata={"Date": None})'), namespace)  # noqa: S102
    PAGE.write_text("\n".join(page))


if __name__ == "__main__":
    main()
