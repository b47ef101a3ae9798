"""Sentences of a report that contain numbers."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Any

from runoff._io.text import count
from runoff._io.units import unit_of
from runoff.elections import DEFAULT

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from runoff.elections.base import Election
    from runoff.report.source import Source


NAMED = 8  # classes named in a sentence, at most


def method(source: Source, election: Election) -> str:
    """Describe a method in a few words."""
    n_members = source.ballots.shape[1]
    each = "one bucket per member" if source.d == 1 else f"{source.d} members per bucket"
    networks = f", {source.n_seeds} models per member" if source.n_seeds > 1 else ""
    return f"{election.label} of {count(n_members, 'member')}, {each}{networks}"


def sampled(n_displayed: int, n_inputs: int, runs: Sequence[str]) -> str:
    """Describe the sample of inputs of these runs."""
    several = f", the same for {joined(runs)}" if len(runs) > 1 else ""
    if n_displayed == n_inputs:
        return f"This section displays all {n_inputs:,} test inputs{several}."
    by = f" of {runs[0]}" if len(runs) > 1 else ""
    return (
        f"This section displays {n_displayed:,} of the {n_inputs:,} test inputs{several}, taken evenly from the list "
        f"sorted by class, correctness and run-off radius{by}, so that all of them are represented. Curves, histograms "
        "and tables cover all inputs."
    )


def hint(about: dict[str, Any], method: dict[str, Any], j: int, budgets: Sequence[int]) -> str:
    """Return a warning about classes without any certified input at the j-th budget, or nothing."""
    sizes, certified = about["class_sizes"], _at(method["curve"], budgets[j])
    tested = [c for c, size in enumerate(sizes) if size]
    empty = sorted((c for c in tested if not method["per_class"][c][j]), key=lambda c: (-sizes[c], c))
    if not empty or not certified:
        return ""
    unit = unit_of(about["unit"])
    some = joined([f"{about['classes'][c]} ({sizes[c]:,})" for c in empty[:NAMED]] + _others(len(empty) - NAMED))
    return (
        f"{method['label']} at {unit.count(budgets[j])}{unit.caveat}: certified accuracy is "
        f"{share(certified, about['n_inputs'])} over all inputs, but 0 % for {len(empty):,} of the "
        f"{len(tested):,} classes: {some}. The numbers in brackets count their test inputs."
    )


def _others(n: int) -> list[str]:
    return [f"{n:,} more"] if n > 0 else []


def joined(parts: Sequence[str]) -> str:
    """Return an enumeration, as in a, b and c."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def guarantee(about: dict[str, Any], methods: Sequence[dict[str, Any]], budgets: Sequence[int]) -> list[str]:
    """Return sentences that state what is proven, with the numbers of this run."""
    n = about["n_inputs"]
    best = next((m for m in methods if m["election"] == DEFAULT), methods[-1])
    unit = unit_of(about["unit"])
    half = max((b for b, certified in enumerate(best["curve"]) if 2 * certified >= n), default=0)
    middle = middle_of(best, budgets)
    certified = _at(best["curve"], middle)
    sentences = [
        f"{best['label']} predicts {best['curve'][0]:,} of {n:,} test inputs ({share(best['curve'][0], n)}) correctly. "
        f"For {certified:,} of them ({share(certified, n)} of all) it is proven that nobody can change the prediction "
        f"{_by(about, middle)}."
    ]
    if half:
        sentences.append(
            f"At {unit.count(half)}{unit.caveat}, certified accuracy is still at least one half: "
            f"{share(best['curve'][half], n)}."
        )
    sentences.append(
        f"The proof is counting: {_reach(about)}, so r {unit.noun}s change few ballots, and the margin of the election "
        "is too large for those to flip the prediction. It holds against every attacker, whatever they know, and "
        "assumes nothing about the data."
    )
    return sentences


def collective(about: dict[str, Any], method: dict[str, Any], budget: int, left: int) -> str:
    """Return a sentence on the inputs that stay correct under a single attack on all of them at once."""
    unit = unit_of(about["unit"])
    return (
        f"A radius allows a different attack on each input. A single attack on all inputs achieves less: after any "
        f"{unit.count(budget)}{unit.caveat}, {method['label']} still predicts at least {left:,} of the "
        f"{about['n_inputs']:,} test inputs ({share(left, about['n_inputs'])}) correctly (collective accuracy)."
    )


def target(
    about: dict[str, Any],
    to: str,
    counted: NDArray[np.bool_],
    radii: Sequence[tuple[str, NDArray[np.int64]]],
    budgets: Sequence[int],
) -> dict[str, Any]:
    """Return a title, a sentence and a table about edits that might make ensembles predict a class."""
    unit, n = unit_of(about["unit"]), max(1, int(counted.sum()))
    return {
        "title": f"From other classes to {to}",
        "text": f"Of the {count(int(counted.sum()), 'input')} of other classes, the table has the share that might be "
        f"predicted as {to} after an attack: for all others it is proven that this many {unit.noun}s cannot make the "
        f"ensemble predict {to}{unit.caveat}. Reaching a target takes at least as many "
        f"{unit.noun}s as changing the prediction in any way.",
        "head": [f"{unit.noun}s", *(label for label, _ in radii)],
        "rows": [[str(b), *(share(int((radius[counted] < b).sum()), n) for _, radius in radii)] for b in budgets],
    }


def middle_of(method: dict[str, Any], budgets: Sequence[int]) -> int:
    """Return the headline budget: the middle one of those at which any input is certified."""
    left = [budget for budget in budgets if budget > 0 and _at(method["curve"], budget) > 0]
    return left[(len(left) - 1) // 2] if left else max(1, budgets[-1])


def _reach(about: dict[str, Any]) -> str:
    members = "one" if about["d"] == 1 else about["d"]
    what = {"samples": "training sample", "sources": "source", "labels": "label"}[about["unit"]]
    return f"each {what} reaches {members} of {about['n_members']:,} members"


def _by(about: dict[str, Any], number: int) -> str:
    """Return the actions of an attacker with this number of edits, for the end of a sentence."""
    samples = "training samples" if about["n_train"] is None else f"of the {about['n_train']:,} training samples"
    if about["unit"] == "sources":
        return f"by corrupting any {unit_of('sources').count(number)}, whatever they contribute"
    if about["unit"] == "labels":
        return f"by changing the labels of any {number:,} {samples} (inserted and deleted samples are not covered)"
    return f"by inserting, deleting or relabelling any {number:,} {samples}"


def counted(name: str, encoders: Sequence[str | None] = (), first_weights: Sequence[str | None] = ()) -> dict[str, str]:
    """Return the words of the page that depend on the unit of edits, on trusted encoders and on initial weights."""
    unit = unit_of(name)
    assumed = [*map(trusted, dict.fromkeys(filter(None, encoders)))]
    assumed += map(started, dict.fromkeys(filter(None, first_weights)))
    definition = " ".join([unit.definition, *assumed])
    return {
        "name": unit.name,
        "noun": unit.noun,
        "nouns": f"{unit.noun}s",
        "caveat": unit.caveat,
        "definition": definition,
        **PAGE[name],
    }


def trusted(encoder: str) -> str:
    """State that an encoder is trusted."""
    return (
        f"Members learn from the features of a trusted encoder ({encoder}): everything here assumes that no attacker "
        "could edit the encoder, or the data that it was trained on."
    )


def started(weights: str) -> str:
    """State what initial weights of networks are assumed to be."""
    name = weights.partition(",")[0]
    if name in ("procedural", "procedural-1"):
        return (
            f"Networks started from weights in the package ({weights}), which were trained on images that a formula "
            "draws: no training sample influenced them."
        )
    return (
        f"Networks started from given weights ({weights}): everything here assumes that no attacker could influence "
        "them, and that they were not chosen by looking at the training samples."
    )


PAGE = {
    "samples": {
        "axis": "edits of the training data",
        "slider": "Edits by the attacker",
        "tampering": "Tampering with a few training samples",
        "attacker": "may insert, delete and relabel any training samples, up to the radius in number; changing a "
        "sample's features is a deletion and an insertion, two edits;",
        "buckets": "The bucket of a sample depends on its content only, and a member depends on its own samples only: "
        "no scaler, vocabulary or encoder was fitted on all samples.",
        "not_covered": "Encoders or other preprocessing trained on data that the attacker could edit.",
    },
    "sources": {
        "axis": "corrupt sources",
        "slider": "Corrupt sources",
        "tampering": "Corrupting a few sources",
        "attacker": "may control any sources, up to the radius in number: insert, delete, relabel and replace all that "
        "these contribute, and add new sources; a sample that moves between sources is two edits;",
        "buckets": "The bucket of a sample depends on its source only, and a member depends on its own samples only: "
        "no scaler, vocabulary or encoder was fitted on all samples.",
        "not_covered": "Sources that pose as others: if anyone can contribute in the name of another, that source is "
        "corrupt, too. Encoders or other preprocessing trained on data that the attacker could edit.",
    },
    "labels": {
        "axis": "changed labels",
        "slider": "Changed labels",
        "tampering": "Changing a few labels",
        "attacker": "may change any labels of training samples, up to the radius in number;",
        "buckets": "Buckets depend on samples, not on labels, and a member learns from its own labels only. A "
        "transformer that was fitted on all samples has read no label.",
        "not_covered": "Inserted, deleted and changed samples: the samples, without their labels, are trusted.",
    },
}


def paper_note(source: Source, methods: Sequence[dict[str, Any]]) -> str | None:
    """Return an explanation of the marks of the paper's numbers, if there are any."""
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
    """Return a percentage with one decimal, rounded like those that the page computes: 80.25 to 80.3, not to even."""
    return f"{Decimal(100 * (part / whole)).quantize(Decimal('0.1'), ROUND_HALF_UP)} %"


def _at(curve: Sequence[int], budget: int) -> int:
    return curve[budget] if budget < len(curve) else 0
