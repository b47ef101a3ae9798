"""Compare the choice of `runoff.plan`, made on training data alone, with the best choice on the test set.

    python -m benchmarks.planning [--trials N]

For the digits and the breast cancer data and several numbers of edits: the choice of `plan` with its estimate and its
certified accuracy on the test set, the best of all choices on the test set, and the smallest number of partitions whose
largest radius reaches the number of edits. Test labels are used only to judge the choices.
"""

import argparse
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import train_test_split

import runoff
from runoff.planning.choosing import TRIED

SETTINGS = {"digits": (load_digits, (2, 5, 9, 20)), "breast cancer": (load_breast_cancer, (2, 5, 9, 20))}
ELECTIONS = ("plurality", "runoff", "maximin")


def on_test(train, test, budgets):
    """Return the certified accuracy on the test set of every choice, by (k, election)."""
    (X, y), (X_test, y_test) = train, test
    found = {}
    warnings.filterwarnings("ignore", message=".*members learn nothing")  # those choices are compared, too
    for k in [k for k in TRIED if 2 * k <= len(y)]:
        fitted = runoff.RunoffClassifier(n_partitions=k, classes=np.unique(y)).fit(X, y)
        scores, codes = fitted.scores(X_test), np.searchsorted(fitted.classes_, y_test)
        for election in ELECTIONS:
            certificates = runoff.certify(scores, election=election)
            found[k, election] = dict(
                zip(budgets, runoff.certified_accuracy(certificates, codes, budgets).tolist(), strict=True)
            )
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1, help="splits into training and test set")
    trials = parser.parse_args().trials
    print("dataset        split edits  plan: k, election       estimate   test   best on test         smallest k")
    lost = []
    for name, (load, budgets) in SETTINGS.items():
        X, y = load(return_X_y=True)
        for split in range(trials):
            X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.2, random_state=split)
            plan = runoff.plan(X_train, y_train, budgets=budgets)
            found = on_test((X_train, y_train), (X_test, y_test), budgets)
            for b in budgets:
                choice = plan.best(b)
                estimate, error = choice.certified(b)
                test = found[choice.n_partitions, choice.election][b]
                best = max(found, key=lambda key: found[key][b])
                smallest = min((key for key in found if key[0] >= 2 * b + 1 and key[1] == "runoff"), default=None)
                lost.append(found[best][b] - test)
                print(
                    f"{name:14} {split:5} {b:5}  {choice.n_partitions:3} {choice.election:10} "
                    f"{100 * estimate:11.1f} ± {100 * error:.1f}  {100 * test:5.1f}  {100 * found[best][b]:5.1f} "
                    f"({best[0]}, {best[1]})   {100 * found[smallest][b]:5.1f} ({smallest[0]})"
                )
    mean, most = 100 * np.mean(lost), 100 * max(lost)
    print(f"plan is {mean:.1f} points below the best on the test set on average, at most {most:.1f}")


if __name__ == "__main__":
    main()
