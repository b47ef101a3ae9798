"""Figures as in the paper: certified accuracy, improvement over DPA, and one election."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from runoff._io.units import unit_of
from runoff.elections import BASELINE, get
from runoff.errors import InputError
from runoff.paper import tables
from runoff.report import _election_figure
from runoff.report.drawing import COLORS, COLUMN, MARKERS, library, save, styled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from runoff.report.source import Source

WIDE = 24  # characters of a label, two of which fit side by side
NEEDED = ("dataset", "k", "method", "d", "budget", "ours", "paper")


@dataclass
class Curve:
    """The percentages of one method by budget, ours and the paper's."""

    label: str
    election: str
    ours: dict[int, float]
    paper: dict[int, float] = field(default_factory=dict)
    paper_d: int = 1
    base: Curve | None = None  # baseline of its improvement
    marks: tuple[int, ...] = ()
    complete: bool = False  # it covers every budget at which any input is certified
    unit: str = "samples"


def draw(data: dict[str, Any], source: Source, folder: Path, *, example: int | None = None) -> list[str]:
    """Draw the three figures of collected data, with an election of `source`; return their names."""
    curves = _curves(data)
    undefended = {model["label"]: 100 * model["correct"] / model["n_inputs"] for model in data["undefended"]}
    written = _draw_both(curves, folder, "", undefended)
    with styled():
        figure = _election_figure.draw(source, data["methods"][0]["bound"], example)
        save(figure, folder, "election")
    return [*written, "election"]


def draw_table(path: Path, folder: Path) -> list[str]:
    """Draw two figures per dataset and k of a table written by `runoff reproduce`; return their names."""
    written = []
    for (dataset, k), curves in _settings(path).items():
        written += _draw_both(curves, folder, f"-{dataset}-k{k}")
    return written


def _draw_both(
    curves: Sequence[Curve], folder: Path, suffix: str, undefended: Mapping[str, float] = MappingProxyType({})
) -> list[str]:
    names = [f"certified{suffix}"]
    with styled():
        labels = [*undefended, *(curve.label for curve in curves)]
        rows = -(-(len(labels) + 1) // _columns(labels))
        room = 0.14 * rows  # for the legend, which is above the axes so that it covers no point
        figure = library().Figure(figsize=(COLUMN, 2.5 + room), layout="constrained")
        _certified(figure.subplots(), curves, undefended)
        save(figure, folder, names[0])
        if any(curve.base is not None for curve in curves):
            names.append(f"improvement{suffix}")
            figure = library().Figure(figsize=(COLUMN, 2.0 + room), layout="constrained")
            _improvement(figure.subplots(), curves)
            save(figure, folder, names[1])
    return names


def _curves(data: dict[str, Any]) -> list[Curve]:
    curves = []
    for method in data["methods"]:
        n = data["sources"][method["source"]]["n_inputs"]
        curves.append(
            Curve(
                label=method["label"],
                election=method["election"],
                ours={budget: 100 * certified / n for budget, certified in enumerate(method["curve"])},
                paper={mark["budget"]: mark["percent"] for mark in method["paper"]},
                marks=tuple(data["budgets"]),
                complete=True,
                unit=data["unit"]["name"],
            )
        )
    for m, curve in enumerate(curves):
        base = _base(data, m)
        curve.base = None if base is None else curves[base]
    return curves


def _base(data: dict[str, Any], m: int) -> int | None:
    """Return the baseline of a method: DPA on the same dataset and k, else plurality of the same members."""
    methods, sources = data["methods"], data["sources"]
    method = methods[m]
    method_source = sources[method["source"]]
    plain = [j for j, other in enumerate(methods) if other["election"] == BASELINE]
    setting = ("data", "n_partitions")
    for j in plain:
        source = sources[methods[j]["source"]]
        same_data = method_source["data"] is not None and all(source[x] == method_source[x] for x in setting)
        if methods[j]["name"] == "DPA" and (same_data or methods[j]["source"] == method["source"]):
            return j if j != m else None
    same = [j for j in plain if methods[j]["source"] == method["source"] and j != m]
    return same[0] if same else None


def _settings(path: Path) -> dict[tuple[str, int], list[Curve]]:
    """Read the curves of a table by dataset and k; improvements are over DPA. Of repeated rows, the first is used.

    If several rows with fewer networks stand for one printed row, the one with the nearest d is drawn.
    """
    settings: dict[tuple[str, int], dict[tuple[str, int], Curve]] = {}
    kinds: dict[tuple[str, str, str, int], tuple[str, str]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            if missing := [name for name in NEEDED if name not in (reader.fieldnames or ())]:
                raise InputError(f"{path} must have the columns {', '.join(NEEDED)}; {missing[0]} is missing")
            for line in reader:
                curves = settings.setdefault((_plain_name(line["dataset"]), int(line["k"])), {})
                method, d = line["method"], int(line["d"])
                printed = int(line.get("paper_d") or d)
                label = method if d == 1 else f"{method}, d = {d}" + (f" ({printed})" if printed != d else "")
                kind = (line.get("network") or "nin", line.get("recipe") or "")
                if kinds.setdefault((line["dataset"], line["k"], method, d), kind) != kind:
                    raise InputError(
                        f"{path} has {method} of {line['dataset']}, k = {line['k']}, for several networks or recipes: "
                        "draw them separately"
                    )
                curve = curves.setdefault((method, d), Curve(label, tables.election_of(method), {}, paper_d=printed))
                budget = int(line["budget"])
                curve.ours.setdefault(budget, float(line["ours"]))
                if line["paper"]:
                    curve.paper.setdefault(budget, float(line["paper"]))
                if line.get("clean"):
                    curve.ours.setdefault(0, float(line["clean"]))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} must be a CSV file in UTF-8, as written by `runoff reproduce`") from None
    except (TypeError, csv.Error) as error:
        raise InputError(f"{path} must be a CSV file as written by `runoff reproduce`: {error}") from None
    if not settings:
        raise InputError(f"{path} has no rows")
    for curves in settings.values():
        for (method, _), curve in curves.items():
            curve.marks = tuple(curve.ours)
            curve.base = curves.get(("DPA", 1)) if method != "DPA" else None
    return {setting: _nearest(curves) for setting, curves in settings.items()}


def _nearest(curves: dict[tuple[str, int], Curve]) -> list[Curve]:
    """Return the curve with the nearest d for each method and printed d, in the paper's order."""
    chosen: dict[tuple[str, int], tuple[int, Curve]] = {}
    for (method, d), curve in curves.items():
        key = (method, curve.paper_d)
        if key not in chosen or abs(d - curve.paper_d) < abs(chosen[key][0] - curve.paper_d):
            chosen[key] = d, curve
    bases = [*tables.BASES, ""]

    def place(key: tuple[str, int]) -> tuple[int, int, bool]:
        base = key[0].removesuffix("+ROE")
        return bases.index(base if base in bases else ""), key[1], key[0] != base

    return [chosen[key][1] for key in sorted(chosen, key=place)]


def _plain_name(name: str) -> str:
    """Return a dataset's name if it can be part of a file name."""
    if not name or not all(letter.isalnum() or letter in "-_" for letter in name):
        raise InputError(f"dataset must be a name of letters and digits, got {name!r}")
    return name


def _line(ax: Axes, j: int, curve: Curve, values: dict[int, float], marks: Sequence[int]) -> None:
    at = sorted(values)
    ax.plot(
        at,
        [values[budget] for budget in at],
        color=COLORS[j % len(COLORS)],
        linestyle=(0, dashes) if (dashes := get(curve.election).dashes) else "-",
        marker=MARKERS[j % len(MARKERS)],
        markevery=[i for i, budget in enumerate(at) if budget in marks],
        label=curve.label,
    )


def _crosses(ax: Axes, j: int, values: dict[int, float]) -> None:
    ax.plot(list(values), list(values.values()), "x", color=COLORS[j % len(COLORS)], markersize=5, markeredgewidth=1.3)


def _certified(ax: Axes, curves: Sequence[Curve], undefended: Mapping[str, float]) -> None:
    """Draw certified accuracy by budget, as in the first row of the paper's Figure 2, and undefended models at 0."""
    for label, percent in undefended.items():
        style: dict[str, Any] = {
            "color": "#000000",
            "markerfacecolor": "white",
            "markersize": 5,
            "clip_on": False,
            "zorder": 3,
        }
        ax.plot([0], [percent], "o", label=label, **style)
    for j, curve in enumerate(curves):
        _line(ax, j, curve, curve.ours, curve.marks)
        _crosses(ax, j, curve.paper)
    last = max(
        (b for curve in curves for b, value in (*curve.ours.items(), *curve.paper.items()) if value > 0), default=1
    )
    ax.set(
        xlabel=_axis(curves),
        ylabel="certified accuracy (%)",
        ylim=(0, None),
        xlim=(0, last + max(1.0, 0.03 * last)),
    )
    _legend(ax, any(curve.paper for curve in curves))


def _improvement(ax: Axes, curves: Sequence[Curve]) -> None:
    """Draw percentage points over plurality of the same members, or over DPA, as in the figure's second row."""
    ax.axhline(0, color="#666666", linewidth=0.8)
    printed = False
    for j, curve in enumerate(curves):
        if curve.base is None:
            continue
        if curve.complete:  # nothing is certified beyond its last budget
            budgets = curve.ours.keys() | curve.base.ours.keys()
            ours = {b: curve.ours.get(b, 0.0) - curve.base.ours.get(b, 0.0) for b in budgets}
        else:
            ours = {b: value - curve.base.ours[b] for b, value in curve.ours.items() if b in curve.base.ours}
        printed_gain = {b: value - curve.base.paper[b] for b, value in curve.paper.items() if b in curve.base.paper}
        _line(ax, j, curve, ours, curve.marks)
        _crosses(ax, j, printed_gain)
        printed = printed or bool(printed_gain)
    names = {curve.base.label for curve in curves if curve.base is not None}
    over = names.pop() if len(names) == 1 else "plurality"
    ax.set(xlabel=_axis(curves), ylabel=f"points over {over}")
    _legend(ax, printed)


def _axis(curves: Sequence[Curve]) -> str:
    return unit_of(curves[0].unit if curves else "samples").axis


def _legend(ax: Axes, printed: bool) -> None:
    if printed:
        other = any(label.endswith(")") for label in ax.get_legend_handles_labels()[1])
        label = "paper (d in brackets)" if other else "printed in the paper"
        ax.plot([], [], "x", color="#444444", markersize=5, label=label)
    from matplotlib.ticker import MaxNLocator

    ax.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    handles, labels = ax.get_legend_handles_labels()
    ncols = _columns(labels)
    ax.figure.legend(handles, labels, loc="outside upper left", ncols=ncols, handlelength=2.6, columnspacing=1.2)


def _columns(labels: Iterable[str]) -> int:
    """Return the number of columns of a legend as wide as the figure."""
    return 2 if max(map(len, labels)) <= WIDE else 1
