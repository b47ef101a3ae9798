"""scikit-learn's own checks, and its tools around a RunoffClassifier."""

import pytest
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import parametrize_with_checks

from runoff import RunoffClassifier


@parametrize_with_checks(
    [
        RunoffClassifier(n_partitions=5),
        RunoffClassifier(
            DecisionTreeClassifier(max_depth=3), n_partitions=3, spread=2, n_seeds=2, election="plurality"
        ),
    ]
)
@pytest.mark.filterwarnings("ignore:member:UserWarning", "ignore:.*members learn nothing:UserWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)
