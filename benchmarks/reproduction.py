"""List the rows of the paper that have been run, from docs/reproduction.csv: the first table of docs/reproduction.md.

python -m benchmarks.reproduction [--table docs/reproduction.csv] [--write docs/reproduction.md]

A row counts as run if it was trained with the paper's network, recipe, d and number of trials. If only d or the number
of trials was smaller, it is named. `--write` puts the table into the page, between two comments.
"""

import argparse
import csv
from pathlib import Path

from runoff.paper import tables
from runoff.recipes import PAPERS

START, END = "<!-- start of `python -m benchmarks.reproduction` -->", "<!-- end -->"
METHODS = ("DPA", "DPA+ROE", "DPA*", "DPA*+ROE", "FA", "FA+ROE")
TITLES = {"cifar10": "CIFAR-10", "gtsrb": "GTSRB", "mnist": "MNIST"}
RUN, NOT_RUN = "run", "not run"


def read(path):
    """Return what was run of each row of the paper: (d, number of trials) of every line with the paper's recipe."""
    done = {}
    with path.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            if line["recipe"] in PAPERS and line["network"] == "nin":
                key = ("T6" if line["table"] == "T6" else "", line["dataset"], int(line["k"]), line["method"])
                row = done.setdefault((*key, int(line["paper_d"])), {})
                row.setdefault((int(line["d"]), int(line["trials"])), set()).add(int(line["budget"]))
    return done


def status(row, done):
    """Return whether a row of the paper was run with the paper's settings, with fewer networks, or not."""
    key = ("T6" if row.table == "T6" else "", row.dataset, row.k, row.method, row.d)
    whole = [settings for settings, budgets in done.get(key, {}).items() if budgets >= set(row.percent)]
    if not whole:
        return NOT_RUN
    d, trials = max(whole)
    if (d, trials) >= (row.d, row.trials):
        return RUN
    fewer = ([f"d = {d}"] if d < row.d else []) + ([f"{trials} trials"] if trials < row.trials else [])
    return f"fewer: {', '.join(fewer)}"


def unique_rows():
    """Return the 47 rows and the 4 of table 6, each printed in one or several tables."""
    rows = {(r.table == "T6", r.dataset, r.k, r.method, r.d): r for r in tables.rows()}
    return [rows[key] for key in sorted(rows, key=lambda key: (key[0], list(TITLES).index(key[1]), *key[2:]))]


def printed(done):
    """Return the summary and the table as Markdown."""
    rows = unique_rows()
    parts = []
    for title, of in (("rows of tables 1 to 4", False), ("rows of table 6, for the effect of the seed", True)):
        found = [status(row, done) for row in rows if (row.table == "T6") is of]
        n_run, n_not = found.count(RUN), found.count(NOT_RUN)
        n_fewer = len(found) - n_run - n_not
        parts.append(
            f"Of the {len(found)} {title}, {n_run} have been run with the paper's settings, {n_fewer} with fewer "
            f"networks, and {n_not} not."
        )
    lines = [parts[0], parts[1], "", "| setting | d | " + " | ".join(m.replace("*", r"\*") for m in METHODS) + " |"]
    lines.append("| --- " * (2 + len(METHODS)) + "|")
    by_line = {}
    for row in rows:
        by_line.setdefault((row.table == "T6", row.dataset, row.k, row.d), {})[row.method] = status(row, done)
    before = None
    for (of_table_6, dataset, k, d), cells in by_line.items():
        setting = f"{TITLES[dataset]}, k = {k:,}" + (", table 6" if of_table_6 else "")
        shown = "" if setting == before else setting
        before = setting
        lines.append(f"| {shown} | {d} | " + " | ".join(cells.get(method, "") for method in METHODS) + " |")
    return "\n".join(lines) + "\n"


def inserted(page, text):
    """Return a page with its table replaced."""
    before, rest = page.split(START)
    return f"{before}{START}\n\n{text}\n{END}{rest.split(END, 1)[1]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, default=Path("docs/reproduction.csv"))
    parser.add_argument("--write", type=Path, metavar="PAGE", help="replace the table of this page")
    given = parser.parse_args()
    text = printed(read(given.table))
    print(text, end="")
    if given.write:
        page = given.write.read_text(encoding="utf-8")
        given.write.write_text(inserted(page, text), encoding="utf-8")


if __name__ == "__main__":
    main()
