"""Parts shared by the directories of all saved classifiers: key, classes, partition and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from runoff import elections, hashing
from runoff._io.directories import new_directory, write_key
from runoff._io.files import write_array
from runoff._io.manifests import (
    MOST_MEMBERS,
    Kind,
    check_file,
    checked_bytes,
    read_array,
    read_manifest,
    write_manifest,
)
from runoff._io.text import one_line
from runoff._io.units import unit_of
from runoff.encoders import NOT_SAVED
from runoff.errors import InputError, MissingExtraError, StorageError
from runoff.partition import Partition

if TYPE_CHECKING:
    from runoff.ensemble import Ensemble

T = TypeVar("T")
SETTINGS = ("n_partitions", "spread", "n_seeds", "election", "bound", "random_state", "hash")
NOUN, REMEDY = "saved classifier", "save it again"


@contextmanager
def saved_directory(classifier: Ensemble, path: Path, kind: Kind) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a new directory for a classifier's members, and its manifest, for the caller to extend.

    When the block ends, the directory is renamed to `path`; if the block fails, it is deleted.
    """
    state = classifier.fitted_state()
    partition = state.partition
    if classifier.encoder_ is not None:
        raise InputError(NOT_SAVED)
    if not isinstance(partition.hash, str):
        raise InputError("a classifier whose hash is a function cannot be saved: the function would be lost")
    manifest: dict[str, Any] = {
        "format": kind.format,
        "version": kind.version,
        "partition": [partition.n_partitions, partition.d, list(partition.offsets), partition.hash],
        "fingerprint": partition.fingerprint,
        "settings": {
            "n_partitions": int(classifier.n_partitions),
            "spread": int(classifier.spread),
            "n_seeds": int(classifier.n_seeds),
            "election": classifier.election,
            "bound": classifier.bound,
            "random_state": state.seed,
            "hash": partition.hash,
        },
        "width": [state.width[0], list(state.width[1])],
        "members": partition.n_members,
        "classes_fixed": state.classes_fixed,
        "training_sets": state.training_sets,
    }
    if partition.unit != "samples":
        manifest["unit"] = partition.unit
    if state.n_single_class:
        manifest["single_class"] = state.n_single_class
    if state.sources is not None:
        manifest["sources"] = list(state.sources)
    with new_directory(path) as folder:
        (folder / "members").mkdir()
        write_key(folder, partition.key)
        write_array(folder / "classes.npy", _plain_labels(state.classes))
        write_array(folder / "member_sizes.npy", state.member_sizes)
        yield folder, manifest
        write_manifest(folder, manifest)


def _plain_labels(labels: Any) -> Any:
    """Return labels as an array without Python objects."""
    if labels.dtype.hasobject:
        labels = np.array(labels.tolist())
    if labels.dtype.hasobject:
        raise InputError("labels must be numbers or strings to be saved")
    return labels


def load_directory(path: Path, kind: Kind, assemble: Callable[[Path, dict[str, Any]], T]) -> T:
    """Check every file of a directory and assemble its classifier; any failure is raised as `StorageError`."""
    path = path.resolve()
    try:
        manifest = read_manifest(path, kind)
        for name, digest in manifest["files"].items():
            check_file(path, name, digest)
        return assemble(path, manifest)
    except (StorageError, MissingExtraError):
        raise
    except Exception as error:
        name = type(error).__name__
        raise StorageError(f"{path} does not describe a classifier: {name}: {one_line(error)}") from error


def settings_of(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a classifier from its manifest."""
    settings = manifest["settings"]
    if not isinstance(settings, dict) or set(settings) != {*SETTINGS} or settings["election"] not in elections.NAMES:
        raise StorageError(f"{path} has invalid settings: its manifest was altered")
    return settings


def restore(classifier: Ensemble, path: Path, manifest: dict[str, Any]) -> None:
    """Restore everything but the members of a classifier from its directory."""
    from runoff.fitting.state import FittedState

    classes = read_array(path, "classes.npy", manifest)
    if classes.ndim != 1 or not len(classes) or not np.array_equal(np.unique(classes), classes):
        raise StorageError(f"{path} has classes that are not sorted and distinct: it was altered")
    if not isinstance(manifest["classes_fixed"], bool):
        raise StorageError(f"{path} does not record whether its classes are fixed: its manifest was altered")
    state = FittedState(
        partition=_partition(path, manifest),
        classes=classes,
        classes_fixed=manifest["classes_fixed"],
        training_sets=[str(digest) for digest in manifest["training_sets"]],
        member_sizes=read_array(path, "member_sizes.npy", manifest),
        seed=int(manifest["settings"]["random_state"]),
        n_seeds=int(manifest["settings"]["n_seeds"]),
        width=_width(path, manifest),
        sources=_sources(path, manifest),
        n_single_class=int(manifest.get("single_class", 0)),
        numbers=manifest.get("dtype", "float64"),
    )
    classifier.restore(state)


def _width(path: Path, manifest: dict[str, Any]) -> tuple[str, tuple[Any, ...]]:
    """Return the form of the samples: their kind, with the shape of one or the names of columns."""
    kind, width = manifest["width"]
    valid = {"dense": int, "sparse": int, "table": str, "texts": int}.get(kind) if isinstance(kind, str) else None
    if valid is None or not isinstance(width, list) or any(type(size) is not valid for size in width):
        raise StorageError(f"{path} has samples of an invalid form: its manifest was altered")
    return kind, tuple(width)


def _sources(path: Path, manifest: dict[str, Any]) -> tuple[int, float] | None:
    """Return the number of sources, and the share of samples of the largest, if sources are counted."""
    if manifest.get("unit") != "sources":
        return None
    number, largest = manifest["sources"]
    if not isinstance(number, int) or number < 1 or not 0 < float(largest) <= 1:
        raise StorageError(f"{path} has invalid numbers of sources: its manifest was altered")
    return number, float(largest)


def _partition(path: Path, manifest: dict[str, Any]) -> Partition:
    k, d, offsets, hash_name = manifest["partition"]
    if not 0 < int(k) * int(d) <= MOST_MEMBERS or not 0 < int(d) == len(offsets):
        raise StorageError(
            f"{path} claims {one_line(k, 40)} parts and {one_line(d, 40)} members per bucket: its manifest was altered"
        )
    key = hashing.Key(checked_bytes(path, "key", manifest["files"]["key"]))
    unit = unit_of(manifest.get("unit", "samples")).name
    partition = Partition(int(k), int(d), tuple(int(o) for o in offsets), key, str(hash_name), unit)
    if partition.fingerprint != manifest["fingerprint"]:
        raise StorageError(f"{path} has a partition that does not match its fingerprint: the manifest was altered")
    valid = len(set(partition.offsets)) == partition.d and all(0 <= o < partition.n_members for o in partition.offsets)
    if not valid or int(manifest["members"]) != partition.n_members:
        offsets = one_line(partition.offsets, 60)
        raise StorageError(
            f"{path} has an invalid partition: {partition.n_partitions} parts, {partition.d} members per bucket, "
            f"offsets {offsets}"
        )
    return partition
