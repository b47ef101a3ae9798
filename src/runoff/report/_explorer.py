"""Elections of a sample of inputs in full: votes, rounds, and the cheapest attack step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runoff.ballots import Ballots, points
from runoff.elections.votes import first_choices, ranks_above
from runoff.report._pictures import appearance
from runoff.spreads import Spread

if TYPE_CHECKING:
    from runoff.attacks import Attack
    from runoff.certificates import Certificates
    from runoff.report.source import Source


def sample(source: Source, certificates: Certificates, size: int) -> NDArray[np.int64]:
    """Return `size` inputs to display: sorted by class, correctness and radius, then taken at even distances.

    Classes, wrong predictions and radii are represented evenly, and the same run always gives the same inputs.
    """
    predicted = indices(source, certificates.prediction)
    order = np.lexsort((certificates.radius, predicted == source.labels, source.labels))
    size = min(size, len(order))
    return np.sort(order[np.linspace(0, len(order) - 1, size).round().astype(np.int64)])


def indices(source: Source, names: NDArray[Any]) -> NDArray[np.int64]:
    """Return class names as indices."""
    places = {name: c for c, name in enumerate(source.classes)}
    return np.array([places[name] for name in names], np.int64)


def elections(source: Source, i: int, methods: Sequence[tuple[int, Certificates]]) -> dict[str, Any]:
    """Return the page's data on input i, with methods by their numbers."""
    ballots: Ballots = points(np.asarray(source.ballots[i])[None])[0]
    spread = Spread.from_any(source.spread, len(ballots))
    return {
        "i": i,
        "label": int(source.labels[i]),
        **appearance(source, i),
        "firsts": first_choices(ballots).tolist(),
        "elections": {str(m): _election(i, ballots, spread, certificates) for m, certificates in methods},
    }


def _election(i: int, ballots: Ballots, spread: Spread, certificates: Certificates) -> dict[str, Any]:
    outcome = certificates.election.hold(ballots)
    attack = certificates.attack(i, ballots)
    above = ranks_above(ballots, outcome.prediction, outcome.runner_up)
    return {
        "prediction": outcome.prediction,
        "runner_up": outcome.runner_up,
        "radius": int(certificates.radius[i]),
        "rounds": [list(bars.items()) for bars in _bars(certificates, ballots)],
        "above": "".join("1" if prefers else "0" for prefers in above),
        "explain": certificates.describe(i, ballots, attack),
        "attack": None if attack is None else _replayed(ballots, spread, certificates, attack),
    }


def _replayed(ballots: Ballots, spread: Spread, certificates: Certificates, attack: Attack) -> dict[str, Any]:
    """Replay the attack bucket by bucket, with an election after each, until the winner changes.

    For each round, a step lists the bars that change: [class, count], with None for a class that drops out.
    """
    election = certificates.election
    before, now = election.hold(ballots).prediction, ballots.copy()
    bars = _bars(certificates, ballots)
    new = {int(m): ballot for m, ballot in zip(attack.members, attack.ballots, strict=True)}
    taken: set[int] = set()
    steps = []
    for bucket in attack.buckets.tolist():
        members = [int(m) for m in spread.reached([bucket]) if int(m) not in taken]
        taken.update(members)
        for m in members:
            now[m] = new[m]
        outcome = election.hold(now)
        earlier, bars = bars, _bars(certificates, now)
        steps.append(
            {
                "bucket": bucket,
                "members": members,
                "firsts": first_choices(now[members]).tolist() if members else [],
                "after": [outcome.prediction, outcome.runner_up],
                "rounds": [_changes(*pair) for pair in zip(earlier, bars, strict=True)],
            }
        )
        if outcome.prediction != before:
            break
    return {"how": attack.how, "steps": steps}


def _bars(certificates: Certificates, ballots: Ballots) -> list[dict[int, int]]:
    election = certificates.election
    return [part.bars for part in election.rounds(ballots, election.hold(ballots))]


def _changes(before: dict[int, int], after: dict[int, int]) -> list[tuple[int, int | None]]:
    changed = [(c, n) for c, n in after.items() if before.get(c) != n]
    return [*changed, *((c, None) for c in before if c not in after)]
