"""Features from a trusted encoder, with small members on top.

An encoder that was trained elsewhere lets members learn from few samples, so that there can be many of them, and radii
grow. What that trust means: the guarantee is about edits of the samples that the *members* learn from. Whoever could
edit the data that the encoder was trained on could change every feature of every sample at once, and no radius says
anything about that. So the encoder must come from data that the attacker cannot reach, be fixed before the untrusted
data is looked at, and be the same file ever after: pin it by its hash. Here it is a principal component analysis of
images that we hold to be ours.
"""

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeClassifier

import runoff

X, y = load_digits(return_X_y=True)
trusted, crawled, y_crawled, inputs, y_inputs = X[:400], X[400:1400], y[400:1400], X[1400:], y[1400:]

encoder = PCA(16, whiten=True, random_state=0).fit(trusted)  # never sees what was crawled
for name, features in {"pixels": lambda images: images, "encoder": encoder.transform}.items():
    members = RidgeClassifier(alpha=1)
    classifier = runoff.RunoffClassifier(members, n_partitions=40, classes=range(10))
    classifier.fit(features(crawled), y_crawled)
    accuracy = runoff.certified_accuracy(classifier.certify(features(inputs)), y_inputs, [0, 4, 8, 12])
    print(name, accuracy)
