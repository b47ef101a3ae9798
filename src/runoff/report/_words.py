"""Sentences of a report that contain numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from runoff._io.text import count
from runoff.elections import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from runoff.elections.base import Election
    from runoff.report.source import Source


def method(source: Source, election: Election) -> str:
    """Describe a method in a few words."""
    n_members = source.ballots.shape[1]
    each = "one bucket per member" if source.d == 1 else f"{source.d} members per bucket"
    networks = f", {source.n_seeds} models per member" if source.n_seeds > 1 else ""
    return f"{election.label} of {n_members:,} members, {each}{networks}"


def sampled(n_displayed: int, n_inputs: int) -> str:
    """Describe the sample of inputs."""
    if n_displayed == n_inputs:
        return f"This section displays all {n_inputs:,} test inputs."
    return (
        f"This section displays {n_displayed:,} of the {n_inputs:,} test inputs, taken evenly from the list sorted by "
        "class, correctness and run-off radius, so that all of them are represented. Curves, histograms and tables "
        "cover all inputs."
    )


def guarantee(about: dict[str, Any], methods: Sequence[dict[str, Any]], budgets: Sequence[int]) -> list[str]:
    """State what is proven, with this run's numbers."""
    n = about["n_inputs"]
    best = next((m for m in methods if m["election"] == DEFAULT), methods[-1])
    samples = "training samples" if about["n_train"] is None else f"of the {about['n_train']:,} training samples"
    half = max((b for b, certified in enumerate(best["curve"]) if 2 * certified >= n), default=0)
    middle = middle_of(best, budgets)
    certified = _at(best["curve"], middle)
    sentences = [
        f"{best['label']} predicts {best['curve'][0]:,} of {n:,} test inputs ({share(best['curve'][0], n)}) correctly. "
        f"For {certified:,} of them ({share(certified, n)} of all) it is proven that nobody can change the prediction "
        f"by inserting, deleting or relabelling any {middle:,} {samples}."
    ]
    if half:
        sentences.append(
            f"At {count(half, 'edit')}, certified accuracy is still at least one half: {share(best['curve'][half], n)}."
        )
    sentences.append(
        f"The proof is counting: {_reach(about)}, so r edits change few ballots, and the margin of the election is too "
        "large for those to flip the prediction. It holds against every attacker, whatever they know, and assumes "
        "nothing about the data."
    )
    return sentences


def middle_of(method: dict[str, Any], budgets: Sequence[int]) -> int:
    """Return the headline budget: the middle one of those at which any input is certified."""
    left = [budget for budget in budgets if budget > 0 and _at(method["curve"], budget) > 0]
    return left[(len(left) - 1) // 2] if left else max(1, budgets[-1])


def _reach(about: dict[str, Any]) -> str:
    members = "one" if about["d"] == 1 else about["d"]
    return f"each training sample reaches {members} of {about['n_members']:,} members"


def paper_note(source: Source, methods: Sequence[dict[str, Any]]) -> str | None:
    """Explain the marks of the paper's numbers, if there are any."""
    tables = sorted({mark["table"] for method in methods for mark in method["paper"]})
    if not tables:
        return None
    names = " and ".join(method["name"] for method in methods if method["paper"])
    d = source.d * source.n_seeds
    setting = f"{source.dataset}, k = {source.n_partitions}" + (f", d = {d}" if d > 1 else "")
    where = f"table{'s' if len(tables) > 1 else ''} {' and '.join(table.removeprefix('T') for table in tables)}"
    note = f"Crosses mark the paper's numbers for {names} on {setting} ({where})."
    return f"{note} This run uses another network or recipe." if source.like_paper is False else note


def share(part: int, whole: int) -> str:
    """Return a percentage with one decimal."""
    return f"{100 * part / whole:.1f} %"


def _at(curve: Sequence[int], budget: int) -> int:
    return curve[budget] if budget < len(curve) else 0
