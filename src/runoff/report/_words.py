"""The sentences of a report that have numbers in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runoff.elections import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runoff.elections.base import Election
    from runoff.report.source import Source


def method(source: Source, election: Election) -> str:
    """Return a description of a method in a few words."""
    n_members = source.ballots.shape[1]
    each = "one bucket each" if source.d == 1 else f"each bucket in {source.d} of them"
    networks = f", {source.n_seeds} models per member" if source.n_seeds > 1 else ""
    return f"{election.label} of {n_members:,} members, {each}{networks}"


def sampled(n_shown: int, n_inputs: int) -> str:
    """Which inputs can be looked at."""
    if n_shown == n_inputs:
        return f"All {n_inputs:,} test inputs are here."
    return (
        f"{n_shown:,} of the {n_inputs:,} test inputs are here: sorted by class, wrong or right, and run-off radius, "
        "then taken at even distances, so that each class, mistakes and all radii have their share. "
        "Curves, histograms and tables are of all inputs."
    )


def guarantee(about: dict[str, Any], methods: Sequence[dict[str, Any]], budgets: Sequence[int]) -> list[str]:
    """What is proven, with this run's numbers."""
    n = about["n_inputs"]
    best = next((m for m in methods if m["election"] == DEFAULT), methods[-1])
    samples = "training samples" if about["n_train"] is None else f"of the {about['n_train']:,} training samples"
    half = max((b for b, right in enumerate(best["curve"]) if 2 * right >= n), default=0)
    middle = middle_of(best, budgets)
    right = _at(best["curve"], middle)
    sentences = [
        f"Of {n:,} test inputs, {best['curve'][0]:,} ({share(best['curve'][0], n)}) are predicted right by "
        f"{best['label']}. For {right:,} of them ({share(right, n)} of all) it is proven that nobody can change the "
        f"prediction by inserting, deleting or relabelling up to {middle:,} {samples}, whichever they are."
    ]
    if half:
        sentences.append(
            f"At {half:,} edit{'' if half == 1 else 's'}, still at least half of all inputs are both right and proven: "
            f"{share(best['curve'][half], n)}."
        )
    sentences.append(
        f"The proof is counting. {_reach(about)}, so r edits change the ballots of few members, and "
        "the election is too clear for so few to turn it. It holds against every attacker, whatever it knows, and "
        "needs no assumption on the data."
    )
    return sentences


def middle_of(method: dict[str, Any], budgets: Sequence[int]) -> int:
    """The budget to speak of first: in the middle of those at which anything is left."""
    left = [budget for budget in budgets if budget > 0 and _at(method["curve"], budget) > 0]
    return left[(len(left) - 1) // 2] if left else max(1, budgets[-1])


def _reach(about: dict[str, Any]) -> str:
    if about["d"] == 1:
        return f"Each training sample is seen by one of {about['n_members']:,} members"
    return f"Each training sample is seen by {about['d']} of {about['n_members']:,} members"


def paper_note(source: Source, methods: Sequence[dict[str, Any]]) -> str | None:
    """What the paper's marks stand for."""
    tables = sorted({mark["table"] for found in methods for mark in found["paper"]})
    if not tables:
        return None
    names = " and ".join(found["name"] for found in methods if found["paper"])
    d = source.d * source.n_seeds
    setting = f"{source.dataset}, k = {source.n_partitions}" + (f", d = {d}" if d > 1 else "")
    where = f"table{'s' if len(tables) > 1 else ''} {' and '.join(table.removeprefix('T') for table in tables)}"
    note = f"Crosses are the numbers that the paper prints for {names} on {setting} ({where})."
    return f"{note} This run's network or recipe is not the paper's." if source.like_paper is False else note


def share(part: int, whole: int) -> str:
    """A percentage with one decimal."""
    return f"{100 * part / whole:.1f} %"


def _at(curve: Sequence[int], budget: int) -> int:
    return curve[budget] if budget < len(curve) else 0
