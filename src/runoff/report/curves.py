"""A curve of certified accuracy on a matplotlib axis, for notebooks and scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from runoff._io.units import unit_of
from runoff.certificates import Certificates, certified_accuracy
from runoff.errors import InputError
from runoff.report.drawing import library

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike


def draw(certificates: Certificates, y_true: ArrayLike | None, ax: Axes | None, line: dict[str, Any]) -> Axes:
    """Draw the certified share of inputs at each budget, correct or not; with labels, the certified accuracy."""
    library()
    if not len(certificates):
        raise InputError("there are no certificates to draw")
    if ax is None:
        from matplotlib import pyplot as plt

        ax = plt.gca()
    budgets = np.arange(int(certificates.radius.max()) + 2)
    if y_true is None:
        shares = np.array([(certificates.radius >= budget).mean() for budget in budgets])
    else:
        shares = certified_accuracy(certificates, y_true, budgets)
    ax.plot(budgets, 100 * shares, **{"label": f"{certificates.election.name}, {certificates.bound} bound", **line})
    ax.set_xlabel(unit_of(certificates.unit).axis)
    ax.set_ylabel("certified share, correct or not (%)" if y_true is None else "certified accuracy (%)")
    ax.set_ylim(0, 100)
    return ax
