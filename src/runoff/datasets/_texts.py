"""A dataset of texts: training and test texts with labels and sources, and a fingerprint of its content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.datasets._dataset import Labels, array_bytes, sha256
from runoff.errors import DatasetError

Column = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class TextDataset:
    """Texts with labels that index `classes`, the source of each text, and further columns.

    `groups_train` and `groups_test` hold one source per text, for `fit(x_train, y_train, groups=groups_train)`.
    `columns_train` and `columns_test` hold one array per column; the column "name" is unique.
    """

    name: str
    x_train: Sequence[str]
    y_train: Labels
    x_test: Sequence[str]
    y_test: Labels
    classes: tuple[str, ...]
    groups_train: NDArray[np.str_]
    groups_test: NDArray[np.str_]
    columns_train: Mapping[str, Column] = field(default_factory=dict)
    columns_test: Mapping[str, Column] = field(default_factory=dict)
    classes_fixed: bool = True
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for part in ("train", "test"):
            n, y = len(getattr(self, f"x_{part}")), getattr(self, f"y_{part}")
            columns = {f"y_{part}": y, f"groups_{part}": getattr(self, f"groups_{part}")}
            for column, array in (columns | getattr(self, f"columns_{part}")).items():
                if array.shape != (n,):
                    raise DatasetError(f"{self.name}: {column} must have one value for each of {n} texts in x_{part}")
            if n and not 0 <= y.min() <= y.max() < len(self.classes):
                raise DatasetError(f"{self.name}: y_{part} must be classes 0 to {len(self.classes) - 1}")

    def checksums(self) -> dict[str, str]:
        """Return the SHA-256 of the texts with their names, and of the labels, as listed in the catalogue.

        Each text is hashed as its name, its length in bytes of UTF-8, and these bytes; each label as one byte.
        """
        return {
            "texts": self._texts().hexdigest(),
            "labels": sha256(self.y_train.astype(np.uint8), self.y_test.astype(np.uint8)),
        }

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of all texts, labels, sources and columns, independent of the files' format."""
        digest = self._texts(b"runoff texts 1\n")
        for part in ("train", "test"):
            columns = {"groups": getattr(self, f"groups_{part}"), "y": getattr(self, f"y_{part}")}
            for name, array in (columns | getattr(self, f"columns_{part}")).items():
                values = array.astype(np.str_) if array.dtype.kind in "UM" else array
                digest.update(f"{name}_{part} {values.dtype.str[1:]} {len(values)}\n".encode())
                digest.update(array_bytes(values))
        return str(digest.hexdigest())

    def _texts(self, start: bytes = b"") -> Any:
        digest = hashlib.sha256(start)
        for texts, columns in ((self.x_train, self.columns_train), (self.x_test, self.columns_test)):
            names = columns.get("name", np.arange(len(texts)).astype(np.str_))
            for name, text in zip(names, texts, strict=True):
                data = text.encode("utf-8", "surrogatepass")
                digest.update(f"{name}\n{len(data)}\n".encode() + data)
        return digest

    def __repr__(self) -> str:
        return (
            f"TextDataset({self.name!r}, {len(self.x_train)} + {len(self.x_test)} texts from "
            f"{len(set(self.groups_train))} + {len(set(self.groups_test))} sources, {len(self.classes)} classes)"
        )
