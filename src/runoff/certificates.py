"""Certificates: a prediction and a proven radius for every input."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff import elections
from runoff.ballots import Ballots, points, readable
from runoff.errors import InputError, MissingExtraError
from runoff.scores import blocks_of, check_finite, checked_scores
from runoff.spreads import Spread

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from runoff.attacks import Attack
    from runoff.elections.base import Election

LABELS_NOT_FIXED = (
    "certify needs all possible labels, fixed beforehand: pass classes= to the classifier, as in classes=[0, 1, 2]; if "
    "they were taken from y, one label that appears or vanishes could change every member's ballots"
)
ONE_EDIT = "Nothing is proven: one edit might change this. "
BOUNDS = ("tight", "paper")
NODES = 200  # of search per input with a spread; enough for the exact cost of about half of all inputs


def certify(
    scores: ArrayLike | Iterator[ArrayLike],
    *,
    election: str | Election = "runoff",
    spread: Any = None,
    bound: str = "tight",
) -> Certificates:
    """Predict every input and prove how many edits of the training data cannot change the prediction.

    With at most `radius[i]` training samples inserted, deleted or relabelled, anywhere and by anyone, the ensemble
    trained on the edited data still predicts `prediction[i]`, provided that an edit of a sample touches only the
    members that the spread names for the sample's bucket.

    Parameters
    ----------
    scores : (n_samples, n_members, n_classes) real numbers
        Logits, probabilities or ballots (`runoff.rank`) of an ensemble: an array, also memory-mapped, or an iterator
        of blocks of inputs. Only each member's ranking is read; a tie ranks the lower class index first.
    election : "runoff" or "plurality"
        How ballots become a prediction.
    spread : None or (n_buckets, d) integers
        The members that train on each bucket; None for one bucket per member. For buckets of different sizes, lists of
        different lengths or a boolean array (n_buckets, n_members).
    bound : "tight" or "paper"
        "paper": Theorem 3.4 with Lemmas 3.5 to 3.8 of the paper. "tight": for one bucket per member the exact minimum
        over all attacks, for a spread the best known bound; never below the paper's.

    Returns
    -------
    certificates : Certificates

    Examples
    --------
    >>> import numpy as np, runoff
    >>> scores = np.array([[[3, 2, 1]] * 3 + [[2, 3, 1]] * 2 + [[2, 1, 3]] * 2])  # one input, 7 members, 3 classes
    >>> certificates = runoff.certify(scores)
    >>> certificates.prediction, certificates.radius
    (array([0]), array([1]))

    """
    rule = elections.get(election)
    if bound not in BOUNDS:
        raise InputError(f"bound must be one of {', '.join(map(repr, BOUNDS))}, got {bound!r}")
    if bound == "paper" and not rule.in_paper:
        raise InputError(f"bound='paper' needs an election of the paper, got {rule.name!r}: use bound='tight'")
    fingerprint = getattr(scores, "fingerprint", None)
    if fingerprint is not None:  # a `Scores`
        known: Any = getattr(scores, "spread")  # noqa: B009
        if spread is not None and not np.array_equal(spread, known):
            raise InputError(
                f"spread must be the one that these scores' members were trained with (partition {fingerprint[:12]}), "
                "got another: leave it out"
            )
        spread = known
    if not getattr(scores, "classes_fixed", True):
        raise InputError(LABELS_NOT_FIXED)
    source = None if isinstance(scores, Iterator) else checked_scores(scores)
    checked: Spread | None = None
    results: list[NDArray[np.int64]] = []
    done = n_members = n_classes = 0
    with ThreadPoolExecutor(_threads()) as pool:
        for block in blocks_of(scores if source is None else source):
            if not results:
                _, n_members, n_classes = block.shape
                checked = None if spread is None else Spread.from_any(spread, n_members)
            results.append(_certify_block(readable(block, done), done, rule, checked, bound == "tight", pool))
            done += len(block)
    prediction, runner_up, cost = np.concatenate(results, axis=1)
    n_buckets = n_members if checked is None else checked.n_buckets
    return Certificates(
        prediction=prediction,
        radius=np.minimum(cost - 1, n_buckets),
        runner_up=runner_up,
        n_members=n_members,
        n_classes=n_classes,
        n_buckets=n_buckets,
        election=rule,
        bound=bound,
        spread=checked,
        fingerprint=fingerprint,
        _scores=source,
    )


def _threads() -> int:
    from numba import config

    return int(config.NUMBA_NUM_THREADS)  # type: ignore[attr-defined]


def _certify_block(
    block: NDArray[Any], start: int, rule: Election, spread: Spread | None, tight: bool, pool: ThreadPoolExecutor
) -> NDArray[np.int64]:
    """Return prediction, runner-up and cost of a block's inputs, divided among threads."""
    out = np.empty((3, len(block)), np.int64)
    if spread is None or spread.one_to_one is not None:
        extra: tuple[Any, ...] = ()
        certify_part: Any = rule.certify_disjoint
    else:
        extra = (spread.reach, NODES)
        certify_part = rule.certify_spread
    # More parts than threads, since inputs take different times.
    edges = np.unique(np.linspace(0, len(block), 4 * pool._max_workers + 1, dtype=int))

    def part(a: int, b: int) -> int:
        bad = certify_part(block[a:b], tight, *extra, out[0, a:b], out[1, a:b], out[2, a:b])
        return -1 if bad < 0 else a + int(bad)

    not_finite = [bad for bad in pool.map(part, edges[:-1], edges[1:]) if bad >= 0]
    if not_finite:
        check_finite(block[min(not_finite)][None], start + min(not_finite))
    return out


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Certificates:
    """Predictions with their proofs: arrays with one entry per input.

    Attributes
    ----------
    prediction : class indices
    radius : the largest number of edits proven unable to change the prediction; `n_buckets` if nothing can
    runner_up : the other finalist (run-off), the class with the next most votes (plurality)
    classes : the labels, if `prediction` and `runner_up` hold labels instead of class indices
    fingerprint : the digest of the partition that the members were trained with, if known

    """

    prediction: NDArray[Any]
    radius: NDArray[np.int64]
    runner_up: NDArray[Any]
    n_members: int
    n_classes: int
    n_buckets: int
    election: Election
    bound: str
    spread: Spread | None = None
    classes: NDArray[Any] | None = None
    fingerprint: str | None = None
    _scores: NDArray[Any] | None = None
    _rows: NDArray[np.int64] | None = None  # rows of `_scores`, if these are a selection

    def __len__(self) -> int:
        return len(self.prediction)

    def __getitem__(self, which: Any) -> Certificates:
        """Return the certificates of some inputs: a slice, a mask, or an array of indices."""
        rows = np.atleast_1d((np.arange(len(self)) if self._rows is None else self._rows)[which])
        return replace(
            self,
            prediction=np.atleast_1d(self.prediction[which]),
            radius=np.atleast_1d(self.radius[which]),
            runner_up=np.atleast_1d(self.runner_up[which]),
            _rows=rows,
        )

    def __repr__(self) -> str:
        return (
            f"<Certificates of {len(self)} inputs: {self.election.name} of {self.n_members} members, "
            f"{self.bound} bound, median radius {np.median(self.radius) if len(self) else 0:g}>"
        )

    def named(self, classes: NDArray[Any] | None, fingerprint: str | None = None) -> Certificates:
        """Return the same certificates with labels in place of class indices."""
        if classes is None:
            return self
        return replace(
            self,
            prediction=classes[self.prediction],
            runner_up=classes[self.runner_up],
            classes=classes,
            fingerprint=fingerprint,
        )

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas DataFrame with the columns prediction, radius and runner_up."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError("to_frame needs pandas. Install it with: pip install pandas") from None
        return pd.DataFrame({"prediction": self.prediction, "radius": self.radius, "runner_up": self.runner_up})

    def plot(self, y_true: ArrayLike | None = None, ax: Axes | None = None, **line: Any) -> Axes:
        """Plot the fraction of inputs certified by number of edits; with `y_true`, the certified accuracy.

        `line` is passed to matplotlib's plot, as label= or color=. Needs matplotlib: pip install runoff[report].
        """
        from runoff.report.curves import draw

        return draw(self, y_true, ax, line)

    def _repr_html_(self) -> str:
        from runoff.report.notebook import to_html

        return to_html(self)

    def attack(self, i: int, scores: ArrayLike | None = None) -> Attack | None:
        """Return the smallest attack found on input i: buckets and members to take over, and their new ballots.

        For one bucket per member and the tight bound it has exactly radius + 1 members. For a spread the true radius is
        below its size. None if no attack can change the prediction.

        `scores`, (n_members, n_classes), is required if the certificates were made from an iterator.
        """
        from runoff import attacks

        ballots = self._ballots(i, scores)
        cost = int(self.radius[i]) + 1
        if self.bound == "paper":  # the paper's radius may be below the true one, from which the search starts
            cost = int(certify(ballots[None], election=self.election, spread=self.spread).radius[0]) + 1
        attack = attacks.find(self.election, ballots, self.spread, cost)
        return None if attack is None else attack.named(self.classes)

    def explain(self, i: int, scores: ArrayLike | None = None) -> str:
        """Return one paragraph on input i: the votes, what is proven, and the cheapest attack found.

        `scores`, (n_members, n_classes), is required if the certificates were made from an iterator.
        """
        ballots = self._ballots(i, scores)
        return self.describe(i, ballots, self.attack(i, ballots))

    def describe(self, i: int, ballots: Ballots, attack: Attack | None) -> str:
        """Return the paragraph of `explain` for ballots and an attack that are already known."""
        radius = int(self.radius[i])
        alone = self.spread is None or self.spread.one_to_one is not None
        unit = "member" if alone else "bucket"
        edits = "single edit" if radius == 1 else f"{radius} edits"
        story = f"{self.election.hold(ballots).story.describe(self.classes)} "
        story += f"Proven: no {edits} of the training data can change this. " if radius else ONE_EDIT
        if attack is None:
            return f"{story}No attack of any size can: the members that a bucket reaches are too few."
        size = f"{len(attack)} {unit}{'s' if len(attack) > 1 else ''}"
        verb = "reaches" if len(attack) == 1 else "reach"
        reached = "" if alone else f", which {verb} {len(attack.members)} members"
        exact = (
            "so the radius is exact"
            if len(attack) == radius + 1
            else f"so the true radius is {radius} to {len(attack) - 1}"
        )
        return f"{story}The cheapest attack found takes over {size}{reached}: {attack.how}; {exact}."

    def _ballots(self, i: int, scores: ArrayLike | None) -> Ballots:
        """Return the ballots of input i, checked to be those that were certified."""
        i = range(len(self))[i]
        if scores is None:
            if self._scores is None:
                raise InputError(
                    f"these certificates were made from an iterator, which keeps no scores: pass those of input {i} as "
                    f"scores=, an array ({self.n_members}, {self.n_classes})"
                )
            scores = self._scores[i if self._rows is None else self._rows[i]]
        row = np.asarray(scores)
        if row.shape != (self.n_members, self.n_classes):
            raise InputError(f"scores must have shape ({self.n_members}, {self.n_classes}), got {row.shape}")
        ballots: Ballots = points(readable(checked_scores(row[None])))[0]
        again = certify(ballots[None], election=self.election, spread=self.spread, bound=self.bound).named(self.classes)
        for name in ("prediction", "runner_up", "radius"):
            now, then = getattr(again, name)[0], getattr(self, name)[i]
            if now != then:
                raise InputError(f"scores must be those certified, but input {i}'s {name} is now {now} and was {then}")
        return ballots


def certified_accuracy(certificates: Certificates, y_true: ArrayLike, budgets: ArrayLike) -> NDArray[np.float64]:
    """Return the fraction of inputs that are predicted correctly with radius >= budget, for each budget.

    Parameters
    ----------
    certificates : Certificates
    y_true : (n_samples,) the true classes
    budgets : numbers of edits; 0 gives the clean accuracy

    Returns
    -------
    accuracy : (n_budgets,) floats

    """
    labels, edits = np.asarray(y_true), np.atleast_1d(np.asarray(budgets))
    if labels.shape != (len(certificates),):
        raise InputError(f"y_true must have one label for each of {len(certificates)} inputs, got shape {labels.shape}")
    if certificates.classes is None:
        if labels.dtype.kind not in "biu":
            raise InputError(f"y_true must be class indices (integers), got dtype {labels.dtype}")
        outside = np.flatnonzero((labels < 0) | (labels >= certificates.n_classes))
        known = f"classes 0 to {certificates.n_classes - 1}"
    else:
        outside = np.flatnonzero(~np.isin(labels, certificates.classes))
        known = f"labels from {certificates.classes.tolist()!r:.200}"
    if outside.size:
        raise InputError(f"y_true must be {known}, got {labels[outside[0]]} for input {outside[0]}")
    if edits.ndim != 1 or edits.dtype.kind not in "iu" or (edits < 0).any():
        raise InputError(f"budgets must be non-negative integers, got {budgets!r}")
    correct = certificates.prediction == labels
    return np.array([np.mean(correct & (certificates.radius >= edit)) for edit in edits])
