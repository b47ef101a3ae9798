"""Sources of a report: an ensemble and its test inputs, from a run or a fitted classifier."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runoff import datasets, recipes
from runoff._io.files import read_regular
from runoff._io.manifests import LARGEST_MANIFEST
from runoff._io.text import count, visible
from runoff.ballots import Ballots, points, rank
from runoff.certificates import LABELS_NOT_FIXED, Certificates, certify
from runoff.elections import get
from runoff.errors import InputError, StorageError
from runoff.report import _origin, _undefended
from runoff.report._pictures import stretched
from runoff.runs import Run, Settings
from runoff.scores import checked_scores

if TYPE_CHECKING:
    from runoff.ensemble import Ensemble

BLOCK = 1024  # inputs per block


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Source:
    """An ensemble, its members' ballots for test inputs, and facts about both.

    Attributes
    ----------
    ballots : (n_inputs, n_members, n_classes) points or scores
    labels : (n_inputs,) the true classes, as indices
    spread : (n_buckets, d) the members that learn from each bucket; by default, one bucket per member
    classes : their names; by default, their indices
    n_partitions : the number k of partitions; by default, the number of buckets / d
    pictures : (n_inputs, h, w) or (n_inputs, h, w, 3) 8-bit images
    features : the inputs if there are no pictures: an array, a table or texts
    undefended : (n_inputs,) the class indices that an undefended model predicts; None if unknown
    member_sizes, member_seconds : training samples and seconds per member; None if unknown
    dataset : the name of the dataset
    of_paper : whether it is the paper's dataset of that name, unedited
    like_paper : whether network and recipe are the paper's; None if unknown
    facts : further facts, as pairs of a name and a value
    made, checked : commands or lines of Python that reproduce it and that check it
    notes : sentences about missing parts, with the reason
    encoder : the name and SHA-256 of the trusted encoder whose features members learn from; None without one
    first_weights : the name and SHA-256 of the weights that networks started from; None if they were random

    """

    name: str
    ballots: NDArray[Any]
    labels: NDArray[np.int64]
    spread: NDArray[np.int64] = None  # type: ignore[assignment]
    classes: tuple[str, ...] = None  # type: ignore[assignment]
    n_partitions: int = None  # type: ignore[assignment]
    n_seeds: int = 1
    n_train: int | None = None
    pictures: NDArray[np.uint8] | None = None
    features: Any = None
    undefended: NDArray[Any] | None = None
    member_sizes: NDArray[np.int64] | None = None
    member_seconds: tuple[float | None, ...] | None = None
    dataset: str = ""
    of_paper: bool = False
    like_paper: bool | None = None
    fingerprint: str | None = None  # of the partition
    unit: str = "samples"  # what radii count
    data_fingerprint: str | None = None
    facts: _origin.Facts = ()
    made: tuple[str, ...] = ()
    checked: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())
    encoder: str | None = None
    first_weights: str | None = None

    def __post_init__(self) -> None:
        self._set_defaults()
        if len(set(self.classes)) != len(self.classes):
            raise InputError(f"{self.name} must have classes with different names")
        if len(self.labels) and not 0 <= self.labels.min() <= self.labels.max() < len(self.classes):
            raise InputError(f"{self.name} must have labels from 0 to {len(self.classes) - 1}")
        for name in ("name", "dataset", "classes", "facts", "made", "checked", "notes"):
            object.__setattr__(self, name, shown(getattr(self, name)))
        for name in ("encoder", "first_weights"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, shown(getattr(self, name)))
        if self.labels.shape != self.ballots.shape[:1]:
            raise InputError(
                f"{self.name} must have one label for each of {len(self.ballots)} inputs, got shape {self.labels.shape}"
            )
        if len(self.classes) != self.ballots.shape[2]:
            raise InputError(f"{self.name} must have {self.ballots.shape[2]} classes, got {len(self.classes)}")
        if self.undefended is not None:
            known = _undefended.class_indices(self.undefended, self.classes, len(self.labels))
            object.__setattr__(self, "undefended", known)

    def _set_defaults(self) -> None:
        """Set what the scores imply if it is not given, as `runoff.certify` does."""
        checked_scores(self.ballots, self.name)
        if self.spread is None:
            object.__setattr__(self, "spread", np.arange(self.ballots.shape[1])[:, None])
        if self.spread.ndim != 2 or self.spread.dtype.kind not in "iu":
            raise InputError(
                f"{self.name} must have a spread that is an integer array (n_buckets, d), got shape "
                f"{self.spread.shape} and dtype {self.spread.dtype}"
            )
        if self.classes is None:
            object.__setattr__(self, "classes", tuple(map(str, range(self.ballots.shape[2]))))
        if self.n_partitions is None:
            object.__setattr__(self, "n_partitions", max(1, len(self.spread) // self.d))

    def __repr__(self) -> str:
        n_inputs, n_members, n_classes = self.ballots.shape  # not the inputs, which may be private
        return (
            f"<Source {self.name!r}: {count(n_inputs, 'input')}, {count(n_members, 'member')}, {n_classes:,} classes>"
        )

    @property
    def d(self) -> int:
        """Number of members per bucket."""
        return int(self.spread.shape[1])

    def ballots_of(self, i: int) -> Ballots:
        """Return the members' ballots for one input."""
        ballots: Ballots = points(np.asarray(self.ballots[i])[None])[0]
        return ballots

    def certificates(self, election: str, bound: str) -> Certificates:
        """Certify all inputs, with the names of the classes."""
        if not get(election).in_paper:
            bound = "tight"
        certificates = certify(self.ballots, election=election, spread=self.spread, bound=bound, unit=self.unit)
        return certificates.named(np.array(self.classes, dtype=object), self.fingerprint)

    def member_accuracy(self) -> NDArray[np.float64]:
        """Return the accuracy of each member's first choice."""
        correct = np.zeros(self.ballots.shape[1], np.int64)
        for start in range(0, len(self.ballots), BLOCK):
            block = slice(start, start + BLOCK)
            correct += (self.ballots[block].argmax(axis=2) == self.labels[block, None]).sum(axis=0)
        return correct / len(self.ballots)

    @classmethod
    def from_run(
        cls,
        path: str | Path,
        n_seeds: int | None = None,
        *,
        data_dir: Path | None = None,
        pictures: bool = True,
        undefended: ArrayLike | str | Path | None = None,
    ) -> Source:
        """Read a run after checking all its files, with pictures from its dataset if that can be read.

        `undefended` are the predictions of one model trained on all samples, for the same test inputs in the same
        order: class indices, names of classes, scores (n_inputs, n_classes), or a .npy file that holds one of these.
        """
        path = Path(path)
        run = Run.open(path)
        run.verify()
        try:
            fields = _run_fields(run, path, n_seeds, data_dir, pictures)
            if undefended is not None:
                fields["undefended"] = _undefended.class_indices(undefended, fields["classes"], len(fields["labels"]))
            return cls(**fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise StorageError(f"{path} does not describe a run: {type(error).__name__}: {error}; retrain it") from None

    @classmethod
    def from_classifier(
        cls,
        classifier: Ensemble,
        X: Any,
        y_true: ArrayLike,
        *,
        name: str = "classifier",
        dataset: str = "",
        picture_shape: tuple[int, ...] | None = None,
        undefended: Any = None,
        made: tuple[str, ...] = (),
        checked: tuple[str, ...] = (),
    ) -> Source:
        """Score test inputs, given with their labels, with a fitted classifier.

        `picture_shape` is the shape, such as (8, 8), of images whose pixels are the features. Arrays of images need
        none. `undefended` is one model trained on all samples, such as `clone(estimator).fit(X_train, y_train)`, or its
        predictions for X: labels, or scores (n_inputs, n_classes) in the order of `classes_`.
        """
        scores = classifier.scores(X)
        if not scores.classes_fixed:
            raise InputError(LABELS_NOT_FIXED)
        classes = classifier.classes_
        labels = np.asarray(y_true)
        if unknown := sorted({str(label) for label in labels[~np.isin(labels, classes)].tolist()}):
            raise InputError(f"y_true must hold labels that the classifier knows, got {unknown[0]}")
        sizes = classifier.member_sizes_
        partition = classifier.partition_
        if picture_shape is None and isinstance(X, np.ndarray) and X.dtype == np.uint8 and X.ndim > 2:
            picture_shape = X.shape[1:]
        pictures = None if picture_shape is None else _as_pictures(X, picture_shape)
        return cls(
            name=name,
            ballots=np.asarray(rank(scores.values)),
            labels=np.searchsorted(classes, labels).astype(np.int64),
            spread=scores.spread,
            classes=tuple(str(label) for label in classes.tolist()),
            n_partitions=partition.n_partitions,
            n_seeds=classifier.n_seeds,
            n_train=int(sizes.sum()) // partition.d,
            pictures=pictures,
            features=None if pictures is not None else X.tocsr() if hasattr(X, "tocsr") else X,
            undefended=None if undefended is None else _predicted(undefended, X, classes),
            member_sizes=sizes,
            dataset=dataset,
            fingerprint=scores.fingerprint,
            unit=scores.unit,
            facts=(
                ("Classifier", " ".join(repr(classifier).split())),
                ("Hash of samples", str(partition.hash)),
                *_origin.counted(scores.unit, classifier.fitted_state().sources),
                ("Fingerprint of the partition", scores.fingerprint),
            ),
            made=made,
            checked=checked,
            encoder=None if classifier.encoder_ is None else _origin.encoder(classifier.encoder_.described()),
            first_weights=_origin.first_weights(getattr(classifier, "first_weights_", None)),
        )


def _predicted(undefended: Any, X: Any, classes: NDArray[Any]) -> NDArray[Any]:
    """Return the predictions of an undefended model, as class indices or scores."""
    if isinstance(undefended, (str, Path)):
        return _undefended.class_indices(undefended, [str(label) for label in classes.tolist()], len(X))
    predictions = np.asarray(undefended.predict(X) if hasattr(undefended, "predict") else undefended)
    return _undefended.named(predictions, classes) if predictions.ndim == 1 else predictions


def shown(text: Any) -> Any:
    """Return a text, or nested texts, with control characters escaped."""
    return tuple(shown(part) for part in text) if isinstance(text, tuple) else visible(text)


def _run_fields(run: Run, path: Path, n_seeds: int | None, data_dir: Path | None, pictures: bool) -> dict[str, Any]:
    manifest, settings = run.manifest, run.settings
    seeds = n_seeds if n_seeds is not None else max(run.seeds(), default=1)
    ballots, notes = run.ballots(n_seeds), []
    images = None
    if pictures:
        images, note = _pictures(run, data_dir)
        notes += [note] if note else []
    recipe = recipes.name_of(settings.recipe)
    edits = run.n_edits()
    return {
        "name": (path.resolve().name or str(path)) + (f", {seeds} seeds" if seeds > 1 else ""),
        "ballots": ballots,
        "labels": np.asarray(run.labels()),
        "spread": run.spread(),
        "classes": tuple(str(name) for name in manifest["dataset"]["classes"]),
        "n_partitions": settings.n_partitions,
        "n_seeds": seeds,
        "n_train": sum(manifest["member_sizes"]) // settings.spread,
        "pictures": images,
        "member_sizes": np.array(manifest["member_sizes"], np.int64),
        "member_seconds": _seconds(run, seeds),
        "dataset": settings.dataset,
        "of_paper": manifest["dataset"]["given"] in datasets.NAMES and not edits,
        "like_paper": None if recipe is None else _like_paper(settings, recipe),
        "fingerprint": manifest["partition"]["fingerprint"],
        "unit": settings.unit,
        "data_fingerprint": None if edits else settings.fingerprint,
        "facts": _origin.facts(run, seeds),
        "made": (_origin.train_command(run, path, seeds), *_origin.update_commands(run, path)),
        "checked": (_origin.check_command(path, seeds),),
        "notes": tuple(notes),
        "encoder": None if settings.encoder is None else _origin.encoder(settings.encoder),
        "first_weights": _origin.first_weights(settings.first_weights),
    }


def _pictures(run: Run, data_dir: Path | None) -> tuple[NDArray[np.uint8] | None, str]:
    """Return the test images, or None and the reason."""
    about = run.manifest["dataset"]
    try:
        data = datasets.load_recorded(about, data_dir)
    except (datasets.DatasetError, OSError) as error:
        return None, f"No pictures: {error}"
    if data.fingerprint != run.settings.fingerprint:
        return None, f"No pictures: {about['given']} no longer holds the samples that the run was trained on"
    return stretched(data.x_test), ""


def _as_pictures(X: Any, shape: tuple[int, ...]) -> NDArray[np.uint8]:
    values = np.asarray(X, dtype=np.float64).reshape(-1, *shape)
    low, high = float(values.min()), float(values.max())
    return np.rint(255 * (values - low) / ((high - low) or 1.0)).astype(np.uint8)


def _like_paper(settings: Settings, recipe: str) -> bool:
    return settings.network == "nin" and recipe in recipes.PAPERS and settings.first_weights is None


def _seconds(run: Run, n_seeds: int) -> tuple[float | None, ...] | None:
    """Return the training seconds per member. They are unknown for networks of an interrupted command."""
    try:  # the file may be damaged: the manifest need not list it
        times = json.loads(read_regular(run.path / "timings.json", LARGEST_MANIFEST))["networks"]
        known = {name: float(seconds) for name, seconds in times.items() if math.isfinite(seconds)}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return None
    per_member: list[float | None] = []
    for m in range(len(run.manifest["member_sizes"])):
        seconds = [known[f"{m}-{s}"] for s in range(n_seeds) if f"{m}-{s}" in known]
        per_member.append(round(sum(seconds), 3) if len(seconds) == n_seeds else None)
    return None if set(per_member) == {None} else tuple(per_member)
