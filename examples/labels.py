"""Certify against wrong labels, where the samples themselves are trusted.

Annotators and users who report mails make mistakes, and some of them lie. Often the samples themselves, such as texts
or measurements, can be trusted. An edit is then one changed label, and everything that reads no label may be learned
from all samples at once: vocabularies, scalers, principal components. Members that start from such features need fewer
labels, so more labels may be wrong. Inserted and deleted samples are not covered. For comparison, the last rows count
annotators: an edit is then everything that one annotator contributes, labels and samples.

The best number of partitions depends on the number of edits: a radius is below half of the number of partitions. So
each row is planned for 8 or for 16 edits, on the training samples. Compare rows that are planned for the same number.
"""

# Takes a minute.
import inspect

import numpy as np
import scipy.signal
import scipy.stats
import sklearn.cluster
import sklearn.linear_model
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import runoff

libraries = {
    "numpy": [np, np.linalg, np.random, np.ma],
    "scipy": [scipy.signal, scipy.stats],
    "sklearn": [sklearn.cluster, sklearn.linear_model],
}
docstrings = {
    " ".join(text.split())[:400]: library
    for library, modules in libraries.items()
    for module in modules
    for name in dir(module)
    if (text := inspect.getdoc(getattr(module, name))) and not name.startswith("_")
}
digits, y_digits = load_digits(return_X_y=True)
tfidf = TfidfVectorizer(sublinear_tf=True)
cases = {  # X, y, what comes before a regression inside each member, what is learned once from all samples
    "docstrings": (
        np.array(list(docstrings), object),
        np.array(list(docstrings.values())),
        tfidf,
        make_pipeline(tfidf, TruncatedSVD(15), StandardScaler()),
    ),
    "digits": (digits, y_digits, StandardScaler(), PCA(20, random_state=0)),
}

budgets, goals = [0, 1, 2, 4, 8, 12, 16], (8, 16)
certificates = {}


def certified(classifier, X, y, groups=None):
    """Fit three quarters, with the numbers of partitions that `plan` prefers there, and certify the rest."""
    test = np.arange(len(y)) % 4 == 0
    groups = None if groups is None else groups[~test]
    settings = {"budgets": goals, "n_partitions": (20, 40, 60, 80, 100), "elections": ["runoff"]}
    plan, results = runoff.plan(X[~test], y[~test], classifier, groups=groups, **settings), {}
    for goal in goals:
        k = plan.best(goal).n_partitions
        results[goal] = classifier.set_params(n_partitions=k).fit(X[~test], y[~test], groups).certify(X[test])
        accuracy = 100 * runoff.certified_accuracy(results[goal], y[test], budgets)
        print(f"{results[goal].unit:9}{goal:>7}{k:>5}" + "".join(f"{a:>7.1f}" for a in accuracy))
    return results


heading = "".join(f"{budget:>7}" for budget in budgets)
regression = LogisticRegression(class_weight="balanced", max_iter=1000)
for name, (X, y, inside, shared) in cases.items():
    print(f"{name:11}planned  k{heading}   certified accuracy in % by number of edits")
    general = runoff.RunoffClassifier(make_pipeline(inside, regression), classes=np.unique(y))
    labels = runoff.RunoffClassifier(regression, classes=np.unique(y), threat="labels", shared=shared)
    certificates[name] = [certified(general, X, y), certified(labels, X, y)]

annotators = np.random.default_rng(0).integers(0, 150, len(y))  # who labelled which digit
certified(general, X, y, annotators)
