"""Locations of datasets: a folder from the caller, RUNOFF_DATA, or the user's cache directory."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from runoff._io.text import one_line
from runoff.errors import DatasetError, MissingError


def data_directory(data_dir: str | os.PathLike[str] | None) -> Path:
    """Return the folder of the named datasets."""
    chosen = data_dir if data_dir is not None else os.environ.get("RUNOFF_DATA")
    return expand_home(chosen) if chosen else user_cache()


def expand_home(path: str | os.PathLike[str]) -> Path:
    """Return the path, with a leading ~ replaced by the home directory."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise DatasetError(
            f"{os.fspath(path)!r:.300} begins with the home directory of an unknown user: write the path in full"
        ) from None


@contextmanager
def reading(where: Path) -> Iterator[None]:
    """Raise `MissingError` if the system denies access to a file below a path."""
    try:
        yield
    except OSError as error:
        path = one_line(error.filename or where, 300)
        raise MissingError(f"{path} cannot be read: {error.strerror or error}") from None


def user_cache() -> Path:
    """Return the user's cache directory for runoff, as the operating system defines it."""
    try:
        Path.home()
    except RuntimeError:
        raise DatasetError("there is no home directory to store data in: pass data_dir or set RUNOFF_DATA") from None
    return platformdirs.user_cache_path("runoff", appauthor=False)


def command(verb: str, name: str, data_dir: str | os.PathLike[str] | None) -> str:
    """Return the `runoff data` command for this dataset, with the folder if one was given."""
    place = "" if data_dir is None else f" --data-dir {shlex.quote(os.fspath(data_dir))}"
    return f"runoff data {verb} {name}{place}"
