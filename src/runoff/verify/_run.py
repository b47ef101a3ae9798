"""Verification of the certificates of a run, the last step after its networks."""

from __future__ import annotations

import csv
import io
import operator
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff import check
from runoff.verify import _radii
from runoff.verify._stored import StoredNetworks
from runoff.verify.directory import UnfitError

BATCH, MOST_BYTES = 1024, 2**24  # rows and bytes of a Parquet file that are unpacked at a time
ROWS = re.compile(r"certificates/([a-z]+)-([a-z]+)-([1-9]\d{0,8})\.(csv|parquet)")


class RunVerifier(StoredNetworks):
    """The verification of a run."""

    def prove_certificates(self) -> None:
        """Prove the rows of every file in certificates/ from the ballots of the run."""
        any_proven = False
        for name in sorted(self.directory.present):
            if not name.startswith("certificates/"):
                continue
            match = ROWS.fullmatch(name)
            if match is None or match[1] not in check.ELECTIONS or match[2] not in check.BOUNDS:
                self.report.skipped(name, "its name is not ELECTION-BOUND-SEEDS with a known election")
                continue
            try:
                if int(match[3]) not in self.ballots:
                    raise UnfitError(f"needs ballots-{match[3]}.npy, which does not exist")
                ballots = self.ballots[int(match[3])]
                columns, others = _rows(self.directory.data(name), match[4], len(ballots), self.parts.unit)
            except ImportError:
                self.report.skipped(name, "reading Parquet needs pyarrow")
                continue
            except UnfitError as error:
                self.report.files(name, str(error))
                continue
            if others:
                self.report.skipped(f"the columns {', '.join(others)} of {name}", "only proofs of radii are checked")
            if self.labels is not None and "label" in columns and not np.array_equal(columns["label"], self.labels):
                self.report.files(name, "has labels that differ from labels.npy")
            claims = _radii.Certificates(
                name, match[1], match[2], columns["prediction"], columns["runner_up"], columns["radius"],
                self.parts.unit,
            )  # fmt: skip
            before = len(self.report.failures)
            limit = float("inf") if self.full else _radii.TIME
            self.progress(f"proving {name}")
            _radii.prove(claims, ballots, self.parts.spread(), self.sampled(len(ballots)).tolist(), self.report, limit)
            if len(self.report.failures) == before:
                self._record(claims, int(match[3]))
            any_proven = True
        if not any_proven and self.ballots:
            self.report.skipped("radii", "the run has no certificates: `runoff certify` writes them")

    def _record(self, claims: _radii.Certificates, n_seeds: int) -> None:
        """Record the certified accuracy by number of edits, for an attestation."""
        if self.labels is None:
            return
        correct = claims.prediction == self.labels
        largest = int(claims.radius.max())
        steps = sorted({*range(0, largest + 1, max(1, largest // 10)), largest})
        self.report.facts.setdefault("certificates", []).append(
            {
                "file": claims.where,
                "election": claims.election,
                "bound": claims.bound,
                "networks_per_member": n_seeds,
                "inputs": len(correct),
                "certified_accuracy": {str(r): round(float((correct & (claims.radius >= r)).mean()), 6) for r in steps},
            }
        )


def _rows(data: bytes, kind: str, n: int, unit: str) -> tuple[dict[str, NDArray[np.int64]], list[str]]:
    """Parse the rows of certificates: one row of integers per input, in order, and what a radius counts.

    Return the integers by column, and the names of other columns.
    """
    needed = ("input", "prediction", "radius", "runner_up")
    try:
        if kind == "parquet":
            names, lines = _parquet(data, n)
        else:
            names, *lines = csv.reader(io.StringIO(data.decode("utf-8"), newline=""), strict=True)
        if len({*names}) < len(names):
            raise UnfitError("names a column twice")
        columns = {name: list(column) for name, column in zip(names, zip(*lines, strict=True), strict=True)}
        whole = int if kind == "csv" else operator.index  # no fraction is rounded
        read = {
            name: [whole(value) for value in column] for name, column in columns.items() if name in (*needed, "label")
        }
    except (ImportError, UnfitError):
        raise
    except Exception:  # a hostile file can cause any exception
        raise UnfitError("is not a table of integers") from None
    given = {name: {str(value) for value in columns[name]} for name in ("unit", "limits") if name in columns}
    stated = {"unit": {"samples"}, "limits": {""}} | given
    if stated != {"unit": {unit}, "limits": {check.UNITS[unit].partition("; ")[2]}}:
        raise UnfitError(f"does not say that the radii of this run count {check.UNITS[unit]}")
    if any(name not in read for name in needed) or read["input"] != list(range(n)):
        raise UnfitError(f"must have the columns {', '.join(needed)}, with a row for each of {n} inputs in order")
    for name, column in read.items():
        for i, value in enumerate(column):
            if not 0 <= value < 2**62:
                raise UnfitError(f"has the {name} {value} for input {i}")
    others = [f"{name!r:.40}" for name in columns if name not in (*read, *stated)]
    return {name: np.array(column, np.int64) for name, column in read.items()}, others


def _parquet(data: bytes, n: int) -> tuple[list[str], list[Any]]:
    """Return the names of the columns and the rows of a Parquet file, which may claim any number of rows."""
    from pyarrow import parquet

    file, lines = parquet.ParquetFile(io.BytesIO(data)), list[Any]()
    for batch in file.iter_batches(BATCH):
        if len(lines) + batch.num_rows > n or batch.nbytes > MOST_BYTES:
            raise UnfitError(f"must have a row for each of {n} inputs in order, got more")
        lines += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return list(file.schema_arrow.names), lines
