"""Train a small network per member in PyTorch.

This needs PyTorch: pip install '.[torch]'.
"""

from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import runoff
from runoff.torch import TorchClassifier

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X.reshape(-1, 8, 8), y, random_state=0)

classifier = TorchClassifier("small", "quick", n_partitions=20, classes=range(10)).fit(X_train, y_train)
certificates = classifier.certify(X_test)
print(classifier.balance())
for budget, accuracy in zip((0, 2, 4), runoff.certified_accuracy(certificates, y_test, [0, 2, 4]), strict=True):
    print(f"certified accuracy at {budget} edits: {accuracy:.1%}")
print(certificates.explain(0))
