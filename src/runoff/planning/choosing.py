"""Estimates of certified accuracy by number of partitions and election, from the training data only."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff import elections as rules
from runoff.certificates import checked_budgets
from runoff.classifier import RunoffClassifier
from runoff.elections.base import Election
from runoff.ensemble import Ensemble
from runoff.errors import InputError, check_whole
from runoff.fitting import labels
from runoff.planning import baseline, estimates
from runoff.planning.plans import Choice, Plan
from runoff.samples import Rows

BUDGETS = (0, 1, 2, 5, 10, 20, 50)
TRIED = (10, 20, 50, 100, 200, 500)
INPUTS = 1000  # training samples on which certified accuracy is estimated


class _Few(Ensemble):
    """A mixin for ensembles that train only their first members; the others get no samples."""

    n_trained: int

    def _train(self, which: Sequence[int], codes: NDArray[np.int64], rows: list[Rows]) -> list[Any]:
        first = [part if m < self.n_trained else part[:0] for m, part in enumerate(rows)]
        trained: list[Any] = super()._train(which, codes, first)  # type: ignore[safe-super]
        return trained


def _few(base: Ensemble, settings: dict[str, Any]) -> Any:
    """Return an unfitted ensemble of the same class as `base` that trains only its first members."""
    kind = type(f"Few{type(base).__name__}", (_Few, type(base)), {})
    return kind(**settings)


def plan(
    X: Any,
    y: Any,
    estimator: Any = None,
    *,
    budgets: ArrayLike = BUDGETS,
    n_partitions: int | Sequence[int] = TRIED,
    elections: str | Election | Sequence[str | Election] = ("plurality", "runoff", "maximin"),
    members: int | None = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    groups: Any = None,
    balanced: bool = False,
    undefended: bool | None = None,
) -> Plan:
    """Estimate certified accuracy by number of partitions, election and number of edits, without a test set.

    A training sample is held out for all members but those that its bucket reaches. For each number of partitions, the
    members are trained and vote on up to 1,000 training samples, without the members that were trained on them. This
    takes about as long as `fit` for each number of partitions.

    The guarantee does not cover a choice based on the training data, since it holds for settings fixed in advance:
    choose once, on data that you trust, and keep the settings when the data changes. Estimates are slightly too low if
    the number of edits is close to half the number of partitions, since one member is missing for each sample, and too
    high if samples have near copies in other buckets.

    Parameters
    ----------
    X, y : training samples and labels, as for `RunoffClassifier.fit`
    estimator : as for `RunoffClassifier`, or a `RunoffClassifier` or `TorchClassifier` whose other settings are
        used: its networks or heads are trained for each number of partitions, and if it has `checkpoints`, they are
        stored there in a folder per number
    budgets : the numbers of edits that you want to withstand
    n_partitions : the numbers of partitions to compare
    elections : the elections to compare, with the votes of the same members; for two classes all elections agree, so
        only one of them is used
    members : train only this many members for each number of partitions, and extrapolate from their votes, which is
        faster and has larger standard errors. Default: all
    n_jobs, random_state : as for `RunoffClassifier`
    groups : the source of each sample, as for `RunoffClassifier.fit`: then budgets are numbers of sources, and a sample
        is certified by the members that were not trained on its source
    balanced : estimate the mean over the classes, in which a rare class counts as much as a frequent one. If 85 % of
        the mails are ham, a filter that predicts ham for all has an accuracy of 85 %, and of 50 % if balanced
    undefended : also train one model on four fifths of the samples and score it on the others, to estimate the accuracy
        of an undefended model without an attack. Default: True, unless `members` is given for a faster plan

    Returns
    -------
    plan : Plan
        `print(plan)` shows a table with recommendations, `plan.best(budget)` returns one, and `plan.to_frame()` the
        data

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> choice = runoff.plan(X, y, budgets=3, n_partitions=(5, 15, 1000)).best(3)
    >>> choice.n_partitions
    15

    """
    edits = np.unique(np.append(checked_budgets(budgets), 0)).astype(np.int64)
    if members is not None:
        check_whole("members", members, 2)
    tried = _tried(n_partitions)
    compared = [rules.get(election) for election in _listed(elections)]
    if not compared:
        raise InputError(f"elections must name at least one of {', '.join(map(repr, rules.NAMES))}, got none")
    base: Ensemble = estimator if isinstance(estimator, Ensemble) else RunoffClassifier(estimator)
    settings = base.get_params(deep=False)
    if base is not estimator:
        settings |= {"n_jobs": n_jobs, "random_state": random_state}
    array, values = labels.checked(y.detach().cpu() if hasattr(y, "detach") else y)
    classes = np.unique(array) if base.classes is None else labels.sorted_classes(base.classes)
    codes = labels.codes(values, classes)
    alike = len(classes) == 2 and len(compared) > 1
    if alike:
        compared = [next((rule for rule in compared if rule.name == rules.DEFAULT), compared[0])]
    choices: list[Choice] = []
    left_out: dict[int, str] = {}
    fitted: Any = None
    for k in tried:
        if (n := len(array)) < 2 * k:
            left_out[k] = f"{n:,} samples are less than 2 per member on average; use at most {n // 2} partitions"
            continue
        changed: dict[str, Any] = {"n_partitions": k, "classes": classes}
        if settings.get("checkpoints") is not None:  # separate from the networks of the classifier itself
            changed["checkpoints"] = Path(settings["checkpoints"]) / f"plan-k{k}"
        fitted = _few(base, settings | changed)
        choices += _choices(fitted, X, y, codes, groups, compared, edits, members, balanced)
    if not choices:
        reasons = "; ".join(f"n_partitions={k}: {why}" for k, why in left_out.items())
        raise InputError(f"n_partitions must hold a number that can be planned for, got none: {reasons}")
    accuracy = np.nan, np.nan
    if undefended or (undefended is None and members is None):
        accuracy = baseline.undefended(fitted, type(base), settings, balanced, INPUTS)
    constant = baseline.constant(codes, balanced)
    return Plan(tuple(choices), left_out, accuracy, constant, two_classes=alike)


def _tried(n_partitions: Any) -> list[int]:
    """Return the numbers of partitions to compare, sorted; one number is a list of one."""
    given = [n_partitions] if isinstance(n_partitions, str) or not isinstance(n_partitions, Iterable) else n_partitions
    numbers = list(given)
    if not numbers or not all(_is_whole(k) and k >= 1 for k in numbers):
        raise InputError(
            f"n_partitions must be whole numbers of at least 1, as in n_partitions=(20, 50), got {n_partitions!r:.60}"
        )
    return sorted({int(k) for k in numbers})


def _listed(elections: Any) -> list[Any]:
    """Return elections as a list; one election is a list of one."""
    return [elections] if isinstance(elections, str | Election) or not isinstance(elections, Iterable) else [*elections]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _choices(
    classifier: Any,
    X: Any,
    y: Any,
    codes: NDArray[np.int64],
    groups: Any,
    compared: Sequence[Election],
    edits: NDArray[np.int64],
    members: int | None,
    balanced: bool,
) -> list[Choice]:
    """Fit one number of partitions, and estimate certified accuracy for every election."""
    n_members = int(classifier.n_partitions) * int(classifier.spread)
    few = None if members is None or members >= n_members else members
    if few is not None and classifier.spread != 1:
        raise InputError(
            f"members needs one bucket per member (spread=1), got spread={classifier.spread}: leave it out"
        )
    classifier.n_trained = few or n_members
    rows = _some_rows(codes, balanced)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*votes? by (its|their) class shares", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*members learn nothing", category=UserWarning)  # the table shows it
        classifier.fit(X, y, groups)
        ballots, buckets = classifier.training_votes(rows)
    choices, unit = [], classifier.partition_.unit
    for rule in compared:
        bound = classifier.bound if rule.in_paper else "tight"
        spread = classifier.partition_.spread
        if few is None:
            estimate = estimates.out_of_part(
                ballots, codes[rows], buckets, edits, election=rule, spread=spread, bound=bound, balanced=balanced,
                unit=unit,
            )  # fmt: skip
        else:
            estimate = estimates.extrapolated(
                ballots[:, :few], codes[rows], buckets, edits, n_members=n_members, election=rule, bound=bound,
                balanced=balanced, unit=unit,
            )  # fmt: skip
        choices.append(
            Choice(
                n_partitions=int(classifier.n_partitions),
                election=rule.name,
                samples_per_member=len(codes) / classifier.n_partitions,
                largest_radius=(n_members - 1) // (2 * int(classifier.spread)),
                estimate=estimate,
                balance=classifier.balance(),
                n_members=n_members,
                n_idle=classifier.n_idle(),
                unit=unit,
            )
        )
    return choices


def _some_rows(codes: NDArray[np.int64], balanced: bool) -> Rows:
    """Return the sorted rows of up to INPUTS random samples; if balanced, about equally many of each class."""
    order = np.random.default_rng(0).permutation(len(codes))
    if balanced:
        by_class = np.argsort(codes[order], kind="stable")
        in_order = codes[order][by_class]
        turn = np.empty(len(order), np.int64)  # rank of a sample within its class
        turn[by_class] = np.arange(len(order)) - np.searchsorted(in_order, in_order)
        order = order[np.argsort(turn, kind="stable")]
    return np.sort(order[:INPUTS])
