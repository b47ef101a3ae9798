"""Readers of tables under test: samples, scores in long form, labels and predictions."""

import io
from contextlib import ExitStack
from typing import Any

import numpy as np

import runoff
from runoff import samples
from runoff.cli.options import TableInputs
from runoff.cli.scored import Scored
from runoff.saving import tables
from tests.torture import damage, damage_tables
from tests.torture.damage import Random, array_bytes, pick
from tests.torture.reading import Files, Reader

SAMPLES = b"""age,city,note,group,label
30,Oslo,a,x,yes
31.5,\xc3\x89vry,,y,no
-2e3,Oslo,"b, ""c""\nd",x,yes
,Lima,7,z,no
"""
NO_TABLE = TableInputs(None, None, None)
LONG = [(i, m, c, (3 * i + 5 * m + 7 * c) % 11 / 4, i % 2) for i in range(3) for m in range(3) for c in range(2)]


def content(X: Any) -> list[bytes]:
    """The rows of a table as they are hashed."""
    return [bytes(row) for row in samples.from_any(X).content()]


class CsvTables(Reader):
    """Training samples of `runoff train TABLE`: a changed cell must leave all other cells as they were."""

    strict = False
    file = "own.csv"

    def make(self) -> None:
        self.files = {self.file: SAMPLES}
        self.put(self.files)
        self.row: int | None = None  # the only one that is changed
        self.good = self.read()

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        self.row = None
        if rng.random() < 0.3:
            data, self.row = damage_tables.one_cell(rng, SAMPLES)
            return {self.file: data}, False
        return {self.file: damage_tables.in_csv(rng, self.files[self.file])}, False

    def read(self) -> Any:
        X, y, groups = tables.samples(self.folder / self.file, "label", "group")
        found = list(zip(content(X), y or (), groups or (), strict=True))
        if self.row is not None and any(found[i] != self.good[i] for i in range(len(self.good)) if i != self.row):
            raise AssertionError("a cell changed how other rows are read")
        return found


class ParquetTables(Reader):
    """The same in Parquet."""

    strict = False
    file = "own.parquet"
    about = ("a table must",)

    def make(self) -> None:
        self.files = {self.file: damage_tables.parquet(self.columns())}
        self.put(self.files)
        self.read()

    def columns(self) -> dict[str, list[Any]]:
        """The table."""
        return {"age": [30.0, 31.5, None], "city": ["Oslo", None, "Lima"], "group": [1, 2, 2], "label": [0, 1, 0]}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        if rng.random() < 0.5:
            return {self.file: damage.in_bytes(rng, self.files[self.file])}, False
        return {self.file: damage_tables.in_parquet(rng, self.columns())}, False

    def read(self) -> Any:
        X, y, groups = tables.samples(self.folder / self.file, "label", "group")
        return content(X), y, groups


class LongCsv(Reader):
    """`runoff certify scores.csv`."""

    strict = False
    file = "scores.csv"

    def make(self) -> None:
        rows = "".join(f"{i},m{m},c{c},{score},c{label}\n" for i, m, c, score, label in LONG)
        self.files = {self.file: f"input,member,class,score,label\n{rows}".encode()}
        self.put(self.files)
        self.read()

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        return {self.file: damage_tables.in_csv(rng, self.files[self.file])}, False

    def read(self) -> Any:
        found = Scored.read(self.folder / self.file, None, None, None, NO_TABLE, ExitStack())
        assert found.table is not None
        certificates = runoff.certify(found.scores)
        return certificates.radius.tolist(), found.named(certificates).prediction.tolist()


class LongParquet(LongCsv):
    """The same in Parquet."""

    file = "scores.parquet"

    def make(self) -> None:
        self.files = {self.file: damage_tables.parquet(self.columns())}
        self.put(self.files)
        self.read()

    def columns(self) -> dict[str, list[Any]]:
        """The table."""
        names = ("input", "member", "class", "score", "label")
        return dict(zip(names, map(list, zip(*LONG, strict=True)), strict=True))

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        if rng.random() < 0.5:
            return {self.file: damage.in_bytes(rng, self.files[self.file])}, False
        return {self.file: damage_tables.in_parquet(rng, self.columns())}, False


class Predictions(Reader):
    """`runoff certify scores.npy --labels L.npy --spread S.npy --undefended P.npy`."""

    strict = False
    about = ("spread", "label", "prediction", "y_true")

    def make(self) -> None:
        scores = np.random.default_rng(0).normal(size=(4, 6, 3)).astype(np.float32)
        arrays = {
            "labels": np.arange(4) % 3,
            "predictions": np.arange(4) // 2,
            "spread": np.array([[0, 1], [2, 3], [4, 5], [1, 2]]),
        }
        self.files = {f"{name}.npy": array_bytes(array) for name, array in {"scores": scores, **arrays}.items()}
        self.put(self.files)
        self.read()

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        name = pick(rng, ["labels.npy", "predictions.npy", "spread.npy"])
        if rng.random() < 0.2:
            kinds = ["?", "U3", "S2", "f4", "f8", "c8", "M8[D]", "u8", ">i2", "i1", "U0"]
            array = np.load(io.BytesIO(self.files[name])).astype("i8").astype(pick(rng, kinds))
            return {name: damage.in_npy(rng, array_bytes(array))}, False
        return {name: damage.in_npy(rng, self.files[name])}, False

    def read(self) -> Any:
        from runoff.report._undefended import class_indices

        paths = [self.folder / f"{name}.npy" for name in ("scores", "labels", "spread", "predictions")]
        found = Scored.read(*paths[:3], None, NO_TABLE, ExitStack())
        certificates = runoff.certify(found.scores, spread=found.spread)
        accuracy = runoff.certified_accuracy(certificates, found.labels, [0, 1])
        known = class_indices(paths[3], ["0", "1", "2"], 4)
        return accuracy.tolist(), found.undefended(paths[3]).tolist(), known.tolist()
