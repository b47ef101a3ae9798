"""The tables and the figure of docs/results.md, from the rows and ballots that `benchmarks.recipes` stores.

python -m benchmarks.results members DIRECTORY
python -m benchmarks.results collect DIRECTORY --csv docs/results.csv
python -m benchmarks.results figure --csv docs/results.csv --out docs/figures/results.svg

`members` compares the variants of a recipe, out of part. `collect` certifies the ballots of all ensembles by every
election, writes a row for each number of edits, and prints the tables. `figure` draws the rows.
"""

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

import runoff
from runoff.paper import tables

COLUMNS = (
    "dataset", "k", "track", "recipe", "election", "edits", "certified", "std", "clean", "members", "seconds", "device",
    "command",
)  # fmt: skip
TITLES = {"cifar10": "CIFAR-10", "gtsrb": "GTSRB", "mnist": "MNIST"}
EDITS = {  # the paper's numbers of edits, and the step of the curve between them
    ("cifar10", 50): ((5, 10, 15, 18, 20), 1),
    ("cifar10", 250): ((10, 20, 40, 50, 60), 5),
    ("gtsrb", 50): ((5, 10, 15, 20, 22), 1),
    ("gtsrb", 100): ((5, 15, 20, 25, 30), 2),
    ("mnist", 1200): ((100, 200, 300, 400, 500), 25),
}
UNEXPLAINED = ("cifar10", 50, "DPA*", 32)  # rows of the paper that differ by 20 points from comparable ones
FILES = {"cifar10": "cifar10.npz", "gtsrb": "gtsrb48.npz --classes 43 --name gtsrb", "mnist": "mnist.npz"}


def stored(directory, what):
    with (directory / "rows.jsonl").open() as file:
        return [row for row in map(json.loads, file) if row["what"] == what]


def ballots(directory, name, part):
    """Return an ensemble's ballots, with labels and, for training images, buckets."""
    paths = sorted(directory.glob(f"{name}-{part}*.npz"), key=lambda path: int(path.stem.rpartition(part)[2]))
    pieces = [np.load(path, allow_pickle=False) for path in paths]
    starts = np.cumsum([0, *(len(piece["y"]) for piece in pieces)])[:-1]
    if not pieces or [int(piece["start"]) for piece in pieces] != starts.tolist():
        raise SystemExit(f"{directory}: pieces of {name}-{part} are missing")
    return {key: np.concatenate([piece[key] for piece in pieces]) for key in pieces[0].files if key != "start"}


def paper_best(dataset, k, edits):
    """Return the best number of any row of the paper, at any training cost."""
    rows = [r for r in tables.rows(dataset=dataset, k=k) if (r.dataset, r.k, r.base, r.d) != UNEXPLAINED]
    return max(r.percent[edits] for r in rows if edits in r.percent)


def command(row):
    data, timed = FILES[row["dataset"]], f" --time {row['inference_inputs']}" if "inference_inputs" in row else ""
    return (
        f"python -m benchmarks.recipes ensemble {data} --k {row['k']} --samples {row['samples']}{timed} "
        f"--out DIRECTORY {row['variant']}"
    )


def described(row, election, edits, certified, clean):
    return {
        "dataset": row["dataset"], "k": row["k"], "track": "scratch", "recipe": row["variant"], "election": election,
        "edits": edits, "certified": f"{certified:.2f}", "std": "", "clean": f"{clean:.2f}",
        "members": f"{np.mean(row['test']):.2f}", "seconds": f"{row['seconds']:.1f}", "device": row["device"],
        "command": command(row),
    }  # fmt: skip


def reproduced(path):
    """Yield the rows of the paper's recipe as reproduced by runoff."""
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            if row["table"] == "T3" and row["d"] == "1":
                yield {
                    "dataset": row["dataset"], "k": row["k"], "track": "paper", "recipe": row["recipe"],
                    "election": "runoff" if row["method"].endswith("+ROE") else "plurality", "edits": row["budget"],
                    "certified": row["ours"], "std": row["std"], "clean": row["clean"], "members": "",
                    "seconds": row["seconds"], "device": row["device"], "command": row["command"],
                }  # fmt: skip


def collect(given):
    paper_rows = list(reproduced(given.reproduction))
    rows = []
    for row in stored(given.directory, "ensemble"):
        dataset, k = row["dataset"], row["k"]
        budgets, step = EDITS[dataset, k]
        edits = np.unique([*budgets, *range(0, k // 2 + 1, step)])
        test, part = (ballots(given.directory, row["ballots"], name) for name in ("test", "part"))
        on_test, out_of_part = np.mean(row["test"]), np.mean(row["out_of_part"])
        print(f"\n{TITLES[dataset]}, k = {k}, {row['variant']}: {row['seconds']:.1f} s")
        print(f"accuracy of members: {out_of_part:.2f} % out of part, {on_test:.2f} % on the test images")
        if "inference_seconds" in row:
            print(f"{row['inference_inputs']} inputs scored in {row['inference_seconds']:.2f} s")
        head = ["edits", "0", *map(str, budgets)]
        print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
        for election in given.elections.split(","):
            certificates = runoff.certify(test["ballots"], election=election)
            certified = 100 * runoff.certified_accuracy(certificates, test["y"], edits)
            at = dict(zip(edits.tolist(), certified.tolist(), strict=True))
            rows += [described(row, election, n, value, at[0]) for n, value in at.items()]
            print_row(f"{election}, test", [at[n] for n in (0, *budgets)])
            estimate = runoff.out_of_part(part["ballots"], part["y"], part["buckets"], [0, *budgets], election=election)
            print_row(f"{election}, out of part", 100 * estimate.certified)
        reproduction = {
            int(r["edits"]): r
            for r in paper_rows
            if (r["dataset"], r["k"], r["election"]) == (dataset, str(k), "runoff")
        }
        certified = [float(reproduction[n]["certified"]) for n in budgets]
        print_row("runoff, paper's recipe, test", [float(reproduction[budgets[0]]["clean"]), *certified])
        print_row("paper, best row", [None, *(paper_best(dataset, k, n) for n in budgets)])
    with given.csv.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([*rows, *paper_rows])


def print_row(name, values):
    print(f"| {name} | {' | '.join('' if value is None else f'{value:.2f}' for value in values)} |")


def members(given):
    """Print means and standard errors, and the paired differences from the first variant of the same setting."""
    first = {}
    print("| k | variant | accuracy, % | difference from the first | seconds |\n| --- | --- | --- | --- | --- |")
    for row in stored(given.directory, "members"):
        if row["dataset"] not in TITLES:
            continue
        shift, accuracy = row["scored_with_shift"], np.array(row["out_of_part"])
        name = row["variant"] + ("" if shift is None else f", test_shift={shift}")
        gain = accuracy - first.setdefault((row["dataset"], row["k"]), accuracy)
        errors = [np.std(values, ddof=1) / len(values) ** 0.5 for values in (accuracy, gain)]
        print(
            f"| {TITLES[row['dataset']]}, {row['k']} | {name} | {accuracy.mean():.2f} +- {errors[0]:.2f} | "
            f"{gain.mean():+.2f} +- {errors[1]:.2f} | {row['seconds']:.1f} |"
        )


def figure(given):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    style = {"svg.hashsalt": "runoff", "svg.fonttype": "none", "font.size": 8}
    plt.rcParams.update({**style, "axes.spines.top": False, "axes.spines.right": False})
    lines = defaultdict(dict)
    with given.csv.open(newline="") as file:
        for row in csv.DictReader(file):
            key = row["dataset"], int(row["k"]), row["track"], row["election"]
            lines[key][int(row["edits"])] = float(row["certified"])
            lines[key].setdefault(0, float(row["clean"]))
    kinds = {
        ("scratch", "runoff"): ("strong members, run-off", {"color": "#5e81ac", "lw": 1.8}),
        ("scratch", "plurality"): ("strong members, plurality", {"color": "#88c0d0", "lw": 1.2}),
        ("paper", "runoff"): ("paper's recipe, run-off", {"color": "#d08770", "lw": 1.2, "marker": "o", "ms": 3}),
    }
    drawing, axes = plt.subplots(1, len(EDITS), figsize=(12, 2.9), sharey=True, layout="constrained")
    named = {}
    for ax, ((dataset, k), (budgets, _)) in zip(axes, EDITS.items(), strict=True):
        for (track, election), (label, how) in kinds.items():
            at = lines[dataset, k, track, election]
            (named[label],) = ax.plot(sorted(at), [at[n] for n in sorted(at)], **how)
        best = [paper_best(dataset, k, n) for n in budgets]
        (named["the paper's best row"],) = ax.plot(budgets, best, "x", color="#4c566a", ms=5)
        ax.set(title=f"{TITLES[dataset]}, k = {k:,}", xlabel="edits", xlim=(0, k / 2), ylim=(0, 100))
    axes[0].set_ylabel("certified accuracy, %")
    drawing.legend(named.values(), named.keys(), loc="outside lower center", ncols=4, frameon=False)
    drawing.savefig(given.out, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["members", "collect", "figure"])
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--csv", type=Path, default=Path("docs/results.csv"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures/results.svg"))
    parser.add_argument("--reproduction", type=Path, default=Path("docs/reproduction.csv"))
    parser.add_argument("--elections", default="plurality,runoff,maximin")
    given = parser.parse_args()
    {"members": members, "collect": collect, "figure": figure}[given.what](given)


if __name__ == "__main__":
    main()
