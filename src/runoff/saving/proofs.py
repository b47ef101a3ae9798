"""Writing certificates to a proof.json file, which `python -m runoff.check` verifies without the rest of runoff.

docs/verify.md describes the format.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runoff import check
from runoff._io.files import written_whole
from runoff._io.text import size
from runoff._io.units import unit_of
from runoff.ballots import points, points_dtype, readable
from runoff.errors import InputError
from runoff.scores import blocks_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runoff.certificates import Certificates


def write(
    path: Path,
    certificates: Certificates,
    scores: NDArray[Any],
    *,
    classes: list[str] | None = None,
    partition: str | None = None,
    source: dict[str, str] | None = None,
) -> None:
    """Write certificates and their ballots, completely or not at all.

    `partition` is the fingerprint of the members' partition; `source` names the file of the ballots and its SHA-256.
    """
    n, n_members, n_classes = scores.shape
    election, dtype = certificates.election.name, points_dtype(n_classes)
    if election not in check.ELECTIONS:
        raise InputError(
            f"a proof needs one of the elections {', '.join(check.ELECTIONS)}, got {election}: omit --export"
        )
    if n * n_members * n_classes * dtype.itemsize > check.MOST_BALLOTS or n_classes > 65536:
        raise InputError(f"a proof holds at most {size(check.MOST_BALLOTS)} of ballots: certify fewer inputs at once")
    compressor, hashed, packed = zlib.compressobj(6), hashlib.sha256(), []
    for block in blocks_of(scores):
        data = points(readable(block)).astype(dtype.newbyteorder("<"), copy=False).tobytes()
        hashed.update(data)
        packed.append(compressor.compress(data))
    encoded = base64.b64encode(b"".join([*packed, compressor.flush()])).decode()
    spread = certificates.spread
    buckets = None
    if spread is not None:
        buckets = [part.tolist() for part in np.split(spread.members, spread.members_at[1:-1])]
    proof = {
        "format": check.FORMAT,
        "version": check.VERSION,
        "election": election,
        "bound": certificates.bound,
        "unit": certificates.unit,
        "edit": unit_of(certificates.unit).definition,
        "n_inputs": n,
        "n_members": n_members,
        "n_classes": n_classes,
        "classes": classes,
        "partition": partition,
        "source": source,
        "spread": buckets,
        "prediction": certificates.prediction.tolist(),
        "runner_up": certificates.runner_up.tolist(),
        "radius": certificates.radius.tolist(),
        "ballots": {
            "dtype": dtype.name,
            "encoding": "base64 of zlib",
            "sha256": hashed.hexdigest(),
            "data": encoded,
        },
    }
    with written_whole(path) as file:
        json.dump(proof, file)
