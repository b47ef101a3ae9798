"""What the batch that is left over at the end of an epoch does to a member: plain loops with it and without.

python -m benchmarks.batches --data-dir DIR [--members 20]

A plain loop over batches of 128 ends each epoch with what is left: for a member of 769 samples, with one image. Batch
norm takes a tenth of the statistics that it answers with from the last batch of all. Here, small networks of the same
first weights learn GTSRB (k = 50, the paper's hash, images halved to 24 x 24, 60 epochs) by both kinds of loop.
"""

import argparse
import time

import numpy as np
import torch
from torch.nn import functional as F

from runoff import datasets
from runoff.torch.networks import SmallNetwork

K, BATCH, EPOCHS, SIZE, PAD = 50, 128, 60, 24, 2


def halved(x):
    return x.reshape(len(x), SIZE, 2, SIZE, 2, 3).mean((2, 4)).astype(np.float32).transpose(0, 3, 1, 2)


def batches(n, leftover, draws):
    """The epoch and the rows of each batch: each epoch on its own, or one stream of full batches."""
    orders = [torch.randperm(n, generator=draws) for _ in range(EPOCHS)]
    if leftover:
        return [(epoch, rows) for epoch, order in enumerate(orders) for rows in order.split(BATCH)]
    stream = torch.cat(orders)
    return [(i * BATCH // n, stream[i * BATCH : (i + 1) * BATCH]) for i in range(len(stream) // BATCH)]


def votes(x, y, inputs, n_classes, member, leftover):
    """A member's votes after training."""
    mean, std = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    framed = F.pad((x - mean) / std, (PAD,) * 4)
    torch.manual_seed(member)
    network, draws = SmallNetwork((3, SIZE, SIZE), n_classes), torch.Generator().manual_seed(member)
    optimizer = torch.optim.SGD(network.parameters(), 0.1, 0.9, 0, 5e-4, nesterov=True)
    for epoch, rows in batches(len(x), leftover, draws):
        dy, dx = torch.randint(2 * PAD + 1, (2,), generator=draws)
        for group in optimizer.param_groups:
            group["lr"] = 0.1 * 0.2 ** sum(epoch >= share * EPOCHS for share in (0.3, 0.6, 0.8))
        loss = F.cross_entropy(network(framed[rows, :, dy : dy + SIZE, dx : dx + SIZE]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    with torch.no_grad():
        return network.eval()((inputs - mean) / std).argmax(1).numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--members", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    data = datasets.load("gtsrb", given.data_dir)
    buckets, truth = data.original_sums % K, data.y_test[::6]
    inputs = torch.from_numpy(halved(data.x_test[::6]))
    found = {True: [], False: []}
    for member in range(given.members):
        own = np.flatnonzero(buckets == member)
        x, y = torch.from_numpy(halved(data.x_train[own])), torch.from_numpy(data.y_train[own])
        start = time.perf_counter()
        for leftover, right in found.items():
            right.append(votes(x, y, inputs, len(data.classes), member, leftover) == truth)
        print(
            f"member {member}: {len(own)} samples, {len(own) % BATCH} left over; right with them "
            f"{found[True][-1].mean():.1%}, in full batches {found[False][-1].mean():.1%} "
            f"({time.perf_counter() - start:.0f} s)",
            flush=True,
        )
    for leftover, right in found.items():
        share, how = np.stack(right).mean(0), "with what is left over" if leftover else "in full batches"
        print(
            f"{how}: members right on average {share.mean():.1%}; "
            f"inputs that more than half of them get right {(share > 0.5).mean():.1%}, three quarters "
            f"{(share >= 0.75).mean():.1%}, nine tenths {(share >= 0.9).mean():.1%}, all {(share == 1).mean():.1%}"
        )


if __name__ == "__main__":
    main()
