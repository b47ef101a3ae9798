"""Writing certificates to CSV or Parquet, with one row per input."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from runoff._io.files import written_whole
from runoff._io.units import unit_of
from runoff.errors import MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from runoff.certificates import Certificates


def write(
    path: Path,
    certificates: Certificates,
    labels: NDArray[Any] | None,
    *,
    inputs: NDArray[Any] | None = None,
    radius_to: NDArray[np.int64] | None = None,
) -> None:
    """Write Parquet if the name ends in .parquet, else CSV, completely or not at all; `inputs` are names of inputs."""
    columns: dict[str, NDArray[Any]] = {
        "input": np.arange(len(certificates)) if inputs is None else inputs,
        "prediction": certificates.prediction,
        "radius": certificates.radius,
        "runner_up": certificates.runner_up,
    }
    columns |= {name: np.full(len(certificates), text) for name, text in unit_of(certificates.unit).columns.items()}
    if radius_to is not None:
        columns["radius_to"] = radius_to
    if labels is not None:
        columns["label"] = labels
    if path.suffix == ".parquet":
        about = {"election": certificates.election.name, "bound": certificates.bound, "unit": certificates.unit}
        _write_parquet(path, columns, about)
        return
    with written_whole(path) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def _write_parquet(path: Path, columns: dict[str, NDArray[Any]], about: dict[str, str]) -> None:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError(
            f"{path} needs pyarrow. Install it with: pip install 'runoff[parquet]', or write CSV"
        ) from None
    table = pa.table(columns).replace_schema_metadata({f"runoff.{name}": value for name, value in about.items()})
    with written_whole(path, binary=True) as file:
        parquet.write_table(table, file)
