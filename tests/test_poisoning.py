"""Real poisoning of real training runs: no prediction changes within its radius, and some change beyond it."""

import itertools

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier

import runoff
from benchmarks import poisoning_members, poisoning_networks
from benchmarks.poisoning_swaps import smallest, winner
from benchmarks.poisoning_tables import Findings, Refits
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
    """An attacker who knows everything: the key, the members, and the input to be flipped."""

    def __init__(self, victim, X, y, rng):
        self.victim, self.X, self.y, self.rng = victim, X, y, rng

    def buckets(self, rows):
        kind = samples.from_any(rows)
        return self.victim.partition_.buckets(kind, self.victim.partition_.digests(kind))

    def sample_for(self, bucket, near, extreme=False):
        """Return a sample that hashes into the bucket: close to the input, or with extreme values."""
        while True:
            noise = self.rng.normal(scale=1e6 if extreme else 1e-3, size=(400, near.size))
            found = near + noise
            hits = np.flatnonzero(self.buckets(found) == bucket)
            if hits.size:
                return found[hits[0]]

    def edit(self, how, buckets, near, label):
        """Return the training data with one edit in each of these buckets."""
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


def victim_of(name, estimator, settings):
    X, y, inputs, _ = data(name)
    settings = settings | {"estimator": estimator, "classes": np.unique(y)}
    victim = RunoffClassifier(**settings).fit(X, y)
    return X, y, inputs, settings, victim, victim.certify(inputs)


@pytest.mark.parametrize(("name", "estimator", "settings"), CASES)
def test_up_to_its_radius_no_prediction_changes(name, estimator, settings):
    X, y, inputs, settings, victim, certificates = victim_of(name, estimator, settings)
    rng = np.random.default_rng(0)
    attacker = Attacker(victim, X, y, rng)
    tried = 0
    for i in rng.permutation(len(inputs))[:5]:
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
    X, y, inputs, settings, victim, certificates = victim_of(name, estimator, settings)
    attacker = Attacker(victim, X, y, np.random.default_rng(0))
    turned = 0
    for i in range(6):
        attack = certificates.attack(i)
        target = victim.classes_[attack.prediction]
        edits = np.repeat(attack.buckets, 25)
        edited = RunoffClassifier(**settings).fit(*attacker.edit("insert", edits, inputs[i], target))
        turned += edited.predict(inputs[i : i + 1])[0] != certificates.prediction[i]
    assert turned >= 3


def all_swaps(ballots, twins):
    """Yield every mixture of members and their twins, with the number of swaps."""
    n_members, n_twins, _ = twins.shape
    choices = np.concatenate([ballots[:, None], twins], axis=1)
    for chosen in itertools.product(range(n_twins + 1), repeat=n_members):
        yield sum(c > 0 for c in chosen), choices[np.arange(n_members), chosen]


@pytest.mark.parametrize("election", ["runoff", "plurality"])
def test_the_smallest_swap_is_that_of_an_exhaustive_search(election):
    rng = np.random.default_rng(0)
    out_of_reach = 0
    for _ in range(60):
        n_members, n_twins, n_classes = rng.integers(3, 6), rng.integers(1, 3), rng.integers(2, 5)
        ballots = runoff.rank(rng.random((1, n_members, n_classes)))[0]
        twins = runoff.rank(rng.random((n_members, n_twins, n_classes)))
        w = winner(ballots, election)
        assert w == runoff.certify(ballots[None], election=election).prediction[0]
        sizes = [size for size, after in all_swaps(ballots, twins) if winner(after, election) != w]
        found = smallest(ballots, twins, election)
        if not sizes:
            out_of_reach += 1
            assert found is None
            continue
        assert found.exact
        assert len(found) == min(sizes)
        assert winner(found.apply(ballots, twins), election) != w
    assert out_of_reach


@pytest.mark.parametrize(
    "settings",
    [
        {"estimator": RidgeClassifier(alpha=50), "n_partitions": 9},
        {"estimator": RidgeClassifier(alpha=50), "n_partitions": 5, "spread": 2},
    ],
)
def test_the_experiment_finds_nothing_within_the_radius(settings):
    """benchmarks.poisoning on a few inputs: every mixture of poisoned members, and the same from end to end."""
    X, y, inputs, _ = data("digits")
    victim = poisoning_members.Victim(X, y, inputs[:6], settings)
    findings, refits = Findings(), Refits()
    if "spread" in settings:
        poisoning_members.spread("digits", "few", victim, findings, refits, 1)
    else:
        poisoning_members.twins("digits", "few", victim, findings, refits, n_replays=1, limit=1, every=6)
    poisoning_members.at_random("few", victim, refits, 2)
    needed = [(radius, buckets) for found in findings.rows.values() for radius, buckets, _ in found]
    assert all(buckets is None or buckets > radius for radius, buckets in needed)
    assert sum(findings.broken.values()) == 0
    assert [row[5] for row in refits.rows] == [0] * len(refits.rows)
    assert sum(row[4] for row in refits.rows) > 10  # predictions compared
    # Whole buckets relabelled: with one bucket per member the certificate is exact.
    if "spread" not in settings:
        whole = findings.rows["digits", "few", "runoff", "whole buckets relabelled"]
        assert all(buckets == radius + 1 for radius, buckets, _ in whole)
    assert "| few |" in findings.table()
    assert "| few |" in refits.table()


def test_ballots_of_the_experiment_are_those_of_the_package():
    scores = np.random.default_rng(0).integers(0, 4, (50, 7, 10)).astype(np.float32)
    np.testing.assert_array_equal(poisoning_networks.ranked(scores), runoff.rank(scores))
