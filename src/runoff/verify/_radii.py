"""Proofs of every prediction and radius by two methods.

The first method is the stand-alone checker, `runoff.check`, which holds elections again and replays attacks. The second
is integer programming on models of attacks (`_programs.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from runoff import check
from runoff.verify._programs import SECONDS, by_programming
from runoff.verify._report import CERTIFICATE, SHOWN, Report

TIME = 60.0  # seconds for all integer programs of a sample
NODES = 2000  # of search before integer programming


class Certificates(NamedTuple):
    """Claims about the inputs of some ballots; `where` names their file."""

    where: str
    election: str
    bound: str
    prediction: NDArray[np.int64]
    runner_up: NDArray[np.int64]
    radius: NDArray[np.int64]
    unit: str = "samples"


def prove(
    claims: Certificates,
    ballots: NDArray[Any],
    spread: Sequence[Sequence[int]],
    sample: Sequence[int],
    report: Report,
    seconds: float = TIME,
) -> None:
    """Check all claims by the first method, and those of the sampled inputs by integer programming too.

    After `seconds`, the second method is used only for claims that the first could not prove.
    """
    until = time.monotonic() + seconds
    checked_spread = check.Spread(spread, ballots.shape[1])
    alone = checked_spread.is_one_to_one()
    reach = None if alone else checked_spread
    must_be_exact = alone and claims.bound == "tight" and claims.election != "maximin"
    wrong, exact, solved = [], 0, 0
    chosen = set(sample)
    for i, block in enumerate(ballots):
        rows = [bytes(row) if block.dtype == np.uint8 else row.tolist() for row in block]
        claim = check.Claim(int(claims.prediction[i]), int(claims.runner_up[i]), int(claims.radius[i]))
        verdict = check.check_input(claims.election, claims.bound, rows, claim, reach, NODES)
        problem, exact = verdict.wrong, exact + verdict.exact
        if verdict.unproven or (problem is None and i in chosen and time.monotonic() < until):
            second = by_programming(claims.election, rows, reach, claim.radius)
            problem = _second(claim.radius, verdict, second, must_be_exact)
            solved += not second[0] <= claim.radius < second[1]
        if problem is not None:
            wrong.append((i, problem))
    for i, what in wrong[:SHOWN]:
        report.failed(CERTIFICATE, f"{claims.where}, input {i}", what)
    if len(wrong) > SHOWN:
        report.failed(CERTIFICATE, claims.where, f"{len(wrong) - SHOWN} more certificates are wrong or not proven")
    if not wrong:
        n = len(ballots)
        counted = "" if claims.unit == "samples" else f"; radii count {check.UNITS[claims.unit]}"
        report.passed(
            f"{claims.where}: {n:,} predictions and radii ({claims.election}, {claims.bound} bound{counted}); for "
            f"{exact:,} an attack on radius + 1 buckets was replayed, so they are exact; {solved:,} by integer "
            "programming too"
        )


def _second(radius: int, first: check.Verdict, second: tuple[int, int], must_be_exact: bool) -> str | None:
    """Return the error that integer programming finds in a claim, given its bounds (low, high) on the cost, or None."""
    low, high = second
    if low <= radius < high:
        return (
            first.wrong or f"the claimed radius {radius} could not be proven by integer programming in {SECONDS:.0f} s"
        )
    if high <= radius:
        return f"the radius is {high - 1} by integer programming, claimed {radius}"
    if must_be_exact and low != radius + 1:
        return f"the radius is {low - 1} by integer programming, claimed {radius}"
    return None
