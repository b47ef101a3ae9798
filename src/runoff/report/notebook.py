"""HTML tables of certificates for notebooks."""

from __future__ import annotations

from html import escape

import numpy as np

from runoff._io.text import count
from runoff._io.units import unit_of
from runoff.certificates import Certificates

ROWS = 5  # inputs displayed
BAR = "height:0.7em;background:#0072B2;display:inline-block"


def to_html(certificates: Certificates) -> str:
    """Return a summary of certificates, the certified share by number of edits, and the first inputs."""
    n = len(certificates)
    if not n:
        return f"<div>{escape(repr(certificates))}</div>"
    largest = int(certificates.radius.max())
    budgets = range(0, largest + 1, max(1, -(-largest // 5)))
    shares = [(budget, 100 * float((certificates.radius >= budget).mean())) for budget in budgets]
    bars = "".join(
        f"<tr><td>{budget}</td><td>{share:.1f} %</td>"
        f'<td style="text-align:left"><span style="{BAR};width:{share:.0f}px"></span></td></tr>'
        for budget, share in shares
    )
    first = "".join(
        f"<tr><td>{i}</td><td>{escape(str(certificates.prediction[i]))}</td><td>{certificates.radius[i]}</td>"
        f"<td>{escape(str(certificates.runner_up[i]))}</td></tr>"
        for i in range(min(n, ROWS))
    )
    title = (
        f"{count(n, 'input')}, {count(certificates.n_members, 'member')}, {certificates.n_classes:,} classes: "
        f"{certificates.election.name}, {certificates.bound} bound, median radius {np.median(certificates.radius):g}"
    )
    unit = unit_of(certificates.unit)
    counted = "" if unit.name == "samples" else f"<div>{escape(unit.definition)}</div>"
    more = f"<caption>the first {ROWS} of {n:,}</caption>" if n > ROWS else ""
    return (
        f"<div><strong>Certificates</strong> of {escape(title)}{counted}"
        '<div style="display:flex;gap:2em;align-items:flex-start;flex-wrap:wrap">'
        f"<table><thead><tr><th>{unit.noun}s</th><th>certified</th><th></th></tr></thead><tbody>{bars}</tbody></table>"
        f"<table>{more}<thead><tr><th>input</th><th>prediction</th><th>radius</th><th>runner-up</th></tr></thead>"
        f"<tbody>{first}</tbody></table></div></div>"
    )
