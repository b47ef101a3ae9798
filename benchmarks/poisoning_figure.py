"""The figure of proven radii against the poisoned buckets and edits that real attacks needed."""

import csv
from collections import defaultdict
from pathlib import Path

import matplotlib
import numpy as np

matplotlib.use("svg")
import matplotlib.pyplot as plt

TITLES = {"digits": "Digits", "cancer": "Breast cancer", "cifar10": "CIFAR-10"}
ACROSS = 4  # panels per row
STYLE = {
    "svg.hashsalt": "runoff",  # the same file each time
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
COLOURS = {
    "whole": "#4c566a",
    "one edit": "#b48ead",
    "once": "#d08770",
    "extreme": "#ebcb8b",
    "five": "#5e81ac",
    "many": "#a3be8c",
}


def kind(attack):
    """Return the kind of an attack, which decides its colour, by how much of a bucket it edits."""
    if attack.startswith("whole"):
        return "whole"
    if attack.startswith("one "):
        return "extreme" if "extreme" in attack else "one edit"
    return "five" if "five" in attack else "many" if attack[0].isdigit() else "once"


def read(paths):
    """Return {(dataset, members): {attack: {radius: [(needed, edits, inputs)]}}} of the run-off elections."""
    panels = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for path in paths:
        with Path(path).open(newline="") as file:
            for row in csv.DictReader(file):
                if row["election"] == "runoff" and row["needed"]:
                    value = int(row["needed"]), float(row["edits"]), int(row["inputs"])
                    panels[row["dataset"], row["members"]][row["attack"]][int(row["radius"])].append(value)
    return panels


def line(radii, column):
    """Return radius + 1, and the median, 10th and 90th percentile of a column over the inputs of that radius."""
    x = np.array(sorted(radii))
    columns = [np.repeat([v[column] for v in radii[r]], [v[2] for v in radii[r]]) for r in x]
    return x + 1, *np.array([np.quantile(c, [0.5, 0.1, 0.9], method="inverted_cdf") for c in columns]).T


def draw(paths, out):
    """Draw the panels, four per row: poisoned buckets above, edits below."""
    panels = read(paths)
    plt.rcParams.update(STYLE)
    blocks = -(-len(panels) // ACROSS)
    figure, axes = plt.subplots(
        2 * blocks, ACROSS, figsize=(10, 4.6 * blocks + 0.8), squeeze=False, layout="constrained"
    )
    pairs = [(axes[2 * b, j], axes[2 * b + 1, j]) for b in range(blocks) for j in range(ACROSS)]
    named = {}
    for above, below in pairs[len(panels) :]:
        above.axis("off")
        below.axis("off")
    for (above, below), ((dataset, members), attacks) in zip(pairs, panels.items(), strict=False):
        above.set_title(f"{TITLES[dataset]}\n{members}", fontsize=8)
        most = 1
        for attack, radii in attacks.items():
            for ax, column in ((above, 0), (below, 1)):
                x, middle, low, high = line(radii, column)
                style = {"color": COLOURS[kind(attack)], "linestyle": "--" if "next" in attack else "-"}
                (drawn,) = ax.plot(x, middle, lw=1.2, marker="o", ms=2 if len(x) < 40 else 0, **style)
                ax.fill_between(x, low, high, color=style["color"], alpha=0.15, lw=0)
                named.setdefault(attack, drawn)
                most = max(most, x.max())
        for ax in (above, below):
            (proof,) = ax.plot(np.arange(1, most + 1), np.arange(1, most + 1), color="black", lw=0.8, ls=":", zorder=3)
            ax.set_xlim(0, most + 1)
        above.set_ylabel("poisoned buckets needed")
        below.set_ylabel("edits needed")
        below.set_yscale("log")
        below.set_xlabel("proven: radius + 1")
    figure.legend(
        [proof, *named.values()], ["what is proven", *named], loc="outside lower center", ncols=2, frameon=False
    )
    figure.savefig(out, metadata={"Date": None})
