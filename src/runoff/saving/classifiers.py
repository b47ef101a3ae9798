"""Directories of a fitted RunoffClassifier: skops files, .npy arrays and a manifest with the SHA-256 of each file.

Nothing is unpickled. Every file is checked before it is parsed, and the file of a member is parsed on first use.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from runoff._io.manifests import Kind, checked_bytes
from runoff._io.text import one_line
from runoff._version import __version__
from runoff.errors import MissingExtraError, StorageError
from runoff.fitting.checking import number_type
from runoff.members import Member, Shared
from runoff.samples import Kinds
from runoff.saving import trusted as trusted_types
from runoff.saving.common import NOUN, REMEDY, load_directory, restore, saved_directory, settings_of

if TYPE_CHECKING:
    from runoff.classifier import RunoffClassifier

KIND = Kind("runoff classifier", 2, NOUN, REMEDY)


def require_skops() -> Any:
    """Return skops.io, which is needed to save and load classifiers, or raise `MissingExtraError`."""
    try:
        import skops.io
    except ImportError:
        raise MissingExtraError("saving and loading need skops. Install it with: pip install 'runoff[skops]'") from None
    return skops.io


def save(classifier: RunoffClassifier, path: Path) -> None:
    """Write a fitted classifier to a new directory, completely or not at all."""
    sio = require_skops()
    with saved_directory(classifier, path, KIND) as (folder, manifest):
        for member in classifier.members_:
            (folder / "members" / f"{member.index:06d}.skops").write_bytes(member_bytes(member))
        estimator = sio.dumps({"estimator": classifier.estimator})
        (folder / "estimator.skops").write_bytes(estimator)
        if (shared := classifier.shared_) is not None:
            state = {"shared": classifier.shared, "fitted": shared.fitted, "kinds": _as_lists(shared.kinds)}
            (folder / "shared.skops").write_bytes(sio.dumps(state))
        numbers = classifier.fitted_state().numbers
        if classifier.dtype is not None or numbers != "float64":
            manifest["dtype"] = numbers
        manifest |= {
            "versions": versions(trusted_types.packages(set(sio.get_untrusted_types(data=estimator)))),
            "n_features_in": getattr(classifier, "n_features_in_", None),
            "feature_names_in": [str(name) for name in getattr(classifier, "feature_names_in_", [])] or None,
        }


def member_bytes(member: Member) -> bytes:
    """Return a member as the bytes of a skops file."""
    state = {
        "index": member.index,
        "classes": member.classes,
        "shares": member.shares,
        "fitted": list(member.fitted),
        "kinds": _as_lists(member.kinds),
    }
    data: bytes = require_skops().dumps(state)
    return data


def _as_lists(kinds: Kinds) -> list[list[str] | None]:
    return [None if kind is None else list(kind) for kind in kinds]


def _as_kinds(lists: Any) -> Kinds:
    return tuple(None if kind is None else tuple(kind) for kind in lists)


def versions(packages: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions that members depend on, including these packages: with others, the last bits may differ."""
    import scipy
    import sklearn

    return {
        "runoff": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "machine": platform.machine(),
        **{name: trusted_types.version_of(name) or "not installed" for name in packages},
    }


def load(kind: type[RunoffClassifier], path: Path, trusted: tuple[str, ...]) -> RunoffClassifier:
    """Check every file and assemble the classifier, whose members are read on first use."""

    def assemble(path: Path, manifest: dict[str, Any]) -> RunoffClassifier:
        files = manifest["files"]
        number_type(manifest.get("dtype"))
        classifier = kind(**settings_of(path, manifest), dtype=manifest.get("dtype"))
        restore(classifier, path, manifest)
        if manifest["n_features_in"] is not None:
            classifier.n_features_in_ = int(manifest["n_features_in"])
        if manifest["feature_names_in"] is not None:
            classifier.feature_names_in_ = np.array(manifest["feature_names_in"], dtype=object)
        state = _parsed(path, "estimator.skops", files["estimator.skops"], trusted)
        estimator = state["estimator"] if isinstance(state, dict) and "estimator" in state else state
        if estimator is not None and not _has_methods(estimator, "get_params", "set_params", "fit"):
            raise StorageError(
                f"{path / 'estimator.skops'} contains no estimator, but {_describe(estimator)}: it was altered"
            )
        if estimator is not None:
            _check_settings(path / "estimator.skops", estimator)
        classifier.estimator = estimator
        if "shared.skops" in files:
            _restore_shared(classifier, path, files["shared.skops"], trusted)
        names = [f"members/{m:06d}.skops" for m in range(classifier.partition_.n_members)]
        classifier.members_ = [
            LazyMember(path, name, files[name], m, trusted, classifier.classes_) for m, name in enumerate(names)
        ]
        largest = max(names, key=lambda name: (path / name).stat().st_size)  # so that unknown types are reported now
        _check_types(path, largest, checked_bytes(path, largest, files[largest]), trusted)
        return classifier

    return load_directory(path, KIND, assemble)


def _restore_shared(classifier: RunoffClassifier, path: Path, digest: str, trusted: tuple[str, ...]) -> None:
    """Restore the shared transformer."""
    state = _parsed(path, "shared.skops", digest, trusted)
    if classifier.threat != "labels" or not _has_methods(state["fitted"], "transform"):
        raise StorageError(f"{path / 'shared.skops'} contains no transformer for threat='labels': it was altered")
    classifier.shared, classifier.shared_ = state["shared"], Shared(state["fitted"], _as_kinds(state["kinds"]))


def _parsed(path: Path, name: str, digest: str, trusted: tuple[str, ...]) -> Any:
    """Return the content of a skops file if all its types are trusted."""
    data = checked_bytes(path, name, digest)
    types = _check_types(path, name, data, trusted)
    try:
        return require_skops().loads(data, trusted=sorted(types))
    except Exception as error:
        raise _unreadable(path, name, error) from None


def _check_types(path: Path, name: str, data: bytes, trusted: tuple[str, ...]) -> set[str]:
    """Return the types in a file that skops does not trust, if they are on our list or `trusted` by the caller."""
    try:
        types = set(require_skops().get_untrusted_types(data=data))
    except Exception as error:
        raise _unreadable(path, name, error) from None
    if unknown := sorted(types - set(trusted) - trusted_types.NAMES):
        raise StorageError(f"{path / name} {trusted_types.refusal(unknown)}")
    for package in trusted_types.packages(types):
        if trusted_types.version_of(package) is None:
            raise MissingExtraError(f"{path} needs {package}. Install it with: pip install {package}")
    return types


def _unreadable(path: Path, name: str, error: Exception) -> StorageError:
    return StorageError(f"{path / name} cannot be read: {type(error).__name__}: {one_line(error)}")


def _has_methods(value: Any, *names: str) -> bool:
    """Return whether a value is an object, not a class, with these methods."""
    return not isinstance(value, type) and all(callable(getattr(value, name, None)) for name in names)


def _check_settings(file: Path, estimator: Any) -> None:
    """Raise StorageError unless an estimator has all of its settings, without which it cannot even be copied."""
    try:
        estimator.get_params()
    except Exception as error:
        reason = one_line(error)
        raise StorageError(f"{file} contains an incomplete estimator ({reason}): it was altered") from None


def _describe(value: Any) -> str:
    return f"an object of type {type(value).__name__:.100}"


class LazyMember:
    """A member on disk, read and checked again on first use."""

    def __init__(
        self, path: Path, name: str, digest: str, index: int, trusted: tuple[str, ...], classes: NDArray[Any]
    ) -> None:
        self.index = index
        self._source = (path, name, digest, trusted)
        self._classes = classes
        self._member: Member | None = None

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # workers of joblib unpickle the object before it has attributes
            raise AttributeError(name)
        return getattr(self.member, name)

    @property
    def member(self) -> Member:
        """The member, read on first access."""
        if self._member is None:
            state = _parsed(*self._source)
            file = self._source[0] / self._source[1]
            try:
                kinds = _as_kinds(state["kinds"])
                member = Member(int(state["index"]), state["classes"], state["shares"], tuple(state["fitted"]), kinds)
                fits = member.index == self.index and bool(np.isin(member.classes, self._classes).all())
                fits &= member.classes.ndim == 1 and member.classes.shape == member.shares.shape
                fits &= member.shares.dtype == np.float64 and bool(np.isfinite(member.shares).all())
            except Exception as error:
                raise StorageError(
                    f"{file} cannot be read as a member: {type(error).__name__}: {one_line(error)}"
                ) from None
            if odd := [value for value in member.fitted if not _has_methods(value, "predict")]:
                raise StorageError(f"{file} contains no fitted estimator, but {_describe(odd[0])}: it was altered")
            if not fits:
                raise StorageError(f"{file} is not member {self.index} of this classifier")
            self._member = member
        return self._member
