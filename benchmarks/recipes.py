"""Compare recipes and first weights out of part: on training images that a member has not seen.

python -m benchmarks.recipes members DATA --k 250 --members 16 paper strong strong:weights=procedural,epochs=600
python -m benchmarks.recipes ensemble DATA --k 50 --out DIRECTORY strong:weights=procedural
python -m benchmarks.recipes inference DATA --k 50 --device cpu strong strong:test_shift=0
python -m benchmarks.recipes pretrain - --out DIRECTORY steps=1500,textures=noise+fractals
python -m benchmarks.recipes queue FILE --out DIRECTORY

DATA is a name or a .npz file. A variant is the name of a recipe and what is changed in it; `network`, `weights` and
`seeds` (networks per member, whose scores are averaged) are changed in the same way. `members` trains the first few
members of each variant and prints how often they are right; the test images are not scored. `ensemble` trains all
members of one variant and writes what they certify, for the average and for every network of a member alone:
`benchmarks.results` makes tables of these rows. With `--ballots` it also keeps the ballots of the average for the test
images. `inference` times networks that are not trained. `pretrain` makes first weights (`benchmarks.pretraining`).
`queue` takes its commands, one per line, from a file that may grow while it is read, and stops at a line `end`; with
`--wait` it waits for datasets that do not exist yet. Every result is written as soon as it is known.
"""

import argparse
import ast
import dataclasses
import json
import shlex
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch

import runoff
from benchmarks import pretraining
from runoff import datasets, hashing
from runoff.partition import Partition
from runoff.samples import Dense
from runoff.torch import RECIPES, Trainer, starting
from runoff.torch.pipeline import class_shares, member_scores, network_jobs

PIECE = 22_000_000  # bytes of ballots in one file, before compression
ELECTIONS = ("plurality", "runoff", "maximin")
LOADED = {}  # by name or path


def variant(text):
    """Return a recipe, a network, first weights and networks per member, from NAME:field=value,..."""
    name, _, changes = text.partition(":")
    changed = dict(change.split("=", 1) for change in changes.split(",") if change)
    weights, network, seeds = (
        changed.pop(key, other) for key, other in (("weights", None), ("network", "nin"), ("seeds", 1))
    )
    values = {key: ast.literal_eval(value) for key, value in changed.items()}
    return dataclasses.replace(RECIPES[name], **values), network, weights, int(seeds)


def parts(data, k, hash_, seed=0):
    """Return each member's samples as `runoff train` assigns them, and the buckets of all samples."""
    x = data.x_train if data.x_train.ndim == 4 else data.x_train[..., None]
    partition = Partition.make(k, 1, seed, hashing.derived_key(seed), hash_)
    digests = partition.digests(Dense(x))
    buckets = partition.buckets(Dense(x), digests)
    return x, partition.rows(buckets, digests, data.y_train), buckets


def trained(text, members, data, x, rows, inputs, given):
    """Each member's scores for some inputs, as soon as they are known, by network, and the networks' states."""
    recipe, network, weights, n_seeds = variant(text)
    trainer = Trainer(starting.start(network, weights), recipe, x.shape[1:], len(data.classes), device=given.device)
    jobs = network_jobs(x, data.y_train, rows, members, given.seed, n_seeds)
    waiting = {m: {} for m in members}
    for done in trainer.train(jobs, inputs):
        own = waiting[done.member]
        own[done.seed] = done
        if len(own) == n_seeds:
            scores = [own[s].scores for s in range(n_seeds) if own[s].refused is None]
            yield done.member, scores, [own[s].state for s in own]


def combined(scores, member, data, rows, n_inputs):
    """Return a member's scores: the mean over its networks, or its class shares without any network."""
    return member_scores(scores, class_shares(data.y_train[rows[member]], len(data.classes)), n_inputs)


def rescored(text, states, data, x, rows, inputs, shift, given):
    """The scores of trained members with another number of views."""
    recipe, network, weights, _ = variant(text)
    recipe = dataclasses.replace(recipe, test_shift=shift)
    trainer = Trainer(starting.start(network, weights), recipe, x.shape[1:], len(data.classes), device=given.device)
    named = [((m, seed), state) for m, own in states.items() for seed, state in enumerate(own)]
    scores = {}
    for (m, _), values in trainer.score(named, inputs):
        scores.setdefault(m, []).append(values.copy())
    return {m: combined(own, m, data, rows, len(inputs)) for m, own in scores.items()}


def judge_members(data, given):
    x, rows, buckets = parts(data, given.k, given.hash)
    y, held_out = data.y_train, np.flatnonzero(buckets >= given.members)[: given.samples]
    members = range(given.members)
    for text in given.variants:
        started, states = time.perf_counter(), {}
        scores = {m: combined([], m, data, rows, len(held_out)) for m in members}
        for m, own, networks in trained(text, members, data, x, rows, x[held_out], given):
            scores[m], states[m] = combined(own, m, data, rows, len(held_out)), networks
        seconds = time.perf_counter() - started
        shifts = [int(shift) for shift in given.shifts.split(",") if shift]
        views = {None: scores, **{s: rescored(text, states, data, x, rows, x[held_out], s, given) for s in shifts}}
        for shift, values in views.items():
            right = [100 * float(np.mean(values.get(m, scores[m]).argmax(1) == y[held_out])) for m in members]
            error = np.std(right, ddof=1) / len(right) ** 0.5
            name = text if shift is None else f"{text}, scored with test_shift={shift}"
            print(
                f"k = {given.k}, {name}: {len(right)} members right on {np.mean(right):.2f} +- {error:.2f} % of "
                f"{len(held_out)} training images of other parts ({seconds:.1f} s)",
                flush=True,
            )
            record(given, {**about(data, given, text, seconds), "scored_with_shift": shift, "out_of_part": right})


def judge_ensemble(data, given):
    (text,) = given.variants
    x, rows, buckets = parts(data, given.k, given.hash)
    y, test = data.y_train, data.x_test.reshape(len(data.x_test), *x.shape[1:])
    pick = np.sort(np.random.default_rng(0).choice(len(x), min(given.samples, len(x)), replace=False))
    inputs = np.concatenate([test, x[pick]])
    started, states = time.perf_counter(), {}
    n_seeds = variant(text)[3]
    versions = [*range(n_seeds), "mean"] if n_seeds > 1 else [0]  # each network alone, and all of a member
    scores = np.empty((len(versions), len(inputs), given.k, len(data.classes)), np.float32)
    for m in range(given.k):  # those of members without two classes stay so
        scores[:, :, m] = combined([], m, data, rows, len(inputs))
    for m, own, networks in trained(text, range(given.k), data, x, rows, inputs, given):
        for i, version in enumerate(versions):
            scores[i, :, m] = combined(
                own if version == "mean" else own[version : version + 1], m, data, rows, len(inputs)
            )
        states[m] = networks
    seconds = time.perf_counter() - started
    print(
        f"k = {given.k}, {text}: {given.k} members trained and {len(inputs)} inputs scored in {seconds:.1f} s",
        flush=True,
    )
    row = about(data, given, text, seconds)
    if given.time:
        recipe = variant(text)[0]
        started = time.perf_counter()
        rescored(text, states, data, x, rows, test[: given.time], recipe.test_shift, given)
        row |= {"inference_inputs": given.time, "inference_seconds": time.perf_counter() - started}
    labels = {"y": y[pick], "buckets": buckets[pick], "y_test": data.y_test}
    finishing.submit(keep, given, row, versions, scores, labels)


def judge_inference(data, given):
    """Print the processor time, which does not depend on other processes, per network and input."""
    x = data.x_test if data.x_test.ndim == 4 else data.x_test[..., None]
    inputs = x[: given.time or 128]
    for text in given.variants:
        recipe, network, weights, _ = variant(text)
        factory = starting.start(network, weights)
        trainer = Trainer(factory, recipe, x.shape[1:], len(data.classes), device=given.device, in_flight=1)
        state = trainer._slot().get_state()
        started = time.process_time()
        list(trainer.score([(0, state)], inputs))
        each = (time.process_time() - started) / len(inputs)
        print(
            f"{text}: {1000 * each:.1f} ms of processor time for a network and an input; "
            f"{given.k * 1000 * each:,.0f} s for k = {given.k} and 1,000 inputs",
            flush=True,
        )


def keep(given, row, versions, scores, labels):
    """Write what an ensemble certifies, by version, and its ballots if they are wanted."""
    try:
        n_test, name = len(labels["y_test"]), f"{row['dataset']}-k{row['k']}-{row['seed']}"
        for version, values in zip(versions, scores, strict=True):
            ballots = ranked(values)
            record(given, {**row, "version": version, **judged(given, ballots, labels)})
        if given.ballots:  # the last version: all networks of a member
            each = max(1, PIECE // (given.k * row["n_classes"]))
            for i, start in enumerate(range(0, n_test, each)):
                part = slice(start, min(n_test, start + each))
                write(given.out / f"{name}-test{i}.npz", ballots=ballots[part], y=labels["y_test"][part], start=start)
    except Exception:
        traceback.print_exc()
        raise


def judged(given, ballots, labels):
    """Return certified accuracies on test images and estimates on training images, by election and number of edits."""
    n_test, unseen = len(labels["y_test"]), labels["buckets"][:, None] != np.arange(given.k)
    first = ballots.argmax(2)
    right, ours = first[:n_test] == labels["y_test"][:, None], first[n_test:] == labels["y"][:, None]
    edits = [*range(given.k // 2 + 1)]
    certified, estimated = {}, {}
    for election in ELECTIONS:
        certificates = runoff.certify(ballots[:n_test], election=election)
        values = runoff.certified_accuracy(certificates, labels["y_test"], edits)
        certified[election] = [round(100 * float(value), 4) for value in values]
        estimate = runoff.out_of_part(ballots[n_test:], labels["y"], labels["buckets"], edits, election=election)
        estimated[election] = [round(100 * float(value), 4) for value in estimate.certified]
    return {
        "test": round(100 * float(right.mean()), 4),
        "out_of_part": [round(100 * float(ours[unseen[:, m], m].mean()), 4) for m in range(given.k)],
        "certified": certified, "estimated": estimated,
    }  # fmt: skip


def ranked(scores):
    """Return the ballots of `runoff.rank`, one byte per class."""
    order = np.argsort(scores[..., ::-1], axis=-1, kind="stable")
    points = np.empty(scores.shape, np.uint8)
    np.put_along_axis(points, order, np.arange(scores.shape[2], dtype=np.uint8), axis=-1)
    return points[..., ::-1]


def write(path, **arrays):
    half = path.with_suffix(".half.npz")
    np.savez_compressed(half, **arrays)
    half.rename(path)


def about(data, given, text, seconds):
    recipe = variant(text)[0].to_dict()
    gpu = torch.cuda.is_available() and given.device != "cpu"
    return {
        "what": given.what, "dataset": given.name or Path(given.data).stem, "k": given.k, "variant": text,
        "hash": given.hash, "seed": given.seed, "seconds": seconds, "n_classes": len(data.classes),
        "device": torch.cuda.get_device_name() if gpu else "cpu", "torch": torch.__version__, "samples": given.samples,
        "recipe": recipe,
    }  # fmt: skip


def record(given, row):
    if given.out is not None:
        with (given.out / "rows.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


def loaded(given):
    named = given.data in datasets.NAMES
    if given.data not in LOADED:
        LOADED[given.data] = datasets.load(given.data, classes=None if named else given.classes)
    return LOADED[given.data]


def run(given):
    if given.what == "pretrain":
        pretraining.pretrain(given, record)
        return
    work = {"members": judge_members, "ensemble": judge_ensemble, "inference": judge_inference}
    work[given.what](loaded(given), given)


def run_queue(given):
    """Run commands as they are added to a file. One that fails is reported, and the next one starts."""
    done = 0
    while True:
        lines = [line for line in Path(given.data).read_text().split("\n")[:-1] if line.strip()]
        if done == len(lines):
            time.sleep(0.5)
            continue
        if lines[done].strip() == "end":
            return
        try:
            command = parser().parse_intermixed_args([*shlex.split(lines[done]), "--out", str(given.out)])
            if given.wait and command.data not in (*datasets.NAMES, "-") and not Path(command.data).exists():
                time.sleep(0.5)
                continue
            print(f"> {lines[done]}", flush=True)
            run(command)
        except (Exception, SystemExit):
            traceback.print_exc()
        print(f"< {time.strftime('%H:%M:%S')}", flush=True)
        done += 1


def parser():
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("what", choices=["members", "ensemble", "inference", "pretrain", "queue"])
    found.add_argument("data", help="a dataset; for a queue, the file of commands")
    found.add_argument("variants", nargs="*")
    found.add_argument("--k", type=int, default=250)
    found.add_argument("--members", type=int, default=16)
    found.add_argument("--samples", type=int, default=8000, help="training images to judge on")
    found.add_argument("--shifts", default="", help="score members again with these values of test_shift")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--classes", type=int, default=10)
    found.add_argument("--name", help="what rows call the dataset, or the file name of first weights")
    found.add_argument("--hash", choices=["content", "pixel-sum"], default="content")
    found.add_argument("--time", type=int, default=0, help="score this many inputs again, to time it")
    found.add_argument("--wait", action="store_true", help="in a queue, wait for datasets that do not exist yet")
    found.add_argument("--device")
    found.add_argument("--ballots", action="store_true", help="keep the ballots of an ensemble for the test images")
    found.add_argument("--out", type=Path, help="a directory for rows and ballots")
    return found


finishing = ThreadPoolExecutor(1)


def main():
    given = parser().parse_intermixed_args()
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "ensemble" and given.out is None:
        sys.exit("ensemble needs --out: a directory for what it certifies")
    with finishing:
        (run_queue if given.what == "queue" else run)(given)


if __name__ == "__main__":
    main()
