"""Explanations of single inputs, with the cheapest attack found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from runoff._io.text import count
from runoff._io.units import unit_of
from runoff.ballots import Ballots, points, readable
from runoff.certificates._outcomes import outcomes
from runoff.errors import InputError, NoSuchInputError
from runoff.scores import checked_scores

if TYPE_CHECKING:
    from runoff.attacks import Attack
    from runoff.certificates._certificates import Certificates


def position_of(i: int, n: int) -> int:
    """Return the position of input i of n, where a negative i counts from the end."""
    if not isinstance(i, (int, np.integer)) or isinstance(i, bool):
        raise InputError(f"an input is given by its position, a whole number, got {i!r:.60}")
    if not -n <= i < n:
        known = f"{count(n, 'input')}, 0 to {n - 1}" if n else "no inputs"
        raise NoSuchInputError(f"there is no input {i}: these certificates are of {known}")
    return int(i) % n


def ballots_of(certificates: Certificates, i: int, scores: ArrayLike) -> Ballots:
    """Return the ballots of the input at position i, after checking that its scores are those that were certified."""
    row, shape = np.asarray(scores), (certificates.n_members, certificates.n_classes)
    if row.shape != shape:
        raise InputError(f"scores must have shape {shape}, got {row.shape}")
    ballots: Ballots = points(readable(checked_scores(row[None])))[0]
    again = outcomes(ballots[None], certificates.election, certificates.spread, certificates.bound == "tight")
    for name in ("prediction", "runner_up", "radius"):
        now, then = getattr(again, name)[0], getattr(certificates, name)[i]
        if name != "radius":
            now = certificates.labels_of(now)
        if now != then:
            raise other_scores(i, name, now, then)
    return ballots


def other_scores(i: int, name: str, now: Any, then: Any) -> InputError:
    """Return the error for scores of an input that are not those that were certified."""
    return InputError(f"scores must be those certified, but input {i}'s {name} is now {now} and was {then}")


def find_attack(certificates: Certificates, i: int, ballots: Ballots, to: Any = None) -> Attack | None:
    """Return the smallest attack found on the input at position i; with `to`, one that makes this label win."""
    from runoff import attacks

    election, spread, target = certificates.election, certificates.spread, None
    if to is not None:
        radius = int(certificates[[i]].radius_to(to, ballots[None])[0])
        if radius < 0:
            raise InputError(f"to must be another class than the prediction, got {to!r}, which is input {i}'s")
        target = certificates.index_of(to)
    elif certificates.bound == "paper":  # the search starts at the true radius, and that of the paper may be lower
        radius = int(outcomes(ballots[None], election, spread, tight=True).radius[0])
    else:
        radius = int(certificates.radius[i])
    attack = attacks.find(election, ballots, spread, radius + 1, target)
    return None if attack is None else attack.named(certificates.classes)


def explanation(certificates: Certificates, i: int, ballots: Ballots, to: Any = None) -> str:
    """Return a paragraph on the input at position i; with `to`, on attacks that make this label the prediction."""
    if to is None:
        return description(certificates, i, ballots, find_attack(certificates, i, ballots))
    story = certificates.election.hold(ballots).story.describe(certificates.classes)
    radius = int(certificates[[i]].radius_to(to, ballots[None])[0])
    if radius < 0:
        return f"{story} Class {to} is already the prediction."
    proven = unit_of(certificates.unit).proven(radius, f"make this class {to}")
    return f"{story} {proven} {_attack_story(certificates, radius, find_attack(certificates, i, ballots, to))}"


def description(certificates: Certificates, i: int, ballots: Ballots, attack: Attack | None) -> str:
    """Return a paragraph on the input at position i, for given ballots and a given attack."""
    radius = int(certificates.radius[i])
    story = certificates.election.hold(ballots).story.describe(certificates.classes)
    return f"{story} {unit_of(certificates.unit).proven(radius)} {_attack_story(certificates, radius, attack)}"


def _attack_story(certificates: Certificates, radius: int, attack: Attack | None) -> str:
    """Return a sentence about the cheapest attack found, and about the true radius."""
    alone = certificates.spread is None or certificates.spread.one_to_one is not None
    taken = "member" if alone else "bucket"
    if attack is None and radius < certificates.n_buckets:
        return "No attack was found."
    if attack is None:
        caveat = unit_of(certificates.unit).caveat
        return f"No attack of any size can{caveat}: the members that a bucket reaches are too few."
    size = f"{len(attack)} {taken}{'s' if len(attack) > 1 else ''}"
    verb = "reaches" if len(attack) == 1 else "reach"
    reached = "" if alone else f", which {verb} {len(attack.members)} members"
    exact = (
        "so the radius is exact"
        if len(attack) == radius + 1
        else f"so the true radius is {radius} to {len(attack) - 1}"
    )
    return f"The cheapest attack found takes over {size}{reached}: {attack.how}; {exact}."
