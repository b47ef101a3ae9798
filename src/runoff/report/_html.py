"""The HTML page: one file that includes its data, styles and scripts, and makes no network request."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from pathlib import Path
from typing import Any

from runoff._io.files import written_whole
from runoff.report._packing import packed

SCRIPTS = (
    "vendored/d3.min.js",
    "vendored/plot.umd.min.js",
    "dom.js",
    "charts.js",
    "election.js",
    "explorer.js",
    "page.js",
)
WORDS = (
    "noun", "nouns", "caveat", "slider", "tampering", "axis", "definition", "attacker", "buckets", "not_covered",
)  # fmt: skip  # placeholders of the page that depend on the unit
ESCAPES = {ord(c): f"\\u{ord(c):04x}" for c in "<>&"}  # characters that could end a script element


def write(path: str | Path, data: dict[str, Any]) -> None:
    """Write the page atomically."""
    with written_whole(path) as file:
        file.write(page(data))


def page(data: dict[str, Any]) -> str:
    """Return the page for collected data."""
    scripts, samples = [asset(name) for name in SCRIPTS], data["samples"]
    allowed = " ".join(f"'sha256-{_digest(script)}'" for script in scripts)
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    parts = {
        "policy": policy,
        "title": html.escape(f"{data['title']}: certified predictions".encode(errors="replace").decode()),
        "version": html.escape(data["version"]),
        **{name: html.escape(data["unit"][name]) for name in WORDS},
        "style": asset("page.css"),
        "data": embedded({**data, "samples": [{"how": part["how"], "n": len(part["inputs"])} for part in samples]}),
        "samples": "\n".join(
            f'<script type="text/plain" id="sample-{g}">{packed(part["inputs"])}</script>'
            for g, part in enumerate(samples)
        ),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    pieces = asset("page.html").split("{{")
    filled = [pieces[0]]
    for piece in pieces[1:]:
        name, rest = piece.split("}}", 1)
        filled += [parts[name], rest]
    return "".join(filled)


def embedded(data: Any) -> str:
    """Return JSON that is safe inside a script element for any data: ASCII without angle brackets."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).translate(ESCAPES)


def asset(name: str) -> str:
    """Read an asset of the package."""
    return resources.files("runoff.report").joinpath("assets").joinpath(name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
