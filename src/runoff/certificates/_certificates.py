"""The class `Certificates`: arrays with one entry per input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff._io.text import count
from runoff._io.units import unit_of
from runoff.certificates._accuracy import certified_accuracy
from runoff.certificates._one_input import ballots_of, description, explanation, find_attack, other_scores, position_of
from runoff.certificates._outcomes import NODES, Outcomes, outcomes
from runoff.errors import InputError, MissingExtraError
from runoff.scores import blocks_of, selected

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from runoff.attacks import Attack
    from runoff.ballots import Ballots
    from runoff.elections.base import Election
    from runoff.spreads import Spread


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Certificates:
    """Predictions with proven radii: arrays with one entry per input.

    Attributes
    ----------
    prediction : class indices
    radius : the largest number of edits proven unable to change the prediction; `n_buckets` if nothing can
    unit : what one edit is. "samples": one sample inserted, deleted or relabelled. "sources": any change of
        the samples of one source, which may also appear or vanish. "labels": one changed label; inserted and deleted
        samples are not covered
    runner_up : the other finalist (run-off), or the class with the second most votes (plurality)
    classes : the labels, if `prediction` and `runner_up` contain labels instead of class indices
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
            f"<Certificates of {count(len(self), 'input')}: {self.election.name} of {count(self.n_members, 'member')}, "
            f"{self.bound} bound, median radius {np.median(self.radius) if len(self) else 0:g}{self._unit_words()}>"
        )

    def _unit_words(self) -> str:
        """Return the words for the unit of the radius, unless it is samples."""
        unit = unit_of(self.unit)
        return "" if unit.name == "samples" else f" {unit.noun}s{f'; {unit.limits}' if unit.limits else ''}"

    def named(self, classes: ArrayLike | None, fingerprint: str | None = None) -> Certificates:
        """Return the same certificates with labels instead of class indices; `classes` has one per class, in order."""
        if classes is None:
            return self
        classes = np.asarray(classes)
        if classes.shape != (self.n_classes,):
            raise InputError(f"classes must name each of {self.n_classes} classes, got shape {classes.shape}")
        return replace(
            self,
            prediction=classes[self.prediction],
            runner_up=classes[self.runner_up],
            classes=classes,
            fingerprint=fingerprint or self.fingerprint,
        )

    def to_frame(self, to: Any = None) -> pd.DataFrame:
        """Return a pandas DataFrame with the columns prediction, radius and runner_up.

        With `to`, a label, there is a column radius_to. If radii do not count samples, there is a column unit; if they
        count labels, also a column limits, which says what is not covered.
        """
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError("to_frame needs pandas. Install it with: pip install pandas") from None
        frame = pd.DataFrame({"prediction": self.prediction, "radius": self.radius, "runner_up": self.runner_up})
        frame.attrs["unit"] = self.unit
        if to is not None:
            frame["radius_to"] = self.radius_to(to)
        return frame.assign(**unit_of(self.unit).columns)

    def certified_accuracy(
        self, y_true: ArrayLike, budgets: ArrayLike, *, by_class: bool = False
    ) -> NDArray[np.float64]:
        """Return `runoff.certified_accuracy` of these certificates: the fraction correct with radius >= budget."""
        return certified_accuracy(self, y_true, budgets, by_class=by_class)

    def radius_to(self, label: Any, scores: ArrayLike | Iterator[ArrayLike] | None = None) -> NDArray[np.int64]:
        """Return, for each input, the largest number of edits proven unable to make the ensemble predict `label`.

        It is -1 if `label` is already predicted, else at least `radius`, and `n_buckets` if no attack can succeed. For
        one bucket per member it is exact for plurality and run-off, and for maximin if a search completes; for a spread
        it is the best bound that a search proves. It does not depend on `bound`: the paper has no bound for a target.

        Parameters
        ----------
        label : a class label if the certificates have `classes`, else a class index
        scores : the scores that were certified, required if the certificates were made from an iterator

        """
        from runoff import attacks

        target = self.index_of(label)
        if not len(self):  # an empty selection
            return np.empty(0, np.int64)
        cost = attacks.costs_to(self.election, self.blocks(scores), self.spread, target, NODES)
        return np.where(cost == 0, -1, np.maximum(np.minimum(cost - 1, self.n_buckets), self.radius))

    def blocks(self, scores: ArrayLike | Iterator[ArrayLike] | None = None) -> Iterator[NDArray[Any]]:
        """Yield the scores of these inputs in blocks, and raise InputError at the end unless they were certified.

        The caller may have passed others, or changed the array since then.
        """
        n, shape = len(self), (self.n_members, self.n_classes)
        if scores is None:
            if self._scores is None:
                raise InputError(
                    "these certificates were made from an iterator, which keeps no scores: pass all scores again as "
                    f"scores=, an array {(n, *shape)} or an iterator"
                )
            scores = self._scores if self._rows is None else selected(self._scores, self._rows)
        again: list[Outcomes] = []
        done = 0
        for block in blocks_of(scores):
            if block.shape[1:] != shape:
                raise InputError(f"scores must have {shape[0]} members and {shape[1]} classes, got shape {block.shape}")
            again.append(outcomes(block, self.election, self.spread, self.bound == "tight", done))
            yield block
            done += len(block)
        if done != n:
            raise InputError(f"scores must be those of the {n} inputs certified, got {done} inputs")
        for name in ("prediction", "runner_up", "radius"):
            now: NDArray[Any] = np.concatenate([getattr(outcome, name) for outcome in again])
            now = now if name == "radius" else self.labels_of(now)
            if (changed := np.flatnonzero(now != getattr(self, name))).size:
                i = int(changed[0])
                raise other_scores(i, name, now[i], getattr(self, name)[i])

    def labels_of(self, indices: Any) -> Any:
        """Return the labels of class indices, or the indices themselves if the certificates have no labels."""
        return indices if self.classes is None else self.classes[indices]

    def index_of(self, label: Any) -> int:
        """Return the class index of a label, or of a class index if the certificates have no labels."""
        label = label.item() if isinstance(label, np.generic) else label
        known: list[Any] = self.labels_of(np.arange(self.n_classes)).tolist()
        if np.ndim(label) or isinstance(label, bool) != isinstance(known[0], bool) or label not in known:
            what = f"a class index from 0 to {self.n_classes - 1}" if self.classes is None else f"one of {known!r:.200}"
            raise InputError(f"the target must be {what}, got {label!r}")
        return known.index(label)

    def plot(self, y_true: ArrayLike | None = None, ax: Axes | None = None, **line: Any) -> Axes:
        """Plot the fraction of inputs certified by number of edits; with `y_true`, the certified accuracy.

        `line` are keyword arguments of matplotlib's plot, such as label= or color=. This needs matplotlib: pip install
        runoff[report].
        """
        from runoff.report.curves import draw

        return draw(self, y_true, ax, line)

    def _repr_html_(self) -> str:
        from runoff.report.notebook import to_html

        return to_html(self)

    def attack(self, i: int, scores: ArrayLike | None = None, *, to: Any = None) -> Attack | None:
        """Return the smallest attack found on input i: buckets and members to take over, and their new ballots.

        For one bucket per member and the tight bound, it has exactly radius + 1 members. For a spread, the true radius
        is below its size. The result is None if no attack can change the prediction. With `to`, a label, the attack
        makes it the prediction, and the same holds for `radius_to` (for maximin, None also if no attack is found).

        `scores`, (n_members, n_classes), is required if the certificates were made from an iterator.
        """
        i = position_of(i, len(self))
        return find_attack(self, i, self._ballots(i, scores), to)

    def explain(self, i: int, scores: ArrayLike | None = None, *, to: Any = None) -> str:
        """Return a paragraph on input i: the votes, the proven radius, and the cheapest attack found.

        With `to`, a label, it describes attacks that make this label the prediction. `scores`, (n_members, n_classes),
        is required if the certificates were made from an iterator.
        """
        i = position_of(i, len(self))
        return explanation(self, i, self._ballots(i, scores), to)

    def describe(self, i: int, ballots: Ballots, attack: Attack | None) -> str:
        """Return the paragraph of `explain` for given ballots and a given attack."""
        return description(self, position_of(i, len(self)), ballots, attack)

    def _ballots(self, i: int, scores: ArrayLike | None) -> Ballots:
        """Return the ballots of the input at position i, after checking that they are those that were certified."""
        if scores is None:
            if self._scores is None:
                raise InputError(
                    f"these certificates were made from an iterator, which keeps no scores: pass those of input {i} as "
                    f"scores=, an array ({self.n_members}, {self.n_classes})"
                )
            scores = self._scores[i if self._rows is None else self._rows[i]]
        return ballots_of(self, i, scores)
