"""The elections of some inputs in full: votes, rounds, and the cheapest attack step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runoff.ballots import Ballots, points
from runoff.elections.votes import first_choices, ranks_above
from runoff.report._pictures import shown
from runoff.spreads import Spread

if TYPE_CHECKING:
    from runoff.attacks import Attack
    from runoff.certificates import Certificates
    from runoff.report.source import Source


def sample(source: Source, certificates: Certificates, size: int) -> NDArray[np.int64]:
    """Which inputs to show: sorted by class, wrong or right, and radius, so many at even distances.

    So each class, wrong predictions and all radii have their share, and the same run always gives the same inputs.
    """
    predicted = indices(source, certificates.prediction)
    order = np.lexsort((certificates.radius, predicted == source.labels, source.labels))
    size = min(size, len(order))
    return np.sort(order[np.linspace(0, len(order) - 1, size).round().astype(np.int64)])


def indices(source: Source, names: NDArray[Any]) -> NDArray[np.int64]:
    """Class names as indices."""
    places = {name: c for c, name in enumerate(source.classes)}
    return np.array([places[name] for name in names], np.int64)


def elections(source: Source, i: int, methods: Sequence[tuple[int, Certificates]]) -> dict[str, Any]:
    """All that the page shows of input i. Methods go by their numbers."""
    ballots: Ballots = points(np.asarray(source.ballots[i])[None])[0]
    spread = Spread.of(source.spread, len(ballots))
    return {
        "i": i,
        "label": int(source.labels[i]),
        **shown(source, i),
        "firsts": first_choices(ballots).tolist(),
        "elections": {str(m): _election(i, ballots, spread, found) for m, found in methods},
    }


def _election(i: int, ballots: Ballots, spread: Spread, certificates: Certificates) -> dict[str, Any]:
    outcome = certificates.election.hold(ballots)
    attack = certificates.attack(i, ballots)
    w, s = outcome.prediction, outcome.runner_up
    above = ranks_above(ballots, w, s)
    return {
        "prediction": w,
        "runner_up": s,
        "radius": int(certificates.radius[i]),
        "wins": int(above.sum()),
        "above": "".join("1" if prefers else "0" for prefers in above),
        "explain": certificates._told(i, ballots, attack),
        "attack": None if attack is None else _replayed(ballots, spread, certificates, attack),
    }


def _replayed(ballots: Ballots, spread: Spread, certificates: Certificates, attack: Attack) -> dict[str, Any]:
    """The attack bucket by bucket, holding the election after each, until the winner changes."""
    election = certificates.election
    before, now = election.hold(ballots).prediction, ballots.copy()
    new = {int(m): ballot for m, ballot in zip(attack.members, attack.ballots, strict=True)}
    taken: set[int] = set()
    steps = []
    for bucket in attack.buckets.tolist():
        members = [int(m) for m in spread.reached([bucket]) if int(m) not in taken]
        taken.update(members)
        for m in members:
            now[m] = new[m]
        outcome = election.hold(now)
        w, s = outcome.prediction, outcome.runner_up
        steps.append(
            {
                "bucket": bucket,
                "members": members,
                "firsts": first_choices(now[members]).tolist() if members else [],
                "after": [w, s, int(ranks_above(now, w, s).sum())],
            }
        )
        if w != before:
            break
    return {"how": attack.how, "steps": steps}
