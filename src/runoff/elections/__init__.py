"""The elections: each module here without a leading underscore is one, under its own name, with its `ELECTION`."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from typing import TYPE_CHECKING

from runoff.errors import InputError

if TYPE_CHECKING:
    from runoff.elections.base import Election

NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")))


def get(election: str | Election) -> Election:
    """The election of that name; an `Election` of your own is taken as it is."""
    from runoff.elections.base import Election

    if isinstance(election, Election):
        return election
    if election not in NAMES:
        raise InputError(f"election must be one of {', '.join(map(repr, NAMES))}, got {election!r}")
    found: Election = import_module(f"{__name__}.{election}").ELECTION
    return found
