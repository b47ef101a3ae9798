"""Every reader against files that are damaged on purpose.

A case fails unless it ends with a correct read or with the documented error, within 2 s and 500 MB. If digests
protect the files, a read must return what was saved.
"""

import logging
import os
import pickle
import shutil
import tempfile
import traceback
import warnings
from pathlib import Path

import numba
import numpy as np
from threadpoolctl import threadpool_limits

from tests.torture import heavy, reading, reading_data, reading_proofs, reading_tables, reading_weights
from tests.torture.reading import NotHereError, Reader
from tests.torture.tally import Tally

MANY = 100_000  # cases for each reader
CHUNK = 500

# Groups that can be run one at a time: each has a table of its own in docs/trust.md.
GROUPS: dict[str, dict[str, type[Reader]]] = {
    "scores": {
        "scores .npy": reading.Scores,
        "ballots .npy": reading.BallotFiles,
        "labels and predictions .npy": reading_tables.Predictions,
        "spreads": reading.Spreads,
        "scores .csv": reading_tables.LongCsv,
        "scores .parquet": reading_tables.LongParquet,
        "tables .csv": reading_tables.CsvTables,
        "tables .parquet": reading_tables.ParquetTables,
    },
    "runs": {
        "run manifests": reading.RunManifest,
        "run files": reading.RunFiles,
        "runs, by the verifier": reading_proofs.VerifiedRuns,
    },
    "models": {
        "saved classifiers": reading.Models,
        "saved classifiers, by the verifier": reading_proofs.VerifiedModels,
        "saved networks": reading.NetworkModels,
    },
    "weights": {
        "trained networks": reading_weights.Networks,
        "first weights": reading_weights.FirstWeights,
        "encoder weights": reading_weights.EncoderWeights,
        "encoder packages": reading_weights.EncoderPackages,
        "PyTorch state dicts": reading_weights.StateDicts,
        "cached features": reading_weights.Features,
        "carried scores": reading_weights.CarriedScores,
    },
    "datasets": {
        "datasets .npz": reading_data.Npz,
        "datasets .npz with sources": reading_data.Grouped,
        "folders of images": reading_data.Images,
        "MNIST": reading_data.Official,
        "CIFAR-10 files": reading_data.Cifar10,
        "CIFAR-10 archive": reading_data.Cifar10Archive,
        "GTSRB": reading_data.Gtsrb,
        "SpamAssassin package": reading_data.Mails,
        "SpamAssassin archives": reading_data.MailArchives,
    },
    "evidence": {
        "proofs": reading_proofs.Proofs,
        "attestations": reading_proofs.Attestations,
    },
}
READERS = {name: kind for group in GROUPS.values() for name, kind in group.items()}


def run(scale: float, seed: int, jobs: int, group: str = "") -> Tally:
    """The same number of cases for every reader of a group, or of all, then those that take a process of their own."""
    count = max(20, round(MANY * scale))
    names = [*GROUPS.get(group, READERS)]
    with threadpool_limits(1):  # a fork of a process whose libraries have threads could hang
        return Tally().merge([*(damaged(name, seed, count, jobs) for name in names), heavy.run(scale, names)])


def damaged(name: str, seed: int, count: int, jobs: int) -> Tally:
    """All cases of one reader, in forks: a reader that kills its process is a failure, too."""
    chunks = [(number, min(CHUNK, count - start)) for number, start in enumerate(range(0, count, CHUNK))]
    place = folder_in_memory()
    tally = Tally()
    try:
        reader = READERS[name](place / "files")
        numba.config.NUMBA_NUM_THREADS = 1  # type: ignore[attr-defined]
        parts = [(place / f"files-{worker}", chunks[worker::jobs]) for worker in range(min(jobs, len(chunks)))]
        forks = [_forked(name, reader, seed, *part) for part in parts]
        for (folder, _), fork in zip(parts, forks, strict=True):
            tally.merge([_ended(name, reader, folder, *fork)])
    except NotHereError:
        pass
    finally:
        Reader.patch.undo()
        shutil.rmtree(place, ignore_errors=True)
    return tally


def folder_in_memory() -> Path:
    """A new folder, in memory where that is possible."""
    place = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108
    return Path(tempfile.mkdtemp(dir=place, prefix="torture-"))


def _forked(name: str, reader: Reader, seed: int, folder: Path, chunks: list[tuple[int, int]]) -> tuple[int, int]:
    """Start a process for some chunks; return its id and the end of the pipe that its tally comes through."""
    out, into = os.pipe()
    pid = os.fork()
    if pid:
        os.close(into)
        return pid, out
    code = 1
    try:
        os.close(out)
        logging.disable(logging.WARNING)  # readers warn of files that they ignore
        reader.move(folder)
        parent = os.getppid()
        tally = Tally().merge(chunk(name, reader, seed, *part) for part in chunks if os.getppid() == parent)
        with os.fdopen(into, "wb") as file:
            pickle.dump(tally, file)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _ended(name: str, reader: Reader, folder: Path, pid: int, out: int) -> Tally:
    with os.fdopen(out, "rb") as file:
        told = file.read()
    status = os.waitpid(pid, 0)[1]
    if told:
        found: Tally = pickle.loads(told)  # noqa: S301
        return found
    reader.folder = folder
    last = {file: data[:300] for file, data in reader.given_files().items()}
    tally = Tally()
    tally.fail(name, f"the process died ({os.waitstatus_to_exitcode(status)}) with {last!r:.2000}", tried=1)
    return tally


def chunk(name: str, reader: Reader, seed: int, number: int, count: int) -> Tally:
    """Some cases of one reader."""
    tally = Tally()
    rng = np.random.default_rng([seed, list(READERS).index(name), number])
    for _ in range(count):
        with warnings.catch_warnings():
            for kind in (UserWarning, RuntimeWarning):  # of Pillow, on damaged and on large images
                warnings.simplefilter("ignore", kind)
            wrong = reader.case(rng)
        tally.check(name, wrong is None, wrong or "")
    return tally
