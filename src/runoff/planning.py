"""Planning: estimates of certified accuracy by number of partitions and election, from the training data alone."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff import elections as rules
from runoff import estimates, labels
from runoff._io.units import Unit, unit_of
from runoff.certificates import certified_accuracy
from runoff.classifier import RunoffClassifier
from runoff.elections.base import Election
from runoff.errors import InputError, MissingExtraError
from runoff.members import Member
from runoff.samples import Rows

if TYPE_CHECKING:
    import pandas as pd

BUDGETS = (0, 1, 2, 5, 10, 20, 50)
TRIED = (10, 20, 50, 100, 200, 500)
INPUTS = 1000  # training samples on which certified accuracy is estimated


@dataclass(frozen=True, eq=False)
class Choice:
    """A number of partitions with an election, and what to expect of it.

    Attributes
    ----------
    n_partitions, election : settings for `RunoffClassifier`
    samples_per_member : the mean number of training samples of a member
    largest_radius : the radius of an input on which all members agree, whatever the tie rule
    estimate : the `Estimate` of certified accuracy by number of edits, with standard errors
    balance : a sentence on how evenly the samples are divided among members, and among sources
    unit : what one edit is, as in `Certificates`

    """

    n_partitions: int
    election: str
    samples_per_member: float
    largest_radius: int
    estimate: estimates.Estimate
    balance: str = ""
    unit: str = "samples"

    def certified(self, budget: int) -> tuple[float, float]:
        """Return the estimated certified accuracy for a number of edits, and its standard error."""
        at = np.flatnonzero(self.estimate.budgets == budget)
        if not at.size:
            known = ", ".join(map(str, self.estimate.budgets))
            raise InputError(f"budget must be one of those planned for ({known}), got {budget}: pass it to plan")
        return float(self.estimate.certified[at[0]]), float(self.estimate.errors[at[0]])

    def __str__(self) -> str:
        return f"n_partitions={self.n_partitions}, election={self.election!r}: {self.estimate}"


@dataclass(frozen=True, eq=False)
class Plan(Sequence[Choice]):
    """Choices of a number of partitions and an election, to be printed, compared, or turned into a DataFrame.

    Attributes
    ----------
    choices : a `Choice` for each number of partitions and election
    left_out : why other numbers of partitions were not tried

    """

    choices: tuple[Choice, ...]
    left_out: dict[int, str]

    @property
    def _unit(self) -> Unit:
        return unit_of(self.choices[0].unit)

    def __len__(self) -> int:
        return len(self.choices)

    def __getitem__(self, i: Any) -> Any:
        return self.choices[i]

    def __iter__(self) -> Iterator[Choice]:
        return iter(self.choices)

    def best(self, budget: int) -> Choice:
        """Return the choice with the largest estimate for a number of edits.

        Of equal ones, that with fewer partitions, and the default election.
        """

        def merit(choice: Choice) -> tuple[float, int, bool]:
            return choice.certified(budget)[0], -choice.n_partitions, choice.election == rules.DEFAULT

        best = max(self.choices, key=merit)
        if not best.certified(budget)[0]:
            raise InputError(
                f"no choice certifies any training sample for {self._unit.count(budget)}: try more partitions (at "
                f"least {2 * budget + 1}), which need more samples or members that learn from fewer"
            )
        return best

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with a row for each number of partitions, election and number of edits.

        `attrs["unit"]` is what one edit is.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError("to_frame needs pandas. Install it with: pip install pandas") from None
        rows = [
            {
                "n_partitions": choice.n_partitions,
                "election": choice.election,
                "budget": int(budget),
                "certified_accuracy": certified,
                "standard_error": error,
                "samples_per_member": choice.samples_per_member,
                "member_accuracy": choice.estimate.members,
            }
            for choice in self.choices
            for budget, certified, error in zip(
                choice.estimate.budgets, choice.estimate.certified, choice.estimate.errors, strict=True
            )
        ]
        frame = pd.DataFrame(rows)
        frame.attrs["unit"] = self._unit.name
        return frame

    def __str__(self) -> str:
        first = self.choices[0].estimate
        edits = first.budgets.tolist()
        best = {e: max(choice.certified(e)[0] for choice in self.choices) for e in edits}
        mean = ", mean of the classes," if first.balanced else ""
        lines = [
            f"Estimated certified accuracy in %{mean} by number of {self._unit.noun}s, on {first.n_samples:,} training "
            "samples, each without the members that have seen it",
            *([] if self._unit.name == "samples" else [self._unit.definition]),
            "",
            f"{'n_partitions':>12}  {'samples':>7}  {'member':>6}  {'election':9}"
            + "".join(f"{e:>7} " for e in edits).rstrip(),
        ]
        for i, choice in enumerate(self.choices):
            new = i == 0 or self.choices[i - 1].n_partitions != choice.n_partitions
            head = (
                f"{choice.n_partitions:>12}  {choice.samples_per_member:>7.0f}  {100 * choice.estimate.members:>6.1f}"
            )
            cells = [
                f"{100 * value:>7.1f}{'*' if value == best[e] > 0 else ' '}"
                for e, value in zip(edits, choice.estimate.certified.tolist(), strict=True)
            ]
            lines.append(f"{head if new else '':<29}  {choice.election:9}{''.join(cells)}".rstrip())
        largest = max(float(choice.estimate.errors.max()) for choice in self.choices)
        lines.append("")
        lines.append("samples: per member. member: a member's accuracy in %. *: the best for that number of edits.")
        lines.append(f"Standard errors are at most {100 * largest:.1f} points.")
        lines += [self._advice(e) for e in edits if e]
        if self._unit.name == "sources":
            by_number = {choice.n_partitions: choice.balance for choice in self.choices}
            lines += [f"n_partitions={k}: {balance}" for k, balance in by_number.items()]
        lines += [f"n_partitions={k} is left out: {why}" for k, why in self.left_out.items()]
        return "\n".join(lines)

    def _advice(self, edits: int) -> str:
        try:
            best = self.best(edits)
        except InputError:
            return (
                f"{self._unit.count(edits)}: nothing is certified; try more partitions, more samples or better members"
            )
        certified, error = best.certified(edits)
        return (
            f"{self._unit.count(edits)}: n_partitions={best.n_partitions}, election={best.election!r} "
            f"({100 * certified:.1f} % ± {100 * error:.1f})"
        )


class _Few(RunoffClassifier):
    """A classifier of which only the first members are trained; the others are empty."""

    _n_trained: int

    def _train(self, which: Sequence[int], codes: NDArray[np.int64], rows: list[Rows]) -> list[Member]:
        trained = super()._train(which[: self._n_trained], codes, rows)
        return trained + [Member(m, self.classes_[:0], np.empty(0)) for m in which[self._n_trained :]]


def plan(
    X: Any,
    y: Any,
    estimator: Any = None,
    *,
    budgets: ArrayLike = BUDGETS,
    n_partitions: Sequence[int] = TRIED,
    elections: Sequence[str | Election] = ("plurality", "runoff", "maximin"),
    members: int | None = None,
    n_jobs: int | None = None,
    random_state: int = 0,
    groups: Any = None,
    balanced: bool = False,
) -> Plan:
    """Estimate certified accuracy by number of partitions, election and number of edits, without a test set.

    A training sample is held out for every member but those that its bucket reaches. For each number of partitions the
    members are trained and vote on up to 1,000 training samples, without the members that have seen them. This takes
    about as long as `fit` for each number of partitions.

    A choice based on the training data is outside the guarantee, which holds for settings fixed beforehand: choose
    once, on data that you trust, and keep the settings when the data changes. Estimates are slightly too low where the
    number of edits is close to half the number of partitions, since each sample lacks a member, and too high if samples
    have near copies in other buckets.

    Parameters
    ----------
    X, y : training samples and labels, as for `RunoffClassifier.fit`
    estimator : as for `RunoffClassifier`, or a `RunoffClassifier` whose other settings are to be kept
    budgets : the numbers of edits that you want to withstand
    n_partitions : the numbers of partitions to compare
    elections : the elections to compare, by the same members' votes
    members : train only this many members for each number of partitions, and extrapolate from their votes: faster, with
        larger standard errors. Default: all
    n_jobs, random_state : as for `RunoffClassifier`
    groups : the source of each sample, as for `RunoffClassifier.fit`: then budgets are numbers of sources, and a sample
        is certified by the members that have seen nothing of its source
    balanced : estimate the mean over the classes, where a rare class counts as much as a frequent one. Of mails that
        are 85 % ham, a filter that calls all of them ham gets 85 % right, and 50 % balanced

    Returns
    -------
    plan : Plan
        `print(plan)` shows a table and recommends; `plan.best(budget)` is the recommendation; `plan.to_frame()`

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> choice = runoff.plan(X, y, budgets=3, n_partitions=(5, 15, 1000)).best(3)
    >>> choice.n_partitions
    15

    """
    edits = np.atleast_1d(np.asarray(budgets))
    if edits.ndim != 1 or edits.dtype.kind not in "iu" or (edits < 0).any():
        raise InputError(f"budgets must be non-negative integers, got {budgets!r}")
    edits = np.unique(np.append(edits, 0)).astype(np.int64)
    if members is not None and members < 2:
        raise InputError(f"members must be at least 2, got {members}")
    compared = [rules.get(election) for election in elections]
    base = estimator if isinstance(estimator, RunoffClassifier) else RunoffClassifier(estimator)
    settings = base.get_params(deep=False)
    if base is not estimator:
        settings |= {"n_jobs": n_jobs, "random_state": random_state}
    array, _ = labels.checked(y)
    classes = np.unique(array) if base.classes is None else labels.sorted_classes(base.classes)
    choices: list[Choice] = []
    left_out: dict[int, str] = {}
    for k in sorted(set(n_partitions)):
        if (n := len(array)) < 2 * k:
            left_out[k] = f"{n:,} samples leave a member less than 2 on average; use at most {n // 2} partitions"
            continue
        classifier = _Few(**settings | {"n_partitions": k, "classes": classes})
        choices += _choices(classifier, X, y, groups, compared, edits, members, balanced)
    if not choices:
        reasons = "; ".join(f"n_partitions={k}: {why}" for k, why in left_out.items())
        raise InputError(f"n_partitions must hold a number that can be planned for, got none: {reasons}")
    return Plan(tuple(choices), left_out)


def _choices(
    classifier: _Few,
    X: Any,
    y: Any,
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
    classifier._n_trained = few or n_members
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*votes? by (its|their) class shares", category=UserWarning)
        warnings.filterwarnings("ignore", message=".*members learn nothing", category=UserWarning)  # the table shows it
        classifier.fit(X, y, groups)
        n = len(classifier._labels)
        rows = _some_rows(classifier._labels, balanced)
        ballots = classifier._ranked(classifier._features.select(rows))
    codes = np.searchsorted(classifier.classes_, classifier._labels[rows])
    choices = []
    for rule in compared:
        bound = classifier.bound if rule.in_paper else "tight"
        spread = classifier.partition_.spread
        buckets = classifier._buckets[rows]
        if few is None:
            estimate = estimates.out_of_part(
                ballots, codes, buckets, edits, election=rule, spread=spread, bound=bound, balanced=balanced
            )
        else:
            estimate = estimates.extrapolated(
                ballots[:, :few], codes, buckets, edits, n_members=n_members, election=rule, bound=bound,
                balanced=balanced,
            )  # fmt: skip
        choices.append(
            Choice(
                n_partitions=int(classifier.n_partitions),
                election=rule.name,
                samples_per_member=n / classifier.n_partitions,
                largest_radius=(n_members - 1) // (2 * int(classifier.spread)),
                estimate=estimate,
                balance=classifier.balance(),
                unit=classifier.partition_.unit,
            )
        )
    return choices


def _some_rows(labels: NDArray[Any], balanced: bool) -> Rows:
    """Return up to INPUTS training samples at random, in order; if balanced, about equally many of each class."""
    order = np.random.default_rng(0).permutation(len(labels))
    if balanced:
        _, codes = np.unique(labels[order], return_inverse=True)
        by_class = np.argsort(codes, kind="stable")
        turn = np.empty(len(order), np.int64)  # a sample's turn within its class
        turn[by_class] = np.arange(len(order)) - np.searchsorted(codes[by_class], codes[by_class])
        order = order[np.argsort(turn, kind="stable")]
    return np.sort(order[:INPUTS])


class certified_scorer:  # noqa: N801
    """A scorer for `cross_val_score`, `GridSearchCV` and `cross_validate`: certified accuracy for a number of edits.

    The estimator must be a classifier with `certify`, with its `classes` fixed: a pipeline around it has none. A choice
    by this score is a choice based on the training data, which is outside the guarantee: see `plan`.

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
        if not isinstance(budget, (int, np.integer)) or isinstance(budget, bool) or budget < 0:
            raise InputError(f"budget must be a whole number of at least 0, got {budget!r}")
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
