"""Heads on the features of a trusted encoder: certified accuracy, out of part and on the test images.

python -m benchmarks.encoder DATA.npz WEIGHTS.safetensors --k 50,250,1000 --out DIRECTORY
python -m benchmarks.encoder DATA.npz WEIGHTS.safetensors --k 250 --pixels 224 --no-test

Features are computed once, and heads are trained for every number of parts. Each head chooses its strength by
leave-one-out on its own samples; nothing is chosen here. Heads are not random, so `--seed` only divides the samples
otherwise. Settings can be compared out of part with `--no-test`. DIRECTORY/rows.jsonl gets one row for each number of
parts, as soon as it is known: a command that is repeated computes those that are missing. `python -m benchmarks.results
add DIRECTORY` adds them to docs/results-runs.csv. Ballots go to .npz files beside them.
"""

import argparse
import io
import json
import shlex
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from threadpoolctl import threadpool_limits

import runoff
from benchmarks.recipes import parts, ranked
from benchmarks.results import EDITS
from runoff import datasets
from runoff.heads import fit_heads
from runoff.torch.encoders import cores, image_encoder

LARGEST = 15_500_000  # bytes of a file of ballots
MORE_EDITS = {50: (22,), 250: (100,), 1000: (50, 100, 200, 300, 400), 2500: (60, 250, 500, 750, 1000)}


def synchronized():
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def check_bits(encoder, x, features):
    """Check that features have the same bits alone, in another order and beside other images."""
    n = min(len(x), 3 * encoder.batch + 1)
    rows = np.random.default_rng(0).permutation(len(x))[:n]
    for chosen in (rows, rows[: n // 2][::-1], rows[:1], rows[1:2]):
        if not np.array_equal(encoder.features(x[chosen]).view(np.uint32), features[chosen].view(np.uint32)):
            raise SystemExit("FAILED: features depend on what else is encoded")
    print(f"features: bit for bit the same in other orders, blocks and alone ({n} images)", flush=True)


def opened(given):
    """Return the encoder, without a cache: its time is reported."""
    return image_encoder(
        given.weights, pixels=given.pixels, flip=given.flip, device=given.device, cached=False, batch=given.batch
    )


def encoded(data, given):
    encoder = opened(given)
    print(f"{encoder.name}, SHA-256 {encoder.sha256}, {dict(encoder.settings)}", flush=True)
    encoder.features(data.x_test[:300])  # warms up the device, and rejects features that depend on other images
    started = synchronized()
    both = [encoder.features(x, show=True) for x in (data.x_train, data.x_test)]
    seconds = synchronized() - started
    print(f"features: {len(both[0])} + {len(both[1])} images in {seconds:.1f} s", flush=True)
    check_bits(encoder, data.x_test, both[1])
    return encoder, *both, seconds


def judge(k, data, train, test, given):
    """Train the heads for k parts, and score training images and test images."""
    _, rows, buckets = parts(data, k, given.hash, given.seed)
    y = data.y_train
    started = time.perf_counter()
    heads = fit_heads(train, y, rows, len(data.classes), n_jobs=cores())
    trained = time.perf_counter() - started
    pick = np.sort(np.random.default_rng(0).choice(len(y), min(given.samples, len(y)), replace=False))
    started = time.perf_counter()
    part = ranked_scores(heads, train[pick])
    scored = 1000 * (time.perf_counter() - started) / len(pick)
    budgets = budgets_of(k, given)
    unseen = buckets[pick][:, None] != np.arange(k)
    right = (part == part.shape[2] - 1).argmax(2) == y[pick][:, None]
    chosen, counts = np.unique(heads.strengths, return_counts=True)
    print(
        f"\nk = {k}: heads in {trained:.1f} s, 1,000 inputs scored in {scored:.2f} s; "
        f"strengths {dict(zip(chosen.tolist(), counts.tolist(), strict=True))}\n"
        f"accuracy of members: {100 * right[unseen].mean():.2f} % out of part"
    )
    print_row("edits", map(str, (0, *budgets)))
    print(f"|{' --- |' * (len(budgets) + 2)}", flush=True)
    step = max(1, k // 100)
    edits = np.unique([0, *budgets, *range(0, k // 2 + 1, step)]).tolist()
    row = {**settings(k, given), "out_of_part": 100 * float(right[unseen].mean()), "seconds": given.encoding + trained,
           "device": given.device_name, "command": command(k, given), "estimated": {}, "certified": {}}  # fmt: skip
    for election in given.elections.split(","):
        estimate = runoff.out_of_part(part, y[pick], buckets[pick], edits, election=election)
        at = row["estimated"][election] = dict(zip(edits, (100 * estimate.certified).tolist(), strict=True))
        print_row(f"{election}, out of part", (f"{at[n]:.2f}" for n in (0, *budgets)))
    if not given.test:
        record(given, row)
        return
    ballots = ranked_scores(heads, test)
    members = 100 * float(np.mean((ballots == ballots.shape[2] - 1).argmax(2) == data.y_test[:, None]))
    for election in given.elections.split(","):
        certified = 100 * runoff.certified_accuracy(runoff.certify(ballots, election=election), data.y_test, edits)
        at = row["certified"][election] = dict(zip(edits, certified.tolist(), strict=True))
        print_row(f"{election}, test", (f"{at[n]:.2f}" for n in (0, *budgets)))
    print(f"accuracy of members: {members:.2f} % on the test images", flush=True)
    if given.out is not None and str(k) in given.keep.split(","):
        seed = f"-seed{given.seed}" if given.seed else ""
        keep(given, f"{given.name}-k{k}-encoder{seed}-test", ballots, {"y": data.y_test})
    record(given, {**row, "members": members})  # last: what has a row is finished


def ranked_scores(heads, features):
    """Return the ballots, computed in blocks on all cores."""
    blocks = [features[i : i + 256] for i in range(0, len(features), 256)]
    with threadpool_limits(1), ThreadPoolExecutor(cores()) as pool:
        return np.concatenate(list(pool.map(lambda block: ranked(heads.scores(block)), blocks)))


def budgets_of(k, given):
    """Return the paper's numbers of edits, some more, and those from the command line."""
    paper = EDITS.get((given.name, k), ((), 1))[0]
    asked = [int(n) for n in given.budgets.split(",") if n]
    return sorted({*paper, *MORE_EDITS.get(k, ()), *(n for n in asked if n <= k // 2)})


def print_row(name, values):
    print(f"| {name} | {' | '.join(values)} |", flush=True)


def settings(k, given):
    """Return what a row is of: rows with the same settings are the same."""
    return {
        "what": "encoder", "dataset": given.name, "k": k, "seed": given.seed, "hash": given.hash, "test": given.test,
        "recipe": f"{given.encoder}, ridge", "samples": given.samples, "elections": given.elections,
        "budgets": given.budgets,
    }  # fmt: skip


def finished(given):
    """Return the settings of the rows that exist."""
    path = None if given.out is None else given.out / "rows.jsonl"
    if path is None or not path.exists():
        return []
    names = settings(0, given)
    rows = map(json.loads, path.read_text().splitlines())
    return [{name: row.get(name) for name in names} for row in rows if row["what"] == "encoder"]


def record(given, row):
    """Append a row to the file, whole."""
    if given.out is not None:
        with (given.out / "rows.jsonl").open("a") as file:
            file.write(json.dumps(row) + "\n")


def command(k, given):
    """Return the command that computes one row, with all its settings but no folder of this machine."""
    words = ["python", "-m", "benchmarks.encoder", Path(given.data).name, Path(given.weights).name, "--k", str(k)]
    for name, default in given.defaults.items():
        value = getattr(given, name)
        if name in ("data", "weights", "k", "out") or value == default:
            continue
        words += [f"--{'' if value else 'no-'}{name}"] if isinstance(default, bool) else [f"--{name}", str(value)]
    return shlex.join([*words, "--out", "DIRECTORY"])


def keep(given, name, ballots, extra):
    """Write ballots in as few files as their largest size allows."""
    pieces = [(0, len(ballots))]
    written = 0
    while pieces:
        start, end = pieces.pop(0)
        packed = io.BytesIO()
        labels = {key: value[start:end] for key, value in extra.items()}
        np.savez_compressed(packed, ballots=ballots[start:end], start=start, **labels)
        if packed.tell() > LARGEST and end - start > 1:
            n = -(-packed.tell() // LARGEST)
            bounds = np.linspace(start, end, n + 1).astype(int).tolist()
            pieces = [*pairwise(bounds), *pieces]
            continue
        path = given.out / f"{name}{written}.npz"
        path.write_bytes(packed.getvalue())
        print(f"{path}: {packed.tell() / 1e6:.1f} MB", flush=True)
        written += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a dataset by name, or a .npz file")
    parser.add_argument("weights", help="a safetensors file, or the name of an encoder")
    parser.add_argument("--k", default="50,250,1000", help="numbers of parts, with commas between them")
    parser.add_argument("--budgets", default="", help="numbers of edits besides the paper's")
    parser.add_argument("--elections", default="plurality,runoff,maximin")
    parser.add_argument("--samples", type=int, default=5000, help="training images to judge on, out of part")
    parser.add_argument("--pixels", type=int, help="default: those that the weights were trained on")
    parser.add_argument("--flip", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--test", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--name", default="cifar10", help="what rows call the dataset")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--hash", choices=["content", "pixel-sum"], default="content")
    parser.add_argument("--keep", default="50,250,1000", help="keep the ballots of these numbers of parts")
    parser.add_argument("--seed", type=int, default=0, help="of the hash key: which samples are in which part")
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, help="a directory for rows and ballots")
    given = parser.parse_args()
    given.defaults = {action.dest: action.default for action in parser._actions if action.dest != "help"}
    named = given.data in datasets.NAMES
    data = datasets.load(given.data, classes=None if named else given.classes)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
    describe(given)
    done = finished(given)
    wanted = [k for k in map(int, given.k.split(",")) if settings(k, given) not in done]
    if not wanted:
        print("all rows exist")
        return
    encoder, train, test, given.encoding = encoded(data, given)
    device = encoder.settings["device"]
    given.device_name = "cpu" if device.startswith("cpu") else device
    for k in wanted:
        judge(k, data, train, test, given)


def describe(given):
    """Set the name of the encoder with its settings, without computing anything."""
    encoder = opened(given)
    given.encoder = f"{encoder.name}, {encoder.settings['pixels']} pixels{', mirrored' if given.flip else ''}"


if __name__ == "__main__":
    main()
