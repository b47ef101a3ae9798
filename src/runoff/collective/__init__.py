"""Collective certificates, which bound the number of predictions that a single attack can flip at once.

Pointwise certificates allow a different attack on every input. A real attack chooses its buckets once, for all inputs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff import attacks
from runoff.ballots import Ballots, points, readable
from runoff.certificates import checked_budgets, checked_labels, other_scores
from runoff.collective import _bound, _search
from runoff.collective._clock import OutOfTime, check
from runoff.collective._threats import Contested
from runoff.errors import InputError, check_whole
from runoff.spreads import disjoint

if TYPE_CHECKING:
    from runoff.attacks import Attack
    from runoff.certificates import Certificates
    from runoff.elections.base import Threat

ROUNDS = 28


@dataclass(frozen=True, eq=False)
class CollectiveAttack:
    """A single attack on all inputs.

    Attributes
    ----------
    buckets, members : the buckets and the members that are taken over
    flipped : the inputs that are predicted correctly before the attack but not after it
    accuracy : the fraction of inputs that are still predicted correctly
    exact : whether all attacks of this size were tried, so that none flips more

    """

    buckets: NDArray[np.int64]
    members: NDArray[np.int64]
    flipped: NDArray[np.int64]
    accuracy: float
    exact: bool
    _ballots: Callable[[int], Ballots] = field(repr=False)
    _certificates: Certificates = field(repr=False)

    def __len__(self) -> int:
        """Return the number of buckets taken over."""
        return len(self.buckets)

    def on(self, i: int) -> Attack:
        """Return the attack on input i, one of `flipped`, with the new ballots and the new prediction."""
        if i not in self.flipped:
            raise InputError(f"the input must be one of the {len(self.flipped)} that are flipped, got {i!r}")
        election = self._certificates.election
        ballots = self._ballots(i)
        attack = attacks.carried_out(election, ballots, self.members, self.buckets)
        return attack.named(self._certificates.classes)


def collective_accuracy(
    certificates: Certificates,
    y_true: ArrayLike,
    budgets: ArrayLike,
    *,
    scores: ArrayLike | Iterator[ArrayLike] | None = None,
    rounds: int = ROUNDS,
    time_limit: float | None = None,
) -> NDArray[np.float64]:
    """Return the fraction of inputs proven to stay correct under any single attack, for each number of edits.

    After any such number of edits of the training data, at least this fraction of all inputs is still predicted
    correctly. `certified_accuracy` allows different edits for each input, so it is never higher. The result is exact if
    all sets of buckets can be tried, else a lower bound; `collective_attack` gives an upper bound.

    Parameters
    ----------
    certificates : Certificates
    y_true : (n_samples,) the true classes
    budgets : numbers of edits; 0 gives the clean accuracy
    scores : the scores that were certified, required if the certificates were made from an iterator
    rounds : the number of times that the bound is improved; 0 for exact results and `certified_accuracy` only
    time_limit : seconds after which the best bound so far is returned, at worst `certified_accuracy`. With a limit, the
        result depends on the speed of the machine, without one only on its floating-point arithmetic, by a few inputs.
        It is proven in both cases: the proof is in integers.

    Returns
    -------
    accuracy : (n_budgets,) floats; NaN if there are no inputs

    Examples
    --------
    >>> import numpy as np, runoff
    >>> ballots = np.eye(2, dtype=np.uint8)
    >>> members = np.array([[0, 0, 0, 1, 1], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0]])  # the votes of 5 members on 3 inputs
    >>> certificates = runoff.certify(ballots[members], election="plurality")
    >>> runoff.certified_accuracy(certificates, [0, 0, 0], [1])
    array([0.])
    >>> runoff.collective_accuracy(certificates, [0, 0, 0], [1])
    array([0.33333333])

    """
    edits = checked_budgets(budgets)
    options: dict[str, Any] = {"scores": scores, "rounds": rounds, "time_limit": time_limit}
    safe = dict(by_budget(certificates, y_true, edits, **options))
    return np.array([safe[int(edit)] for edit in edits], np.float64)


def by_budget(
    certificates: Certificates,
    y_true: ArrayLike,
    budgets: ArrayLike,
    *,
    scores: ArrayLike | Iterator[ArrayLike] | None = None,
    rounds: int = ROUNDS,
    time_limit: float | None = None,
) -> Iterator[tuple[int, float]]:
    """Yield pairs of a number of edits, the largest first, and the fraction that `collective_accuracy` returns."""
    labels, edits = checked_labels(certificates, y_true), checked_budgets(budgets)
    check_whole("rounds", rounds, 0)
    if time_limit is not None and not (isinstance(time_limit, (int, float, np.number)) and time_limit >= 0):
        raise InputError(f"time_limit must be a number of seconds from 0, got {time_limit!r}")
    began = time.monotonic()
    correct = np.asarray(certificates.prediction == labels)
    wanted = sorted({int(edit) for edit in edits}, reverse=True)
    if not len(labels):
        yield from ((edit, float("nan")) for edit in wanted)
        return
    until = None if time_limit is None else began + time_limit
    try:
        most = min(wanted[0], certificates.n_buckets) if wanted else 0
        contested = _contested(certificates, correct, most, scores, until)
    except OutOfTime:
        for edit in wanted:
            yield edit, float((correct & (certificates.radius >= edit)).sum() / len(labels))
        return
    least = 0  # inputs that are safe from more edits are safe from fewer
    for at, edit in enumerate(wanted):
        deadline = None
        if until is not None:
            now = time.monotonic()
            deadline = now + (until - now) / (len(wanted) - at)
        size = min(edit, certificates.n_buckets)
        here = contested.within(size, certificates.radius[contested.inputs] < size)
        least = max(least, int(correct.sum()) - _most_flipped(here, size, rounds, deadline))
        yield edit, least / len(labels)


def collective_attack(
    certificates: Certificates,
    y_true: ArrayLike,
    edits: int,
    *,
    scores: ArrayLike | None = None,
    starts: int = _search.STARTS,
) -> CollectiveAttack:
    """Return the attack on `edits` buckets that flips the most correct predictions, among those that a search tries.

    All sets of buckets are tried if they are few, else a local search starts from `starts` random sets. The accuracy
    under the best possible attack lies between `collective_accuracy` and the accuracy under this attack.

    Parameters
    ----------
    certificates : Certificates
    y_true : (n_samples,) the true classes
    edits : the number of edits, each of which takes over a bucket
    scores : the scores that were certified, required if the certificates were made from an iterator
    starts : the number of starts of the local search

    Returns
    -------
    attack : CollectiveAttack

    """
    labels = checked_labels(certificates, y_true)
    size = int(checked_budgets(edits)[0]) if np.ndim(edits) == 0 else -1
    if size < 0:
        raise InputError(f"edits must be one non-negative integer, got {edits!r}")
    check_whole("starts", starts, 1)
    if not len(labels):
        raise InputError("certificates must be of at least one input, got none: there is nothing to attack")
    if isinstance(scores, Iterator):
        raise InputError("scores must be an array, got an iterator: the attack may be carried out later on each input")
    size = min(size, certificates.n_buckets)
    correct = np.asarray(certificates.prediction == labels)
    contested = _contested(certificates, correct, size, scores)
    exact = _search.can_try_all(contested, size)
    buckets = _search.best_of_all(contested, size) if exact else _search.best_found(contested, size, starts)
    taken = np.zeros((1, certificates.n_buckets), np.bool_)
    taken[0, buckets] = True
    flipped = contested.inputs[contested.flips(taken)[0]]
    spread = contested.spread

    def ballots(i: int) -> Ballots:
        return next(_ballots(certificates, np.array([i]), scores))[1]

    accuracy = float((correct.sum() - len(flipped)) / len(labels))
    return CollectiveAttack(buckets, spread.reached(buckets), flipped, accuracy, exact, ballots, certificates)


def _most_flipped(contested: Contested, edits: int, rounds: int, deadline: float | None) -> int:
    """Return a proven upper bound on the number of inputs that one attack flips, exact if all attacks can be tried."""
    if not len(contested):
        return 0
    if _search.can_try_all(contested, edits):
        half = None if deadline is None else (deadline + time.monotonic()) / 2
        with suppress(OutOfTime):
            taken = np.zeros((1, contested.spread.n_buckets), np.bool_)
            taken[0, _search.best_of_all(contested, edits, half)] = True
            return int(contested.count(taken)[0])
    return _bound.most_flipped(contested, edits, rounds, deadline)


def _contested(
    certificates: Certificates,
    correct: NDArray[np.bool_],
    edits: int,
    scores: ArrayLike | Iterator[ArrayLike] | None,
    deadline: float | None = None,
) -> Contested:
    """Return the correct inputs that an attack of this size may flip, with their threats."""
    rows = np.flatnonzero(correct & (certificates.radius < edits))
    spread = disjoint(certificates.n_members) if certificates.spread is None else certificates.spread
    election = certificates.election

    def threats() -> Iterator[tuple[int, Iterator[Threat]]]:
        for i, ballots in _ballots(certificates, rows, scores):
            check(deadline)
            outcome = election.hold(ballots)
            known = certificates.prediction[i]
            now = certificates.labels_of(outcome.prediction)
            if now != known:
                raise other_scores(i, "prediction", now, known)
            yield i, election.threats(ballots, outcome)

    return Contested.collect(threats(), edits, spread)


def _ballots(certificates: Certificates, rows: NDArray[np.int64], scores: Any) -> Iterator[tuple[int, Ballots]]:
    """Yield the given inputs with their ballots, in order."""
    done = 0
    for block in certificates.blocks(scores):
        for i in rows[(rows >= done) & (rows < done + len(block))]:
            yield int(i), points(readable(block[i - done : i - done + 1], int(i)))[0]
        done += len(block)
