"""Measure how often and by how much the tight bound exceeds the paper's, and how many tight radii are exact.

    python -m benchmarks.tightness [--attacks N] [--scores S.npy --spread P.npy [--labels Y.npy]]

Without --scores: ensembles of ridge classifiers on the digits dataset, with one bucket per member and with spreads,
and a synthetic ensemble of the size of the paper's CIFAR-10 setting. Attacks on N inputs show how many radii are exact.
"""

import argparse
import time

import numpy as np

import runoff
from benchmarks.speed import cycle, ensemble
from runoff.cli import demo


def report(name, scores, spread, labels, n_attacks):
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(scores), min(n_attacks, len(scores)), replace=False)
    for election in ("plurality", "runoff"):
        paper = runoff.certify(scores, election=election, spread=spread, bound="paper")
        start = time.perf_counter()
        tight = runoff.certify(scores, election=election, spread=spread)
        spent = time.perf_counter() - start
        gain = tight.radius - paper.radius
        assert (gain >= 0).all()
        slack = np.array([len(tight.attack(int(i))) - 1 - tight.radius[i] for i in chosen])
        print(
            f"{name}, {election}: tight above paper on {np.mean(gain > 0):.2%} of {len(scores):,} inputs, by at most "
            f"{gain.max()}; of {len(chosen)} radii the attacks found show {np.mean(slack == 0):.1%} exact"
            f", the rest off by at most {slack.max()}; {spent:.2f} s"
        )
        if labels is not None:
            budgets = sorted({int(b) for b in np.quantile(paper.radius, [0.1, 0.3, 0.5, 0.7, 0.9])})
            for bound, certificates in (("paper", paper), ("tight", tight)):
                accuracy = runoff.certified_accuracy(certificates, labels, budgets)
                print(f"    {bound}: " + ", ".join(f"{a:.2%} at {b}" for a, b in zip(accuracy, budgets, strict=True)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", type=int, default=200)
    parser.add_argument("--scores")
    parser.add_argument("--spread")
    parser.add_argument("--labels")
    given = parser.parse_args()
    if given.scores:
        spread = None if given.spread is None else np.load(given.spread)
        labels = None if given.labels is None else np.load(given.labels)
        report(given.scores, np.load(given.scores, mmap_mode="r"), spread, labels, given.attacks)
        return
    data = demo.digits()
    for k, d in ((50, 1), (20, 4), (20, 16), (50, 16)):
        scores = demo.fitted(data, k, d).scores(data[2])
        report(f"digits, k={k} d={d}", scores, None, data[3], given.attacks)
    report("synthetic, 2,000 x 800 x 10, k=50 d=16", ensemble(2000, 800, 10), cycle(50, 16), None, given.attacks)


if __name__ == "__main__":
    main()
