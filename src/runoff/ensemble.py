"""Ensemble: what classifiers with certified predictions have in common, whatever their members are."""

from __future__ import annotations

import copy
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite, check_random_state, get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from runoff import hashing, samples
from runoff.ballots import Ballots, points, with_new_classes
from runoff.certificates import BOUNDS, Certificates, certify
from runoff.elections import get
from runoff.members import MemberError
from runoff.partition import Partition, Scores
from runoff.samples import Rows, Samples


class Ensemble(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Hash samples into buckets, train members on their own, and let an election decide.

    Kinds of ensembles say how members are trained (`_train`) and asked (`_scored`). Their constructors must have the
    settings below.
    """

    n_partitions: int
    spread: int
    n_seeds: int
    election: str
    bound: str
    classes: Any
    hash_key: bytes | None
    random_state: Any
    hash: Any

    def fit(self, X: Any, y: Any) -> Self:
        """Hash the samples into buckets and train every member on its own."""
        self._check_settings()
        before = self.__dict__.copy()
        try:
            self._fit(X, y)
        except BaseException:
            self._undo(before)
            raise
        return self

    def _undo(self, before: dict[str, Any]) -> None:
        """All or nothing: what failed leaves no trace."""
        self.__dict__ = before

    def _fit(self, X: Any, y: Any) -> None:
        self._known = self.classes  # `update` keeps to it, whatever is set in between
        X, y = self._checked(X, y, reset=True)
        self._seed = _seed(self.random_state)
        key = hashing.derived_key(self._seed) if self.hash_key is None else hashing.Key(self.hash_key)
        self.partition_ = Partition.make(self.n_partitions, self.spread, self._seed, key, self.hash)
        self._n_seeds, self._n_new = self.n_seeds, 2 if self._known is None else 0
        self._samples, self._labels = X, y.copy()  # labels that somebody changes in place stay what they were
        self._digests = self.partition_.digests(X)
        self._buckets = self.partition_.buckets(X, self._digests)
        self.members_: list[Any] = []
        self._prepare()
        self._train_members(range(self.partition_.n_members))

    def _prepare(self) -> None:
        """What a fit settles for its members, and updates keep to."""

    @abstractmethod
    def _train(self, which: Sequence[int], codes: NDArray[np.int64], rows: list[Rows]) -> list[Any]:
        """Train these members. `rows` are each member's own samples, by content; `codes` index `classes_`."""

    @abstractmethod
    def _scored(self, inputs: Samples) -> NDArray[np.floating[Any]]:
        """The members' scores, (n_inputs, n_members, n_classes)."""

    def _ranked(self, inputs: Samples) -> Ballots:
        """The members' ballots, likewise."""
        return points(self._scored(inputs))

    def _train_members(self, which: Sequence[int]) -> None:
        """Train these members; the others stay as they are."""
        self.classes_ = self._all_classes(self._labels)
        codes = np.searchsorted(self.classes_, self._labels)
        rows = self.partition_.rows(self._buckets, self._digests, codes)
        trained = self._train(which, codes, rows)
        members = dict(enumerate(self.members_)) | {member.index: member for member in trained}
        self.members_ = [members[m] for m in sorted(members)]
        self._tell_refusals()
        self.member_sizes_ = np.array([len(own) for own in rows])

    def _tell_refusals(self) -> None:
        """Warn of members that vote by the fixed rule because their estimator refused; if all did, it is no rule."""
        refused = [member for member in self.members_ if member.refused]
        if refused and not any(member.fitted for member in self.members_):
            raise MemberError(f"member {refused[0].index} could not be trained, nor any other: {refused[0].refused}")
        for member in refused:
            warnings.warn(
                f"member {member.index} votes by the shares of its classes, since its estimator refused its samples: "
                f"{member.refused}",
                stacklevel=4,
            )

    def scores(self, X: Any) -> Scores:
        """The members' scores, with the spread that belongs to them: `certify` takes them as they are."""
        check_is_fitted(self)
        values = self._scored(self._samples_of(X, reset=False))
        return Scores(values, self.partition_.spread, self.partition_.fingerprint, self._n_new)

    def balance(self) -> str:
        """How evenly the samples fell on members, in words."""
        check_is_fitted(self)
        return self.partition_.balance(self.member_sizes_)

    def predict(self, X: Any) -> NDArray[Any]:
        """The label that the members elect for each input."""
        check_is_fitted(self)
        if len(self.classes_) == 1:
            return np.repeat(self.classes_, len(self._samples_of(X, reset=False)))
        return self._certify(X, bound="paper" if get(self.election).in_paper else self.bound).prediction

    def certify(self, X: Any) -> Certificates:
        """Predictions with their proven radii: `.prediction` and `.runner_up` are labels."""
        return self._certify(X, self.bound)

    def _certify(self, X: Any, bound: str) -> Certificates:
        check_is_fitted(self)
        inputs = self._samples_of(X, reset=False)
        if len(self.classes_) + self._n_new < 2:
            raise ValueError(f"certificates need at least 2 classes, got {self.classes_.tolist()}: add to classes=")
        ballots = with_new_classes(self._ranked(inputs), self._n_new)
        certificates = certify(ballots, election=self.election, spread=self.partition_.spread, bound=bound)
        return certificates.named(self.classes_, self.partition_.fingerprint, self._n_new)

    def update(self, add: tuple[Any, Any] | None = None, remove: tuple[Any, Any] | None = None) -> Self:
        """Insert and delete training samples; only members whose buckets changed are trained again.

        The result is, bit for bit, that of `fit` on the new data. Removing a sample is unlearning it: d members are
        trained again, and no other has ever seen it. Relabelling is removing and adding.
        """
        check_is_fitted(self)
        self._check_samples()
        keep, touched = np.ones(len(self._labels), bool), []
        new: tuple[Samples, NDArray[Any], Any, Any] | None = None
        if remove is not None:
            _, y, digests, buckets = self._placed(*remove)
            keep[self._found(digests, y)] = False
            touched.append(buckets)
        if add is not None:
            new = self._placed(*add)
            touched.append(new[3])
        rows = np.flatnonzero(keep)
        samples_, labels = self._samples.kept(rows), self._labels[rows]
        digests, buckets = self._digests[rows], self._buckets[rows]
        if new is not None:
            samples_, labels = samples_.joined(new[0]), np.concatenate([labels, new[1]])
            digests, buckets = np.concatenate([digests, new[2]]), np.concatenate([buckets, new[3]])
        if not len(labels):
            raise ValueError("update must leave at least one training sample, got none")
        before = self.__dict__.copy()
        self._samples, self._labels, self._digests, self._buckets = samples_, labels, digests, buckets
        changed = np.unique(np.concatenate([np.empty(0, np.int64), *touched]))
        self.updated_members_ = np.unique(self.partition_.spread[changed])
        try:
            self._train_members(self.updated_members_.tolist())
        except BaseException:
            self._undo(before)
            raise
        return self

    def _check_samples(self) -> None:
        """Whether the training samples are there, and are what they were."""
        if getattr(self, "_samples", None) is None:
            raise ValueError("a loaded classifier keeps no training samples to update: fit it again")
        if not np.array_equal(self.partition_.digests(self._samples), self._digests):
            raise ValueError("X was changed in place since fit, so it cannot be updated: fit again")

    def _placed(self, X: Any, y: Any) -> tuple[Samples, NDArray[Any], Any, Any]:
        X, y = self._checked(X, y, reset=False)
        digests = self.partition_.digests(X)
        return X, y, digests, self.partition_.buckets(X, digests)

    def _found(self, digests: Any, labels: NDArray[Any]) -> list[int]:
        """Where these samples stand among the training samples, each copy once."""
        places: dict[tuple[int, int, Any], list[int]] = {}
        for i, (digest, label) in enumerate(zip(self._digests.tolist(), self._labels.tolist(), strict=True)):
            places.setdefault((*digest, label), []).append(i)
        found = []
        for i, (digest, label) in enumerate(zip(digests.tolist(), labels.tolist(), strict=True)):
            left = places.get((*digest, label))
            if not left:
                raise ValueError(
                    f"remove must name training samples with their labels, but sample {i} (label {label!r}) is not one "
                    "of them, or not that often: nothing was changed"
                )
            found.append(left.pop())
        return found

    def _check_settings(self) -> None:
        for name in ("n_partitions", "spread", "n_seeds"):
            value = getattr(self, name)
            if not isinstance(value, (int, np.integer)) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
        if self.bound not in BOUNDS:
            raise ValueError(f"bound must be one of {', '.join(map(repr, BOUNDS))}, got {self.bound!r}")
        get(self.election)
        if self.hash_key is not None and (not isinstance(self.hash_key, bytes) or not 16 <= len(self.hash_key) <= 64):
            raise ValueError("hash_key must be 16 to 64 secret bytes, as runoff.new_key() makes them")

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Samples, NDArray[Any]]:
        if y is None:
            raise ValueError(f"This {type(self).__name__} estimator requires y to be passed, but the target y is None.")
        X = self._samples_of(X, reset)
        _refuse_mixed(y)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        if len(X) != len(y):
            raise ValueError(f"X and y must be of the same length, got {len(X)} samples and {len(y)} labels")
        if not len(y):
            raise ValueError("X must hold at least one sample, got 0 sample(s)")
        check_classification_targets(y)
        self._all_classes(y)
        return X, y

    def _all_classes(self, y: NDArray[Any]) -> NDArray[Any]:
        found = np.unique(y)
        if self._known is None:
            return found
        classes = np.unique(np.asarray(self._known))
        if outside := [label for label in found.tolist() if label not in set(classes.tolist())]:
            raise ValueError(f"y must hold labels out of classes={classes.tolist()}, got {outside[0]!r}")
        return classes

    def _samples_of(self, X: Any, reset: bool) -> Samples:
        """X as samples. Arrays of two dimensions are checked as scikit-learn does; other kinds by what they are."""
        if _is_text(X):
            checked: Samples = samples.of(X)
        elif hasattr(X, "columns") and hasattr(X, "iloc"):
            validate_data(self, X, reset=reset, skip_check_array=True)
            checked = samples.of(X)
        else:
            tags = get_tags(self)
            checked = samples.of(
                validate_data(
                    self,
                    X,
                    reset=reset,
                    accept_sparse="csr",
                    dtype=None,
                    allow_nd=True,
                    ensure_all_finite=not tags.input_tags.allow_nan,
                )
            )
        if reset:
            self._width = (checked.kind, checked.width())
        elif (checked.kind, checked.width()) != self._width:
            told = [f"{kind} of {list(width)}" for kind, width in (self._width, (checked.kind, checked.width()))]
            raise ValueError(f"X must be {told[0]} as in fit, got {told[1]}")
        if not len(checked):
            raise ValueError("X must hold at least one sample, got 0 sample(s)")
        return checked

    def _shown(self) -> Self:
        """A copy whose key does not show, for one given as plain bytes."""
        shown = copy.copy(self)
        shown.hash_key = None if self.hash_key is None else hashing.Key(self.hash_key)
        return shown

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return str(BaseEstimator.__repr__(self._shown(), N_CHAR_MAX))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        return BaseEstimator._repr_mimebundle_(self._shown(), **kwargs)

    @property
    def _repr_html_(self) -> Any:
        return lambda: BaseEstimator._repr_mimebundle_(self._shown())["text/html"]


def _seed(random_state: Any) -> int:
    """A whole number for SeedSequence."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _refuse_mixed(y: Any) -> None:
    """Texts among other labels would make texts of them all, sorted as such: nobody may bring that about."""
    values = y if isinstance(y, (list, tuple)) else y.tolist() if hasattr(y, "dtype") and y.dtype.kind == "O" else []
    if len({isinstance(label, str) for label in values}) > 1:
        raise ValueError("y must hold labels of one kind, got texts among others: make them all texts or all numbers")


def _is_text(X: Any) -> bool:
    if isinstance(X, (list, tuple)):
        return bool(X) and all(isinstance(text, str) for text in X)
    return hasattr(X, "ndim") and X.ndim == 1 and len(X) > 0 and all(isinstance(text, str) for text in X)
