"""Training time of networks: in total, by part of a step, and compared with a plain loop.

python -m benchmarks --only networks                          a member on the CPU against a plain loop (make bench)
python -m benchmarks.networks step [--batch 48 --size 28 --channels 1]
                                                              on a GPU: a step, its share of peak speed, its parts
python -m benchmarks.networks loader --data cifar10.npz       on a GPU: one member after another through a DataLoader
python -m benchmarks.networks run --data cifar10.npz --k 250  on a GPU: the whole ensemble, with certified accuracy

The .npz file holds x_train, y_train, x_test, y_test; images are (n, height, width[, channels]) with 8 bits.
"""

import argparse
import dataclasses
import time

import numpy as np
import torch
from torch.nn import functional as F

import runoff
from runoff.isolation import seeds_of
from runoff.torch import RECIPES, Job, Recipe, TorchClassifier, Trainer, devices, networks
from runoff.torch.training import jobs, random_draws

PEAK = 790e12  # floating-point operations per second, measured with a large bf16 product on an H200
PARTS = {
    "update and casts": ("multi_tensor",),
    "products with normalisation and ReLU": ("product",),
    "convolutions": ("xmma", "cutlass", "nvjet", "gemm", "splitK", "cask", "Padding"),
    "normalisation, ReLU, pooling": ("moments", "settle", "apply"),
}


def random_data(n, shape, seed=0):
    draws = np.random.default_rng(seed)
    return draws.integers(0, 256, (n, *shape), dtype=np.uint8), draws.integers(0, 10, n)


def job(member, rows, X, y):
    return Job(member, 0, seeds_of(0, member, 1)[0], X, rows, y[rows])


def operations(batch, shape):
    """Return the floating-point operations of a step of Network-in-Network; backward takes twice as many as forward."""
    height, width, channels = shape
    total, n_in, pixels = 0, channels, height * width
    for i, (size, n_out) in enumerate([(5, 192), (1, 160), (1, 96), (5, 192), (1, 192), (1, 192), (3, 192)]):
        if i in (3, 6):
            height, width = (height + 1) // 2, (width + 1) // 2
            pixels = height * width
        total += 2 * pixels * size * size * n_in * n_out
        n_in = n_out
    total += 2 * 2 * pixels * 192 * 192
    return 3 * batch * total


def step(batch, size, channels):
    from torch.profiler import ProfilerActivity, profile

    from runoff.torch.training.graphs import GraphSlot

    device, shape, n = devices.find("cuda"), (size, size, channels), 8 * batch
    recipe = dataclasses.replace(RECIPES["paper"], batch_size=batch)
    X, y = random_data(n, shape)
    with devices.repeatable("bf16"):
        in_flight = []
        for member in range(8):
            slot = GraphSlot(networks.network_in_network, recipe, "bf16", shape, 10, device)
            slot.capture(batch, n, torch.uint8)
            in_flight.append(slot)
            for _ in range(2):
                for each in in_flight:
                    with torch.cuda.stream(each.stream):
                        each.load(each.prepare(job(member, np.arange(n), X, y)))
                torch.cuda.synchronize()
                start = time.perf_counter()
                for _ in range(300):
                    for each in in_flight:
                        with torch.cuda.stream(each.stream):
                            each.run()
                torch.cuda.synchronize()
                seconds = (time.perf_counter() - start) / 300 / len(in_flight)
            share = operations(batch, shape) / PEAK / seconds
            print(f"{member + 1} in flight: {1e3 * seconds:.3f} ms per step, {share:.0%} of peak speed", flush=True)
        in_flight[0].clock.zero_()
        with profile(activities=[ProfilerActivity.CUDA]) as profiled:
            for _ in range(5):
                with torch.cuda.stream(in_flight[0].stream):
                    in_flight[0].run()
            torch.cuda.synchronize()
    kernels = [(e.self_device_time_total / 5, e.count / 5, e.key) for e in profiled.key_averages()]
    print(f"one step alone: {sum(k[0] for k in kernels):.0f} us in {sum(k[1] for k in kernels):.0f} kernels")
    rest = list(kernels)
    for name, words in PARTS.items():
        matches = [k for k in rest if any(word in k[2] for word in words)]
        rest = [k for k in rest if k not in matches]
        print(f"  {name}: {sum(k[0] for k in matches):.0f} us in {sum(k[1] for k in matches):.0f} kernels")
    print(f"  augmentation, loss, the rest: {sum(k[0] for k in rest):.0f} us in {sum(k[1] for k in rest):.0f} kernels")
    for micros, count, name in sorted(kernels, reverse=True)[:30]:
        print(f"    {micros:6.1f} us x{count:.0f} {name[:100]}")


class Images(torch.utils.data.Dataset):
    """A dataset that augments through PIL, as in most training scripts: crop, flip, to tensor, normalise."""

    def __init__(self, images, labels, recipe):
        from PIL import Image

        self.images = [Image.fromarray(image) for image in images]
        self.labels, self.recipe = labels, recipe
        mean, std = jobs.statistics(images)
        self.mean, self.std = torch.from_numpy(mean)[:, None, None], torch.from_numpy(std)[:, None, None]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        from PIL import ImageOps

        image, pad = self.images[i], self.recipe.crop
        if pad:
            dx, dy = np.random.randint(0, 2 * pad + 1, 2)  # noqa: NPY002
            image = ImageOps.expand(image, pad).crop((dx, dy, dx + image.width, dy + image.height))
        if self.recipe.flip and np.random.rand() < 0.5:  # noqa: NPY002
            image = ImageOps.mirror(image)
        x = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float()
        return (x - self.mean) / self.std, int(self.labels[i])


def loader(data, k, epochs, members):
    """Return the estimated seconds for k members: training, from a few epochs of a few members, and scoring."""
    X, y = data["x_train"], data["y_train"].astype(np.int64)
    inputs = data["x_test"], data["y_test"].astype(np.int64)
    recipe, no_augmentation = RECIPES["paper"], dataclasses.replace(RECIPES["paper"], crop=0, flip=False)
    seconds, scoring = [], []
    buckets = X.reshape(len(X), -1).sum(1, dtype=np.int64) % k
    for member in range(members):
        rows = np.flatnonzero(buckets == member)
        part = Images(X[rows], y[rows], recipe)
        network = networks.network_in_network((3, 32, 32), 10).cuda()
        usable, networks.norm_relu_pool.usable = networks.norm_relu_pool.usable, lambda *_: False  # PyTorch's layers
        optimizer = torch.optim.SGD(network.parameters(), 0.1, 0.9, 0, 5e-4, nesterov=True)
        batches = torch.utils.data.DataLoader(part, recipe.batch_size, shuffle=True, num_workers=1)
        for epoch in range(epochs + 1):
            if epoch == 1:  # the first warms up
                torch.cuda.synchronize()
                start = time.perf_counter()
            for x, labels in batches:
                loss = F.cross_entropy(network(x.cuda()), labels.cuda())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        torch.cuda.synchronize()
        seconds.append((time.perf_counter() - start) / epochs * recipe.epochs)
        test = Images(*inputs, no_augmentation)
        test.mean, test.std = part.mean, part.std
        start = time.perf_counter()
        with torch.no_grad():
            scores = [
                network.eval()(x.cuda()).cpu()
                for x, _ in torch.utils.data.DataLoader(test, recipe.batch_size, num_workers=1)
            ]
        assert sum(map(len, scores)) == len(inputs[0])
        scoring.append(time.perf_counter() - start)
        networks.norm_relu_pool.usable = usable
    mean = float(np.mean(seconds) + np.mean(scoring))
    print(
        f"plain loop, fp32, DataLoader with one worker: {mean:.1f} s per member ({epochs} epochs of {members} members, "
        f"scaled to {recipe.epochs}, and {np.mean(scoring):.1f} s for scoring {len(inputs[0])} inputs); {k} members "
        f"{mean * k:.0f} s",
        flush=True,
    )
    return mean * k


def run(data, k, recipe, budgets, out, in_flight, n_seeds=1):
    X, y, inputs, truth = (data[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    n_classes = int(y.max()) + 1
    classifier = TorchClassifier(
        "nin", recipe, n_partitions=k, classes=range(n_classes), hash="pixel-sum", in_flight=in_flight, n_seeds=n_seeds
    )
    start = time.perf_counter()
    classifier.fit(X, y, score=inputs)
    ballots = classifier.scores(inputs)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    steps = sum(classifier._recipe.steps_of(n) for n in classifier.member_sizes_ if n > 1) * n_seeds
    print(
        f"k = {k}: {seconds:.1f} s to train {k * n_seeds} networks and score {len(inputs)} inputs, "
        f"{1e3 * seconds / steps:.3f} ms per step overall, {steps} steps, memory "
        f"{torch.cuda.max_memory_reserved() / 2**30:.1f} GiB",
        flush=True,
    )
    members = (ballots.values.argmax(-1) == truth[:, None]).mean()
    print(f"mean accuracy of members: {members:.2%}")
    for election in ("plurality", "runoff"):
        certificates = runoff.certify(ballots, election=election, bound="paper")
        percent = 100 * runoff.certified_accuracy(certificates, truth, [0, *budgets])
        text = "/".join(f"{value:.2f}" for value in percent[1:])
        print(f"{election}: clean {percent[0]:.2f}, at {'/'.join(map(str, budgets))} edits {text}", flush=True)
    if out:
        np.savez_compressed(out, ballots=runoff.rank(ballots.values), y=truth)
    return seconds


def cpu(table, _full):
    """Compare the trainer with a plain loop that does the same work, on four members of each network."""
    draws = np.random.default_rng(0)
    for name, network, shape, epochs in (
        ("small, 28x28", networks.small, (28, 28, 1), 10),
        ("Network-in-Network, 16x16", networks.network_in_network, (16, 16, 3), 6),
    ):
        X = draws.integers(0, 256, (600, *shape), dtype=np.uint8)
        y = draws.integers(0, 10, 600)
        recipe = Recipe(epochs=epochs, batch_size=64, crop=2, flip=True)
        jobs = [job(m, np.arange(m * 150, m * 150 + 150), X, y) for m in range(4)]
        trainer = Trainer(network, recipe, shape, 10, device="cpu")
        ratios = []
        list(trainer.train(jobs[:1]))  # warms up
        for _ in range(3):
            start = time.perf_counter()
            list(trainer.train(jobs))
            ours = time.perf_counter() - start
            start = time.perf_counter()
            for each in jobs:
                plain(each, network, recipe)
            ratios.append((time.perf_counter() - start) / ours)
        table.add(f"CPU, {name}: time of a plain loop to ours", np.median(ratios), "x", at_least=1)


def plain(each, network, recipe):
    """Train a network by a plain loop over batches, with PyTorch's default settings."""
    images = each.images()
    mean, std = (torch.from_numpy(value) for value in jobs.statistics(images))
    draws = random_draws.draw(recipe, len(images), images.shape[1:], each.source)
    module = network((images.shape[3], *images.shape[1:3]), 10)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, 0.9, 0, 5e-4, nesterov=True)
    padded = F.pad(torch.from_numpy(images), (0, 0, 2, 2, 2, 2))
    height, width = images.shape[1:3]
    for rows, shifts, flips in zip(draws.rows, draws.shifts, draws.flips, strict=True):
        batch = torch.stack(
            [padded[row, dy : dy + height, dx : dx + width] for row, (dy, dx) in zip(rows, shifts, strict=True)]
        )
        batch = torch.where(torch.from_numpy(flips)[:, None, None, None], batch.flip(2), batch)
        x = ((batch.float() - mean) / std).permute(0, 3, 1, 2)
        loss = F.cross_entropy(module(x), torch.from_numpy(each.labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["step", "loader", "run"])
    parser.add_argument("--data")
    parser.add_argument("--k", type=int, default=250)
    parser.add_argument("--recipe", default="paper")
    parser.add_argument("--budgets", type=int, nargs="+", default=[5, 10, 15, 18, 20])
    parser.add_argument("--epochs", type=int, default=20, help="epochs per member in the plain loop")
    parser.add_argument("--members", type=int, default=2, help="members in the plain loop")
    parser.add_argument("--in-flight", type=int)
    parser.add_argument("--n-seeds", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128, help="batch size of a step")
    parser.add_argument("--size", type=int, default=32, help="side of the images of a step")
    parser.add_argument("--channels", type=int, default=3, help="channels of the images of a step")
    parser.add_argument("--out", help="write ballots and labels to this .npz file")
    given = parser.parse_args()
    if given.what == "step":
        step(given.batch, given.size, given.channels)
    else:
        with np.load(given.data) as file:
            data = dict(file)
        if given.what == "loader":
            loader(data, given.k, given.epochs, given.members)
        else:
            run(data, given.k, given.recipe, given.budgets, given.out, given.in_flight, given.n_seeds)


if __name__ == "__main__":
    main()
