"""`plan` with networks and with heads on an encoder, which are really trained with the settings of the classifier."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import runoff
from runoff import RunoffClassifier
from runoff.torch import Recipe, TorchClassifier

X, Y = (array[np.random.default_rng(0).permutation(1797)][:500] for array in load_digits(return_X_y=True))
X = X.reshape(-1, 8, 8).astype(np.uint8)
SHORT = Recipe(epochs=3, batch_size=32, lr=0.05)


def halves(images):
    """Return the means of 2 x 2 pixels: features that learn nothing from the data."""
    n = len(images)
    return images.reshape(n, 4, 2, 4, 2).mean(axis=(2, 4)).reshape(n, 16).astype(np.float32)


def networks(**settings):
    return TorchClassifier("small", SHORT, **{"classes": range(10), "device": "cpu", "progress": False} | settings)


@pytest.mark.parametrize("settings", [{}, {"spread": 2}, {"n_seeds": 2}, {"encoder": halves}])
def test_the_requested_networks_and_heads_are_trained(settings):
    classifier = networks(election="plurality", **settings)
    (choice,) = runoff.plan(X, Y, classifier, budgets=1, n_partitions=[5], elections=["plurality"])
    fitted = networks(election="plurality", n_partitions=5, **settings).fit(X, Y)
    expected = runoff.estimates.of_classifier(fitted, X, Y, [0, 1])
    np.testing.assert_array_equal(choice.estimate.certified, expected.certified)
    assert choice.estimate.members == expected.members
    assert choice.estimate.members > 0.2
    assert not hasattr(classifier, "members_")


def test_heads_differ_from_networks_and_from_scikit_learn():
    flat = X.reshape(len(X), -1)
    heads, forest = networks(encoder=halves), RunoffClassifier()
    plans = [
        runoff.plan(samples, Y, given, budgets=1, n_partitions=[5], elections=["runoff"])
        for samples, given in ((X, networks()), (X, heads), (flat, forest))
    ]
    assert len({plan[0].estimate.members for plan in plans}) == 3


def test_few_members_are_trained_and_checkpoints_are_kept_apart(tmp_path):
    classifier = networks(n_partitions=5, checkpoints=tmp_path).fit(X, Y)
    before = {file.name: file.read_bytes() for file in tmp_path.glob("*.safetensors")}
    plan = runoff.plan(
        X, torch.from_numpy(Y), classifier, budgets=1, n_partitions=(5, 8), elections=["runoff"], members=3
    )
    assert [choice.n_partitions for choice in plan] == [5, 8]
    assert {file.name: file.read_bytes() for file in tmp_path.glob("*.safetensors")} == before
    for k in (5, 8):
        assert len(list((tmp_path / f"plan-k{k}").glob("*.safetensors"))) == 3
