"""Files: arrays read without trusting them, results written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray


def open_array(path: str | Path) -> NDArray[Any]:
    """Memory-map a .npy file of plain numbers, after checking that all of it is there. Never unpickles."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            shape, dtype, start = _header(file, path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if dtype.hasobject:
        raise ValueError(f"{path} must hold numbers, got pickled objects, which are never loaded: save a plain array")
    expected, size = start + dtype.itemsize * int(np.prod(shape, dtype=object)), path.stat().st_size
    if size < expected:
        raise ValueError(
            f"{path} is truncated: its header promises {expected} bytes, the file has {size}; copy it again"
        )
    if 0 in shape:
        return np.empty(shape, dtype)
    mapped: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    return mapped


def _header(file: IO[bytes], path: Path) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Shape, dtype and where the data starts."""
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    except ValueError:
        raise ValueError(f"{path} must be a .npy file as numpy.save writes it, got something else") from None
    return shape, dtype, file.tell()


@contextmanager
def written_whole(path: str | Path, *, binary: bool = False) -> Iterator[IO[Any]]:
    """A file that appears under its name only when it is complete and on disk."""
    path = Path(path)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    how: dict[str, Any] = {"mode": "wb"} if binary else {"mode": "w", "encoding": "utf-8", "newline": ""}
    try:
        with os.fdopen(descriptor, **how) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_array(path: str | Path, array: NDArray[Any]) -> None:
    """A .npy file of plain numbers, whole or not at all."""
    with written_whole(path, binary=True) as file:
        np.save(file, array, allow_pickle=False)
