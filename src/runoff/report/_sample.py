"""The sample of inputs that a report displays in full, shared by all runs on the same test inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runoff.elections import DEFAULT
from runoff.report import _explorer, _words
from runoff.report._packing import packed

if TYPE_CHECKING:
    from runoff.certificates import Certificates
    from runoff.report._explorer import Method
    from runoff.report.source import Source


def groups(sources: Sequence[Source]) -> list[list[int]]:
    """Return groups of the indices of sources with the same test inputs: equal dataset, classes and labels."""
    by_inputs: dict[tuple[Any, ...], list[int]] = {}
    for s, source in enumerate(sources):
        labels = np.ascontiguousarray(source.labels, np.int64).tobytes()
        by_inputs.setdefault((source.dataset, source.classes, labels), []).append(s)
    return list(by_inputs.values())


def rows(source: Source, certificates: Certificates, size: int) -> NDArray[np.int64]:
    """Return `size` inputs to display, taken at even distances after sorting by class, correctness and radius.

    Classes, wrong predictions and radii are represented evenly, and the same run always gives the same inputs.
    """
    predicted = _explorer.indices(source, certificates.prediction)
    order = np.lexsort((certificates.radius, predicted == source.labels, source.labels))
    size = min(size, len(order))
    return np.sort(order[np.linspace(0, len(order) - 1, size).round().astype(np.int64)])


def sample(
    sources: Mapping[int, Source], methods: Sequence[Method], size: int, most_bytes: int, included: Sequence[int]
) -> dict[str, Any]:
    """Return the elections of a sample of inputs in all runs, smaller than `size` if it would exceed `most_bytes`.

    The inputs are chosen by the first run; those in `included` are always among them.
    """
    first, source = next(iter(sources.items()))
    by_election = [(certificates.election.name, certificates) for _, s, certificates in methods if s == first]
    certificates = next((c for name, c in by_election if name == DEFAULT), by_election[-1][1])
    known: dict[int, dict[str, Any]] = {}
    while True:
        chosen = sorted({*rows(source, certificates, size).tolist(), *included})
        few = chosen[: max(1, len(chosen) // 8)]  # to estimate their size
        wanted = [i for i in (chosen if known else few) if i not in known]
        known.update(_displayed(sources, methods, wanted))
        inputs = [known[i] for i in chosen if i in known]
        each = len(packed(inputs)) / len(inputs)
        if each * len(chosen) > most_bytes and size > 1:
            size = max(1, min(size - 1, int(most_bytes / each * 0.98) - len(included)))
        elif len(inputs) == len(chosen):
            names = [other.name for other in sources.values()]
            return {"how": _words.sampled(len(chosen), len(source.labels), names), "inputs": inputs}


def _displayed(
    sources: Mapping[int, Source], methods: Sequence[Method], inputs: Sequence[int]
) -> dict[int, dict[str, Any]]:
    targets = {m: _explorer.radii_to(sources[s], certificates, inputs) for m, s, certificates in methods}
    with ThreadPoolExecutor() as pool:
        results = pool.map(lambda i: _explorer.elections(sources, i, methods, targets), inputs)
        return dict(zip(inputs, results, strict=True))
