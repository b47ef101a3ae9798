"""Ridge heads: leave-one-out in closed form compared with refits, isolation of members, and radii."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.linear_model import Ridge as Reference
from sklearn.utils.estimator_checks import parametrize_with_checks

import runoff
from runoff.heads import STRENGTHS, RidgeHead, fit_heads, fit_ridge, one_vs_rest
from runoff.partition import Partition
from runoff.samples import Dense

X, Y = load_digits(return_X_y=True)


def left_out(x, targets, strength):
    """Mean squared leave-one-out error by refitting, with the penalty of all samples."""
    penalty = strength * ((x - x.mean(0)) ** 2).sum() / len(x)
    errors = []
    for i in range(len(x)):
        rest = np.arange(len(x)) != i
        fitted = Reference(alpha=penalty, solver="svd").fit(x[rest], targets[rest])
        errors.append((fitted.predict(x[i : i + 1])[0] - targets[i]) ** 2)
    return np.mean(errors)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(3, 12), d=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_leave_one_out_is_that_of_refits(n, d, seed):
    draws = np.random.default_rng(seed)
    x, targets = draws.normal(size=(n, d)) * 10 ** draws.uniform(-2, 2), draws.normal(size=(n, 2))
    strengths = (0.01, 0.3, 10.0)
    found = fit_ridge(x, targets, strengths)
    expected = [left_out(x, targets, strength) for strength in strengths]
    np.testing.assert_allclose(found.errors, expected, rtol=1e-5)
    assert found.strength == strengths[int(np.argmin(expected))]
    penalty = found.strength * ((x - x.mean(0)) ** 2).sum() / n
    reference = Reference(alpha=penalty, solver="svd").fit(x, targets)
    np.testing.assert_allclose(x @ found.coef + found.intercept, reference.predict(x), atol=1e-6)


def test_strengths_do_not_depend_on_the_scale_of_the_features():
    targets = one_vs_rest(Y[:80], 10)
    for part in (X[:80], X[:80, :12]):  # more features than samples or fewer
        one, other = fit_ridge(part, targets), fit_ridge(part * 1000 + 5, targets)
        assert one.strength == other.strength
        np.testing.assert_allclose(one.errors, other.errors, rtol=1e-6)


def parts(k=30, n=1200):
    partition = Partition.make(k, 1, 0, bytes(16), "content")
    samples = Dense(X[:n])
    digests = partition.digests(samples)
    return partition.rows(partition.buckets(samples, digests), digests, Y[:n])


def test_a_member_depends_on_its_own_rows_only():
    rows = parts()
    together = fit_heads(X, Y, rows, 10)
    alone = fit_heads(X, Y, [rows[7]], 10, n_jobs=2)
    np.testing.assert_array_equal(together.coefs[7], alone.coefs[0])
    np.testing.assert_array_equal(together.intercepts[7], alone.intercepts[0])
    assert together.strengths[7] == alone.strengths[0]
    poisoned, labels = X.copy(), Y.copy()
    poisoned[rows[3]], labels[rows[3]] = 255 - X[rows[3]], 0
    other = fit_heads(poisoned, labels, rows, 10, n_jobs=3)
    changed = [m for m in range(len(rows)) if not np.array_equal(together.coefs[m], other.coefs[m])]
    assert changed == [3]


def test_scores_of_an_input_do_not_depend_on_the_others():
    heads = fit_heads(X, Y, parts(), 10)
    scores = heads.scores(X[1200:1797])
    np.testing.assert_array_equal(heads.scores(X[1200:1301]), scores[:101])
    others = X[1200:1797].copy()
    others[::2] = 1e30
    np.testing.assert_array_equal(heads.scores(others)[1::2], scores[1::2])
    assert heads.scores(X[:0]).shape == (0, 30, 10)


def test_inputs_without_finite_scores_are_ranked_by_class_shares():
    rows = parts()
    heads = fit_heads(X, Y, rows, 10)
    scores = heads.scores(np.array([np.full(64, np.inf), X[0]]))
    for m, own in enumerate(rows):
        np.testing.assert_allclose(scores[0, m], np.bincount(Y[own], minlength=10) / len(own), rtol=1e-6)
    assert runoff.certify(scores).prediction.shape == (2,)


def test_members_choose_their_own_strength_and_radii_follow():
    heads = fit_heads(X, Y, parts(), 10)
    assert len(set(heads.strengths)) > 1
    assert set(heads.strengths) <= set(STRENGTHS)
    certificates = runoff.certify(heads.scores(X[1200:]))
    accuracy = runoff.certified_accuracy(certificates, Y[1200:], [0, 5])
    assert accuracy[0] > 0.85
    assert accuracy[1] > 0.7


@pytest.mark.parametrize(
    ("x", "y"),
    [
        (np.zeros((0, 4)), np.zeros(0, int)),  # no sample
        (np.ones((3, 4)), np.array([2, 2, 1])),  # equal samples of two classes
        (np.arange(12.0).reshape(3, 4), np.array([1, 1, 1])),  # one class
        (np.full((3, 4), np.nan), np.array([2, 2, 1])),
        (np.full((3, 4), 1e300) * [[1], [-1], [1]], np.array([2, 2, 1])),  # too large to square
    ],
)
def test_members_that_cannot_learn_vote_by_their_class_shares(x, y):
    heads = fit_heads(x, y, [np.arange(len(x))], 3)
    assert np.isnan(heads.strengths[0])
    shares = np.bincount(y, minlength=3) / max(1, len(y))
    np.testing.assert_allclose(heads.scores(np.ones((2, 4))), np.tile(shares, (2, 1, 1)), rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": X[0]}, r"features must be \(n_samples, n_features\) numbers, got shape \(64,\)"),
        ({"codes": Y[:5]}, "codes must be a whole number from 0 to 9 for each of 1797 samples"),
        ({"n_classes": 9}, "from 0 to 8"),
        ({"strengths": []}, "strengths must be positive numbers"),
        ({"strengths": [0.0]}, "strengths must be positive numbers"),
    ],
)
def test_invalid_arguments(change, message):
    given_ = {"features": X, "codes": Y, "rows": parts(), "n_classes": 10, **change}
    with pytest.raises(ValueError, match=message):
        fit_heads(**given_)


def test_inputs_with_other_features_are_refused():
    with pytest.raises(ValueError, match=r"features must have shape \(n, 64\), got \(2, 3\)"):
        fit_heads(X, Y, parts(), 10).scores(np.zeros((2, 3)))


@parametrize_with_checks([RidgeHead()])
def test_ridge_head_is_a_scikit_learn_classifier(estimator, check):
    check(estimator)


def test_ridge_head_inside_a_classifier():
    classifier = runoff.RunoffClassifier(RidgeHead(), n_partitions=20, classes=range(10)).fit(X[:1200], Y[:1200])
    accuracy = runoff.certified_accuracy(classifier.certify(X[1200:]), Y[1200:], [0, 4])
    assert accuracy[0] > 0.88
    assert accuracy[1] > 0.7
    strengths = {member.fitted[0].strength_ for member in classifier.members_}
    assert len(strengths) > 1
