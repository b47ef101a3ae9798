"""The tables and the figure of docs/results.md, from the rows that `benchmarks.recipes` writes.

python -m benchmarks.results members DIRECTORY
python -m benchmarks.results add DIRECTORY
python -m benchmarks.results tables
python -m benchmarks.results figure --out docs/figures/results.svg
python -m benchmarks.results parts --out docs/figures/results-parts.svg
python -m benchmarks.results against-parts --out docs/figures/results-against-parts.svg

`members` compares the variants of a recipe, out of part. `add` adds runs to docs/results-runs.csv, which has a row for
each ensemble, election and number of edits; the same run is replaced. `tables` prints the tables of docs/results.md:
means and standard deviations over runs that differ in nothing but random numbers; it also writes them to
docs/results.csv, with the rows of the paper's recipe. `figure` draws them, and `parts` and
`against-parts` draw those of encoders, a curve for each number of parts and for each number of edits.
"""

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path

import numpy as np

from runoff.paper import tables

RUN = (
    "track", "dataset", "k", "recipe", "networks", "seed", "election", "edits", "certified", "estimated", "clean",
    "members", "seconds", "device", "command",
)  # fmt: skip
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
ENCODER_EDITS = (0, 5, 10, 20, 40, 60, 100, 200, 300, 400, 500)
UNEXPLAINED = ("cifar10", 50, "DPA*", 32)  # rows of the paper that differ by 20 points from comparable ones
FILES = {"cifar10": "cifar10.npz", "gtsrb": "gtsrb48.npz --classes 43 --name gtsrb", "mnist": "mnist.npz"}


def stored(directory, what):
    with (directory / "rows.jsonl").open() as file:
        return [row for row in map(json.loads, file) if row["what"] == what]


def paper_best(dataset, k, edits):
    """Return the best number of any row of the paper, at any training cost."""
    rows = [r for r in tables.rows(dataset=dataset, k=k) if (r.dataset, r.k, r.base, r.d) != UNEXPLAINED]
    return max(r.percent[edits] for r in rows if edits in r.percent)


def command(row):
    data, timed = FILES[row["dataset"]], f" --time {row['inference_inputs']}" if "inference_inputs" in row else ""
    seed = f" --seed {row['seed']}" if row["seed"] else ""
    return (
        f"python -m benchmarks.recipes ensemble {data} --k {row['k']} --samples {row['samples']}{timed}{seed} "
        f"--out DIRECTORY {row['variant']}"
    )


def described(row):
    """Yield the rows of docs/results-runs.csv for an ensemble, or for one network per member of it."""
    name, _, changes = row["variant"].partition(":")
    changed = dict(change.split("=", 1) for change in changes.split(",") if change)
    trained = int(changed.pop("seeds", 1))
    networks, seed = (trained, str(row["seed"])) if row["version"] == "mean" else (1, f"{row['seed']}.{row['version']}")
    recipe = name + (":" if changed else "") + ",".join(f"{key}={value}" for key, value in changed.items())
    budgets, step = EDITS[row["dataset"], row["k"]]
    for election, certified in row["certified"].items():
        for n in sorted({*budgets, *range(0, row["k"] // 2 + 1, step)}):
            yield {
                "track": "scratch", "dataset": row["dataset"], "k": row["k"], "recipe": recipe, "networks": networks,
                "seed": seed, "election": election, "edits": n, "certified": f"{certified[n]:.2f}",
                "estimated": f"{row['estimated'][election][n]:.2f}", "clean": f"{certified[0]:.2f}",
                "members": f"{row['test']:.2f}", "seconds": f"{row['seconds'] * networks / trained:.1f}",
                "device": row["device"], "command": command(row),
            }  # fmt: skip


def encoded(row):
    """Yield the rows of docs/results-runs.csv for heads on an encoder."""
    for election, certified in row["certified"].items():
        for n, value in certified.items():
            yield {
                "track": "encoder", "dataset": row["dataset"], "k": row["k"], "recipe": row["recipe"], "networks": 1,
                "seed": str(row["seed"]), "election": election, "edits": n,
                "certified": f"{value:.2f}", "estimated": f"{row['estimated'][election][n]:.2f}",
                "clean": f"{certified['0']:.2f}", "members": f"{row['members']:.2f}",
                "seconds": f"{row['seconds']:.1f}", "device": row["device"], "command": row["command"],
            }  # fmt: skip


def identity(run):
    return tuple(str(run[key]) for key in ("track", "dataset", "k", "recipe", "networks", "seed", "election", "edits"))


def read(path):
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path, columns, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def add(given):
    runs = {identity(run): run for run in read(given.runs)}
    runs |= {identity(run): run for row in stored(given.directory, "ensemble") for run in described(row)}
    runs |= {identity(run): run for row in stored(given.directory, "encoder") for run in encoded(row)}
    write(given.runs, RUN, runs.values())


def averaged(runs):
    """Yield the rows of docs/results.csv: a mean and a standard deviation over runs that differ in their seed alone."""
    alike = defaultdict(list)
    for run in runs:
        alike[tuple(run[key] for key in ("dataset", "k", "track", "recipe", "networks", "election", "edits"))].append(
            run
        )
    for (dataset, k, track, recipe, networks, election, edits), same in alike.items():
        certified, *others = ([float(run[key]) for run in same if run[key]] for key in ("certified", *MEANS))
        means = {
            key: f"{np.mean(values):.{digits}f}" for (key, digits), values in zip(MEANS.items(), others, strict=True)
        }
        yield {
            "dataset": dataset, "k": k, "track": track, "election": election, "edits": edits,
            "recipe": recipe if networks == "1" else f"{recipe}{',' if ':' in recipe else ':'}seeds={networks}",
            "certified": f"{np.mean(certified):.2f}",
            "std": f"{np.std(certified, ddof=1):.2f}" if len(certified) > 1 else "",
            **means, "device": same[-1]["device"], "command": same[-1]["command"],
        }  # fmt: skip


MEANS = {"clean": 2, "members": 2, "seconds": 1}  # the other columns that are averaged, and their digits


def reproduced(path):
    """Yield the rows of the paper's recipe as reproduced by runoff."""
    for row in read(path):
        if row["table"] == "T3" and row["d"] == "1":
            yield {
                "dataset": row["dataset"], "k": row["k"], "track": "paper", "recipe": row["recipe"],
                "election": "runoff" if row["method"].endswith("+ROE") else "plurality", "edits": row["budget"],
                "certified": row["ours"], "std": row["std"], "clean": row["clean"], "members": "",
                "seconds": row["seconds"], "device": row["device"], "command": row["command"],
            }  # fmt: skip


def print_tables(given):
    runs, paper = read(given.runs), list(reproduced(given.reproduction))
    rows = list(averaged(runs))
    write(given.csv, COLUMNS, [*rows, *paper])
    for (dataset, k), (budgets, _) in EDITS.items():
        of_setting = [
            row for row in rows if (row["dataset"], row["k"]) == (dataset, str(k)) and row["track"] != "encoder"
        ]
        for recipe in dict.fromkeys(row["recipe"] for row in of_setting):
            same = [row for row in of_setting if row["recipe"] == recipe]
            n = len(
                {run["seed"] for run in runs if (run["dataset"], run["k"]) == (dataset, str(k)) and _has(run, recipe)}
            )
            print(f"\n{TITLES[dataset]}, k = {k}, {recipe}: {n} {'runs' if n > 1 else 'run'}, {same[0]['seconds']} s")
            print(f"accuracy of members on the test images: {same[0]['members']} %")
            head = ["edits", "0", *map(str, budgets)]
            print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
            for election in dict.fromkeys(row["election"] for row in same):
                at = {int(row["edits"]): row for row in same if row["election"] == election}
                print_row(f"{election}, test", [cell(at[e]) for e in (0, *budgets)])
                estimates = defaultdict(list)
                for run in runs:
                    if (run["dataset"], run["k"], run["election"]) == (dataset, str(k), election) and _has(run, recipe):
                        estimates[int(run["edits"])] += [float(run["estimated"])] if run["estimated"] else []
                if all(estimates[e] for e in (0, *budgets)):
                    print_row(f"{election}, out of part", [f"{np.mean(estimates[e]):.2f}" for e in (0, *budgets)])
        ours = {
            int(r["edits"]): r for r in paper if (r["dataset"], r["k"], r["election"]) == (dataset, str(k), "runoff")
        }
        if ours:
            print_row(
                "runoff, paper's recipe, test",
                [f"{float(n):.2f}" for n in (ours[budgets[0]]["clean"], *(ours[e]["certified"] for e in budgets))],
            )
        print_row("paper, best row", ["", *(f"{paper_best(dataset, k, e):.2f}" for e in budgets)])

    print_encoders([row for row in rows if row["track"] == "encoder" and row["election"] == "runoff"])


def print_encoders(rows):
    """Print run-off by number of parts. Between two measured numbers of edits, the value of the larger one counts."""
    print(f"\nTrusted encoder, run-off\n| k | members | seconds | {' | '.join(map(str, ENCODER_EDITS))} |")
    print(f"|{' --- |' * (3 + len(ENCODER_EDITS))}")
    for k in dict.fromkeys(row["k"] for row in rows):
        at = {int(row["edits"]): row for row in rows if row["k"] == k}
        cells = [f"{measured_at(rows, int(k), edits):.2f}" for edits in ENCODER_EDITS]
        print_row(f"{int(k):,} | {at[0]['members']} | {at[0]['seconds']}", cells)


def _has(run, recipe):
    return next(averaged([run]))["recipe"] == recipe


def cell(row):
    return row["certified"] + (f" ± {row['std']}" if row["std"] else "")


def print_row(name, values):
    print(f"| {name} | {' | '.join(values)} |")


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
    for row in read(given.csv):
        key = row["dataset"], int(row["k"]), row["track"], row["election"]
        lines[key].setdefault(row["recipe"], {})[int(row["edits"])] = float(row["certified"])
        lines[key][row["recipe"]].setdefault(0, float(row["clean"]))
    kinds = {
        ("encoder", "runoff"): ("trusted encoder, run-off", {"color": "#a3be8c", "lw": 1.4}),
        ("scratch", "runoff"): ("strong members, run-off", {"color": "#5e81ac", "lw": 1.8}),
        ("scratch", "plurality"): ("strong members, plurality", {"color": "#88c0d0", "lw": 1.2}),
        ("paper", "runoff"): ("paper's recipe, run-off", {"color": "#d08770", "lw": 1.2, "marker": "o", "ms": 3}),
    }
    drawing, axes = plt.subplots(1, len(EDITS), figsize=(12, 2.9), sharey=True, layout="constrained")
    named = {}
    for ax, ((dataset, k), (budgets, _)) in zip(axes, EDITS.items(), strict=True):
        for (track, election), (label, how) in kinds.items():
            for at in list(lines[dataset, k, track, election].values())[:1]:  # one network per member comes first
                (named[label],) = ax.plot(sorted(at), [at[n] for n in sorted(at)], **how)
        best = [paper_best(dataset, k, n) for n in budgets]
        (named["the paper's best row"],) = ax.plot(budgets, best, "x", color="#4c566a", ms=5)
        ax.set(title=f"{TITLES[dataset]}, k = {k:,}", xlabel="edits", xlim=(0, k / 2), ylim=(0, 100))
    axes[0].set_ylabel("certified accuracy, %")
    drawing.legend(named.values(), named.keys(), loc="outside lower center", ncols=5, frameon=False)
    drawing.savefig(given.out, metadata={"Date": None})


def parts_figure(given):
    """Draw certified accuracy with a trusted encoder, a curve for each number of parts."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "runoff", "svg.fonttype": "none", "font.size": 8})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    rows = [row for row in read(given.csv) if (row["track"], row["election"]) == ("encoder", "runoff")]
    drawing, ax = plt.subplots(figsize=(6, 3), layout="constrained")
    numbers = sorted({int(row["k"]) for row in rows})
    for k, shade in zip(numbers, plt.get_cmap("viridis")(np.linspace(0, 0.9, len(numbers))), strict=True):
        at = {int(row["edits"]): float(row["certified"]) for row in rows if int(row["k"]) == k}
        ax.step(sorted(at), [at[n] for n in sorted(at)], color=shade, lw=1.3, label=f"k = {k:,}")
    ax.set(xlabel="edits", ylabel="certified accuracy, %", xlim=(0, 600), ylim=(0, 100))
    ax.legend(frameon=False, ncols=2)
    drawing.savefig(given.out, metadata={"Date": None})


def against_parts_figure(given):
    """Draw certified accuracy with a trusted encoder by number of parts, a curve for each number of edits."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "runoff", "svg.fonttype": "none", "font.size": 8})
    plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False})
    rows = [row for row in read(given.csv) if (row["track"], row["election"]) == ("encoder", "runoff")]
    drawing, ax = plt.subplots(figsize=(6, 3), layout="constrained")
    numbers = sorted({int(row["k"]) for row in rows})
    edits = [n for n in ENCODER_EDITS if n >= 10]
    for n, shade in zip(edits, plt.get_cmap("viridis")(np.linspace(0, 0.9, len(edits))), strict=True):
        points = [(k, measured_at(rows, k, n)) for k in numbers if n <= k // 2]
        ax.plot(*zip(*points, strict=True), "o-", color=shade, lw=1.3, ms=3, label=f"{n} edits")
    ax.set(xlabel="number of parts k", ylabel="certified accuracy, %", xscale="log", ylim=(0, 100))
    ax.set_xticks(numbers, [f"{k:,}" for k in numbers])
    ax.minorticks_off()
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    drawing.savefig(given.out, metadata={"Date": None})


def measured_at(rows, k, edits):
    """Return certified accuracy with k parts; between two measured numbers of edits, the larger one's."""
    at = {int(row["edits"]): float(row["certified"]) for row in rows if int(row["k"]) == k}
    return next((at[e] for e in sorted(at) if e >= edits), 0.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=list(COMMANDS))
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--runs", type=Path, default=Path("docs/results-runs.csv"))
    parser.add_argument("--csv", type=Path, default=Path("docs/results.csv"))
    parser.add_argument("--out", type=Path, default=Path("docs/figures/results.svg"))
    parser.add_argument("--reproduction", type=Path, default=Path("docs/reproduction.csv"))
    given = parser.parse_args()
    COMMANDS[given.what](given)


COMMANDS = {
    "members": members, "add": add, "tables": print_tables, "figure": figure, "parts": parts_figure,
    "against-parts": against_parts_figure,
}  # fmt: skip


if __name__ == "__main__":
    main()
