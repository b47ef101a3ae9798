"""The paper's Figure 1 for a real input: two rounds, and the radius of each election."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import numpy as np

from runoff._io.text import count
from runoff._io.units import unit_of
from runoff.elections import get
from runoff.elections.votes import count_votes, ranks_above, top_two
from runoff.errors import InputError
from runoff.report._collect import method_name
from runoff.report._explorer import indices
from runoff.report.drawing import COLUMN, library

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from runoff.certificates import Certificates
    from runoff.report.source import Source

WINNER, RIVAL, OTHER = "#0072B2", "#E69F00", "#BBBBBB"
HATCH = {RIVAL: "////"}
CLASSES = 6  # displayed in round one, at most
WIDTH = 12  # characters per line of a class name


def best_example(source: Source, plurality: Certificates, runoff: Certificates) -> int:
    """Return the correctly predicted input whose radius the second round increases most, then the lowest radius."""
    correct = indices(source, runoff.prediction) == source.labels
    same = plurality.prediction == runoff.prediction
    gained = np.where(correct & same, runoff.radius - plurality.radius, -1)
    return int(np.lexsort((plurality.radius, -gained))[0])


def draw(source: Source, bound: str = "tight", i: int | None = None) -> Figure:
    """Draw round one and round two, with the number of edits that each election withstands."""
    plurality, runoff = source.certificates("plurality", bound), source.certificates("runoff", bound)
    if i is None:
        i = best_example(source, plurality, runoff)
    elif i >= len(source.labels):
        raise InputError(f"--input must be below {len(source.labels)}, the number of inputs, got {i}")
    ballots = source.ballots_of(i)
    votes = count_votes(ballots)
    winner = get("runoff").hold(ballots).prediction
    a, b = top_two(votes)
    other = b if winner == a else a
    wins = int(ranks_above(ballots, winner, other).sum())
    figure: Figure = library().Figure(figsize=(COLUMN, 2.1), layout="constrained")
    if source.pictures is None:
        first, second = figure.subplots(1, 2, width_ratios=(1.3, 1))
    else:
        picture, first, second = figure.subplots(1, 3, width_ratios=(0.75, 1.3, 1))
        picture.imshow(source.pictures[i], cmap="gray", vmin=0, vmax=255)
        picture.set_axis_off()
        picture.set_anchor("N")
    order = [int(c) for c in np.argsort(-votes, kind="stable")[:CLASSES] if votes[c] or c in (a, b)]
    colors = [WINNER if c == winner else RIVAL if c == other else OTHER for c in order]
    _bars(first, [source.classes[c] for c in order], [int(votes[c]) for c in order], colors)
    first.set_title("round 1")
    _bars(second, [source.classes[c] for c in (winner, other)], [wins, len(ballots) - wins], [WINNER, RIVAL])
    second.set_title("round 2")
    second.set_ylim(first.get_ylim())  # bars of the same height
    figure.suptitle(_caption(source, i, plurality, runoff), fontsize=7, x=0.02, ha="left")
    return figure


def _caption(source: Source, i: int, plurality: Certificates, runoff: Certificates) -> str:
    n_members = source.ballots.shape[1]
    lines = [f"input {i}, of class {_short(source.classes[source.labels[i]], 24)}; {count(n_members, 'member')}"]
    for certificates in (plurality, runoff):
        title = method_name(source.d, source.n_seeds, certificates.election.name)
        attack, radius = certificates.attack(i), int(certificates.radius[i])
        label = _short(str(certificates.prediction[i]), 16)
        cost = "" if attack is None else unit_of(certificates.unit).count(len(attack))
        flip = "nothing can flip it" if attack is None else f"radius {radius}, flipped by {cost}"
        lines.append(f"{title}: {label}; {flip}")
    lines += [limits] if (limits := unit_of(runoff.unit).limits) else []
    return "\n".join(lines)


def _bars(ax: Axes, names: list[str], values: list[int], colors: list[str]) -> None:
    at = np.arange(len(names))
    bars = ax.barh(at, values, color=colors, height=0.7)
    for bar, color in zip(bars, colors, strict=True):
        bar.set_hatch(HATCH.get(color, ""))
        bar.set_edgecolor("white")
    ax.bar_label(bars, padding=2, fontsize=7)
    ax.set_yticks(at, [textwrap.fill(name, WIDTH, max_lines=2, placeholder="…") for name in names], fontsize=6.5)
    ax.invert_yaxis()
    ax.grid(visible=False)
    ax.set_xlim(0, max(1, *values) * 1.18)
    ax.spines["bottom"].set_visible(False)
    ax.set_xticks([])


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
