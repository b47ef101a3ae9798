"""Real poisoning of real training runs: up to its radius no prediction changes; beyond it, some do."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

from runoff import RunoffClassifier, samples


def data(name):
    X, y = {"digits": load_digits, "cancer": load_breast_cancer}[name](return_X_y=True)
    test = np.arange(len(y)) % 6 == 0
    return X[~test], y[~test], X[test][:40], y[test][:40]


CASES = [
    ("digits", RidgeClassifier(alpha=50), {"n_partitions": 12}),
    ("digits", RidgeClassifier(alpha=50), {"n_partitions": 8, "spread": 3}),
    ("digits", RidgeClassifier(alpha=50), {"n_partitions": 12, "election": "plurality"}),
    ("cancer", DecisionTreeClassifier(max_depth=3), {"n_partitions": 11, "n_seeds": 2}),
    ("cancer", DecisionTreeClassifier(max_depth=3), {"n_partitions": 7, "spread": 2, "bound": "paper"}),
]


class Attacker:
    """Knows everything: the key, the members, the input to be turned."""

    def __init__(self, victim, X, y, rng):
        self.victim, self.X, self.y, self.rng = victim, X, y, rng

    def buckets(self, rows):
        kind = samples.of(rows)
        return self.victim.partition_.buckets(kind, self.victim.partition_.digests(kind))

    def sample_for(self, bucket, near, extreme=False):
        """A sample that hashes into the bucket: next to the input, or with values out of this world."""
        while True:
            noise = self.rng.normal(scale=1e6 if extreme else 1e-3, size=(400, near.size))
            found = near + noise
            hits = np.flatnonzero(self.buckets(found) == bucket)
            if hits.size:
                return found[hits[0]]

    def edit(self, how, buckets, near, label):
        """The training data with one edit in each of these buckets."""
        X, y, own = self.X, self.y.copy(), self.buckets(self.X)
        drop = []
        for bucket in buckets:
            there = np.flatnonzero(own == bucket)
            if how == "delete" and there.size:
                drop.append(self.rng.choice(there))
            elif how == "relabel" and there.size:
                y[self.rng.choice(there)] = label
            elif how == "duplicate" and there.size:
                again = self.rng.choice(there)
                X, y = np.concatenate([X, X[again][None]]), np.append(y, label)
            else:
                new = self.sample_for(bucket, near, extreme=how == "extreme")
                X, y = np.concatenate([X, new[None]]), np.append(y, label)
        return np.delete(X, drop, axis=0), np.delete(y, drop)


@pytest.mark.parametrize(("name", "estimator", "settings"), CASES)
def test_up_to_its_radius_no_prediction_changes(name, estimator, settings):
    X, y, inputs, _ = data(name)
    settings = settings | {"estimator": estimator, "classes": np.unique(y)}
    victim = RunoffClassifier(**settings).fit(X, y)
    certificates = victim.certify(inputs)
    rng = np.random.default_rng(0)
    attacker = Attacker(victim, X, y, rng)
    tried = 0
    for i in rng.permutation(len(inputs))[:8]:
        radius = int(certificates.radius[i])
        attack = certificates.attack(int(i))
        if not radius:
            continue
        target = victim.classes_[attack.prediction]
        for how in ("insert", "extreme", "delete", "relabel", "duplicate"):
            aimed = rng.permutation(attack.buckets)[:radius]  # the cheapest attack, as far as the radius allows
            edited = RunoffClassifier(**settings).fit(*attacker.edit(how, aimed, inputs[i], target))
            now = edited.predict(inputs)
            safe = certificates.radius >= len(aimed)
            np.testing.assert_array_equal(now[safe], certificates.prediction[safe])
            assert safe[i]
            tried += 1
        one = np.repeat(aimed[0], radius)  # all into one bucket
        edited = RunoffClassifier(**settings).fit(*attacker.edit("insert", one, inputs[i], target))
        safe = certificates.radius >= radius
        np.testing.assert_array_equal(edited.predict(inputs)[safe], certificates.prediction[safe])
    assert tried >= 10


@pytest.mark.parametrize(("name", "estimator", "settings"), CASES)
def test_beyond_it_some_do(name, estimator, settings):
    """The same attacker with many edits in the buckets of the smallest attack: the test above could fail."""
    X, y, inputs, _ = data(name)
    settings = settings | {"estimator": estimator, "classes": np.unique(y)}
    victim = RunoffClassifier(**settings).fit(X, y)
    certificates = victim.certify(inputs)
    attacker = Attacker(victim, X, y, np.random.default_rng(0))
    turned = 0
    for i in range(6):
        attack = certificates.attack(i)
        target = victim.classes_[attack.prediction]
        edits = np.repeat(attack.buckets, 25)
        edited = RunoffClassifier(**settings).fit(*attacker.edit("insert", edits, inputs[i], target))
        turned += edited.predict(inputs[i : i + 1])[0] != certificates.prediction[i]
    assert turned >= 3
