"""Members: base classifiers, each trained on one part of the data, and their scores.

A member depends only on its samples, its index and the settings of the estimator.
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
from runoff.isolation import is_environment, isolated_member, shared_libraries, undisturbed
from runoff.samples import Kinds, Rows, Samples, from_any

PROBES = 256  # training samples on which two fits are compared
UNSEEN = -1.0  # below the scores of all classes in the part of the member

# Settings that are overridden in every estimator inside a member, at any depth. With several threads, a forest adds the
# scores of its trees in varying order, so that two calls differ. Columns for pairs of classes are not class scores.
FIXED = {"n_jobs": 1, "nthread": 1, "num_threads": 1, "thread_count": 1, "decision_function_shape": "ovr"}


@dataclass(frozen=True, eq=False)
class Member:
    """A base classifier: `n_seeds` fitted estimators, or none if its part of the data could not be fitted."""

    index: int
    classes: NDArray[Any]  # in its part, sorted
    shares: NDArray[np.float64]  # fraction of its samples per class
    fitted: tuple[Any, ...] = ()
    kinds: Kinds = ()  # kinds of the columns of its part, for tables
    refused: str | None = None  # the reason if its estimator could not be fitted

    def scores(self, samples: Samples, classes: NDArray[Any]) -> NDArray[np.float64]:
        """Return scores for every class: the mean over the seeds, each from 0 to 1, and -1 for unseen classes.

        If nothing was fitted, and for inputs on which the estimator fails or returns scores that are not finite,
        classes are ranked by their share of the samples of the member, then by index. This is the fixed rule for empty
        parts, parts of one class, and estimators that cannot be fitted.
        """
        seen = np.tile(self.shares, (len(samples), 1))
        if self.fitted:
            fitted_scores, failures = self._isolated_scores(samples)
            if failures:
                warnings.warn(
                    f"member {self.index} could not score {len(failures)} of {len(samples)} inputs and votes by its "
                    f"class shares for them: {failures[0]}",
                    stacklevel=2,
                )
            seen = np.where(np.isfinite(fitted_scores).all(axis=1, keepdims=True), fitted_scores, seen)
        if len(self.classes) == len(classes):
            return seen
        scores = np.full((len(samples), len(classes)), UNSEEN)
        scores[:, np.searchsorted(classes, self.classes)] = seen
        return scores

    def _isolated_scores(self, samples: Samples) -> tuple[NDArray[np.float64], list[str]]:
        """Return the scores of the classes of the member, NaN where the estimator fails, and the failures."""
        loaded, failures = shared_libraries(), list[str]()
        with isolated_member(np.random.SeedSequence(0, spawn_key=(2, self.index))):
            scores = self._score_or_nan(samples, failures)
        return (scores, failures) if shared_libraries() <= loaded else self._isolated_scores(samples)

    def _score_or_nan(self, samples: Samples, failures: list[str]) -> NDArray[np.float64]:
        """Return the scores of the classes of the member, with NaN for inputs on which the estimator fails.

        A sample of an attacker can cause such a failure, so it is not raised. Failing inputs are found by bisection, so
        that the other inputs keep their scores.
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
        return np.concatenate([self._score_or_nan(samples.select(part), failures) for part in parts])

    def try_score(self, samples: Samples) -> NDArray[np.float64]:
        """Return the mean scores of the estimators for the classes of the member, without catching exceptions."""
        scores = [self._estimator_scores(estimator, samples.as_inputs(self.kinds)) for estimator in self.fitted]
        expected = (len(samples), len(self.classes))
        if unexpected := next((array.shape for array in scores if array.shape != expected), None):
            raise InputError(f"an estimator must give scores of shape {expected}, got {unexpected}")
        return scores[0] if len(scores) == 1 else np.asarray(np.mean(scores, axis=0))

    def _estimator_scores(self, estimator: Any, inputs: Any) -> NDArray[np.float64]:
        """Return the scores of one estimator for the classes of the member."""
        if hasattr(estimator, "predict_proba"):
            return self._seen_columns(estimator, np.asarray(estimator.predict_proba(inputs), np.float64))
        if hasattr(estimator, "decision_function"):
            decision = np.asarray(estimator.decision_function(inputs), np.float64)
            if decision.ndim == 1:
                decision = np.stack([-decision, decision], axis=1)
            decision = self._seen_columns(estimator, decision)
            if decision.shape[1] == len(self.classes):
                powers = np.exp(decision - decision.max(axis=1, keepdims=True))
                return np.asarray(powers / powers.sum(axis=1, keepdims=True))
        # Only labels: rank the predicted class first, the others by their share of the samples.
        chosen = np.asarray(estimator.predict(inputs))
        scores: NDArray[np.float64] = (chosen[:, None] == self.classes) + 0.5 * self.shares
        return scores

    def _seen_columns(self, estimator: Any, scores: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the columns of the classes of the member, from an estimator with more classes or another order."""
        known = np.asarray(getattr(estimator, "classes_", self.classes)).tolist()
        classes = self.classes.tolist()
        if scores.ndim == 2 and scores.shape[1] == len(known) and known != classes and {*classes} <= {*known}:
            return scores[:, [known.index(label) for label in classes]]
        return scores


def score_member(member: Member, samples: Samples, classes: NDArray[Any]) -> NDArray[np.float64]:
    """Return the scores of a member, (n_inputs, n_classes)."""
    return member.scores(samples, classes)


def rank_member(member: Member, samples: Samples, classes: NDArray[Any]) -> Ballots:
    """Return the ballots of a member, (n_inputs, n_classes), which take an eighth of the memory of its scores."""
    return points(member.scores(samples, classes))


class MemberEstimator:
    """An unfitted estimator, of which each fit uses a copy with every `random_state` inside it set.

    `sklearn.base.clone` inspects signatures each time; a deep copy of one clone is equivalent and ten times faster.
    """

    def __init__(self, estimator: Any) -> None:
        self.unfitted = clone(estimator)
        params = self.unfitted.get_params(deep=True)
        last = {name: name.split("__")[-1] for name in params}
        overridden = [name for name, value in params.items() if last[name] in FIXED and value is not None]
        self.unfitted.set_params(**{name: FIXED[last[name]] for name in overridden})
        self.states = sorted(name for name in params if last[name] == "random_state")

    def seeded(self, source: np.random.SeedSequence) -> Any:
        """Return a copy with seeds from `source`."""
        estimator = copy.deepcopy(self.unfitted)
        states = source.generate_state(max(1, len(self.states)))
        seeds = {name: int(state % 2**31) for name, state in zip(self.states, states, strict=False)}
        if list(seeds) == ["random_state"]:
            estimator.random_state = seeds["random_state"]
        elif seeds:
            estimator.set_params(**seeds)
        return estimator


def fit_member(
    estimator: MemberEstimator, samples: Samples, labels: NDArray[Any], rows: Rows, member: int, seeds: list[Any]
) -> Member:
    """Train one member on its rows, which are sorted by content.

    If the estimator fails on these rows, or cannot score the first of them after fitting, the member votes by its class
    shares: one sample can cause this, and must not stop the other members.
    """
    part_labels = labels[rows]
    classes, counts = np.unique(part_labels, return_counts=True)
    shares = counts / max(1, counts.sum())
    if len(classes) < 2:
        return Member(member, classes, shares)
    loaded, fitted = shared_libraries(), []
    try:
        for source in seeds:
            part = samples.take(rows)  # a copy per fit: some estimators write to their inputs
            kinds = samples.kinds(part)
            with isolated_member(source):
                fitted.append(estimator.seeded(source).fit(part, part_labels.copy()))
        trained = Member(member, classes, shares, tuple(fitted), kinds)
        with isolated_member(seeds[0]):
            trained.try_score(samples.select(rows[:1]))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        if is_environment(error):
            raise MemberError(f"member {member} could not be trained on its {len(rows)} samples: {reason}") from error
        return Member(member, classes, shares, refused=reason)
    if shared_libraries() > loaded:  # a fit imported a library that was not seeded, or not limited to one thread
        return fit_member(estimator, samples, labels, rows, member, seeds)
    return trained


@dataclass(frozen=True, eq=False)
class Shared:
    """A transformer shared by all members, fitted once on all samples, which must be trusted, and on no label."""

    fitted: Any
    kinds: Kinds = ()  # kinds of the columns of the samples, for tables

    @classmethod
    def fit(cls, transformer: Any, samples: Samples, digests: NDArray[np.uint64], seed: int) -> Shared:
        """Fit a copy of the transformer on the samples, sorted by content, so that the result depends on the set only.

        It is fitted twice, and an error is raised if the results differ.
        """
        name = type(transformer).__name__
        if isinstance(transformer, type) or not all(
            hasattr(transformer, m) for m in ("fit", "transform", "get_params")
        ):
            raise InputError(
                f"shared must be a transformer with fit and transform, such as PCA(), got {transformer!r:.60}"
            )
        order = np.lexsort((digests[:, 1], digests[:, 0])).astype(np.int64)
        probes = samples.select(np.unique(np.linspace(0, len(samples) - 1, PROBES).astype(np.int64)))
        source, unfitted = np.random.SeedSequence(seed, spawn_key=(3,)), MemberEstimator(transformer)
        loaded = shared_libraries()
        with undisturbed():
            try:
                twice = []
                for _ in range(2):
                    part = samples.take(order)
                    with isolated_member(source):
                        twice.append(cls(unfitted.seeded(source).fit(part), samples.kinds(part)))
                first, second = twice
                results = [shared.transform(probes) for shared in (first, first, second)]
            except Exception as error:
                raise InputError(
                    f"shared must learn from X only, without labels, but {name} failed: {type(error).__name__}: "
                    f"{error!s:.200}"
                ) from error
        if shared_libraries() > loaded:  # the first fit imported a library that was not seeded, or had several threads
            return cls.fit(transformer, samples, digests, seed)
        forms = [list(result.content()) for result in results]
        if forms[0] != forms[1] or forms[0] != forms[2]:
            raise InputError(
                f"shared must learn the same from the same samples every time, but {name} does not: it draws random "
                "numbers that runoff cannot seed; set its random_state or seed"
            )
        return first

    def transform(self, samples: Samples) -> Samples:
        """Return the transformed samples."""
        with undisturbed(), isolated_member(np.random.SeedSequence(0, spawn_key=(3,))):
            features = from_any(self.fitted.transform(samples.as_inputs(self.kinds)))
        if len(features) != len(samples):
            raise InputError(f"shared must transform {len(samples)} samples into as many, got {len(features)}")
        return features


def default_estimator(kind: str) -> Any:
    """Return a logistic regression after the preprocessing for a kind of samples, fitted inside each member."""
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
    return make_pipeline(
        FunctionTransformer(flat), SimpleImputer(keep_empty_features=True), StandardScaler(), regression
    )


def flat(images: NDArray[Any]) -> NDArray[Any]:
    """Return images as rows of numbers."""
    return images.reshape(len(images), -1)
