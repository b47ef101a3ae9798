"""Certify a diagnosis against clinics that send false records.

How many clinics must be corrupt before a malignant tumour may be reported as benign? One edit is everything that one
clinic sends. The table ships with scikit-learn and does not say where its 569 records come from, so the 150 clinics are
drawn at random here. As in the spam filter, the example compares this with single edited records, with changed labels
and with a model without defence, and then poisons both models for real.
"""

# Takes ten seconds.
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import runoff

data = load_breast_cancer()
names = data.target_names  # malignant and benign
clinics = np.random.default_rng(0).integers(0, 150, len(data.target))
X, X_test, y, y_test, clinics, _ = train_test_split(
    data.data, names[data.target], clinics, test_size=0.3, random_state=0, stratify=data.target
)

# The number of partitions is chosen for 5 edits, on the training records alone.
regression = LogisticRegression(C=0.3, class_weight="balanced")
inside = make_pipeline(StandardScaler(), regression)
threats = {  # what one edit is: the classifier, the sources
    "sources": (runoff.RunoffClassifier(inside, classes=names), clinics),
    "samples": (runoff.RunoffClassifier(inside, classes=names), None),
    "labels": (runoff.RunoffClassifier(regression, classes=names, threat="labels", shared=StandardScaler()), None),
}
budgets = [0, 1, 2, 3, 5, 8, 10]
certificates = {}
print(f"{'edits':8}{'k':>4}" + "".join(f"{budget:>7}" for budget in budgets) + "   certified accuracy in %")
for threat, (classifier, groups) in threats.items():
    settings = {"budgets": 5, "n_partitions": (10, 20, 30, 40), "elections": ["runoff"]}
    k = runoff.plan(X, y, classifier, groups=groups, **settings).best(5).n_partitions
    certificates[threat] = classifier.set_params(n_partitions=k).fit(X, y, groups).certify(X_test)
    accuracy = 100 * runoff.certified_accuracy(certificates[threat], y_test, budgets)
    print(f"{threat:8}{k:>4}" + "".join(f"{share:>7.1f}" for share in accuracy))
classifier, found = threats["sources"][0], certificates["sources"]
undefended = classifier.fit_undefended()
print(f"{'none':8}{1:>4}{100 * undefended.score(X_test, y_test):>7.1f}   (no defence: one regression on all records)")

# What an attacker needs who wants malignant tumours to be reported as benign.
to_benign = found.radius_to("benign")
caught = (y_test == "malignant") & (found.prediction == "malignant")
print(f"\n{classifier.balance()}")
needed = to_benign[caught] + 1
print(
    f"to have a malignant tumour reported as benign, an attacker must control {np.median(needed):.0f} clinics (median);"
)
print(f"for {np.count_nonzero(needed == 1)} of {len(needed)} a single clinic could be enough")

# Poisoning for real: new clinics send records like that of one patient, as benign. The attacker knows the key, and so
# which names fall into the buckets of the smallest attack.
invented = np.arange(1000, 2000)
buckets = classifier.partition_.buckets(None, None, classifier.partition_.sources(invented, len(invented)))
clinic_of = dict(zip(buckets.tolist(), invented.tolist(), strict=True))


def poisoned(i, n):
    """Return the predictions for input i, without and with defence, after n new clinics sent 20 records each."""
    attacked = found.attack(i, to="benign").buckets.tolist()
    order = attacked + [bucket for bucket in clinic_of if bucket not in attacked]
    senders = np.repeat([clinic_of[bucket] for bucket in order[:n]], 20)
    poison = np.repeat(X_test[[i]], len(senders), axis=0), ["benign"] * len(senders), senders
    both = np.concatenate([X, poison[0]]), np.append(y, poison[1])
    plain = make_pipeline(StandardScaler(), regression).fit(*both).predict(X_test[[i]])[0]
    ours = classifier.update(add=poison).predict(X_test[[i]])[0]
    classifier.update(remove=poison)
    return plain, ours


patients = np.flatnonzero(caught & (undefended.predict(X_test) == "malignant"))[:20]
print(f"\nOf {len(patients)} malignant tumours that both models find, how many are reported as benign after poisoning?")
print(f"{'clinics':>7}  {'no defence':>10}  {'ours':>4}  {'proven at most':>14}")
for n in (1, 2, 3, 5, 10):
    plain, ours = np.sum([np.array(poisoned(i, n)) == "benign" for i in patients], axis=0)
    print(f"{n:>7}  {plain:>10}  {ours:>4}  {np.count_nonzero(to_benign[patients] < n):>14}")
