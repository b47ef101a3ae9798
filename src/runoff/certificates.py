"""Certificates: a prediction and a proven radius for every input."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff import elections
from runoff._io.text import count
from runoff._io.units import unit_of
from runoff.ballots import Ballots, points, readable
from runoff.errors import InputError, MissingExtraError, NoSuchInputError
from runoff.scores import blocks_of, checked_scores, in_parts, n_threads, origin_of, selected
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
BOUNDS = ("tight", "paper")
NODES = 200  # of search per input with a spread; enough for the exact cost of about half of all inputs


def certify(
    scores: ArrayLike | Iterator[ArrayLike],
    *,
    election: str | Election = "runoff",
    spread: Any = None,
    bound: str = "tight",
    unit: str | None = None,
) -> Certificates:
    """Predict every input and prove how many edits of the training data cannot change the prediction.

    With at most `radius[i]` training samples inserted, deleted or relabelled, anywhere and by anyone, the ensemble
    trained on the edited data still predicts `prediction[i]`, provided that an edit of a sample touches only the
    members that the spread names for the sample's bucket.

    Parameters
    ----------
    scores : (n_samples, n_members, n_classes) real numbers
        Logits, probabilities or ballots (`runoff.rank`) of an ensemble: an array, also memory-mapped, or an iterator
        of blocks of inputs. Those that a classifier's `scores` returns, in blocks too, bring their spread and unit.
        Only each member's ranking is read; a tie ranks the lower class index first.
    election : "runoff" or "plurality"
        How ballots become a prediction.
    spread : None or (n_buckets, d) integers
        The members that train on each bucket; None for one bucket per member. For buckets of different sizes, lists of
        different lengths or a boolean array (n_buckets, n_members).
    bound : "tight" or "paper"
        "paper": Theorem 3.4 with Lemmas 3.5 to 3.8 of the paper. "tight": for one bucket per member the exact minimum
        over all attacks, for a spread the best known bound; never below the paper's.
    unit : None, "samples", "sources" or "labels"
        What one edit is, if buckets were not made by the content of samples: by default what the scores of a classifier
        say, else one sample. It changes the words, not the numbers.

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
    scores, origin = origin_of(scores)
    counted = unit or "samples"
    if origin is not None:
        if spread is not None and not np.array_equal(spread, origin.spread):
            raise InputError(
                "spread must be the one that these scores' members were trained with (partition "
                f"{origin.fingerprint[:12]}), got another: leave it out"
            )
        spread, counted = origin.spread, origin.unit
        if not origin.classes_fixed:
            raise InputError(LABELS_NOT_FIXED)
    if unit not in (None, counted):
        raise InputError(f"unit must be that of these scores' members, {counted!r}, got {unit!r}: leave it out")
    source = None if isinstance(scores, Iterator) else checked_scores(scores)
    checked: Spread | None = None
    results: list[NDArray[np.int64]] = []
    done = n_members = n_classes = 0
    with ThreadPoolExecutor(n_threads()) as pool:
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
        fingerprint=None if origin is None else origin.fingerprint,
        unit=unit_of(counted).name,
        _scores=source,
    )


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

    def part(a: int, b: int) -> int:
        return int(certify_part(block[a:b], tight, *extra, out[0, a:b], out[1, a:b], out[2, a:b]))

    in_parts(pool, part, block, start)
    return out


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Certificates:
    """Predictions with their proofs: arrays with one entry per input.

    Attributes
    ----------
    prediction : class indices
    radius : the largest number of edits proven unable to change the prediction; `n_buckets` if nothing can
    unit : what one edit is. "samples": one sample inserted, deleted or relabelled. "sources": all that one source
        contributes, or a source more or less. "labels": one label changed; inserted and deleted samples are not covered
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
    unit: str = "samples"
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
            f"{self.bound} bound, median radius {np.median(self.radius) if len(self) else 0:g}{self._unit_words()}>"
        )

    def _unit_words(self) -> str:
        """Return what the radius counts, where it is not samples."""
        unit = unit_of(self.unit)
        return "" if unit.name == "samples" else f" {unit.noun}s{f'; {unit.limits}' if unit.limits else ''}"

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

    def to_frame(self, to: Any = None) -> pd.DataFrame:
        """Return a pandas DataFrame with the columns prediction, radius and runner_up.

        With `to`, a label, there is a column radius_to; where radii do not count samples, there is a column unit.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError("to_frame needs pandas. Install it with: pip install pandas") from None
        frame = pd.DataFrame({"prediction": self.prediction, "radius": self.radius, "runner_up": self.runner_up})
        frame.attrs["unit"] = self.unit
        if to is not None:
            frame["radius_to"] = self.radius_to(to)
        return frame if self.unit == "samples" else frame.assign(unit=self.unit)

    def certified_accuracy(
        self, y_true: ArrayLike, budgets: ArrayLike, *, by_class: bool = False
    ) -> NDArray[np.float64]:
        """Return `runoff.certified_accuracy` of these certificates: the fraction correct with radius >= budget."""
        return certified_accuracy(self, y_true, budgets, by_class=by_class)

    def radius_to(self, label: Any, scores: ArrayLike | Iterator[ArrayLike] | None = None) -> NDArray[np.int64]:
        """Return, for each input, the largest number of edits proven unable to make the ensemble predict `label`.

        It is -1 where `label` is predicted already, at least `radius` elsewhere, and `n_buckets` where nothing can. For
        one bucket per member it is exact for plurality and run-off, and for maximin if a search ends; for a spread it
        is what a search can prove. It does not depend on `bound`: the paper has no bound for a target.

        Parameters
        ----------
        label : a class label if the certificates have `classes`, else a class index
        scores : the scores that were certified, required if the certificates were made from an iterator

        """
        from runoff import attacks

        target = self.index_of(label)
        if scores is None:
            if self._scores is None:
                raise InputError(
                    "these certificates were made from an iterator, which keeps no scores: pass all scores again as "
                    f"scores=, an array ({len(self)}, {self.n_members}, {self.n_classes}) or an iterator"
                )
            scores = self._scores if self._rows is None else selected(self._scores, self._rows)
        shape = (self.n_members, self.n_classes)
        prediction, cost = attacks.costs_to(self.election, blocks_of(scores), shape, self.spread, target, NODES)
        if len(cost) != len(self):
            raise InputError(f"scores must be those of the {len(self)} inputs certified, got {len(cost)} inputs")
        now = prediction if self.classes is None else self.classes[prediction]
        if (now != self.prediction).any():
            i = int(np.flatnonzero(now != self.prediction)[0])
            raise InputError(
                f"scores must be those certified, but input {i}'s prediction is now {now[i]} and was "
                f"{self.prediction[i]}"
            )
        return np.where(cost == 0, -1, np.maximum(np.minimum(cost - 1, self.n_buckets), self.radius))

    def index_of(self, label: Any) -> int:
        """Return the class index of a label, or of a class index if the certificates have no labels."""
        label = label.item() if isinstance(label, np.generic) else label
        known: list[Any] = list(range(self.n_classes)) if self.classes is None else self.classes.tolist()
        if np.ndim(label) or isinstance(label, bool) != isinstance(known[0], bool) or label not in known:
            what = f"a class index from 0 to {self.n_classes - 1}" if self.classes is None else f"one of {known!r:.200}"
            raise InputError(f"the target must be {what}, got {label!r}")
        return known.index(label)

    def plot(self, y_true: ArrayLike | None = None, ax: Axes | None = None, **line: Any) -> Axes:
        """Plot the fraction of inputs certified by number of edits; with `y_true`, the certified accuracy.

        `line` is passed to matplotlib's plot, as label= or color=. Needs matplotlib: pip install runoff[report].
        """
        from runoff.report.curves import draw

        return draw(self, y_true, ax, line)

    def _repr_html_(self) -> str:
        from runoff.report.notebook import to_html

        return to_html(self)

    def attack(self, i: int, scores: ArrayLike | None = None, *, to: Any = None) -> Attack | None:
        """Return the smallest attack found on input i: buckets and members to take over, and their new ballots.

        For one bucket per member and the tight bound it has exactly radius + 1 members. For a spread the true radius is
        below its size. None if no attack can change the prediction. With `to`, a label, the attack makes it the
        prediction, and all this holds for `radius_to` (for maximin, None also if no attack is found).

        `scores`, (n_members, n_classes), is required if the certificates were made from an iterator.
        """
        from runoff import attacks

        ballots = self._ballots(i, scores)
        if to is not None:
            radius = int(self[[i]].radius_to(to, ballots[None])[0])
            if radius < 0:
                raise InputError(f"to must be another class than the prediction, got {to!r}, which is input {i}'s")
            found = attacks.find(self.election, ballots, self.spread, radius + 1, self.index_of(to))
            return None if found is None else found.named(self.classes)
        cost = int(self.radius[i]) + 1
        if self.bound == "paper":  # the paper's radius may be below the true one, from which the search starts
            cost = int(certify(ballots[None], election=self.election, spread=self.spread).radius[0]) + 1
        attack = attacks.find(self.election, ballots, self.spread, cost)
        return None if attack is None else attack.named(self.classes)

    def explain(self, i: int, scores: ArrayLike | None = None, *, to: Any = None) -> str:
        """Return one paragraph on input i: the votes, what is proven, and the cheapest attack found.

        With `to`, a label, it is about attacks that make this label the prediction. `scores`, (n_members, n_classes),
        is required if the certificates were made from an iterator.
        """
        ballots = self._ballots(i, scores)
        if to is None:
            return self.describe(i, ballots, self.attack(i, ballots))
        story = self.election.hold(ballots).story.describe(self.classes)
        radius = int(self[[i]].radius_to(to, ballots[None])[0])
        if radius < 0:
            return f"{story} Class {to} is the prediction already."
        proven = unit_of(self.unit).proven(radius, f"make this class {to}")
        return f"{story} {proven} {self._attack_story(radius, self.attack(i, ballots, to=to))}"

    def describe(self, i: int, ballots: Ballots, attack: Attack | None) -> str:
        """Return the paragraph of `explain` for ballots and an attack that are already known."""
        radius = int(self.radius[self._position(i)])
        story = self.election.hold(ballots).story.describe(self.classes)
        return f"{story} {unit_of(self.unit).proven(radius)} {self._attack_story(radius, attack)}"

    def _attack_story(self, radius: int, attack: Attack | None) -> str:
        """Return the sentence about the cheapest attack found, and how far the radius may be from the truth."""
        alone = self.spread is None or self.spread.one_to_one is not None
        taken = "member" if alone else "bucket"
        if attack is None and radius < self.n_buckets:
            return "No attack was found."
        if attack is None:
            return "No attack of any size can: the members that a bucket reaches are too few."
        size = f"{len(attack)} {taken}{'s' if len(attack) > 1 else ''}"
        verb = "reaches" if len(attack) == 1 else "reach"
        reached = "" if alone else f", which {verb} {len(attack.members)} members"
        exact = (
            "so the radius is exact"
            if len(attack) == radius + 1
            else f"so the true radius is {radius} to {len(attack) - 1}"
        )
        return f"The cheapest attack found takes over {size}{reached}: {attack.how}; {exact}."

    def _position(self, i: int) -> int:
        """Return the position of input i, which may count from the end."""
        if not isinstance(i, (int, np.integer)) or isinstance(i, bool):
            raise InputError(f"an input is named by its position, a whole number, got {i!r:.60}")
        if not -len(self) <= i < len(self):
            known = f"{count(len(self), 'input')}, 0 to {len(self) - 1}" if len(self) else "no inputs"
            raise NoSuchInputError(f"there is no input {i}: these certificates are of {known}")
        return int(i) % len(self)

    def _ballots(self, i: int, scores: ArrayLike | None) -> Ballots:
        """Return the ballots of input i, checked to be those that were certified."""
        i = self._position(i)
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


def certified_accuracy(
    certificates: Certificates, y_true: ArrayLike, budgets: ArrayLike, *, by_class: bool = False
) -> NDArray[np.float64]:
    """Return the fraction of inputs that are predicted correctly with radius >= budget, for each budget.

    The overall fraction can hide a rare class of which nothing is certified; `by_class` shows it.

    Parameters
    ----------
    certificates : Certificates
    y_true : (n_samples,) the true classes
    budgets : numbers of edits; 0 gives the clean accuracy
    by_class : return a row for each class, in the order of `classes` or of the class indices: the fraction of this
        class's inputs, NaN if there are none

    Returns
    -------
    accuracy : (n_budgets,) floats, or (n_classes, n_budgets)

    Examples
    --------
    >>> import numpy as np, runoff
    >>> scores = np.array([[[3, 2, 1]] * 7, [[3, 2, 1]] * 4 + [[1, 3, 2]] * 3])  # two inputs, 7 members, 3 classes
    >>> certificates = runoff.certify(scores)
    >>> certificates.certified_accuracy([0, 1], [0, 3])
    array([0.5, 0.5])
    >>> certificates.certified_accuracy([0, 1], [0, 3], by_class=True)
    array([[ 1.,  1.],
           [ 0.,  0.],
           [nan, nan]])

    """
    labels, edits = checked_labels(certificates, y_true), checked_budgets(budgets)
    certified = (certificates.prediction == labels)[:, None] & (certificates.radius[:, None] >= edits)
    if not by_class:
        return np.array([np.mean(column) for column in certified.T])
    names = np.arange(certificates.n_classes) if certificates.classes is None else certificates.classes
    each = [certified[labels == name] for name in names]
    return np.array([rows.mean(axis=0) if len(rows) else np.full(len(edits), np.nan) for rows in each])


def targeted_rate(
    certificates: Certificates,
    y_true: ArrayLike,
    source: Any,
    target: Any,
    budgets: ArrayLike,
    *,
    scores: ArrayLike | Iterator[ArrayLike] | None = None,
) -> NDArray[np.float64]:
    """Return the share of inputs of class `source` that might be predicted as `target`, for each number of edits.

    No attack with that many edits can do better, for all inputs together or for each alone. Inputs that are predicted
    as `target` without any edit count for every budget.

    Parameters
    ----------
    certificates : Certificates
    y_true : (n_samples,) the true classes
    source : the true class of the inputs that are counted; None for all classes but `target`
    target : the class that the attacker wants them to be predicted as
    budgets : numbers of edits; 0 gives the rate without an attack
    scores : as for `Certificates.radius_to`

    Returns
    -------
    rate : (n_budgets,) floats

    Examples
    --------
    >>> import numpy as np, runoff
    >>> spam, ham = [[0, 1]], [[1, 0]]  # one member's scores of class 0, ham, and class 1, spam
    >>> scores = np.array([spam * 9, spam * 7 + ham * 2, spam * 4 + ham * 5])  # three mails, 9 members
    >>> runoff.targeted_rate(runoff.certify(scores), [1, 1, 1], source=1, target=0, budgets=[0, 3, 5])
    array([0.33333333, 0.66666667, 1.        ])

    """
    labels, edits = checked_labels(certificates, y_true), checked_budgets(budgets)
    names = np.arange(certificates.n_classes) if certificates.classes is None else certificates.classes
    wanted = names[certificates.index_of(target)]
    counted = labels != wanted if source is None else labels == names[certificates.index_of(source)]
    if source is not None and names[certificates.index_of(source)] == wanted:
        raise InputError(f"source and target must be two classes, got {source!r} twice")
    if not counted.any():
        raise InputError(f"y_true must have inputs of class {source!r}, which the rate is about, got none")
    radius = certificates.radius_to(target, scores)[counted]
    return np.array([np.mean(radius < edit) for edit in edits])


def checked_labels(certificates: Certificates, y_true: ArrayLike) -> NDArray[Any]:
    """Return the true classes as an array, or raise InputError."""
    labels = np.asarray(y_true)
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
    return labels


def checked_budgets(budgets: ArrayLike) -> NDArray[Any]:
    """Return numbers of edits as an array, or raise InputError."""
    edits = np.atleast_1d(np.asarray(budgets))
    if edits.ndim != 1 or edits.dtype.kind not in "iu" or (edits < 0).any():
        raise InputError(f"budgets must be non-negative integers, got {budgets!r}")
    return edits
