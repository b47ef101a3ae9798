"""What a reader hands over: where a dataset is, and how to read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runoff.datasets._archives import BROKEN, is_refusal
from runoff.datasets._dataset import Dataset
from runoff.errors import MissingError, MissingExtraError


class UnlikeError(Exception):
    """Files that are not laid out as the official ones are: says how."""


@dataclass(frozen=True)
class Found:
    """A dataset's files, complete by their names and not yet read."""

    where: Path
    reader: Callable[[], Dataset]

    def read(self) -> Dataset:
        """Its content. Whatever is wrong with the files is told as an `UnlikeError`."""
        try:
            return self.reader()
        except (UnlikeError, MissingError, MissingExtraError):
            raise
        except BROKEN as error:
            if isinstance(error, OSError) and is_refusal(error) and not isinstance(error, FileNotFoundError):
                raise MissingError(f"{error.filename or self.where} cannot be read: {error.strerror}") from None
            raise UnlikeError(_told(error)) from error


def _told(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no {error.filename}"
    return str(error) or type(error).__name__
