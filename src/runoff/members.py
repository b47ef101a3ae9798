"""Members: one base classifier for each part of the data, and the scores that they give.

A member is a function of its own samples, its index and the recipe. It is trained on one thread, since sums in another
order have other last bits.
"""

from __future__ import annotations

import copy
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from threadpoolctl import ThreadpoolController

from runoff.ballots import Ballots, points
from runoff.samples import Kinds, Rows, Samples

# What an estimator raises when it cannot learn from the samples that it is given. One sample can bring that about, so
# such a member votes by a fixed rule, and the others go on.
DATA_ERRORS = (ValueError, ArithmeticError, np.linalg.LinAlgError)
UNSEEN = -1.0  # below every score that a member gives to a class it has seen


@lru_cache(maxsize=1)
def _libraries(_n_modules: int) -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> Any:
    """A context in which numerical libraries use one thread. Looking for libraries is slow: only after imports."""
    return _libraries(len(sys.modules)).limit(limits=1)


@contextmanager
def undisturbed() -> Iterator[None]:
    """One thread throughout, and afterwards the global random numbers go on as if nothing had happened."""
    legacy, python = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        with one_thread():
            yield
    finally:
        np.random.set_state(legacy)  # noqa: NPY002
        random.setstate(python)


def alone(source: np.random.SeedSequence) -> Any:
    """One thread, and global random numbers that are a member's own. `undisturbed` puts them right afterwards."""
    state = source.generate_state(4)
    np.random.seed(state)  # noqa: NPY002
    random.seed(int(state[0]))
    return one_thread()


class MemberError(ValueError):
    """A member could not be trained or did not answer; the message names it."""


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
        """Scores for every class: those of the seeds averaged, each on a scale from 0 to 1, and -1 for classes unseen.

        Where nothing was fitted, or an answer is not finite, classes are ranked by their share of the member's samples;
        then, as always among equals, by index. That is the fixed rule for empty parts, parts of one class, and
        estimators that refuse a part.
        """
        own = None
        if self.fitted:
            try:
                with alone(np.random.SeedSequence(0, spawn_key=(2, self.index))):
                    asked = [self._asked(estimator, samples.like(self.kinds)) for estimator in self.fitted]
            except Exception as error:
                raise MemberError(f"member {self.index} did not answer: {type(error).__name__}: {error}") from error
            own = asked[0] if len(asked) == 1 else np.mean(asked, axis=0)
        if own is None or not np.isfinite(own).all():
            by_shares = np.tile(self.shares, (len(samples), 1))
            own = by_shares if own is None else np.where(np.isfinite(own).all(axis=1, keepdims=True), own, by_shares)
        if len(self.classes) == len(classes):
            return own
        scores = np.full((len(samples), len(classes)), UNSEEN)
        scores[:, np.searchsorted(classes, self.classes)] = own
        return scores

    def _asked(self, estimator: Any, inputs: Any) -> NDArray[np.float64]:
        """One estimator's scores for the classes that it has seen."""
        if hasattr(estimator, "predict_proba"):
            return np.asarray(estimator.predict_proba(inputs), np.float64)
        if hasattr(estimator, "decision_function"):
            decision = np.asarray(estimator.decision_function(inputs), np.float64)
            if decision.ndim == 1:
                decision = np.stack([-decision, decision], axis=1)
            if decision.shape[1] == len(self.classes):
                lifted = np.exp(decision - decision.max(axis=1, keepdims=True))
                return np.asarray(lifted / lifted.sum(axis=1, keepdims=True))
        # A bare label: that class first, the others by their share of the member's samples.
        chosen = np.asarray(estimator.predict(inputs))
        scores: NDArray[np.float64] = (chosen[:, None] == self.classes) + 0.5 * self.shares
        return scores


def score_member(member: Member, samples: Samples, classes: NDArray[Any]) -> NDArray[np.float64]:
    """A member's scores, (n_inputs, n_classes)."""
    return member.scores(samples, classes)


def rank_member(member: Member, samples: Samples, classes: NDArray[Any]) -> Ballots:
    """A member's ballots, (n_inputs, n_classes): a byte where its scores take eight."""
    return points(member.scores(samples, classes))


def seeds_of(random_state: int, member: int, n_seeds: int) -> list[np.random.SeedSequence]:
    """One source of seeds for each fit of a member, from the member's index alone."""
    return [np.random.SeedSequence(random_state, spawn_key=(1, member, s)) for s in range(n_seeds)]


class Recipe:
    """An unfitted estimator, to be copied for each fit with every `random_state` inside it set.

    `sklearn.base.clone` reads signatures anew each time; a deep copy of one clone is the same and ten times faster.
    """

    def __init__(self, estimator: Any) -> None:
        self.unfitted = clone(estimator)
        names = self.unfitted.get_params(deep=True)
        self.states = sorted(name for name in names if name.split("__")[-1] == "random_state")

    def seeded(self, source: np.random.SeedSequence) -> Any:
        """A copy of its own."""
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
    """Train one member on its own rows, which come sorted by content."""
    own = own_labels(labels[rows])
    classes, counts = np.unique(own, return_counts=True)
    shares = counts / max(1, counts.sum())
    if len(classes) < 2:
        return Member(member, classes, shares)
    fitted: list[Any] = []
    kinds: Kinds = ()
    try:
        for source in seeds:
            part = samples.take(rows)  # for each its own: some estimators write to what they are given
            kinds = samples.kinds(part)
            with alone(source):
                fitted.append(recipe.seeded(source).fit(part, own.copy()))
    except DATA_ERRORS as error:
        return Member(member, classes, shares, refused=f"{type(error).__name__}: {error}")
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise MemberError(f"member {member} could not be trained on its {len(rows)} samples: {reason}") from error
    return Member(member, classes, shares, tuple(fitted), kinds)


def own_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """Labels in a type that is their own: the longest text or a fraction elsewhere has no say."""
    own = np.array(labels.tolist(), dtype=None if len(labels) else labels.dtype)
    if own.dtype.kind == "f" and (own == np.floor(own)).all():
        own = own.astype(np.int64)
    return own


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
