"""Elections; every module of this package except those in `SHARED` defines one as `ELECTION`."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from runoff.errors import InputError

if TYPE_CHECKING:
    from runoff.elections.base import Election

SHARED = ("base", "overtaking", "votes")
NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name not in SHARED))
DEFAULT, BASELINE = "runoff", "plurality"  # the default of `election=`; the reference for improvements


def get(election: str | Election) -> Election:
    """Return the election with this name; an `Election` instance is returned unchanged."""
    from runoff.elections.base import Election

    if isinstance(election, Election):
        return election
    if election not in NAMES:
        raise InputError(f"election must be one of {', '.join(map(repr, NAMES))}, got {election!r}")
    named: Election = import_module(f"{__name__}.{election}").ELECTION
    return named
