"""Check that training on this device is isolated: a network has the same bits whatever is trained at the same time.

python -m benchmarks.isolation [--device cuda]
"""

import argparse
import dataclasses
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from runoff.isolation import seeds_of
from runoff.torch import RECIPES, Job, TorchClassifier, Trainer, devices, networks
from runoff.torch.kernels import matmul_norm_relu

DRAWS = np.random.default_rng(0)
X = DRAWS.integers(0, 256, (3000, 32, 32, 3), dtype=np.uint8)
Y = DRAWS.integers(0, 10, 3000)
INPUTS = DRAWS.integers(0, 256, (700, 32, 32, 3), dtype=np.uint8)
SIZES = [130, 200, 260, 128, 40, 47, 90, 200]  # full batches and parts below one
STARTS = np.cumsum([0, *SIZES])
PAPER = dataclasses.replace(RECIPES["paper"], epochs=6)
ALL = dataclasses.replace(
    PAPER, jitter=0.4, cutout=8, mixup=1.0, label_smoothing=0.1, schedule="cosine", test_flip=True,
    affine=1.0, trivial=True, cutmix=0.5, average=0.5, test_shift=1,
)  # fmt: skip
LITERAL = dataclasses.replace(PAPER, leftover=True)


class Dropping(torch.nn.Module):
    """A network that draws random numbers in training."""

    def __init__(self, shape, n_classes):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(shape[0], 32, 3, padding=1),
            torch.nn.BatchNorm2d(32),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.3),
            torch.nn.AvgPool2d(4),
            torch.nn.Flatten(),
            torch.nn.Linear(32 * 64, n_classes),
        )

    def forward(self, x):
        return self.layers(x)


def train(members, network, recipe, device, in_flight, samples=X, n_seeds=1):
    jobs = []
    for m in members:
        rows = np.arange(STARTS[m], STARTS[m + 1])
        jobs += [Job(m, s, source, samples, rows, Y[rows]) for s, source in enumerate(seeds_of(0, m, n_seeds))]
    trainer = Trainer(network, recipe, (32, 32, 3), 10, device=device, in_flight=in_flight)
    return {(t.member, t.seed): t for t in trainer.train(jobs, INPUTS)}


def same(a, b):
    return all(torch.equal(a.state[name], b.state[name]) for name in a.state) and np.array_equal(a.scores, b.scores)


def chain(seed, device):
    """Return a function that runs three layers on random data and returns their outputs and gradients."""
    draws = torch.Generator(device).manual_seed(seed)
    widths = (104, 192, 160, 96)
    x, grad = (torch.randn(2**17, n, device=device, generator=draws).bfloat16() for n in (widths[0], widths[-1]))
    weights = [
        (torch.randn(n_out, n_in, device=device, generator=draws) / n_in**0.5).requires_grad_()
        for n_in, n_out in itertools.pairwise(widths)
    ]
    norms = [torch.nn.BatchNorm2d(n).to(device) for n in widths[1:3]]

    def run():
        first = matmul_norm_relu.norm_act(x, weights[0], norms[0])
        second = matmul_norm_relu.norm_act(first, weights[1], norms[1])
        last = matmul_norm_relu.masked_product(second, weights[2])
        gradients = torch.autograd.grad(last, [*weights, *norms[0].parameters(), *norms[1].parameters()], grad)
        return [first.detach(), second.detach(), last.detach(), *gradients]

    return run


def four_streams(device, rounds=300):
    """Run fused layers in four streams at a time, each alternating between two sets of data, to detect stale tiles."""
    device = devices.find(device)
    with devices.repeatable("bf16"):
        expected = [[value.clone() for value in chain(seed, device)()] for seed in (0, 1)]
        torch.cuda.synchronize()
        wrong, kept, graphs = torch.zeros(4, dtype=torch.int64, device=device), [], []
        for i in range(4):
            stream, graph, turns = torch.cuda.Stream(), torch.cuda.CUDAGraph(), [chain(s, device) for s in (0, 1)]
            kept.append(turns)
            with torch.cuda.stream(stream):
                turns[0]()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                for turn in range(6):
                    for actual, correct in zip(turns[turn % 2](), expected[turn % 2], strict=True):
                        wrong[i] += (actual != correct).any()
            graphs.append((stream, graph))
        for _ in range(rounds):
            for stream, graph in graphs:
                with torch.cuda.stream(stream):
                    graph.replay()
        torch.cuda.synchronize()
    return not wrong.any()


def repeated(device):
    """Repeat thousands of steps with networks in flight, to detect errors that occur once in hundreds of steps."""
    recipe = dataclasses.replace(PAPER, epochs=100)
    first = train(range(3), networks.network_in_network, recipe, device, 6, n_seeds=6)
    equal = True
    for in_flight in (6, 6, 5, 3):
        again = train(range(2, -1, -1), networks.network_in_network, recipe, device, in_flight, n_seeds=6)
        equal &= all(same(again[key], first[key]) for key in first)
    return equal


def classifier(device, folder=None):
    return TorchClassifier(
        "nin", PAPER, n_partitions=16, classes=range(10), device=device, checkpoints=folder, progress=False
    )


def resumed(device):
    """Kill a fit twice, resume it, and compare with an uninterrupted fit."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.isolation", "--device", device, "--fit", folder]
        for wait in (3, 8):
            process = subprocess.Popen(command, start_new_session=True)
            while process.poll() is None and len(list(Path(folder).glob("*.safetensors"))) < wait:
                time.sleep(0.01)
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        n_stored = len(list(Path(folder).glob("*.safetensors")))
        after = classifier(device, folder).fit(X, Y)
        uninterrupted = classifier(device).fit(X, Y)
        print(f"  killed twice, {n_stored} of 16 members were stored")
        return np.array_equal(after.scores(INPUTS).values, uninterrupted.scores(INPUTS).values)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--fit", help=argparse.SUPPRESS)
    given = parser.parse_args()
    device = given.device
    if given.fit:
        classifier(device, given.fit).fit(X, Y)
        return
    verdicts = {}
    for name, network, recipe in (
        ("Network-in-Network, paper's recipe", networks.network_in_network, PAPER),
        ("Network-in-Network, all augmentation", networks.network_in_network, ALL),
        ("Network-in-Network, fp32", networks.network_in_network, dataclasses.replace(PAPER, precision="fp32")),
        ("Network-in-Network, the paper's loop", networks.network_in_network, LITERAL),
        ("small network", networks.small, PAPER),
        ("a network with dropout", Dropping, PAPER),
    ):
        together = train(range(8), network, recipe, device, 6)
        equal = True
        for members, in_flight in (([2], 1), ([4], 1), ([5, 2], 2), (range(7, -1, -1), 3), (range(8), 1)):
            again = train(members, network, recipe, device, in_flight)
            equal &= all(same(again[key], together[key]) for key in again)
        other = X.copy()
        other[STARTS[3] :] = 255 - other[STARTS[3] :]
        again = train(range(8), network, recipe, device, 4, samples=other)
        equal &= all(same(again[m, 0], together[m, 0]) for m in range(3))
        moved = not any(same(again[m, 0], together[m, 0]) for m in range(3, 8))
        seeds = train([2], network, recipe, device, 4, n_seeds=3)
        equal &= same(seeds[2, 0], together[2, 0])
        useful = all(t.refused is None for t in together.values())
        verdicts[name] = equal and moved and useful
        print(f"{name}: {'equal bits' if verdicts[name] else 'DIFFERENT'}", flush=True)
    n_printed = len(verdicts)
    fitted, extra = classifier(device).fit(X, Y), np.full((1, 32, 32, 3), 255, np.uint8)
    again = classifier(device).fit(np.concatenate([X, extra]), np.append(Y, 3))
    touched = {int(m) for m in again.partition_.spread[again._buckets[-1]]}
    a, b = fitted.scores(INPUTS).values, again.scores(INPUTS).values
    verdicts["a sample added"] = {m for m in range(16) if not np.array_equal(a[:, m], b[:, m])} == touched
    verdicts["updated"] = np.array_equal(fitted.update(add=(extra, [3])).scores(INPUTS).values, b)
    verdicts["killed and resumed"] = resumed(device)
    verdicts["trained again and again"] = repeated(device)
    chosen = devices.find(device)
    if chosen.type == "cuda" and matmul_norm_relu._supported(chosen.index):
        verdicts["layers in four streams"] = four_streams(device)
    for name in list(verdicts)[n_printed:]:
        print(f"{name}: {'equal bits' if verdicts[name] else 'DIFFERENT'}")
    verdict = "ISOLATED" if all(verdicts.values()) else "NOT ISOLATED"
    print(f"verdict on {devices.describe(chosen)}: {verdict}")
    sys.exit(0 if all(verdicts.values()) else 3)


if __name__ == "__main__":
    main()
