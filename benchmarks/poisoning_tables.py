"""The results of the poisoning experiments, as tables and as a CSV file."""

import csv
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

HEAD = ("dataset", "members", "election", "attack", "radius", "needed", "edits", "inputs")


class Findings:
    """The radius, the buckets needed to change the prediction and the edits in them, for each attack and input."""

    def __init__(self):
        self.rows = defaultdict(list)
        self.broken = Counter()  # predictions changed within the radius
        self.unproven = 0  # swaps that integer programming could not prove minimal in time

    def add(self, key, radius, needed, edits):
        """Add one row: `key` is (dataset, members, election, attack); `needed` is None if no number sufficed."""
        self.rows[key].append((int(radius), needed, edits))
        self.broken[key] += needed is not None and needed <= radius

    def write(self, path):
        """Write one row for each attack, radius and number of buckets, with the median number of edits."""
        with Path(path).open("w", newline="") as file:
            out = csv.writer(file, lineterminator="\n")
            out.writerow(HEAD)
            for key, rows in self.rows.items():
                groups = defaultdict(list)
                for radius, needed, edits in rows:
                    groups[radius, -1 if needed is None else needed].append(edits)
                for (radius, needed), edits in sorted(groups.items()):
                    total = "" if needed < 0 else f"{np.median(edits):g}"
                    out.writerow([*key, radius, "" if needed < 0 else needed, total, len(edits)])

    def table(self):
        """Return a Markdown table with one row for each attack."""
        lines = [
            "| members | election | attack | predictions | changed within the radius | flipped at all "
            "| with radius + 1 buckets | of those flipped: buckets beyond radius + 1, median, 90 %, most "
            "| median radius + 1 | median buckets | median edits |",
            "| --- " * 11 + "|",
        ]
        for key, rows in self.rows.items():
            lines.append("| " + " | ".join([*key[1:], *self._cells(rows, self.broken[key])]) + " |")
        return "\n".join(lines)

    @staticmethod
    def _cells(rows, broken):
        proven = np.array([radius + 1 for radius, _, _ in rows])
        needed = np.array([np.nan if n is None else n for _, n, _ in rows])
        edits = np.array([np.nan if n is None else e for _, n, e in rows])
        flipped = np.isfinite(needed)
        gap = (needed - proven)[flipped]
        cells = [f"{len(rows):,}", f"{broken}", f"{np.mean(flipped):.1%}", f"{np.mean(needed == proven):.1%}"]
        if not len(gap):
            return [*cells, "", "", "", ""]
        middle, high = np.quantile(gap, [0.5, 0.9], method="inverted_cdf")
        return [
            *cells,
            f"{middle:g}, {high:g}, {gap.max():g}",
            f"{np.median(proven[flipped]):g}",
            f"{np.median(needed[flipped]):g}",
            f"{np.median(edits[flipped]):g}",
        ]


class Refits:
    """The results of end-to-end refits on edited data."""

    def __init__(self):
        self.rows = []

    def add(self, members, what, fits, retrained, compared, changed, flipped=""):
        self.rows.append((members, what, fits, retrained, compared, changed, flipped))

    def table(self):
        head = ["members", "edits", "fits", "members trained", "predictions compared within the radius", "changed"]
        lines = ["| " + " | ".join([*head, "beyond it"]) + " |", "| --- " * 7 + "|"]
        lines += ["| " + " | ".join(c if isinstance(c, str) else f"{c:,}" for c in row) + " |" for row in self.rows]
        return "\n".join(lines)
