"""Compare real poisoning with certificates: retrain the members that attacks reach, and count changed predictions.

python -m benchmarks.poisoning digits                                   scikit-learn members, on the CPU
python -m benchmarks.poisoning cancer
python -m benchmarks.poisoning cifar10 --data cifar10.npz --k 50 --ballots DIR   networks; trains what DIR lacks
python -m benchmarks.poisoning figure docs/poisoning-*.csv --out docs/figures/poisoning.svg

--out FILE.csv writes a row for each attack, radius and number of poisoned buckets needed to flip a prediction.
Within the radius no prediction may change: the exit code is 3 if one does.
"""

import argparse
import sys
import time

from benchmarks.poisoning_tables import Findings, Refits


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["digits", "cancer", "cifar10", "figure"])
    parser.add_argument("csv", nargs="*", help="CSV files of the figure")
    parser.add_argument("--out")
    parser.add_argument("--quick", action="store_true", help="use few inputs and edits, as a smoke test")
    parser.add_argument("--only", default="", help="only settings of members whose name contains this text")
    parser.add_argument("--data", help="cifar10.npz")
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--ballots", help="a directory for the ballots of trained networks")
    parser.add_argument(
        "--stages", nargs="+", help="stages of training. Default: all; those in --ballots are not retrained"
    )
    parser.add_argument("--train-only", action="store_true", help="leave the analysis to another machine")
    parser.add_argument("--every", type=int, default=1, help="analyse every N-th input")
    parser.add_argument("--network", default="nin")
    parser.add_argument("--recipe", default="paper")
    given = parser.parse_args()
    if given.what == "figure":
        from benchmarks.poisoning_figure import draw

        draw(given.csv, given.out)
        return
    start, findings, refits = time.perf_counter(), Findings(), Refits()
    if given.what == "cifar10":
        from benchmarks import poisoning_networks

        poisoning_networks.run(given, findings, refits)
    else:
        from benchmarks import poisoning_members

        poisoning_members.run(given.what, findings, refits, given.quick, given.only)
    if not findings.rows:
        return
    print(f"\n{findings.table()}\n\n{refits.table()}\n\n{time.perf_counter() - start:.0f} s")
    if given.out:
        findings.write(given.out)
    print(f"swaps not proven to be the smallest: {findings.unproven}")
    broken = sum(findings.broken.values()) + sum(row[5] for row in refits.rows)
    print(f"predictions changed within the radius: {broken}")
    sys.exit(3 if broken else 0)


if __name__ == "__main__":
    main()
