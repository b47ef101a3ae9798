"""Compare elections on the same ballots, among them rules that the package does not have, and find out why they differ.

python -m benchmarks.elections rules BALLOTS.npz [--budgets 0 5 10 15 18 20] [--failed 5 10]
python -m benchmarks.elections unequal [--k 20 40] [--ratios 1 10] [--runs 3]

BALLOTS.npz holds ballots (inputs, members, classes), as `runoff.rank` returns them, and true labels, under any names;
one bucket per member. `rules` prints the certified accuracy of every rule; what the members do that vote for neither
finalist, where plurality and run-off disagree; and, with `--failed N`, the same elections with N members replaced by
some that rank the classes in the same order for every input.

`unequal` trains ensembles of logistic regressions on digits, of which the classes get fewer and fewer samples: the
most frequent one has RATIO times as many as the rarest.
"""

import argparse
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

import runoff

NEVER = 2**30
PIECE = 2000  # inputs at a time


# -- rules that the package does not have: (ballots) -> (prediction, a number of members below which nothing changes) --


def overtaking(scores, powers, first, second):
    """Return the members that must be taken over for class `second` to overtake `first`: exact for these two alone.

    `scores` (n, classes) are what is counted, `powers(a, b)` (n, members) what a member can take off a's lead over b.
    """
    rows = np.arange(len(scores))
    gap = scores[rows, first] - scores[rows, second] + (second > first)
    largest = -np.sort(-powers(first, second), axis=1)
    enough = np.cumsum(largest, axis=1) >= gap[:, None]
    return np.where(gap <= 0, 0, np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, NEVER))


def by_points(points):
    """Return an election by the sum of what each member gives to each class, with its exact cost."""
    n, _, n_classes = points.shape
    most, least = np.sort(points[0, 0])[[-1, 0]].astype(np.int64)
    totals = points.sum(axis=1, dtype=np.int64)
    winner = totals.argmax(axis=1)
    powers = _powers(points, int(most - least))
    costs = [overtaking(totals, powers, winner, np.full(n, c)) for c in range(n_classes)]
    costs = np.where(np.arange(n_classes)[:, None] == winner, NEVER, costs)
    return winner, costs.min(axis=0)


def _powers(points, most):
    def powers(a, b):
        rows = np.arange(len(points))
        return points[rows, :, a].astype(np.int64) - points[rows, :, b] + most

    return powers


def approval(ballots, top=2):
    """Elect the class that most members have among their first `top`."""
    return by_points((ballots >= ballots.shape[2] - top).astype(np.int8))


def borda(ballots):
    """Elect the class with the largest sum of ranks."""
    return by_points(ballots)


def two_rounds(ballots, first_round, most, voters):
    """Return an election whose second round is between the best two of the first, with a lower bound of its cost.

    `first_round` (n, members, classes) are the points of the first round, of which a member can shift `most`;
    `voters(a, b)` (n, members) says who votes in the second. The winner stays until two classes overtake it, or until
    a class overtakes the runner-up, if it is not the runner-up itself, and beats the winner.
    """
    n, _, n_classes = ballots.shape
    rows, totals = np.arange(n), first_round.sum(axis=1, dtype=np.int64)
    finalists = np.argsort(-totals, axis=1, kind="stable")[:, :2]
    a, b = finalists.min(axis=1), finalists.max(axis=1)

    def votes(x, y):
        return np.where(voters(x, y), np.where(ballots[rows, :, x] > ballots[rows, :, y], 1, -1), 0)

    wins = votes(a, b).sum(axis=1) >= 0  # a tie goes to the lower class
    winner, runner_up = np.where(wins, a, b), np.where(wins, b, a)
    powers = _powers(first_round, most)
    passing, beating = np.full((2, n_classes, n), NEVER)
    for c in range(n_classes):
        other = np.full(n, c)
        passing[c] = np.where(winner == c, NEVER, overtaking(totals, powers, winner, other))
        reach = np.where(runner_up == c, 0, overtaking(totals, powers, runner_up, other))
        given = votes(winner, other)
        gap = given.sum(axis=1) + (other > winner)
        largest = -np.sort(-(given + 1), axis=1)
        beat = (np.cumsum(largest, axis=1) >= gap[:, None]).argmax(axis=1) + 1
        beating[c] = np.where(winner == c, NEVER, np.maximum(reach, np.where(gap <= 0, 0, beat)))
    leaving = np.sort(passing, axis=0)[1] if n_classes > 2 else np.full(n, NEVER)
    return winner, np.minimum(leaving, beating.min(axis=0))


def borda_first(ballots):
    """Hold a run-off between the two classes with the largest sums of ranks."""
    all_members = np.ones(ballots.shape[:2], bool)
    return two_rounds(ballots, ballots, ballots.shape[2] - 1, lambda *_: all_members)


def runoff_top(ballots, top=2):
    """Hold a run-off in whose second round only members vote that have a finalist among their first `top`.

    With `top` = 1 this is plurality, since only members that vote for a finalist are left.
    """
    rows, among = np.arange(len(ballots)), ballots >= ballots.shape[2] - top
    firsts = (ballots == ballots.shape[2] - 1).astype(np.int8)
    return two_rounds(ballots, firsts, 1, lambda x, y: among[rows, :, x] | among[rows, :, y])


def of_package(election):
    def rule(ballots):
        certificates = runoff.certify(ballots, election=election)
        return certificates.prediction, certificates.radius + 1

    return rule


RULES = {
    **{name: of_package(name) for name in ("plurality", "runoff", "maximin")},
    "run-off, idle members abstain unless a finalist is their second": runoff_top,
    "run-off of the two best by Borda count": borda_first,
    "approval of the first two": approval,
    "Borda count": borda,
}


def certified(rule, ballots, y, budgets):
    """Return the certified accuracy of a rule in percent."""
    safe = np.zeros(len(budgets))
    for start in range(0, len(y), PIECE):
        piece = slice(start, start + PIECE)
        prediction, cost = rule(ballots[piece])
        safe += ((prediction == y[piece])[:, None] & (cost[:, None] > budgets)).sum(axis=0)
    return 100 * safe / len(y)


# -- why they differ ---------------------------------------------------------------------------------------------------


def idle_preferences(ballots, y):
    """Return, where one of plurality and run-off is right and the other wrong, what idle members prefer.

    For each case: the number of inputs, the share of members that vote for neither finalist, and the share of these
    that rank the true class above the other finalist.
    """
    rows, first = np.arange(len(y)), ballots.argmax(axis=2)
    winners = [runoff.certify(ballots, election=name).prediction for name in ("plurality", "runoff")]
    found = []
    for right, wrong in (winners, winners[::-1]):
        i = rows[(right == y) & (wrong != y)]
        idle = (first[i] != y[i, None]) & (first[i] != wrong[i, None])
        for_truth = ballots[i, :, y[i]] > ballots[i, :, wrong[i]]
        found.append(
            (len(i), 100 * idle.mean() if len(i) else 0.0, 100 * for_truth[idle].mean() if idle.any() else 0.0)
        )
    return found


def with_failed(ballots, n_failed, one_order):
    """Return ballots with the first members replaced by some that rank the classes alike for every input."""
    n_classes, changed = ballots.shape[2], ballots.copy()
    draws = np.random.default_rng(0)
    order = draws.permutation(n_classes)
    for m in range(n_failed):
        changed[:, m] = order if one_order else draws.permutation(n_classes)
    return changed


def print_row(name, values):
    print(f"| {name} | " + " | ".join(f"{value:.2f}" for value in values) + " |", flush=True)


def print_head(what, budgets):
    print(f"\n| {what} | " + " | ".join(map(str, budgets)) + " |")
    print("| --- " * (1 + len(budgets)) + "|")


def read(path):
    """Return ballots and labels from an .npz file, by their dimensions."""
    with np.load(path, allow_pickle=False) as file:
        arrays = [file[name] for name in file.files]
    (ballots,), (y,) = [a for a in arrays if a.ndim == 3], [a for a in arrays if a.ndim == 1]
    return ballots, y


def rules(given):
    ballots, y = read(given.ballots)
    budgets = np.array(given.budgets)
    print(f"{len(y):,} inputs, {ballots.shape[1]} members, {ballots.shape[2]} classes; certified accuracy in percent")
    print_head("edits", given.budgets)
    for name, rule in RULES.items():
        print_row(name, certified(rule, ballots, y, budgets))
    print("\n| where | inputs | idle members, % | of which rank the true class higher, % |\n| --- | --- | --- | --- |")
    names = ("plurality is right and run-off wrong", "run-off is right and plurality wrong")
    for name, (n, idle, for_truth) in zip(names, idle_preferences(ballots, y), strict=True):
        print(f"| {name} | {n} | {idle:.1f} | {for_truth:.1f} |")
    for n_failed in given.failed:
        for one_order in (False, True):
            changed = with_failed(ballots, n_failed, one_order)
            kind = "all in one order" if one_order else "each in a separate order"
            print_head(f"{n_failed} members failed, {kind}, edits", given.budgets)
            for name in ("plurality", "runoff", "maximin"):
                print_row(name, certified(RULES[name], changed, y, budgets))


# -- classes of unequal frequency --------------------------------------------------------------------------------------


def unequal_digits(ratio, seed):
    """Return training rows of the digits whose classes get rarer and rarer, and test rows with all of them alike."""
    X, y = load_digits(return_X_y=True)
    draws = np.random.default_rng(seed)
    order = draws.permutation(len(y))
    test, pool = order[:600], order[600:]
    kept = []
    for rank, c in enumerate(draws.permutation(10)):
        rows = pool[y[pool] == c]
        kept.append(rows[: max(2, round(len(rows) * ratio ** (-rank / 9)))])
    train = np.concatenate(kept)
    return X[train], y[train], X[test], y[test]


def unequal(given):
    budgets = np.array(given.budgets)
    print(f"digits, logistic regressions, mean of {given.runs} runs; certified accuracy in percent")
    warnings.simplefilter("ignore")  # members that miss a class, and regressions that stop early
    shares = []
    for k in given.k:
        for ratio in given.ratios:
            found, known = {name: [] for name in RULES}, []
            for seed in range(given.runs):
                x_train, y_train, x_test, y_test = unequal_digits(ratio, seed)
                member = LogisticRegression(max_iter=200)
                classifier = runoff.RunoffClassifier(member, n_partitions=k, classes=range(10), random_state=seed)
                classifier.fit(x_train, y_train)
                ballots = runoff.rank(classifier.scores(x_test).values)
                for name, rule in RULES.items():
                    found[name].append(certified(rule, ballots, y_test, budgets))
                seen = np.stack([np.isin(np.arange(10), member.classes) for member in classifier.members_])
                known.append(by_knowledge(ballots, y_test, seen))
            print_head(f"k = {k}, most frequent class {ratio} times the rarest, edits", given.budgets)
            for name in RULES:
                print_row(name, np.mean(found[name], axis=0))
            shares.append((k, ratio, np.nanmean(known, axis=0)))
    print("\n| k | ratio | idle members that have seen the true class: rank it higher, % | that have not, % |")
    print("| --- | --- | --- | --- |")
    for k, ratio, values in shares:
        cells = ["" if np.isnan(value) else f"{value:.1f}" for value in values]
        print(f"| {k} | {ratio} | {' | '.join(cells)} |")


def by_knowledge(ballots, y, seen):
    """Return how often idle members rank the true class above the other finalist, if they have seen it and if not."""
    rows, first = np.arange(len(y)), ballots.argmax(axis=2)
    firsts = (first[:, :, None] == np.arange(ballots.shape[2])).sum(axis=1)
    finalists = np.argsort(-firsts, axis=1, kind="stable")[:, :2]
    i = rows[(finalists == y[:, None]).any(axis=1)]
    other = np.where(finalists[i, 0] == y[i], finalists[i, 1], finalists[i, 0])
    idle = (first[i] != y[i, None]) & (first[i] != other[:, None])
    for_truth = ballots[i, :, y[i]] > ballots[i, :, other]
    knows = seen[:, y[i]].T
    return [100 * for_truth[idle & which].mean() if (idle & which).any() else np.nan for which in (knows, ~knows)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    stored = commands.add_parser("rules")
    stored.add_argument("ballots")
    stored.add_argument("--budgets", type=int, nargs="+", default=[0, 5, 10, 15, 18, 20])
    stored.add_argument("--failed", type=int, nargs="*", default=[])
    stored.set_defaults(run=rules)
    trained = commands.add_parser("unequal")
    trained.add_argument("--k", type=int, nargs="+", default=[20, 40])
    trained.add_argument("--ratios", type=int, nargs="+", default=[1, 10])
    trained.add_argument("--runs", type=int, default=3)
    trained.add_argument("--budgets", type=int, nargs="+", default=[0, 1, 2, 4, 6])
    trained.set_defaults(run=unequal)
    given = parser.parse_args()
    given.run(given)


if __name__ == "__main__":
    main()
