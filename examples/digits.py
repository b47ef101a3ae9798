"""Certify images of digits with the default estimator."""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import runoff

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, random_state=0)

classifier = runoff.RunoffClassifier(n_partitions=20, spread=2, classes=range(10)).fit(X_train, y_train)
certificates = classifier.certify(X_test)
print(runoff.certified_accuracy(certificates, y_test, [0, 2, 4, 8]))

print(classifier.balance())
print(certificates.explain(0))
