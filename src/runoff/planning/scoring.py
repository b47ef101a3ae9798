"""Certified accuracy as a scorer for scikit-learn's model selection."""

from __future__ import annotations

from typing import Any

from runoff.certificates import certified_accuracy
from runoff.errors import InputError, check_whole


class certified_scorer:  # noqa: N801
    """A scorer for `cross_val_score`, `GridSearchCV` and `cross_validate`: certified accuracy for a number of edits.

    The estimator must be a classifier with `certify` and with fixed `classes`; a pipeline around it has no `certify`. A
    choice by this score is based on the training data, so the guarantee does not cover it: see `plan`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import GridSearchCV
    >>> search = GridSearchCV(
    ...     runoff.RunoffClassifier(classes=range(3)), {"n_partitions": [3, 15]}, scoring=runoff.certified_scorer(3)
    ... )
    >>> search.fit(*load_iris(return_X_y=True)).best_params_
    {'n_partitions': 15}

    """

    def __init__(self, budget: int) -> None:
        check_whole("budget", budget, 0)
        self.budget = int(budget)

    def __repr__(self) -> str:
        return f"certified_scorer({self.budget})"

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the fraction of inputs predicted correctly with a radius of at least `budget`."""
        if not hasattr(estimator, "certify"):
            raise InputError(
                f"certified_scorer needs a RunoffClassifier or a TorchClassifier, got {type(estimator).__name__}: put "
                "pipelines inside, as in RunoffClassifier(make_pipeline(StandardScaler(), SVC()))"
            )
        return float(certified_accuracy(estimator.certify(X), y, [self.budget])[0])
