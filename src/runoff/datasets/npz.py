"""Arrays in .npz files, read without pickle and without trusting the headers, and written atomically.

numpy.load allocates as much memory as a header claims, so headers are checked first.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from runoff._io import text
from runoff._io.files import is_text, open_regular, read_header, written_whole
from runoff.datasets._archives import BROKEN, is_refusal
from runoff.errors import DatasetError, MissingError

CHUNK = 2**24
LARGE, RATIO = 2**28, 100  # bytes, and a compression ratio; that of photographs is below 10

Kind = tuple[np.dtype[Any], tuple[int, ...]]


def read(
    source: Path | IO[bytes],
    names: Sequence[str],
    optional: Sequence[str] = (),
    kinds: Mapping[str, Kind] | None = None,
    name: str | None = None,
) -> dict[str, NDArray[Any]]:
    """Return the named arrays of a file; with `kinds`, wrong types and shapes are rejected before allocating memory.

    `name` replaces the path in error messages, for files without one.
    """
    arrays = {}
    path = name or source
    try:
        opened = open_regular(source) if isinstance(source, Path) else source
        with opened as file, zipfile.ZipFile(file) as archive:
            stored = set(archive.namelist())
            _check_listing(archive, path)
            missing = [array for array in names if f"{array}.npy" not in stored]
            if missing:
                raise DatasetError(f"{path} must hold {', '.join(names)}, but has no {missing[0]}")
            for array in [*names, *(extra for extra in optional if f"{extra}.npy" in stored)]:
                arrays[array] = _read_array(archive, array, path, None if kinds is None else kinds[array])
    except DatasetError:
        raise
    except BROKEN as error:
        if isinstance(error, OSError) and is_refusal(error):
            raise MissingError(f"{path} cannot be read: {error.strerror}") from None
        raise DatasetError(f"{path} cannot be read as a .npz file: {text.one_line(error)}") from None
    return arrays


def _check_listing(archive: zipfile.ZipFile, path: Any) -> None:
    """Raise an error if damage to the list of arrays hides one, which would not be missed if it is optional."""
    for info in archive.infolist():
        archive.open(info).close()  # the name must be that in front of the array
    file = cast(IO[bytes], archive.fp)
    file.seek(-22 - len(archive.comment), 2)  # the end of the list
    n_arrays = int.from_bytes(file.read(22)[10:12], "little")
    if n_arrays not in (len(archive.infolist()), 0xFFFF):
        raise DatasetError(f"{path} is damaged: its list of arrays has {len(archive.infolist())} of {n_arrays}")


def _read_array(archive: zipfile.ZipFile, name: str, path: Any, kind: Kind | None) -> NDArray[Any]:
    info = archive.getinfo(f"{name}.npy")
    if kind is None and info.file_size > max(LARGE, RATIO * info.compress_size):
        raise DatasetError(
            f"{path} would take {text.size(info.file_size)} of memory for {name}, from "
            f"{text.size(info.compress_size)} on disk, which looks like a decompression bomb: if the file is yours, "
            "save it uncompressed with numpy.savez"
        )
    with archive.open(info) as file:
        shape, fortran, dtype = read_header(file)
        if dtype.hasobject:
            raise DatasetError(f"{path} must hold numbers, got pickled objects in {name}, which are never loaded")
        if dtype.names is not None or dtype.subdtype is not None:
            raise DatasetError(f"{path} must hold numbers, got records in {name}")
        if kind is not None and (dtype, shape) != kind:
            got = text.one_line(f"{dtype} {shape}", 60)
            raise DatasetError(f"{path} holds {name} as {got}, expected {kind[0]} {kind[1]}")
        size = dtype.itemsize * int(np.prod(shape, dtype=object))
        if size > info.file_size - file.tell():
            raise DatasetError(f"{path} is damaged: {name} has fewer than the {size} bytes its header claims")
        array = np.empty(shape[::-1] if fortran else shape, dtype)
        if size:
            view = array.reshape(-1).view(np.uint8)
            for start in range(0, size, CHUNK):
                part = file.read(min(CHUNK, size - start))
                if len(part) < min(CHUNK, size - start):
                    raise DatasetError(f"{path} is truncated: {name} has fewer than the {size} bytes its header claims")
                view[start : start + len(part)] = np.frombuffer(part, np.uint8)
        if file.read(1):  # reading to the end also checks the CRC
            raise DatasetError(f"{path} is damaged: {name} has more bytes than its header claims")
    if dtype.kind == "U" and not is_text(array):
        raise DatasetError(f"{path} is damaged: {name} has characters that do not exist")
    return array.T if fortran else array


def write(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays to a file atomically: under a temporary name, synced and renamed."""
    with written_whole(path, binary=True) as file:
        np.savez(file, **cast(Any, arrays))
