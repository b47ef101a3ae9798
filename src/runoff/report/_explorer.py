"""Elections of a sample of inputs in full: votes, rounds, and the cheapest attack step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runoff.elections.votes import count_votes, first_choices, ranks_above
from runoff.report._pictures import appearance
from runoff.spreads import Spread

if TYPE_CHECKING:
    from runoff.attacks import Attack
    from runoff.ballots import Ballots
    from runoff.certificates import Certificates
    from runoff.report.source import Source

    Method = tuple[int, int, Certificates]  # indices of the method and of its run, and its certificates
    Targets = Mapping[int, Mapping[int, list[tuple[int, int]]]]  # by method and input

RIVALS = 3  # classes whose radius as a target is displayed


def indices(source: Source, names: NDArray[Any]) -> NDArray[np.int64]:
    """Return class names as indices."""
    places = {name: c for c, name in enumerate(source.classes)}
    return np.array([places[name] for name in names], np.int64)


def elections(sources: Mapping[int, Source], i: int, methods: Sequence[Method], targets: Targets) -> dict[str, Any]:
    """Return the data of the page for input i in these runs, by the indices of runs and methods."""
    ballots = {s: source.ballots_of(i) for s, source in sources.items()}
    spreads = {s: Spread.from_any(source.spread, len(ballots[s])) for s, source in sources.items()}
    first = next(iter(sources.values()))
    return {
        "i": i,
        "label": int(first.labels[i]),
        **next((seen for source in sources.values() if (seen := appearance(source, i))), {}),
        "undefended": {str(s): int(x.undefended[i]) for s, x in sources.items() if x.undefended is not None},
        "firsts": {str(s): first_choices(votes).tolist() for s, votes in ballots.items()},
        "elections": {
            str(m): {**_election(i, ballots[s], spreads[s], certificates), "to": targets[m].get(i, [])}
            for m, s, certificates in methods
        },
    }


def radii_to(source: Source, certificates: Certificates, inputs: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """Return, for each input, the radius against each of the classes with most votes besides the prediction.

    The result is empty for elections that define no attack with a target.
    """
    if not certificates.election.has_targets:
        return {}
    predicted = indices(source, certificates.prediction)
    rivals: dict[int, list[int]] = {}
    for i in inputs:
        votes = count_votes(source.ballots_of(i))
        rivals[i] = [int(c) for c in np.argsort(-votes, kind="stable") if c != predicted[i]][:RIVALS]
    radii: dict[int, list[tuple[int, int]]] = {i: [] for i in inputs}
    for c in sorted({c for classes in rivals.values() for c in classes}):
        rows = [i for i in inputs if c in rivals[i]]
        for i, radius in zip(rows, certificates[rows].radius_to(source.classes[c]).tolist(), strict=True):
            radii[i].append((c, radius))
    return {i: sorted(pairs, key=lambda pair: (pair[1], pair[0])) for i, pairs in radii.items()}


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
