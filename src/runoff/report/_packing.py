"""Compact encoding of a sample of inputs for the page: abbreviated attacks as JSON, zlib and base64."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any


def packed(inputs: list[dict[str, Any]]) -> str:
    """Return inputs as text for a script element, about a twentieth of their size as JSON."""
    short = [{**row, "elections": {m: _short(e) for m, e in row["elections"].items()}} for row in inputs]
    plain = json.dumps(short, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(zlib.compress(plain, 9)).decode()


def _short(election: dict[str, Any]) -> dict[str, Any]:
    """Return an election with each step of its attack as a list: bucket, members, first choices, finalists and bars.

    A 0 stands for the usual value: for members, the one with the index of the bucket; for finalists, those of the
    previous step. Bars are given as differences to the previous step, or None for a class that drops out.
    """
    attack = election["attack"]
    if attack is None:
        return election
    steps, after = [], [election["prediction"], election["runner_up"]]
    bars = [dict(part) for part in election["rounds"]]
    for step in attack["steps"]:
        members = 0 if step["members"] == [step["bucket"]] else step["members"]
        finalists = 0 if step["after"] == after else step["after"]
        after = step["after"]
        changes = [
            [[c, None if n is None else n - before.get(c, 0)] for c, n in part]
            for before, part in zip(bars, step["rounds"], strict=True)
        ]
        for before, part in zip(bars, step["rounds"], strict=True):
            before.update((c, 0 if n is None else n) for c, n in part)
        steps.append([step["bucket"], members, step["firsts"], finalists, changes])
    return {**election, "attack": {**attack, "steps": steps}}
