"""Compare members trained with and without the incomplete batch at the end of each epoch, on GTSRB.

python -m benchmarks.batches --data-dir DIR [--k 50] [--way "left over"]    on a GPU

A plain loop over batches of 128 ends each epoch with the remaining samples: for a member of 769 samples, with one
image. A tenth of batch norm's running statistics comes from the very last batch. runoff cuts all epochs, one after the
other, into full batches. This trains the paper's networks both ways, with the same kernels and initial weights, and
prints certified accuracies beside the paper's.
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

WAYS = ("full batches", "with incomplete batches")


class WithLeftovers(graphs.GraphSlot):
    """A slot whose epochs end with an incomplete batch, which goes through PyTorch's layers."""

    in_rest = False

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
        self.steps_per_epoch = full + (n > full * batch)
        self.steps = epochs * self.steps_per_epoch
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
        self.full_per_epoch = full

    def advance(self):
        if self.done % self.steps_per_epoch < self.full_per_epoch:
            self.run()
        else:
            self.step_over_rest()
        self.done += 1

    def step_over_rest(self):
        saved, mode = (self.tables, self.clock), torch.get_deterministic_debug_mode()
        self.tables, self.clock, self.in_rest = self.rest, self.rest_clock, True
        try:
            torch.set_deterministic_debug_mode("default")  # the gradients of PyTorch's pooling are not deterministic
            with mock.patch.object(networks.norm_relu_pool, "usable", return_value=False):
                self.step()
        finally:
            torch.set_deterministic_debug_mode(mode)
            (self.tables, self.clock), self.in_rest = saved, False

    def batch(self):
        return slots.Slot.batch(self) if self.in_rest else super().batch()


def trained(trainer, members, inputs, leftovers):
    """Yield the networks, in any order."""
    with mock.patch.object(graphs, "GraphSlot", WithLeftovers if leftovers else graphs.GraphSlot):
        yield from trainer.train(members, inputs)


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
        start, by_member = time.perf_counter(), {}
        for network in trained(trainer, members, data.x_test, way == WAYS[1]):
            by_member[network.member] = network.scores
        print(f"{way}: {len(members)} networks, {time.perf_counter() - start:.0f} s", flush=True)
        scores = np.stack([by_member[m] for m in range(len(members))], axis=1)
        report(scores, data.y_test, given.k, [len(rows) for rows in parts], recipe.batch_size)


if __name__ == "__main__":
    main()
