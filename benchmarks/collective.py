"""Compare certified accuracy with one attack per input to one attack on all inputs: proven, and found.

    python -m benchmarks.collective [BALLOTS.npz] [--election NAME ...] [--budgets 5,10,15,20] [--rounds N] [--starts N]

BALLOTS.npz holds an array (n_inputs, n_members, n_classes) of scores or ballots, one (n_inputs,) of labels, and for a
spread one (n_buckets, d). Without it: ridge classifiers on the digits. The seconds are those of `collective_accuracy`.
"""

import argparse
import time

import numpy as np

import runoff
from runoff.cli import demo
from runoff.collective import ROUNDS


def read(path):
    with np.load(path) as arrays:
        by_dimensions = {arrays[name].ndim: arrays[name] for name in arrays.files}
    return by_dimensions[3], by_dimensions[1], by_dimensions.get(2)


def report(name, scores, labels, spread, given):
    for election in given.election or ("plurality", "runoff", "maximin"):
        certificates = runoff.certify(scores, election=election, spread=spread)
        clean = runoff.certified_accuracy(certificates, labels, [0])[0]
        print(
            f"{name}, {election}: accuracy {clean:.2%}\n    edits  pointwise  collective  attack found  seconds",
            flush=True,
        )
        for budget in given.budgets:
            pointwise = runoff.certified_accuracy(certificates, labels, [budget])[0]
            began = time.perf_counter()
            together = runoff.collective_accuracy(certificates, labels, [budget], rounds=given.rounds)[0]
            seconds = time.perf_counter() - began
            attack = runoff.collective_attack(certificates, labels, budget, starts=given.starts)
            print(
                f"    {budget:5}  {pointwise:9.2%}  {together:10.2%}  {attack.accuracy:12.2%}  {seconds:7.0f}"
                f"{'  exact' if attack.exact else ''}",
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ballots", nargs="?")
    parser.add_argument("--election", action="append")
    parser.add_argument("--budgets", type=lambda text: [int(part) for part in text.split(",")], default=[5, 10, 15, 20])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--starts", type=int, default=12)
    given = parser.parse_args()
    if given.ballots:
        report(given.ballots, *read(given.ballots), given)
        return
    data = demo.digits()
    for k, d in ((50, 1), (20, 4)):
        scores = demo.fitted(data, k, d).scores(data[2])
        report(f"digits, k={k} d={d}", np.asarray(scores), data[3], None if d == 1 else scores.spread, given)


if __name__ == "__main__":
    main()
