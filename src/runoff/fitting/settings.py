"""Checks of the settings of all ensembles."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from runoff import elections
from runoff.certificates import BOUNDS
from runoff.errors import InputError, check_whole

THREATS = ("samples", "labels")


def check_settings(ensemble: Any) -> None:
    """Raise InputError unless the settings of an ensemble are valid, separately and in combination."""
    for name in ("n_partitions", "spread", "n_seeds"):
        check_whole(name, getattr(ensemble, name), 1)
    if ensemble.bound not in BOUNDS:
        raise InputError(f"bound must be one of {', '.join(map(repr, BOUNDS))}, got {ensemble.bound!r}")
    elections.get(ensemble.election)
    if ensemble.threat not in THREATS:
        raise InputError(f"threat must be one of {', '.join(map(repr, THREATS))}, got {ensemble.threat!r}")
    if ensemble.shared is not None and ensemble.threat != "labels":
        raise InputError(
            f"shared is fitted on all samples at once, so it needs threat='labels', where samples are trusted, got "
            f"threat={ensemble.threat!r}: put the transformer inside the estimator"
        )
    if ensemble.encoder is not None and ensemble.shared is not None:
        raise InputError("encoder and shared cannot be combined: put one of them inside the other, or leave one out")
    key = ensemble.hash_key
    if key is not None and (not isinstance(key, bytes) or not 16 <= len(key) <= 64):
        raise InputError("hash_key must be 16 to 64 secret bytes, as runoff.new_key() returns them")


def seed_of(random_state: Any) -> int:
    """Return the seed for a `random_state`, as an integer for SeedSequence."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
