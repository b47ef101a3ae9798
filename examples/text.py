"""Certify a text classifier that finds the library of a docstring.

The TF-IDF vocabulary is learned inside each member, from the texts of that member alone.
"""

import inspect

import numpy as np
import scipy.signal
import scipy.stats
import sklearn.cluster
import sklearn.linear_model
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import runoff

libraries = {
    "numpy": [np, np.linalg, np.random, np.ma],
    "scipy": [scipy.signal, scipy.stats],
    "sklearn": [sklearn.cluster, sklearn.linear_model],
}
sources = {
    " ".join(text.split())[:400]: library
    for library, modules in libraries.items()
    for module in modules
    for name in dir(module)
    if (text := inspect.getdoc(getattr(module, name))) and not name.startswith("_")
}
texts, labels = list(sources), np.array(list(sources.values()))
test = np.arange(len(texts)) % 4 == 0

members = make_pipeline(TfidfVectorizer(sublinear_tf=True), LogisticRegression(C=10))
classifier = runoff.RunoffClassifier(members, n_partitions=10, spread=2, classes=list(libraries))
classifier.fit([texts[i] for i in np.flatnonzero(~test)], labels[~test])
certificates = classifier.certify([texts[i] for i in np.flatnonzero(test)])
print(f"{len(texts)} docstrings of {', '.join(libraries)}")
print(runoff.certified_accuracy(certificates, labels[test], [0, 1, 2, 3, 4]))
