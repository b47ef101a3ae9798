"""Where datasets are looked for: the folder that was named, RUNOFF_DATA, or the user's cache directory."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from runoff.errors import DatasetError, MissingError


def data_directory(data_dir: str | os.PathLike[str] | None) -> Path:
    """The folder in which the named datasets are."""
    chosen = data_dir if data_dir is not None else os.environ.get("RUNOFF_DATA")
    return expanded(chosen) if chosen else user_cache()


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path, with the home directory in place of a leading ~."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DatasetError(f"{os.fspath(path)!r} begins with a home directory that nobody has: write it out") from None


@contextmanager
def reading(where: Path) -> Iterator[None]:
    """What the system does not let be read below a path is missing."""
    try:
        yield
    except OSError as error:
        raise MissingError(f"{error.filename or where} cannot be read: {error.strerror or error}") from None


def user_cache() -> Path:
    """Return the user's cache directory for runoff, as each system has it."""
    try:
        Path.home()
    except RuntimeError:
        raise DatasetError("there is no home directory to keep data in: give data_dir or set RUNOFF_DATA") from None
    return platformdirs.user_cache_path("runoff", appauthor=False)


def command(verb: str, name: str, data_dir: str | os.PathLike[str] | None) -> str:
    """The command to give for this dataset, with the folder if one was named."""
    place = "" if data_dir is None else f" --data-dir {shlex.quote(os.fspath(data_dir))}"
    return f"runoff data {verb} {name}{place}"
