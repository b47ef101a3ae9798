"""Write docs/gallery.md: every file of examples/ with its output and a picture of its certificates.

    python scripts/gallery.py              all of them: about five minutes, and spam needs its mails
    python scripts/gallery.py text tabular only these; the others are kept as they are

`tests/test_docs.py` fails when the page is out of date.
"""

import ast
import contextlib
import io
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "gallery.md"
PICTURES = ROOT / "docs" / "gallery"
HEAD = """# Examples

Every file in `examples/`, with its output and a figure of its certified accuracy. `python scripts/gallery.py` writes
this page.

## Notebooks

There are notebooks with outputs for [practitioners](../examples/notebooks/practitioner.ipynb) (choose settings, compare
with the undefended model, forget a sample), [researchers](../examples/notebooks/researcher.ipynb) (elections, bounds
and attacks on your scores), and [security teams](../examples/notebooks/security.ipynb) (sources, targets, gates,
proofs).
`python scripts/notebooks.py` makes them from the Python files in the same folder.
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
    "spam": """# Needs the mails, as above.
from matplotlib import pyplot as plt

figure, ax = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
shown = range(36)
for threat, what in (("sources", "domains"), ("samples", "edited mails"), ("labels", "changed labels")):
    ax.plot(shown, by_class(certificates[threat], list(shown)), label=what)
ax.axhline(accuracy, color="grey", linestyle=":", label="no defence, no attack")
ax.set(xlabel="edits of the training mails", ylabel="certified accuracy (%)", ylim=(0, 100))
ax.legend()
figure.savefig("spam.svg")
""",
    "clinics": """# Needs the certificates above.
from matplotlib import pyplot as plt

figure, ax = plt.subplots(figsize=(5.5, 3.4), layout="constrained")
for threat, what in (("sources", "clinics"), ("samples", "edited records"), ("labels", "changed labels")):
    certificates[threat].plot(y_test, ax=ax, label=what)
ax.set(xlabel="edits of the training records")
ax.axhline(100 * undefended.score(X_test, y_test), color="grey", linestyle=":", label="no defence, no attack")
ax.legend()
figure.savefig("clinics.svg")
""",
    "labels": """# Needs the certificates above.
from matplotlib import pyplot as plt

figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained", sharey=True)
for ax, (name, (by_samples, by_labels)) in zip(axes, certificates.items(), strict=True):
    X, y, _, _ = cases[name]
    truth = y[np.arange(len(y)) % 4 == 0]
    by_samples[16].plot(truth, ax=ax, label="edited samples")
    by_labels[16].plot(truth, ax=ax, label="changed labels")
    ax.set(title=name, xlabel="edits")
axes[0].legend()
figure.savefig("labels.svg")
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


def main(names: list[str]) -> None:
    """Run the examples, or those of these names, and write the page and the pictures."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "runoff"  # the same picture has the same bytes
    matplotlib.rcParams["svg.fonttype"] = "none"
    PICTURES.mkdir(exist_ok=True)
    sections = re.split(r"^(?=## )", PAGE.read_text(), flags=re.MULTILINE)[1:]
    named = [(re.search(r"\[examples/(\w+)\.py\]", text), text.rstrip() + "\n") for text in sections]
    existing = {link[1]: text for link, text in named if link}
    page = [HEAD]
    for name, picture in EXAMPLES.items():
        if names and name not in names:
            page.append(existing[name])
            continue
        _, _, code = parts(name)
        printed, namespace = io.StringIO(), {"__name__": "__main__"}
        with contextlib.redirect_stdout(printed):
            exec(compile(code, f"examples/{name}.py", "exec"), namespace)  # noqa: S102
        page.append(section(name, printed.getvalue()))
        with contextlib.chdir(PICTURES):
            exec(picture.replace('.svg")', '.svg", metadata={"Date": None})'), namespace)  # noqa: S102
    PAGE.write_text("\n".join(page))


if __name__ == "__main__":
    main(sys.argv[1:])
