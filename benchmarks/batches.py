"""Compare members trained with and without the incomplete batch at the end of each epoch, on GTSRB.

python -m benchmarks.batches --data-dir DIR [--k 50] [--way "left over"]    on a GPU

A plain loop over batches of 128 ends each epoch with the remaining samples: for a member of 769 samples, with one
image. A tenth of batch norm's running statistics comes from the very last batch. runoff cuts all epochs, one after the
other, into full batches. This trains the paper's networks both ways (the recipes `paper-no-flip` and
`paper-literal-no-flip`), with the same initial weights, and prints certified accuracies beside the paper's.
"""

import argparse
import dataclasses
import time

import numpy as np

import runoff
from runoff import datasets
from runoff.isolation import seeds_of
from runoff.paper import tables
from runoff.torch import RECIPES, Job, Trainer, networks

WAYS = {"full batches": "paper-no-flip", "left over": "paper-literal-no-flip"}


def report(scores, truth, k, sizes, batch):
    """Print the members' accuracy and, if all members were trained, the certified accuracy."""
    correct = scores.argmax(-1) == truth[:, None]
    share, accuracy = correct.mean(1), correct.mean(0)
    print(
        f"  mean accuracy of members {accuracy.mean():.1%}; inputs that more than half of them classify correctly "
        f"{(share > 0.5).mean():.1%}, nine tenths {(share >= 0.9).mean():.1%}, all {(share == 1).mean():.1%}"
    )
    worst = [f"{accuracy[m]:.1%} ({sizes[m]} samples, {sizes[m] % batch} left over)" for m in np.argsort(accuracy)[:4]]
    print(f"  the worst: {', '.join(worst)}")
    if len(accuracy) < k:
        return
    for row in tables.rows("T3", "gtsrb", k):
        certificates = runoff.certify(scores, election=row.election, bound="paper")
        certified = 100 * runoff.certified_accuracy(certificates, truth, sorted(row.percent))
        pairs = zip(certified, sorted(row.percent), strict=True)
        numbers = ", ".join(f"{value:.2f} ({row.percent[budget]:.2f})" for value, budget in pairs)
        print(f"  {row.method} at {'/'.join(map(str, sorted(row.percent)))} edits (the paper's): {numbers}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--members", type=int, help="train only the first N. Default: all")
    parser.add_argument("--epochs", type=int, help="replace the recipe's, and scale its milestones")
    parser.add_argument("--way", choices=("both", *WAYS), default="both")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    data = datasets.load("gtsrb", given.data_dir)
    parts = [np.flatnonzero(data.original_sums % given.k == m) for m in range(given.members or given.k)]
    members = [Job(m, 0, seeds_of(0, m, 1)[0], data.x_train, rows, data.y_train[rows]) for m, rows in enumerate(parts)]
    for way in WAYS if given.way == "both" else [given.way]:
        recipe = RECIPES[WAYS[way]]
        if given.epochs:
            milestones = tuple(epoch * given.epochs // recipe.epochs for epoch in recipe.milestones)
            recipe = dataclasses.replace(recipe, epochs=given.epochs, milestones=milestones)
        shape, n_classes = data.x_train.shape[1:], len(data.classes)
        trainer = Trainer(networks.network_in_network, recipe, shape, n_classes, device=given.device)
        start = time.perf_counter()
        by_member = {network.member: network.scores for network in trainer.train(members, data.x_test)}
        print(f"{way}: {len(members)} networks, {time.perf_counter() - start:.0f} s", flush=True)
        scores = np.stack([by_member[m] for m in range(len(members))], axis=1)
        report(scores, data.y_test, given.k, [len(rows) for rows in parts], recipe.batch_size)


if __name__ == "__main__":
    main()
