"""A fitted classifier as a directory: members by skops, arrays as .npy, and a manifest with the SHA-256 of every file.

Nothing is unpickled. Every file is checked before anything in it is parsed, and a member's file is parsed when that
member is first asked.
"""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runoff import _files, elections, hashing
from runoff.members import Member
from runoff.partition import Partition

if TYPE_CHECKING:
    from runoff.classifier import RunoffClassifier
    from runoff.ensemble import Ensemble

FORMAT, VERSION = "runoff classifier", 2
LARGEST_MANIFEST = 2**28  # bytes
MOST_MEMBERS = 10**6  # that a manifest may claim


class StorageError(ValueError):
    """A directory that cannot be read as a classifier: one sentence says why."""


def _skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise ImportError("saving and loading need skops. Install it with: pip install runoff[skops]") from None
    return skops.io


def save(classifier: RunoffClassifier, path: Path) -> None:
    """Write to a temporary directory beside `path`, sync, rename: it is there whole or not at all."""
    sio = _skops()
    if not isinstance(classifier.partition_.hash, str):
        raise ValueError("a classifier whose hash is a function cannot be saved: the function would be lost")
    with new_directory(path) as folder:
        (folder / "members").mkdir()
        write_key(folder, classifier.partition_.key)
        write_array(folder / "classes.npy", classifier.classes_)
        write_array(folder / "member_sizes.npy", classifier.member_sizes_)
        for member in classifier.members_:
            (folder / "members" / f"{member.index:06d}.skops").write_bytes(member_bytes(member))
        (folder / "estimator.skops").write_bytes(sio.dumps({"estimator": classifier.estimator}))
        write_manifest(
            folder,
            {
                "format": FORMAT,
                "version": VERSION,
                **described(classifier),
                "versions": versions(),
                "n_features_in": getattr(classifier, "n_features_in_", None),
                "feature_names_in": [str(name) for name in getattr(classifier, "feature_names_in_", [])] or None,
            },
        )


def member_bytes(member: Member) -> bytes:
    """Return a member as the bytes of a skops file."""
    state = {
        "index": member.index,
        "classes": member.classes,
        "shares": member.shares,
        "fitted": list(member.fitted),
        "kinds": [None if kind is None else list(kind) for kind in member.kinds],
    }
    data: bytes = _skops().dumps(state)
    return data


def versions() -> dict[str, str]:
    """Return what members follow from beside their samples and settings: with other versions, other last bits."""
    import platform

    import scipy
    import sklearn

    import runoff

    return {
        "runoff": runoff.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "machine": platform.machine(),
    }


def described(classifier: Ensemble) -> dict[str, Any]:
    """What the manifest of any classifier says."""
    partition = classifier.partition_
    return {
        "partition": [partition.n_partitions, partition.d, list(partition.offsets), partition.hash],
        "fingerprint": partition.fingerprint,
        "settings": {
            "n_partitions": int(classifier.n_partitions),
            "spread": int(classifier.spread),
            "n_seeds": int(classifier.n_seeds),
            "election": classifier.election,
            "bound": classifier.bound,
            "random_state": classifier._seed,
            "hash": partition.hash,
        },
        "width": [classifier._width[0], list(classifier._width[1])],
        "members": partition.n_members,
        "classes_fixed": classifier._known is not None,
        "training_sets": classifier._training_sets,
    }


SETTINGS = {"n_partitions", "spread", "n_seeds", "election", "bound", "random_state", "hash"}


def settings_of(path: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """The settings that `described` wrote, and no others."""
    settings = manifest["settings"]
    if not isinstance(settings, dict) or set(settings) != SETTINGS or settings["election"] not in elections.NAMES:
        raise StorageError(f"{path} has settings that no classifier has: its manifest was altered")
    return settings


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Make a temporary directory beside `path` that takes its name when it is complete and on disk."""
    taken = f"{path} exists already: save to a new directory, or remove it first"
    if path.exists():
        raise FileExistsError(taken)
    with _files.temporary_directory(path) as folder:
        try:
            yield folder
            for file in [*(f for f in folder.rglob("*") if f.is_file()), folder]:
                sync(file)
            folder.chmod(0o755)
            folder.rename(path)
            sync(path.parent)
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                raise FileExistsError(taken) from None  # somebody else was faster
            raise


def write_key(folder: Path, key: bytes) -> None:
    """The secret key, for the owner's eyes."""
    (folder / "key").unlink(missing_ok=True)
    with open(folder / "key", "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write(key)


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    """The manifest, with the SHA-256 of every file beside it."""
    files = {str(f.relative_to(folder)): sha256(f.read_bytes()) for f in sorted(folder.rglob("*")) if f.is_file()}
    (folder / "manifest.json").write_text(json.dumps(sealed({**manifest, "files": files}), indent=1))


def sealed(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return a manifest with the SHA-256 of what it says itself, so that a changed byte in it shows, too."""
    rest = {name: value for name, value in manifest.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return {**rest, "digest": sha256(text.encode())}


def load(kind: type[RunoffClassifier], path: Path, trusted: tuple[str, ...]) -> RunoffClassifier:
    """Check every file, then put the classifier together; members come when they are asked."""
    path = path.resolve()
    try:
        manifest = read_manifest(path, FORMAT, VERSION)
        for name, digest in manifest["files"].items():
            check(path, name, digest)
        return _put_together(kind, path, manifest, trusted)
    except StorageError:
        raise
    except Exception as error:  # whatever a hostile manifest may bring about
        raise StorageError(f"{path} does not describe a classifier: {type(error).__name__}: {error!s:.200}") from None


def _put_together(
    kind: type[RunoffClassifier], path: Path, manifest: dict[str, Any], trusted: tuple[str, ...]
) -> RunoffClassifier:
    classifier = kind(**settings_of(path, manifest))
    restore(classifier, path, manifest)
    if manifest["n_features_in"] is not None:
        classifier.n_features_in_ = int(manifest["n_features_in"])
    if manifest["feature_names_in"] is not None:
        classifier.feature_names_in_ = np.array(manifest["feature_names_in"], dtype=object)
    classifier.estimator = _parsed(path, "estimator.skops", manifest["files"]["estimator.skops"], trusted)["estimator"]
    names = [f"members/{m:06d}.skops" for m in range(classifier.partition_.n_members)]
    classifier.members_ = [
        LazyMember(path, name, manifest["files"][name], m, trusted, classifier.classes_) for m, name in enumerate(names)
    ]
    return classifier


def restore(classifier: Ensemble, path: Path, manifest: dict[str, Any]) -> None:
    """The partition, the classes and what else `described` wrote."""
    k, d, offsets, hash_name = manifest["partition"]
    if not 0 < int(k) * int(d) <= MOST_MEMBERS or not 0 < int(d) == len(offsets):
        raise StorageError(f"{path} claims {k} parts and {d} members per bucket: its manifest was altered")
    key = hashing.Key(checked(path, "key", manifest["files"]["key"]))
    partition = Partition(int(k), int(d), tuple(int(o) for o in offsets), key, str(hash_name))
    if partition.fingerprint != manifest["fingerprint"]:
        raise StorageError(f"{path} has a partition that does not match its fingerprint: the manifest was altered")
    sound = len(set(partition.offsets)) == partition.d and all(0 <= o < partition.n_members for o in partition.offsets)
    if not sound or int(manifest["members"]) != partition.n_members:
        raise StorageError(
            f"{path} has a partition that is not one: {k} parts, {d} members a bucket, offsets {offsets}"
        )
    classifier.partition_, classifier.hash_key = partition, key
    classifier.classes_ = read_array(path, "classes.npy", manifest)
    if (
        classifier.classes_.ndim != 1
        or not len(classifier.classes_)
        or not np.array_equal(np.unique(classifier.classes_), classifier.classes_)
    ):
        raise StorageError(f"{path} has classes that are not sorted labels, each once: it was altered")
    if not isinstance(manifest["classes_fixed"], bool):
        raise StorageError(f"{path} does not say whether its classes were fixed beforehand: its manifest was altered")
    classifier._known = classifier.classes = classifier.classes_ if manifest["classes_fixed"] else None
    classifier._training_sets = [str(digest) for digest in manifest["training_sets"]]
    classifier.member_sizes_ = read_array(path, "member_sizes.npy", manifest)
    classifier._seed, classifier._n_seeds = (
        int(manifest["settings"]["random_state"]),
        int(manifest["settings"]["n_seeds"]),
    )
    classifier._width = (manifest["width"][0], tuple(manifest["width"][1]))
    classifier._samples = None


def _parsed(path: Path, name: str, digest: str, trusted: tuple[str, ...]) -> Any:
    """What a skops file holds, if all its types are trusted."""
    sio = _skops()
    data = checked(path, name, digest)
    try:
        types = set(sio.get_untrusted_types(data=data))
        unknown = sorted(types - set(trusted) - OURS)
        if not unknown:
            return sio.loads(data, trusted=sorted(types))
    except Exception as error:
        raise StorageError(f"{path / name} cannot be read: {type(error).__name__}: {error!s:.200}") from None
    raise StorageError(
        f"{path / name} holds types that are not trusted, {', '.join(unknown)}: if they are yours, pass them as "
        "load(path, trusted=(...))"
    )


class LazyMember:
    """A member on disk, read and checked again when it is first asked."""

    def __init__(
        self, path: Path, name: str, digest: str, index: int, trusted: tuple[str, ...], classes: NDArray[Any]
    ) -> None:
        self.index = index
        self._from = (path, name, digest, trusted)
        self._allowed = classes
        self._member: Member | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # not while it is being unpickled by a worker
            raise AttributeError(name)
        return getattr(self.member, name)

    @property
    def member(self) -> Member:
        """The member itself."""
        if self._member is None:
            state = _parsed(*self._from)
            where = self._from[0] / self._from[1]
            try:
                kinds = tuple(None if kind is None else tuple(kind) for kind in state["kinds"])
                member = Member(int(state["index"]), state["classes"], state["shares"], tuple(state["fitted"]), kinds)
                fits = member.index == self.index and bool(np.isin(member.classes, self._allowed).all())
                fits &= member.classes.ndim == 1 and member.classes.shape == member.shares.shape
                fits &= member.shares.dtype == np.float64 and bool(np.isfinite(member.shares).all())
            except Exception as error:
                raise StorageError(
                    f"{where} cannot be read as a member: {type(error).__name__}: {error!s:.200}"
                ) from None
            if not fits:
                raise StorageError(f"{where} is not member {self.index} of this classifier")
            self._member = member
        return self._member


# What the default estimator is made of, beyond what skops trusts by itself.
OURS = {
    "numpy.dtype",
    "numpy.number",
    "runoff.members.flat",
    "sklearn.compose._column_transformer.make_column_selector",
}


def read_manifest(path: Path, kind: str, version: int) -> dict[str, Any]:
    """The manifest of a saved classifier, or of a run."""
    what, cure = ("run", "take it from a copy") if kind == "runoff run" else ("saved classifier", "save it again")
    try:
        manifest = json.loads(_files.read_regular(path / "manifest.json", LARGEST_MANIFEST))
    except OSError as error:
        raise StorageError(f"{path} is not a {what}: manifest.json cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError):
        raise StorageError(f"{path} is damaged: manifest.json is not JSON; {cure}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != kind:
        raise StorageError(f"{path} is not a {what}: manifest.json describes something else")
    if manifest.get("version") != version:
        raise StorageError(f"{path} has version {manifest.get('version')!r}, this release reads version {version}")
    files = manifest.get("files")
    if not isinstance(files, dict) or any(Path(f).is_absolute() or ".." in Path(f).parts for f in files):
        raise StorageError(f"{path} has a manifest that names files outside of it")
    return manifest


def check(path: Path, name: str, digest: str) -> None:
    """Refuse a file that is not the one that was saved."""
    try:
        found = _files.sha256_of(path / name)
    except UnicodeError:
        raise StorageError(
            f"{path} lists {name!r:.100}, which is no name of a file: its manifest was altered"
        ) from None
    except OSError as error:
        raise StorageError(f"{path} is incomplete: {name} cannot be read ({error.strerror})") from None
    if found != digest:
        raise StorageError(f"{path} was altered or damaged: {name} has another SHA-256 than its manifest says")


def checked(path: Path, name: str, digest: str) -> bytes:
    """Return a file's bytes, if they are those that were saved."""
    check(path, name, digest)
    data = _files.read_regular(path / name)
    if sha256(data) != digest:
        raise StorageError(f"{path} was altered while it was read: {name} has another SHA-256 than its manifest says")
    return data


def read_array(path: Path, name: str, manifest: dict[str, Any]) -> Any:
    """An array that the manifest vouches for."""
    return np.load(io.BytesIO(checked(path, name, manifest["files"][name])), allow_pickle=False)


def write_array(path: Path, array: Any) -> None:
    """An array of numbers or texts, as .npy."""
    if array.dtype.hasobject:
        array = np.array(array.tolist())
    if array.dtype.hasobject:
        raise ValueError("labels must be numbers or texts to be saved")
    np.save(path, array, allow_pickle=False)


def sha256(data: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(data).hexdigest()


def sync(path: Path) -> None:
    """Make sure that it is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
