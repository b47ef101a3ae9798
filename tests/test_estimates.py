"""Out-of-part estimates of certified accuracy: members that have seen a sample are left out."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

import runoff
from runoff import RunoffClassifier, estimates, spreads

DRAWS = np.random.default_rng(0)
SCORES = DRAWS.normal(size=(60, 12, 4)) + 1.5 * np.eye(4)[DRAWS.integers(4, size=60)][:, None]
LABELS = DRAWS.integers(4, size=60)
BUCKETS = DRAWS.integers(12, size=60)
BUDGETS = [0, 1, 2, 4]


@pytest.mark.parametrize("election", ["plurality", "runoff"])
@pytest.mark.parametrize("offsets", [[0], [0, 3], [0, 1, 5]])
def test_against_one_sample_at_a_time(election, offsets):
    spread = spreads.cyclic(12, offsets)
    given = runoff.out_of_part(SCORES, LABELS, BUCKETS, BUDGETS, election=election, spread=spread)
    right, members = np.zeros(4), []
    for scores, label, bucket in zip(SCORES, LABELS, BUCKETS, strict=True):
        kept = [m for m in range(12) if m not in spread[bucket]]
        left = [[kept.index(m) for m in reached if m in kept] for reached in spread]
        certificate = runoff.certify(scores[None, kept], election=election, spread=left)
        right += runoff.certified_accuracy(certificate, [label], BUDGETS)
        members += [scores[m].argmax() == label for m in kept]
    np.testing.assert_allclose(given.certified, right / 60)
    assert given.members == pytest.approx(np.mean(members))
    np.testing.assert_allclose(given.errors, np.sqrt(given.certified * (1 - given.certified) / 60))


@pytest.mark.parametrize("offsets", [[0], [0, 3]])
def test_members_that_have_seen_a_sample_are_left_out(offsets):
    spread = spreads.cyclic(12, offsets)
    learnt = SCORES.copy()
    for i, bucket in enumerate(BUCKETS):
        learnt[i, spread[bucket]] = 100 * np.eye(4)[LABELS[i]]
    one, other = (runoff.out_of_part(s, LABELS, BUCKETS, BUDGETS, spread=spread) for s in (SCORES, learnt))
    np.testing.assert_array_equal(one.certified, other.certified)
    assert one.members == other.members


def test_a_classifier_that_knows_its_samples_by_heart_is_judged_as_on_new_ones():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))  # neighbours in the file have the same writer
    train, test = order[:1500], order[1500:]
    fitted = RunoffClassifier(DecisionTreeClassifier(), n_partitions=10, classes=range(10)).fit(X[train], y[train])
    estimate = estimates.of_classifier(fitted, X[train], y[train], [0, 2])
    truth = runoff.certified_accuracy(fitted.certify(X[test]), y[test], [0, 2])
    assert fitted.score(X[train], y[train]) > estimate.certified[0]
    np.testing.assert_allclose(estimate.certified, truth, atol=0.1)
    assert estimate.n_samples == 1500
    assert "at 2 edits; member accuracy" in str(estimate)
    with pytest.raises(ValueError, match=r"labels for each of 1500 samples, got 17 for sample 0"):
        estimates.of_classifier(fitted, X[train], y[train] + 11, [0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"buckets": BUCKETS + 12}, "buckets must be from 0 to 11, got"),
        ({"buckets": BUCKETS[1:]}, r"buckets must be one whole number for each of 60 samples, got shape \(59,\)"),
        ({"y_true": LABELS * 0.5}, "y_true must be one whole number for each of 60 samples"),
        ({"spread": np.ones((12, 12), bool)}, "a bucket reaches all: use more members"),
        ({"budgets": [-1]}, "budgets"),
    ],
)
def test_what_cannot_be_estimated(change, message):
    given = {"scores": SCORES, "y_true": LABELS, "buckets": BUCKETS, "budgets": BUDGETS}
    with pytest.raises(ValueError, match=message):
        runoff.out_of_part(**given | change)
