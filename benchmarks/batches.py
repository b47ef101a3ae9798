"""What the batch that is left over at the end of an epoch does to members: GTSRB with it and without.

python -m benchmarks.batches --data-dir DIR [--k 50] [--way "left over"]    on a GPU

A plain loop over batches of 128 ends each epoch with what is left: for a member of 769 samples, with one image. Batch
norm takes a tenth of the statistics that it answers with from the last batch of all. runoff cuts all epochs, one after
the other, into full batches. Here the paper's networks are trained both ways by the same steps, from the same first
weights, and what is certified is printed beside the paper's numbers.
"""

import argparse
import dataclasses
import time
from unittest import mock

import numpy as np
import torch

import runoff
from runoff import datasets
from runoff.isolation import seeds_of
from runoff.paper import tables
from runoff.torch import RECIPES, Job, Trainer, networks
from runoff.torch.training import graphs, random_draws, slots

WAYS = ("full batches", "what is left over, too")


class WithLeftovers(graphs.GraphSlot):
    """A slot whose epochs each end with a batch of what is left; that one goes through PyTorch's own layers."""

    is_left = False

    def load(self, prepared):
        super().load(prepared)
        n, epochs = len(self.job.rows), self.recipe.epochs
        batch = self.recipe.batch_of(n)
        order = np.random.Generator(np.random.PCG64(random_draws.child(self.job.source, random_draws.ORDER)))
        crops = np.random.Generator(np.random.PCG64(random_draws.child(self.job.source, random_draws.CROP)))
        rows = order.permuted(np.tile(np.arange(n, dtype=np.int32), (epochs, 1)), axis=1)
        shifts = crops.integers(2 * self.recipe.crop + 1, size=(epochs, n, 2), dtype=np.int32)
        passed = np.searchsorted(self.recipe.milestones, np.arange(epochs), side="right")
        rates = (self.recipe.lr * self.recipe.gamma**passed).astype(np.float32)
        full = n // batch
        self.each = full + (n > full * batch)
        self.steps = epochs * self.each
        whole = {
            "rows": rows[:, : full * batch].reshape(-1, batch),
            "shifts": shifts[:, : full * batch].reshape(-1, batch, 2),
            "rates": rates.repeat(full),
        }
        for name, table in whole.items():
            self.tables[name][: len(table)].copy_(torch.from_numpy(np.ascontiguousarray(table)))
        rest = {"rows": rows[:, full * batch :], "shifts": shifts[:, full * batch :], "rates": rates}
        self.rest = {name: torch.from_numpy(np.ascontiguousarray(v)).to(self.device) for name, v in rest.items()}
        self.rest_clock = torch.zeros_like(self.clock)
        self.per_full = full

    def advance(self):
        if self.done % self.each < self.per_full:
            self.run()
        else:
            self.step_over_rest()
        self.done += 1

    def step_over_rest(self):
        held, mode = (self.tables, self.clock), torch.get_deterministic_debug_mode()
        self.tables, self.clock, self.is_left = self.rest, self.rest_clock, True
        try:
            torch.set_deterministic_debug_mode("default")  # PyTorch's pooling goes back in any order
            with mock.patch.object(networks._fused, "usable", return_value=False):
                self.step()
        finally:
            torch.set_deterministic_debug_mode(mode)
            (self.tables, self.clock), self.is_left = held, False

    def batch(self):
        return slots.Slot.batch(self) if self.is_left else super().batch()


def trained(trainer, members, inputs, leftovers):
    """The networks, in any order."""
    with mock.patch.object(graphs, "GraphSlot", WithLeftovers if leftovers else graphs.GraphSlot):
        yield from trainer.train(members, inputs)


def told(scores, truth, k, sizes, batch):
    """How right members are, and what is certified if all are there."""
    right = scores.argmax(-1) == truth[:, None]
    share, each = right.mean(1), right.mean(0)
    print(
        f"  members right on average {each.mean():.1%}; inputs that more than half of them get right "
        f"{(share > 0.5).mean():.1%}, nine tenths {(share >= 0.9).mean():.1%}, all {(share == 1).mean():.1%}"
    )
    worst = ", ".join(f"{each[m]:.1%} ({sizes[m]} samples, {sizes[m] % batch} left over)" for m in np.argsort(each)[:4])
    print(f"  the worst: {worst}")
    if len(each) < k:
        return
    for row in tables.rows("T3", "gtsrb", k):
        found = runoff.certify(scores, election=row.election, bound="paper")
        certified = 100 * runoff.certified_accuracy(found, truth, sorted(row.percent))
        pairs = zip(certified, sorted(row.percent), strict=True)
        numbers = ", ".join(f"{value:.2f} ({row.percent[budget]:.2f})" for value, budget in pairs)
        print(f"  {row.method} at {'/'.join(map(str, sorted(row.percent)))} edits (the paper's): {numbers}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--k", type=int, default=50)
    parser.add_argument("--members", type=int, help="the first so many. Default: all")
    parser.add_argument("--epochs", type=int, help="instead of the recipe's, its milestones at the same shares")
    parser.add_argument("--way", choices=("both", "left over"), default="both")
    given = parser.parse_args()
    data, recipe = datasets.load("gtsrb", given.data_dir), RECIPES["paper-no-flip"]
    if given.epochs:
        milestones = tuple(epoch * given.epochs // recipe.epochs for epoch in recipe.milestones)
        recipe = dataclasses.replace(recipe, epochs=given.epochs, milestones=milestones)
    trainer = Trainer(networks.network_in_network, recipe, data.x_train.shape[1:], len(data.classes), device="cuda")
    parts = [np.flatnonzero(data.original_sums % given.k == m) for m in range(given.members or given.k)]
    members = [Job(m, 0, seeds_of(0, m, 1)[0], data.x_train, rows, data.y_train[rows]) for m, rows in enumerate(parts)]
    for way in WAYS if given.way == "both" else WAYS[1:]:
        start, found = time.perf_counter(), {}
        for network in trained(trainer, members, data.x_test, way == WAYS[1]):
            found[network.member] = network.scores
        print(f"{way}: {len(members)} networks, {time.perf_counter() - start:.0f} s", flush=True)
        scores = np.stack([found[m] for m in range(len(members))], axis=1)
        told(scores, data.y_test, given.k, [len(rows) for rows in parts], recipe.batch_size)


if __name__ == "__main__":
    main()
