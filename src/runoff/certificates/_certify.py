"""The function `certify`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from runoff import elections
from runoff._io.units import unit_of
from runoff.certificates._certificates import Certificates
from runoff.certificates._outcomes import outcomes
from runoff.errors import InputError
from runoff.scores import checked_scores, origin_of

if TYPE_CHECKING:
    from runoff.elections.base import Election

LABELS_NOT_FIXED = (
    "certify needs all possible labels, fixed in advance: pass classes= to the classifier, as in classes=[0, 1, 2]; if "
    "they were taken from y, one label that appears or vanishes could change the ballots of every member"
)
BOUNDS = ("tight", "paper")


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
        Logits, probabilities or ballots (`runoff.rank`) of an ensemble: an array, possibly memory-mapped, or an
        iterator of blocks of inputs. Scores that a classifier's `scores` returns, also in blocks, include their spread
        and unit. Only the ranking of each member is used; ties rank the lower class index first.
    election : "runoff", "plurality", "maximin" or an `Election`
        The rule that determines the prediction from the ballots.
    spread : None or (n_buckets, d) integers
        The members that train on each bucket; None for one bucket per member. For buckets of different sizes, lists of
        different lengths or a boolean array (n_buckets, n_members).
    bound : "tight" or "paper"
        "paper": Theorem 3.4 with Lemmas 3.5 to 3.8 of the paper. "tight": for one bucket per member, the exact minimum
        over all attacks; for a spread, the best known bound, which is never below that of the paper.
    unit : None, "samples", "sources" or "labels"
        What one edit is, if buckets do not depend on the content of samples. Default: the unit of the scores of a
        classifier, else "samples". It changes the words, not the numbers.

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
    source = scores if isinstance(scores, Iterator) else checked_scores(scores)
    return Certificates(
        **outcomes(source, rule, spread, bound == "tight")._asdict(),
        election=rule,
        bound=bound,
        fingerprint=None if origin is None else origin.fingerprint,
        unit=unit_of(counted).name,
        _scores=None if isinstance(source, Iterator) else source,
    )
