"""Certify gradient boosting on a table with a categorical column and missing values."""

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import train_test_split

import runoff

data = load_breast_cancer(as_frame=True)
table = data.data.copy()
table["texture"] = pd.cut(table.pop("mean texture"), 4, labels=["fine", "even", "rough", "coarse"])
table.loc[::17, "mean area"] = np.nan
train, test, y_train, y_test = train_test_split(table, data.target_names[data.target], random_state=0)

# Compare numbers of partitions, on the training data alone. With two classes, all elections are the same.
members = HistGradientBoostingClassifier(max_iter=30, min_samples_leaf=5, categorical_features="from_dtype")
print(runoff.plan(train, y_train, members, budgets=(1, 2, 4), n_partitions=(5, 10, 20), elections=["runoff"]))

known = ["benign", "malignant"]  # all possible labels, fixed in advance
classifier = runoff.RunoffClassifier(members, n_partitions=20, classes=known, n_jobs=2).fit(train, y_train)
certificates = classifier.certify(test)
print(runoff.certified_accuracy(certificates, y_test, [0, 1, 2, 4, 8]))

# One row is wrong, and one person asks for deletion: only the members that these two rows reach are retrained.
classifier.update(remove=(train[:2], y_train[:2]))
print(f"{len(classifier.updated_members_)} of {classifier.partition_.n_members} members were retrained")
