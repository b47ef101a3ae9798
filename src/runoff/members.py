"""Members: one base classifier for each part of the data, and the scores that they give.

A member is a function of its own samples, its index and the recipe.
"""

from __future__ import annotations

import copy
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from runoff.ballots import Ballots, points
from runoff.errors import InputError, MemberError
from runoff.isolation import alone, generators, is_environment
from runoff.samples import Kinds, Rows, Samples

UNSEEN = -1.0  # below every score that a member gives to a class it has seen

# What estimators inside a member get in place of other settings, under whatever names they are nested. With threads of
# its own a forest adds its trees' scores in any order, and two calls disagree. Columns for pairs of classes are not
# scores of classes.
FIXED = {"n_jobs": 1, "nthread": 1, "num_threads": 1, "thread_count": 1, "decision_function_shape": "ovr"}


@dataclass(frozen=True, eq=False)
class Member:
    """What one part of the data taught: `n_seeds` fitted estimators, or none where there was nothing to fit."""

    index: int
    classes: NDArray[Any]  # that it has seen, sorted
    shares: NDArray[np.float64]  # of its samples, by class
    fitted: tuple[Any, ...] = ()
    kinds: Kinds = ()  # what the columns of its part were, for tables
    refused: str | None = None  # why its estimator could not learn from its part

    def scores(self, samples: Samples, classes: NDArray[Any]) -> NDArray[np.float64]:
        """Return scores for every class: the mean over the seeds, each from 0 to 1, and -1 for classes unseen.

        Where nothing was fitted, and for inputs that the estimator fails on or gives no finite scores for, classes are
        ranked by their share of the member's samples; then, as always among equals, by index. That is the fixed rule
        for empty parts, parts of one class, and estimators that refuse a part.
        """
        seen = np.tile(self.shares, (len(samples), 1))
        if self.fitted:
            with alone(np.random.SeedSequence(0, spawn_key=(2, self.index))):
                failures: list[str] = []
                given = self._given(samples, failures)
            if failures:
                warnings.warn(
                    f"member {self.index} could not score {len(failures)} of {len(samples)} inputs and votes by its "
                    f"class shares there: {failures[0]}",
                    stacklevel=2,
                )
            seen = np.where(np.isfinite(given).all(axis=1, keepdims=True), given, seen)
        if len(self.classes) == len(classes):
            return seen
        scores = np.full((len(samples), len(classes)), UNSEEN)
        scores[:, np.searchsorted(classes, self.classes)] = seen
        return scores

    def _given(self, samples: Samples, failures: list[str]) -> NDArray[np.float64]:
        """Return the scores of the classes seen, NaN for inputs on which the estimator fails.

        A sample that an attacker inserts can bring that about, so it must not end in an error. Which inputs fail is
        found by halving: one bad input does not take the others' scores with it.
        """
        try:
            return self.try_score(samples)
        except Exception as error:
            if is_environment(error):
                reason = f"{type(error).__name__}: {error}"
                raise MemberError(f"member {self.index} could not be scored: {reason}") from error
            if len(samples) == 1:
                failures.append(f"{type(error).__name__}: {error}")
                return np.full((1, len(self.classes)), np.nan)
        half = len(samples) // 2
        parts = (np.arange(half), np.arange(half, len(samples)))
        return np.concatenate([self._given(samples.kept(part), failures) for part in parts])

    def try_score(self, samples: Samples) -> NDArray[np.float64]:
        """Return the mean of the estimators' scores for the classes seen, or raise what they raise."""
        given = [self._one(estimator, samples.like(self.kinds)) for estimator in self.fitted]
        expected = (len(samples), len(self.classes))
        if odd := next((scores.shape for scores in given if scores.shape != expected), None):
            raise InputError(f"an estimator must give scores of shape {expected}, got {odd}")
        return given[0] if len(given) == 1 else np.asarray(np.mean(given, axis=0))

    def _one(self, estimator: Any, inputs: Any) -> NDArray[np.float64]:
        """Return one estimator's scores for the classes that it has seen."""
        if hasattr(estimator, "predict_proba"):
            return self._seen(estimator, np.asarray(estimator.predict_proba(inputs), np.float64))
        if hasattr(estimator, "decision_function"):
            decision = np.asarray(estimator.decision_function(inputs), np.float64)
            if decision.ndim == 1:
                decision = np.stack([-decision, decision], axis=1)
            decision = self._seen(estimator, decision)
            if decision.shape[1] == len(self.classes):
                lifted = np.exp(decision - decision.max(axis=1, keepdims=True))
                return np.asarray(lifted / lifted.sum(axis=1, keepdims=True))
        # A bare label: that class first, the others by their share of the member's samples.
        chosen = np.asarray(estimator.predict(inputs))
        scores: NDArray[np.float64] = (chosen[:, None] == self.classes) + 0.5 * self.shares
        return scores

    def _seen(self, estimator: Any, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the columns of the classes seen, of an estimator that was told of more than these."""
        known = np.asarray(getattr(estimator, "classes_", self.classes))
        if scores.ndim == 2 and scores.shape[1] == len(known) > len(self.classes):
            return scores[:, [known.tolist().index(label) for label in self.classes.tolist()]]
        return scores


def score_member(member: Member, samples: Samples, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return a member's scores, (n_inputs, n_classes)."""
    return member.scores(samples, classes)


def rank_member(member: Member, samples: Samples, classes: NDArray[Any]) -> Ballots:
    """Return a member's ballots, (n_inputs, n_classes): a byte where its scores take eight."""
    return points(member.scores(samples, classes))


class Recipe:
    """An unfitted estimator, to be copied for each fit with every `random_state` inside it set.

    `sklearn.base.clone` reads signatures anew each time; a deep copy of one clone is the same and ten times faster.
    """

    def __init__(self, estimator: Any) -> None:
        self.unfitted = clone(estimator)
        params = self.unfitted.get_params(deep=True)
        last = {name: name.split("__")[-1] for name in params}
        set_otherwise = [name for name, value in params.items() if last[name] in FIXED and value is not None]
        self.unfitted.set_params(**{name: FIXED[last[name]] for name in set_otherwise})
        self.states = sorted(name for name in params if last[name] == "random_state")

    def seeded(self, source: np.random.SeedSequence) -> Any:
        """Return a copy with seeds from `source`."""
        own = copy.deepcopy(self.unfitted)
        states = source.generate_state(max(1, len(self.states)))
        seeds = {name: int(state % 2**31) for name, state in zip(self.states, states, strict=False)}
        if list(seeds) == ["random_state"]:
            own.random_state = seeds["random_state"]
        elif seeds:
            own.set_params(**seeds)
        return own


def fit_member(
    recipe: Recipe,
    samples: Samples,
    labels: NDArray[Any],
    rows: Rows,
    member: int,
    seeds: list[Any],
) -> Member:
    """Train one member on its own rows, which come sorted by content.

    Whatever an estimator raises because of these rows, the member then votes by its class shares: one sample can bring
    that about, and the other members must go on. So does a member that is trained but cannot score its first row.
    """
    own = labels[rows]
    classes, counts = np.unique(own, return_counts=True)
    shares = counts / max(1, counts.sum())
    if len(classes) < 2:
        return Member(member, classes, shares)
    loaded, fitted = generators(), []
    try:
        for source in seeds:
            part = samples.take(rows)  # for each its own: some estimators write to what they are given
            kinds = samples.kinds(part)
            with alone(source):
                fitted.append(recipe.seeded(source).fit(part, own.copy()))
        trained = Member(member, classes, shares, tuple(fitted), kinds)
        with alone(seeds[0]):
            trained.try_score(samples.kept(rows[:1]))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if is_environment(error):
            raise MemberError(f"member {member} could not be trained on its {len(rows)} samples: {reason}") from error
        return Member(member, classes, shares, refused=reason)
    if generators() > loaded:  # a fit imported one more library with random numbers, which nobody had seeded
        return fit_member(recipe, samples, labels, rows, member, seeds)
    return trained


def default_estimator(kind: str) -> Any:
    """Logistic regression, with what each kind of samples needs before it, all inside the member."""
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

    regression = LogisticRegression(max_iter=1000)
    if kind == "sparse":
        return regression
    if kind == "texts":
        return make_pipeline(TfidfVectorizer(), regression)
    if kind == "table":
        numbers = make_column_selector(dtype_include=np.number)
        others = make_column_selector(dtype_exclude=np.number)
        filled = make_pipeline(SimpleImputer(keep_empty_features=True), StandardScaler())
        columns = make_column_transformer((filled, numbers), (OneHotEncoder(handle_unknown="ignore"), others))
        return make_pipeline(columns, regression)
    return make_pipeline(FunctionTransformer(flat), StandardScaler(), regression)


def flat(images: NDArray[Any]) -> NDArray[Any]:
    """Images as rows of numbers."""
    return images.reshape(len(images), -1)
