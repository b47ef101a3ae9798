"""Collection of every number in a report as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from runoff._io.text import constant_votes, count
from runoff._version import __version__
from runoff.ballots import constant_members
from runoff.certificates import Certificates
from runoff.elections import BASELINE, DEFAULT, get
from runoff.errors import InputError
from runoff.paper import tables
from runoff.report import _explorer, _sample, _undefended, _words
from runoff.report._origin import without_folders
from runoff.report.source import Source

ELECTIONS = (BASELINE, DEFAULT)
SAMPLE = 150  # inputs whose elections are displayed in full
SAMPLE_BYTES = 2_100_000  # for all displayed elections: with the scripts, a page stays below 3 MB


def collect(
    sources: Sequence[Source],
    *,
    elections: Sequence[str] = ELECTIONS,
    bound: str = "tight",
    budgets: Sequence[int] | None = None,
    sample: int = SAMPLE,
    to: str | None = None,
    collective: float | None = None,
    opened: int | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return the content of a report as plain data for JSON.

    A curve counts the inputs with a correct prediction and a radius of at least the budget; divided by the number of
    inputs, these counts equal `certified_accuracy`. With `to`, the name of a class, the report has a table of radii
    towards it. With `collective`, a number of seconds per run, the guarantee says how many predictions stay correct
    under one attack on all inputs at once, at the headline budget. Runs on the same test inputs share a sample of them,
    in `samples`; `opened` is an input of the first run that is included in its sample and that the page displays first.
    `progress` is called with a message before slow steps.
    """
    if not sources or not elections:
        raise InputError("a report needs at least one run and one election")
    if budgets is not None and (not len(budgets) or min(budgets) < 0):
        raise InputError(f"budgets must be non-negative numbers of edits, got {list(budgets)}")
    if len(units := {source.unit for source in sources}) > 1:
        raise InputError(f"a report needs runs that count the same unit, got {' and '.join(sorted(units))}")
    if to is not None and (without := next((s for s in sources if to not in s.classes), None)):
        raise InputError(f"the target must be one of {', '.join(without.classes):.200}, got {to!r}")
    groups = _sample.groups(sources)
    if opened is not None and not 0 <= opened < len(sources[0].labels):
        raise InputError(
            f"the input to open must be below {len(sources[0].labels)}, the number of inputs, got {opened}"
        )
    certified = [(s, name, source.certificates(name, bound)) for s, source in enumerate(sources) for name in elections]
    chosen = sorted(set(_budgets(sources, certified) if budgets is None else budgets))
    undefended, models = _undefended.rows(sources)
    methods = [_method(s, sources[s], certificates, chosen) for s, _, certificates in certified]
    _label(methods, sources)
    about = [_about(source, bound) for source in sources]
    for method in methods:
        method["hints"] = [_words.hint(about[method["source"]], method, j, chosen) for j in range(len(chosen))]
    data: dict[str, Any] = {
        "version": __version__,
        "title": " and ".join(dict.fromkeys(source.dataset or source.name for source in sources)),
        "unit": _words.counted(
            sources[0].unit, [source.encoder for source in sources], [source.first_weights for source in sources]
        ),
        "budgets": chosen,
        "baseline": BASELINE,
        "opened": opened,
        "undefended": undefended,
        "methods": methods,
        "sources": about,
        "samples": [],
    }
    for g, group in enumerate(groups):
        pairs = [(m, s, certificates) for m, (s, _, certificates) in enumerate(certified) if s in group]
        n_displayed = count(min(sample, len(sources[group[0]].labels)), "input")
        progress(
            f"{_words.joined([sources[s].name for s in group])}: searching for the cheapest attack on {n_displayed}"
        )
        shared, most_bytes = {s: sources[s] for s in group}, SAMPLE_BYTES * len(group) // len(sources)
        included = [opened] if g == 0 and opened is not None else []
        data["samples"].append(_sample.sample(shared, pairs, sample, most_bytes, included))
        for s in group:
            by_method = [(m, certificates) for m, index, certificates in pairs if index == s]
            about[s]["sample"], about[s]["undefended"] = g, models[s]
            about[s]["guarantee"] = _words.guarantee(about[s], [methods[m] for m, _ in by_method], chosen)
            about[s]["headline"] = next((m for m, c in by_method if c.election.name == DEFAULT), by_method[-1][0])
            about[s]["middle"] = _words.middle_of(methods[about[s]["headline"]], chosen)
            if collective is not None:
                progress(f"{sources[s].name}: bounding what one attack on all inputs flips")
                headline, budget = about[s]["headline"], about[s]["middle"]
                known = next(c for m, c in by_method if m == headline)
                left = _left_by_one_attack(sources[s], known, budget, collective)
                about[s]["guarantee"].append(_words.collective(about[s], methods[headline], budget, left))
            if to is not None:
                progress(f"{sources[s].name}: computing radii towards {to}")
                radii = [(methods[m]["label"], certificates.radius_to(to)) for m, certificates in by_method]
                others = sources[s].labels != sources[s].classes.index(to)
                about[s]["target"] = _words.target(about[s], to, others, radii, chosen)
            about[s]["paper"] = _words.paper_note(sources[s], [methods[m] for m, _ in by_method])
    return data


def _left_by_one_attack(source: Source, certificates: Certificates, budget: int, seconds: float) -> int:
    """Return a proven number of inputs that stay correct under any single attack of this size, within a time limit."""
    from runoff.collective import collective_accuracy

    labels = certificates.labels_of(source.labels)
    share = collective_accuracy(certificates, labels, [budget], time_limit=seconds)[0]
    return round(float(share) * len(labels))


def method_name(d: int, n_seeds: int, election: str) -> str:
    """Return the paper's name of a method: DPA, DPA* or FA, each with +ROE for run-off."""
    base = "FA" if d > 1 else "DPA*" if n_seeds > 1 else "DPA"
    if d > 1 and n_seeds > 1:
        base = f"FA x{n_seeds}"
    return base + get(election).suffix


def _method(s: int, source: Source, certificates: Certificates, budgets: Sequence[int]) -> dict[str, Any]:
    election = certificates.election
    ballots = source.ballots_of(0)
    rounds = election.rounds(ballots, election.hold(ballots))
    correct = _explorer.indices(source, certificates.prediction) == source.labels
    radius = certificates.radius
    largest = int(radius.max())
    by_radius = [np.bincount(radius[which], minlength=largest + 2) for which in (correct, ~correct)]
    per_class = [
        [int((correct & (source.labels == c) & (radius >= budget)).sum()) for budget in budgets]
        for c in range(len(source.classes))
    ]
    name = method_name(source.d, source.n_seeds, election.name)
    return {
        "source": s,
        "name": name,
        "election": election.name,
        "election_label": election.label,
        "dashes": list(election.dashes),
        "reads_rankings": election.reads_rankings,
        "rounds": [{"title": part.title, "caption": part.caption, "half": part.half} for part in rounds],
        "bound": certificates.bound,
        "description": _words.method(source, election),
        "curve": _at_least(by_radius[0]),
        "certified": _at_least(by_radius[0] + by_radius[1]),
        "radii": {"right": by_radius[0].tolist(), "wrong": by_radius[1].tolist()},
        "median": float(np.median(radius)),
        "per_class": per_class,
        "paper": _printed(source, name),
    }


def _at_least(counts: Any) -> list[int]:
    """Return, for each radius, the number of inputs with at least that radius."""
    return [int(n) for n in counts[::-1].cumsum()[::-1]]


def _printed(source: Source, name: str) -> list[dict[str, Any]]:
    """Return the paper's numbers for this setting; of several tables, one without averages over ensembles is used."""
    if not source.of_paper:
        return []
    rows = [
        row
        for row in tables.rows(dataset=source.dataset, k=source.n_partitions, method=name)
        if (row.spread, row.n_seeds) == (source.d, source.n_seeds)
    ]
    rows.sort(key=lambda row: (bool(row.std), row.table))
    if not rows:
        return []
    return [{"budget": b, "percent": p, "table": rows[0].table} for b, p in sorted(rows[0].percent.items())]


def _budgets(sources: Sequence[Source], certified: Sequence[tuple[int, str, Certificates]]) -> list[int]:
    """Return the paper's budgets if it has this setting, else about six up to the radius that 5 % of inputs reach."""
    for s, election, _ in certified:
        if printed := _printed(sources[s], method_name(sources[s].d, sources[s].n_seeds, election)):
            return [0, *(mark["budget"] for mark in printed)]
    largest = max(1, *(int(np.percentile(certificates.radius, 95)) for _, _, certificates in certified))
    return list(range(0, largest + 1, max(1, -(-largest // 6))))


def _label(methods: list[dict[str, Any]], sources: Sequence[Source]) -> None:
    """Label methods uniquely: a method of several runs also gets the run's name."""
    names = Counter(method["name"] for method in methods)
    for method in methods:
        repeated = names[method["name"]] > 1
        method["label"] = f"{method['name']}, {sources[method['source']].name}" if repeated else method["name"]
    labels = Counter(method["label"] for method in methods)
    for m, method in enumerate(methods):
        if labels[method["label"]] > 1:
            method["label"] += f" ({m + 1})"


def _about(source: Source, bound: str) -> dict[str, Any]:
    n_inputs, n_members, n_classes = source.ballots.shape
    return {
        "name": source.name,
        "dataset": source.dataset,
        "data": source.data_fingerprint,
        "n_inputs": n_inputs,
        "n_members": n_members,
        "n_classes": n_classes,
        "n_buckets": len(source.spread),
        "n_partitions": source.n_partitions,
        "d": source.d,
        "n_seeds": source.n_seeds,
        "n_train": source.n_train,
        "unit": source.unit,
        "classes": list(source.classes),
        "class_sizes": np.bincount(source.labels, minlength=n_classes).tolist(),
        "members": {
            "accuracy": [round(float(a), 6) for a in source.member_accuracy()],
            "sizes": None if source.member_sizes is None else source.member_sizes.tolist(),
            "seconds": None if source.member_seconds is None else list(source.member_seconds),
            "constant": constant_votes(constant_members(source.ballots), n_members),
        },
        "facts": [list(fact) for fact in without_folders(source.facts)],
        "made": list(without_folders(source.made)),
        "checked": [
            f"{line} --bound {bound}" if line.startswith("runoff certify ") else line
            for line in without_folders(source.checked)
        ],
        "notes": list(without_folders(source.notes)),
    }
