"""Train small members on features from a trusted encoder.

With an encoder that was trained elsewhere, members can learn from few samples, so there can be more members, and radii
grow. The guarantee then covers edits of the samples that the *members* are trained on. Anyone who could edit the data
that the encoder was trained on could change every feature of every sample at once, and no radius covers that. So the
encoder must be trained on data that the attacker cannot reach, be fixed before anyone looks at the untrusted data, and
never change: pin it by its SHA-256. Here it is a principal component analysis of images that we trust.
"""

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeClassifier

import runoff

X, y = load_digits(return_X_y=True)
trusted, crawled, y_crawled, inputs, y_inputs = X[:400], X[400:1400], y[400:1400], X[1400:], y[1400:]

axes = PCA(16, whiten=True, random_state=0).fit(trusted)  # never sees the crawled images
certificates = {}
for name, encoder in {"pixels": None, "encoder": axes.transform}.items():
    members = RidgeClassifier(alpha=1)
    classifier = runoff.RunoffClassifier(members, encoder=encoder, n_partitions=40, classes=range(10))
    classifier.fit(crawled, y_crawled)
    certificates[name] = classifier.certify(inputs)
    print(name, runoff.certified_accuracy(certificates[name], y_inputs, [0, 4, 8, 12]))
