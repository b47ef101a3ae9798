"""Which recipe, which first weights? Judged out of part: on training images that a member has not seen.

python -m benchmarks.recipes members DATA --k 250 --members 16 paper strong strong:weights=procedural,epochs=600
python -m benchmarks.recipes ensemble DATA --k 50 --budgets 5,10,15 --out ballots.npz strong:weights=procedural

DATA is a name or a .npz file. A variant is the name of a recipe and what is changed in it. `members` trains the first
few members of each variant and prints how often they are right; the test images are not looked at. `ensemble` trains
all members of one variant, prints the out-of-part estimate of certified accuracy, and keeps the ballots for the test
images.
"""

import argparse
import ast
import dataclasses
import time
from pathlib import Path

import numpy as np

import runoff
from runoff import datasets, hashing
from runoff.isolation import seeds_of
from runoff.partition import Partition
from runoff.samples import Dense
from runoff.torch import RECIPES, Job, Trainer, starting


def variant(text):
    """A recipe and first weights, from NAME:field=value,..."""
    name, _, changes = text.partition(":")
    changed = dict(change.split("=", 1) for change in changes.split(",") if change)
    weights = changed.pop("weights", None)
    network = changed.pop("network", "nin")
    values = {key: ast.literal_eval(value) for key, value in changed.items()}
    return dataclasses.replace(RECIPES[name], **values), network, weights


def parts(data, k, hash_):
    """Each member's samples as `runoff train` gives them, and the buckets of all samples."""
    x = data.x_train if data.x_train.ndim == 4 else data.x_train[..., None]
    partition = Partition.make(k, 1, 0, hashing.derived_key(0), hash_)
    digests = partition.digests(Dense(x))
    buckets = partition.buckets(Dense(x), digests)
    return x, partition.rows(buckets, digests, data.y_train), buckets


def job(m, x, rows, y):
    return Job(m, 0, seeds_of(0, m, 1)[0], x, rows[m], y[rows[m]])


def trainer(text, data, x, device):
    recipe, network, weights = variant(text)
    return Trainer(starting.start(network, weights), recipe, x.shape[1:], len(data.classes), device=device)


def judge_members(data, given):
    x, rows, buckets = parts(data, given.k, given.hash)
    y, held_out = data.y_train, np.flatnonzero(buckets >= given.members)[: given.samples]
    for text in given.variants:
        started = time.perf_counter()
        jobs = [job(m, x, rows, y) for m in range(given.members)]
        trained = trainer(text, data, x, given.device).train(jobs, x[held_out])
        right = [100 * np.mean(t.scores.argmax(1) == y[held_out]) for t in trained]
        seconds, error = time.perf_counter() - started, np.std(right, ddof=1) / len(right) ** 0.5
        print(
            f"k = {given.k}, {text}: {len(right)} members right on {np.mean(right):.2f} +- {error:.2f} % of "
            f"{len(held_out)} training images of other parts ({seconds:.1f} s)",
            flush=True,
        )


def judge_ensemble(data, given):
    (text,) = given.variants
    x, rows, buckets = parts(data, given.k, given.hash)
    y, test = data.y_train, data.x_test.reshape(len(data.x_test), *x.shape[1:])
    pick = np.sort(np.random.default_rng(0).choice(len(x), min(given.samples, len(x)), replace=False))
    started = time.perf_counter()
    jobs = [job(m, x, rows, y) for m in range(given.k)]
    scores = np.zeros((len(test) + len(pick), given.k, len(data.classes)), np.float32)
    for t in trainer(text, data, x, given.device).train(jobs, np.concatenate([test, x[pick]])):
        scores[:, t.member] = t.scores
    seconds = time.perf_counter() - started
    print(f"k = {given.k}, {text}: {given.k} members trained and asked in {seconds:.1f} s")
    budgets = [0, *(int(b) for b in given.budgets.split(","))]
    ours = scores[len(test) :]
    for election in ("plurality", "runoff"):
        print(f"{election}: {runoff.out_of_part(ours, y[pick], buckets[pick], budgets, election=election)}", flush=True)
    if given.out is not None:
        np.savez_compressed(
            given.out,
            test=runoff.rank(scores[: len(test)]),
            y_test=data.y_test,
            out_of_part=runoff.rank(ours),
            y_out_of_part=y[pick],
            buckets=buckets[pick],
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["members", "ensemble"])
    parser.add_argument("data")
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--k", type=int, default=250)
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--samples", type=int, default=8000, help="training images to judge on")
    parser.add_argument("--budgets", default="10,20,40,50,60")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--hash", choices=["content", "pixel-sum"], default="content")
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    named = given.data in datasets.NAMES
    data = datasets.load(given.data, classes=None if named else given.classes)
    (judge_members if given.what == "members" else judge_ensemble)(data, given)


if __name__ == "__main__":
    main()
