"""Candidate files of a dataset: their location and their reader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runoff._io.text import one_line
from runoff.datasets._archives import BROKEN, is_refusal
from runoff.datasets._dataset import Dataset
from runoff.datasets._texts import TextDataset
from runoff.errors import MissingError, MissingExtraError


class LayoutError(Exception):
    """Files whose layout differs from the official one; the message says how."""


@dataclass(frozen=True)
class Candidate:
    """The files of a dataset, complete by name but not yet read."""

    where: Path
    reader: Callable[[], Dataset | TextDataset]

    def read(self) -> Any:
        """Return the content of the files; raise `LayoutError` if anything is wrong with them."""
        try:
            return self.reader()
        except (LayoutError, MissingError, MissingExtraError):
            raise
        except BROKEN as error:
            if isinstance(error, OSError) and is_refusal(error) and not isinstance(error, FileNotFoundError):
                raise MissingError(f"{error.filename or self.where} cannot be read: {error.strerror}") from None
            missing = f"there is no {error.filename}" if isinstance(error, FileNotFoundError) else ""
            raise LayoutError(missing or one_line(error) or type(error).__name__) from error
