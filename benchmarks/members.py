"""Accuracy of single members on MNIST (k = 1,200), trained by runoff and by plain loops.

python -m benchmarks.members --data-dir DIR [--members 16] [--first 0]

A plain loop takes all of a member's samples, about 50, as one batch in each of 200 epochs. Initial weights are
PyTorch's, or normally distributed and scaled by the number of outputs, as in some research code. Each member has the
same samples each time, so differences between columns are less noisy than the columns.
"""

import argparse
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from runoff import datasets
from runoff.isolation import seeds_of
from runoff.torch import RECIPES, Job, NetworkInNetwork, Trainer, networks

K, EPOCHS, PAD = 1200, 200, 4
RECIPE = RECIPES["paper-no-flip"]


def plain(x, y, inputs, member, scaled):
    """Return the scores of a member trained by a plain loop."""
    torch.manual_seed(member)
    network, draws = NetworkInNetwork(1, 10), np.random.default_rng(member)
    if scaled:
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    mean, std = x.mean(), x.std()
    padded = F.pad((x - mean) / std, (PAD,) * 4, value=float(-mean / std))  # black
    optimizer = torch.optim.SGD(network.parameters(), 0.1, 0.9, 0, 5e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [60, 120, 160], 0.2)
    size = x.shape[-1]
    for _ in range(EPOCHS):
        shifts = draws.integers(2 * PAD + 1, size=(len(x), 2))
        batch = torch.stack([padded[i, :, dy : dy + size, dx : dx + size] for i, (dy, dx) in enumerate(shifts)])
        loss = F.cross_entropy(network(batch), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        return network.eval()((inputs - mean) / std).numpy()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir")
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--first", type=int, default=0, help="index of the first member")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = datasets.load("mnist", given.data_dir)
    x, truth, test = data.x_train[..., None], data.y_test[::5], data.x_test[::5, ..., None]
    buckets = x.reshape(len(x), -1).sum(1, dtype=np.int64) % K
    inputs = torch.from_numpy(test).permute(0, 3, 1, 2).float()
    trainer = Trainer(networks.network_in_network, RECIPE, (28, 28, 1), 10, device="cpu", in_flight=1)

    def accuracies(member):
        torch.set_num_threads(1)
        start, rows = time.perf_counter(), np.flatnonzero(buckets == member)
        samples = torch.from_numpy(x[rows]).permute(0, 3, 1, 2).float()
        labels = torch.from_numpy(data.y_train[rows])
        job = Job(member, 0, seeds_of(0, member, 1)[0], x, rows, data.y_train[rows])
        ours = next(iter(trainer.train([job], test))).scores
        columns = [ours, *(plain(samples, labels, inputs, member, scaled) for scaled in (False, True))]
        shares = [float((scores.argmax(1) == truth).mean()) for scores in columns]
        text = ", ".join(f"{share:.1%}" for share in shares)
        print(f"member {member}, {len(rows)} samples: {text} ({time.perf_counter() - start:.0f} s)", flush=True)
        return shares

    print("accuracy on every fifth test image: runoff, a plain loop, a plain loop with scaled weights", flush=True)
    with ThreadPoolExecutor(given.threads) as pool:
        shares = np.array(list(pool.map(accuracies, range(given.first, given.first + given.members))))
    error = (shares - shares[:, :1]).std(axis=0, ddof=1) / len(shares) ** 0.5
    print(
        f"mean of {len(shares)} members: runoff {shares[:, 0].mean():.1%}; plain loop {shares[:, 1].mean():.1%} "
        f"(difference +- {error[1]:.1%}); with scaled weights {shares[:, 2].mean():.1%} (+- {error[2]:.1%})"
    )


if __name__ == "__main__":
    main()
