"""Matplotlib, imported for figures only, and the style of all figures."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from runoff._io.files import written_whole
from runoff.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMN = 3.25  # inches: the width of a column in a two-column paper
FORMATS = ("svg", "pdf", "png")
# The palette of Okabe and Ito, safe for colour-blind readers; markers and dashes carry the same information.
COLORS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#7F3C8D")
MARKERS = ("o", "s", "^", "D", "v", "P", "<", "*", "p")  # one more than colours, so that all pairs differ
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "legend.fontsize": 7,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.5,
    "axes.axisbelow": True,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "legend.frameon": False,
    "pdf.fonttype": 42,  # text that can be edited and searched
    "text.parse_math": False,  # class names may contain dollar signs
    "svg.hashsalt": "runoff",  # for reproducible bytes
}


def library() -> Any:
    """Import matplotlib's figure module, or raise an error that says how to install it."""
    try:
        from matplotlib import figure
    except ImportError:
        raise MissingExtraError("figures need matplotlib. Install it with: pip install 'runoff[report]'") from None
    return figure


@contextmanager
def styled() -> Iterator[None]:
    """Apply the style of a paper to everything drawn in the block."""
    library()
    import matplotlib as mpl

    with mpl.rc_context(STYLE):
        yield


def save(figure: Figure, folder: Path, name: str) -> None:
    """Save a figure as SVG, PDF and PNG, each atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    undated: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    for kind in FORMATS:
        buffer = io.BytesIO()
        figure.savefig(buffer, format=kind, dpi=300, metadata=undated[kind])
        with written_whole(folder / f"{name}.{kind}", binary=True) as file:
            file.write(buffer.getvalue())
