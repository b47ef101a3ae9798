"""Files that make a reader hang or fill the memory: each case runs in its own process, with limits."""

import gzip
import io
import json
import logging
import os
import pickle
import resource
import select
import shutil
import signal
import socket
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.torture.guard import guarded, sentence
from tests.torture.tally import Tally

HUGE = 60 * 2**30  # of a sparse file
BOMB = 3 * 10**9  # zeros that compress to a few megabytes
HOPELESS = 120.0  # seconds by the clock
MEMORY = 6 * 2**30  # so that a reader which takes too much harms nobody


def run(scale: float, names: list[str]) -> Tally:
    """Every kind of hostile file in every place; few enough to be all of them at any scale."""
    from tests.torture.readers import READERS

    return Tally().merge(_apart(name, scale) for name in names if READERS[name].by_path)


def _apart(name: str, scale: float) -> Tally:
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    tally = Tally()
    try:
        from tests.torture.readers import READERS
        from tests.torture.reading import NotHereError

        try:
            reader = READERS[name](folder)
        except NotHereError:
            return tally
        if not reader.files:  # made anew for each case
            reader.files = {"scores.npy": reader.all[0]}  # type: ignore[attr-defined]
            reader.put(reader.files)
        cases = list(_cases(reader.files))
        for what, file, spoil in cases if scale >= 0.05 else cases[::7]:
            path = folder / file
            _remove(path)
            spoil(path)
            wrong = _forked(reader)
            tally.check(f"{name}, hostile files", wrong is None, f"{what} as {file}: {wrong}")
            _remove(path)
            reader.put({file: reader.files[file]})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return tally


def _forked(reader: Any) -> str | None:
    """Return what is wrong with the outcome of a reader, which runs in a fork."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        try:
            logging.disable(logging.WARNING)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            outcome = guarded(reader.read)
            wrong = outcome.excess
            if wrong is None and outcome.error is not None:
                wrong = sentence(outcome.error, reader.allowed, (*reader.about, reader.folder.name))
            if wrong is None and outcome.error is None and reader.strict and outcome.result != reader.expected:
                wrong = "read as something else than was saved"
            os.write(write, pickle.dumps(wrong))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        if not select.select([file], [], [], HOPELESS)[0]:  # code that is not Python's hears no signal
            os.kill(pid, signal.SIGKILL)
        told = file.read()
    os.waitpid(pid, 0)
    return pickle.loads(told) if told else "the process died"  # noqa: S301


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _sparse(path: Path, head: bytes = b"") -> None:
    with path.open("wb") as file:
        file.write(head)
        file.truncate(HUGE)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        before = Path.cwd()
        os.chdir(path.parent)  # names of sockets are short
        try:
            server.bind(path.name)
        finally:
            os.chdir(before)


Spoil = Callable[[Path], Any]


def _cases(files: dict[str, bytes]) -> Iterator[tuple[str, str, Spoil]]:
    for file, data in files.items():
        yield "a FIFO", file, os.mkfifo
        yield "a folder", file, lambda path: path.mkdir()
        yield "a socket", file, _socket
        yield "a link to nowhere", file, lambda path: path.symlink_to("nowhere")
        yield "a link to itself", file, lambda path: path.symlink_to(path.name)
        yield "a link to /dev/zero", file, lambda path: path.symlink_to("/dev/zero")
        yield "60 GB of nothing", file, _sparse
        yield "60 GB after the right bytes", file, lambda path, data=data: _sparse(path, data)
        yield "nothing", file, lambda path: path.write_bytes(b"")
        if file.endswith(".json"):
            yield from ((what, file, _written(text)) for what, text in _documents(data))
        if file.endswith(".npz"):
            yield "an array of 3 GB in a few MB", file, lambda path, data=data: path.write_bytes(_npz_bomb(data))
        if file.endswith(".gz"):
            inner = gzip.decompress(data)
            yield "3 GB of zeros, compressed", file, lambda path, inner=inner: path.write_bytes(_gzip_bomb(inner))
        if file.endswith(".zip"):
            yield "members of 3 GB", file, lambda path, data=data: path.write_bytes(_zip_bomb(data))
        if file.endswith(".parquet"):
            yield "300 million rows in a few kB", file, _parquet_bomb
        if file.endswith(".png"):
            yield "an image of 30000 x 30000", file, _written(_png(30000, 30000))
            yield "an image of 2**31 x 2**31", file, _written(_png(2**31 - 1, 2**31 - 1))
        if file.endswith((".pgm", ".ppm")):
            yield "an image that claims 10**9 pixels", file, _written(b"P5 40000 40000 255\n" + bytes(100))
        if file.endswith("tar.gz"):
            yield "a tar file of links", file, _written(_links())


def _written(data: bytes) -> Spoil:
    return lambda path: path.write_bytes(data)


def _documents(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "200,000 brackets", b"[" * 200_000
    yield "200,000 objects", b'{"a":' * 200_000
    yield "50,000 brackets in a field", data.rstrip()[:-1] + b', "deep": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"
    yield "a number of 10**6 digits", data.rstrip()[:-1] + b', "n": ' + b"9" * 10**6 + b"}"
    yield "a list of 3 million", data.rstrip()[:-1] + b', "n": [' + b"0," * 3_000_000 + b"0]}"
    document = json.loads(data)
    for claim in (3 * 10**7, 2**31, 2**62, 10**40):
        for path in (
            ("settings", "n_partitions"),
            ("settings", "spread"),
            ("members",),
            ("partition", 0),
            ("n_members",),
            ("n_inputs",),
        ):
            changed = json.loads(data)
            place: Any = changed
            for key in path[:-1]:
                place = place[key] if isinstance(place, dict) and key in place else None
            last = path[-1]
            if (isinstance(place, dict) and last in place) or (isinstance(place, list) and isinstance(last, int)):
                place[last] = claim
                if isinstance(document.get("partition"), list) and path[0] == "settings":
                    changed["partition"][0] = claim
                    changed["members"] = claim
                yield f"{'.'.join(map(str, path))} = {claim}", json.dumps(_fingerprinted(changed)).encode()


def _fingerprinted(manifest: dict[str, Any]) -> dict[str, Any]:
    """With the fingerprint that such a partition has: whoever forges a manifest can compute it."""
    try:
        from runoff import hashing
        from runoff.partition import Partition

        key = hashing.derived_key(0)
        if isinstance(manifest["partition"], list):
            k, d, offsets, name = manifest["partition"]
            manifest["fingerprint"] = Partition(k, d, tuple(offsets), key, name).fingerprint
        else:
            s = manifest["settings"]
            made = Partition(s["n_partitions"], s["spread"], tuple(manifest["partition"]["offsets"]), key, s["hash"])
            manifest["partition"]["fingerprint"] = made.fingerprint
    except (KeyError, TypeError, ValueError, OverflowError):
        pass
    return manifest


def _zeros(size: int) -> bytes:
    """Return this many zeros, deflated."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = bytes(2**24)
    parts = [packer.compress(block) for _ in range(size // len(block))]
    return b"".join([*parts, packer.compress(bytes(size % len(block))), packer.flush()])


_DEFLATED: dict[int, bytes] = {}


def _bomb() -> bytes:
    if BOMB not in _DEFLATED:
        _DEFLATED[BOMB] = _zeros(BOMB)
    return _DEFLATED[BOMB]


def _npz_bomb(data: bytes) -> bytes:
    """The array x, or the largest, as one of 3 GB, all of it zeros: the header is true, and so are the sizes."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        name = next((name for name in sizes if name.startswith("x")), max(sizes, key=sizes.__getitem__))
        others = {n: archive.read(n) for n in archive.namelist() if n != name}
    header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (%d, 3, 4), }" % (BOMB // 12)
    header = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n"
    return _packed(name, header, BOMB // 12 * 12, others)


def _zip_bomb(data: bytes) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        name = next(n for n in archive.namelist() if n.endswith((".ppm", ".csv")))
        others = {n: archive.read(n) for n in archive.namelist() if n != name}
        return _packed(name, archive.read(name), BOMB, others)


def _packed(name: str, head: bytes, zeros: int, others: dict[str, bytes]) -> bytes:
    """A zip file with one member of some bytes and very many zeros, written a piece at a time."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for other, data in others.items():
            archive.writestr(other, data)
        with archive.open(name, "w", force_zip64=True) as file:
            file.write(head)
            block = bytes(2**24)
            for start in range(0, zeros, len(block)):
                file.write(block[: min(len(block), zeros - start)])
    return out.getvalue()


def _gzip_bomb(inner: bytes) -> bytes:
    return gzip.compress(inner) + b"\x1f\x8b\x08\0\0\0\0\0\0\xff" + _bomb() + struct.pack("<II", 0, BOMB % 2**32)


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(bytes(10**6))) + chunk(b"IEND", b"")
    )


def _parquet_bomb(path: Path) -> None:
    """The same columns, all of them missing values, which are stored as their number."""
    import pyarrow as pa
    from pyarrow import parquet

    names = parquet.read_schema(path).names if path.exists() else ["input", "member", "class", "score", "label"]
    table = pa.table({name: pa.nulls(3 * 10**8) for name in names})
    parquet.write_table(table, path, row_group_size=10**8)


def _links() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            info = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
            info.type, info.linkname = kind, "/etc/passwd"
            archive.addfile(info)
    return out.getvalue()
