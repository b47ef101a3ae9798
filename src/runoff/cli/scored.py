"""Input of `runoff certify`: scores, labels, spread and names from files, tables, saved classifiers and runs."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runoff._io.files import open_array, sha256_of
from runoff.cli.options import TableInputs
from runoff.cli.tables import Opened, is_model, open_model, scores_of, undefended_predictions
from runoff.cli.targets import Target
from runoff.errors import InputError
from runoff.saving import long_form, tables
from runoff.scores import checked_scores

if TYPE_CHECKING:
    from runoff.certificates import Certificates
    from runoff.runs import Run


@dataclass(frozen=True, eq=False)
class Scored:
    """Scores of an ensemble, with the labels and the spread if they are known.

    Attributes
    ----------
    path : the file or directory that the scores were read from
    run, writable : the locked run that contains the scores, if any, and whether it can be written to
    opened : the saved classifier that they are from, if any, with its inputs
    table : the names of inputs and classes, and further facts from a table or a saved classifier

    """

    path: Path
    scores: NDArray[Any]
    labels: NDArray[Any] | None
    spread: NDArray[Any] | None
    run: Run | None = None
    writable: bool = False
    table: long_form.LongScores | None = None
    opened: Opened | None = None

    @classmethod
    def read(
        cls,
        path: Path,
        labels: Path | None,
        spread: Path | None,
        seeds: int | None,
        inputs: TableInputs,
        held: ExitStack,
    ) -> Scored:
        """Read scores from a file, a table, a saved classifier or a run, which stays locked until `held` closes."""
        opened = _opened(path, inputs)
        table = long_form.read_scores(path) if tables.is_table(path) else None if opened is None else scores_of(opened)
        if table is None and path.is_dir():
            from runoff.runs import Run

            Run.require(path)
            if labels is not None or spread is not None:
                raise InputError(f"{path} is a run, which includes labels and spread: leave out --labels and --spread")
            run, writable = _open(path, held)
            return cls(path, run.ballots(seeds), np.asarray(run.labels()), run.spread(), run, writable)
        if seeds is not None:
            raise InputError(f"--use-seeds applies to runs only, and {path} is a file: leave it out")
        array = checked_scores(open_array(path) if table is None else table.scores, str(path))
        y = None if table is None else table.labels
        if labels is not None:
            if y is not None:
                where = "--label-column" if opened is not None else f"the column label of {path}"
                raise InputError(f"the labels are in {where} already: leave out --labels, or the column")
            y = _per_input(labels, "label", len(array), table)
            if y.shape != array.shape[:1]:
                raise InputError(f"{labels} must have one label for each of {len(array)} inputs, got shape {y.shape}")
        members = None if table is None else table.spread
        if spread is not None:
            if members is not None:
                raise InputError(f"{path} is a saved classifier, which includes its spread: leave out --spread")
            if table is not None:
                table.check_numbered(path)
            members = np.asarray(open_array(spread))
        return cls(path, array, y, members, table=table, opened=opened)

    @property
    def election(self) -> str | None:
        """The election that a run or a saved classifier was made for."""
        return self.run.election if self.run is not None else None if self.table is None else self.table.election

    @property
    def unit(self) -> str | None:
        """The unit of edits, if a run or a saved classifier records it."""
        return self.run.settings.unit if self.run is not None else None if self.table is None else self.table.unit

    @property
    def names(self) -> NDArray[Any] | None:
        """The names of the inputs."""
        return None if self.table is None else self.table.inputs

    @property
    def classes(self) -> NDArray[Any] | None:
        """The names of the classes."""
        if self.run is not None:
            return np.array(self.run.manifest["dataset"]["classes"])
        return None if self.table is None else self.table.classes

    def named(self, certificates: Certificates) -> Certificates:
        """Return certificates with the labels of a table in place of class indices."""
        return certificates if self.table is None else certificates.named(self.table.classes)

    def undefended(self, path: Path) -> NDArray[Any]:
        """Read the predictions of an undefended model for the same inputs."""
        y = self.labels
        if y is None:
            raise InputError("--undefended is compared with the true classes, so it needs --labels FILE")
        if is_model(path):
            if self.opened is None:
                raise InputError(
                    f"--undefended {path} is a saved classifier, but the inputs of these scores are not known: "
                    "pass its predictions as .npy, .csv or .parquet"
                )
            predictions = undefended_predictions(path, self.opened.X)
        else:
            predictions = _per_input(path, "prediction", len(self.scores), self.table)
        if predictions.shape != y.shape or (predictions.dtype.kind in "US") != (y.dtype.kind in "US"):
            raise InputError(
                f"{path} must have one predicted class for each of {len(y)} inputs, as the labels do, got shape "
                f"{predictions.shape} and dtype {predictions.dtype}"
            )
        return predictions

    def target(self, certificates: Certificates, to: str, source: str | None) -> Target:
        """Return the radii towards one class, for certificates with class indices."""
        names = None if self.classes is None else self.classes.tolist()
        y = self.labels
        if self.table is not None and y is not None:
            index = {name: c for c, name in enumerate(self.table.classes.tolist())}
            y = np.array([index.get(label, -1) for label in y.tolist()])
        printed = None if names is None else list(map(str, names))
        return Target.compute(certificates, self.scores, y, printed, to, source)

    def about(self, seeds: int | None) -> dict[str, Any]:
        """Return the description of the source for an exported proof."""
        if self.run is None:
            content = self.path / "manifest.json" if self.path.is_dir() else self.path
            source = {"file": self.path.name, "sha256": sha256_of(content)}
            return {"source": source} | (
                {} if self.table is None else {"classes": [str(name) for name in self.table.classes]}
            )
        name = f"ballots-{self.run.seeds()[-1] if seeds is None else seeds}.npy"
        return {
            "source": {"file": name, "sha256": self.run.manifest["files"][name]},
            "classes": self.run.manifest["dataset"]["classes"],
            "partition": self.run.partition().fingerprint,
        }


def _opened(path: Path, inputs: TableInputs) -> Opened | None:
    """Return a saved classifier with its inputs, if that is what `path` is."""
    if is_model(path):
        return open_model(path, inputs)
    inputs.refuse(f"{path} is not one")
    return None


def _open(path: Path, held: ExitStack) -> tuple[Run, bool]:
    """Lock a run and check all its files; return it, and whether it can be written to."""
    from runoff._io.locks import locked
    from runoff.runs import Run

    writable = held.enter_context(locked(path, reading=True))
    run = Run.open(path)
    run.verify()
    return run, writable


def _per_input(path: Path, column: str, n: int, table: long_form.LongScores | None) -> NDArray[Any]:
    """Return a value for each input, from an array or a table."""
    if not tables.is_table(path):
        return np.asarray(open_array(path))
    return long_form.read_column(path, column, np.arange(n) if table is None else table.inputs)
