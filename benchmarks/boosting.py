"""Certified accuracy of DPA* by the number d of networks per member, from the networks of one run.

python -m benchmarks.boosting RUN --budgets 5 10 15 18 20

A run with 8 networks per member holds eight ensembles with d = 1, four with d = 2, two with d = 4 and one with d = 8,
where ensembles of the same d share no network. This prints the mean for each d. Then a - b / d, since the variance of
a mean over d networks falls as 1 / d, is fitted to the means above d = 1, to extrapolate to larger d.
"""

import argparse
from pathlib import Path

import numpy as np

import runoff
from runoff.runs import Run
from runoff.torch import checkpoints
from runoff.torch.pipeline import member_scores

BEYOND = (16, 32, np.inf)


def certified(run, seeds, n_members, budgets):
    """Return the certified accuracy in percent by election and budget, for the networks of these seeds."""
    ballots = None
    for m in range(n_members):
        files = [run.path / "members" / f"member-{m:06d}-seed-{seed:04d}.safetensors" for seed in seeds]
        scores = member_scores(
            [checkpoints.read(file)[1][checkpoints.SCORES].numpy() for file in files], np.zeros(1), 0
        )
        ballots = np.empty((len(scores), n_members, scores.shape[1]), np.float32) if ballots is None else ballots
        ballots[:, m] = scores
    return {
        election: 100
        * runoff.certified_accuracy(
            runoff.certify(ballots, election=election, spread=run.spread(), bound="paper"),
            np.asarray(run.labels()),
            budgets,
        )
        for election in ("plurality", "runoff")
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--budgets", type=int, nargs="+", default=[5, 10, 15, 18, 20])
    given = parser.parse_args()
    run = Run.open(given.run)
    run.verify()
    n_seeds, n_members = run.n_seeds, len(run.manifest["member_sizes"])
    sizes = [2**i for i in range(n_seeds.bit_length()) if 2**i <= n_seeds]
    print(f"percent certified at {', '.join(map(str, given.budgets))} edits, mean over ensembles that share no network")
    means = {"plurality": [], "runoff": []}
    for d in sizes:
        groups = [range(start, start + d) for start in range(0, n_seeds - d + 1, d)]
        percent = [certified(run, group, n_members, given.budgets) for group in groups]
        for election, by_size in means.items():
            by_size.append(np.mean([each[election] for each in percent], axis=0))
            text = ", ".join(f"{value:.2f}" for value in by_size[-1])
            print(f"{election}, d = {d} ({len(groups)} ensembles): {text}", flush=True)
    design = np.array([[1, -1 / d] for d in sizes if d > 1])
    for election, by_size in means.items():
        a_b = np.linalg.lstsq(design, np.array(by_size)[-len(design) :], rcond=None)[0]
        residual = np.abs(design @ a_b - np.array(by_size)[-len(design) :]).max()
        print(f"{election}, a - b / d fitted to d of 2 and more, largest residual {residual:.2f}:")
        for d in BEYOND:
            print(f"  d = {d}: {', '.join(f'{value:.2f}' for value in np.array([1, -1 / d]) @ a_b)}")


if __name__ == "__main__":
    main()
