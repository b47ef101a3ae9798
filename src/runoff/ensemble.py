"""Base class of ensembles with certified predictions."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted

from runoff import hashing
from runoff.ballots import Ballots, points
from runoff.certificates import LABELS_NOT_FIXED, Certificates, certify
from runoff.elections import get
from runoff.errors import InputError, MemberError
from runoff.fitting import checking, labels
from runoff.fitting.edits import Edit, buckets_of_known, check_edit, edited
from runoff.fitting.labels import same_classes
from runoff.fitting.settings import check_settings, seed_of
from runoff.fitting.state import FittedState
from runoff.members import Shared
from runoff.partition import Hashed, Partition, distinct
from runoff.samples import Dense, Rows, Samples
from runoff.scores import Scores

if TYPE_CHECKING:
    from runoff.encoders import Encoder


class Ensemble(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that hashes samples into buckets, trains each member on its buckets, and predicts by an election.

    Subclasses define how members are trained (`_train`) and how they score inputs (`_scored`). Their constructors must
    have the settings below.
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
    threat: str
    shared: Any
    encoder: Any
    progress: bool | None = None

    _samples: Any  # the training samples; None in a loaded ensemble

    def fit(self, X: Any, y: Any, groups: Any = None, **unsupported: Any) -> Self:
        """Hash the samples into buckets and train every member on its buckets.

        `groups` names the source of each sample, by a string or a whole number: the sender, annotator or client that it
        comes from. Then buckets depend on sources only, and one edit is one source, with any number of samples. A new
        source is one edit; moving a sample between sources is two edits.
        """
        checking.refuse(unsupported)
        self._check_settings()
        with self._all_or_nothing():
            self._fit(X, y, groups)
        return self

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore the attributes if the block fails."""
        before = self.__dict__.copy()
        try:
            yield
        except BaseException:
            self._undo(before)
            raise

    def _undo(self, before: dict[str, Any]) -> None:
        """Restore the attributes from before a call that failed."""
        self.__dict__ = before

    def _fit(self, X: Any, y: Any, groups: Any) -> None:
        # `update` and scoring keep the classes and the type of numbers, even if the settings change in between.
        self._fixed_classes = None if self.classes is None else labels.sorted_classes(self.classes)
        self._numbers = np.dtype(getattr(self, "dtype", None) or np.float64)
        X, y = self._checked(X, y, reset=True)
        if self.threat == "samples":  # if samples are trusted, a step may be fitted on all of them
            checking.warn_of_fitted_steps(X, stacklevel=3)
        self._seed = seed_of(self.random_state)
        key = hashing.derived_key(self._seed) if self.hash_key is None else hashing.Key(self.hash_key)
        if groups is not None and self.threat == "labels":
            raise InputError("groups cannot be used with threat='labels', which counts single labels: leave one out")
        unit = self.threat if groups is None else "sources"
        self.partition_ = Partition.make(self.n_partitions, self.spread, self._seed, key, self.hash, unit)
        self._n_seeds = self.n_seeds
        self._samples, self._labels = X, y.copy()  # a copy, in case the caller changes y in place
        self._digests = self.partition_.digests(X)
        self._sources = None if groups is None else self.partition_.sources(groups, len(X))
        self._buckets = self.partition_.buckets(X, self._digests, self._sources)
        self.members_: list[Any] = []
        self.encoder_ = self._find_encoder()
        self.shared_ = None if self.shared is None else Shared.fit(self.shared, X, self._digests, self._seed)
        self._features = self.features_of(X, self._digests)
        self._prepare()
        self._train_members(range(self.partition_.n_members), stacklevel=5)
        n_edits = len(y) if self._source_sizes is None else self._source_sizes[0]
        empty = int(np.count_nonzero(self.member_sizes_ == 0))
        single, n_members = self._n_single_class, self.partition_.n_members
        if idle := checking.idle_members(empty, single, n_members, n_edits, unit):
            warnings.warn(idle, stacklevel=3)

    def _find_encoder(self) -> Encoder | None:
        """Return the encoder that is applied to samples before members, or None."""
        if self.encoder is None:
            return None
        from runoff import encoders

        return encoders.get(self.encoder)

    def features_of(self, inputs: Samples, digests: hashing.Digests | None = None) -> Samples:
        """Return samples in the form for members, after the encoder or the shared transformer, if there is one.

        With digests, each content is transformed once, in an order that depends on the set only.
        """
        numbers = self._numbers
        if self.encoder_ is not None:
            with np.errstate(all="ignore"):
                features = self.encoder_.features(inputs.data, show=self.progress)
            return Dense(features).with_numbers(numbers)
        if self.shared_ is None:
            return inputs.with_numbers(numbers)
        if digests is None:
            return self.shared_.transform(inputs).with_numbers(numbers)
        rows, ranks = distinct(digests)
        return self.shared_.transform(inputs.select(rows)).select(ranks).with_numbers(numbers)

    def _prepare(self) -> None:
        """Set attributes that all members share, which `fit` chooses and `update` keeps."""

    @abstractmethod
    def _train(self, which: Sequence[int], codes: NDArray[np.int64], rows: list[Rows]) -> list[Any]:
        """Train these members; `rows` are the rows of each member, sorted by content, and `codes` index `classes_`."""

    @abstractmethod
    def _scored(self, inputs: Samples) -> NDArray[np.floating[Any]]:
        """Return the scores of the members, (n_inputs, n_members, n_classes)."""

    def training_samples(self) -> Hashed:
        """Return the training samples with their labels, digests, sources and buckets."""
        return Hashed(self._samples, self._labels, self._digests, self._sources, self._buckets)

    def training_votes(self, rows: Rows) -> tuple[Ballots, NDArray[np.int64]]:
        """Return the ballots of the members for training samples, and the buckets of these samples."""
        return self._ranked(self._features.select(rows)), self._buckets[rows]

    def _ranked(self, inputs: Samples) -> Ballots:
        """Return the ballots of the members, (n_inputs, n_members, n_classes)."""
        return points(self._scored(inputs))

    def _train_members(self, which: Sequence[int], stacklevel: int = 4) -> None:
        """Train these members and keep the others."""
        self.classes_ = np.unique(self._labels) if self._fixed_classes is None else self._fixed_classes
        codes = np.searchsorted(self.classes_, self._labels)
        rows = self.partition_.rows(self._buckets, self._digests, codes)
        self._training_sets = self.partition_.training_sets(rows, self._digests, codes)
        with np.errstate(all="ignore"):  # the numbers of a sample never raise, whatever the caller's settings
            trained = self._train(which, codes, rows)
        members = dict(enumerate(self.members_)) | {member.index: member for member in trained}
        self.members_ = [members[m] for m in sorted(members)]
        checking.warn_of_refused_members(self.members_, self._has_learnt(), stacklevel)
        self.member_sizes_ = np.array([len(member_rows) for member_rows in rows])
        self._n_single_class = self.partition_.single_class(rows, codes)
        self._source_sizes = None if self._sources is None else hashing.source_sizes(self._sources)

    def _has_learnt(self) -> bool:
        return any(member.fitted for member in self.members_)

    def scores(self, X: Any) -> Scores:
        """Return the scores of the members with their spread, for `runoff.certify`."""
        check_is_fitted(self)
        values = self._scored(self.features_of(self.samples_of(X)))
        partition, classes_fixed = self.partition_, self._fixed_classes is not None
        return Scores(values, partition.spread, partition.fingerprint, classes_fixed, partition.unit)

    def balance(self) -> str:
        """Return a sentence on how evenly samples are divided among members, and among sources."""
        check_is_fitted(self)
        return self.partition_.balance(self.member_sizes_, self._source_sizes, self._n_single_class)

    def n_idle(self) -> int:
        """Return the number of members that learn nothing: without samples, or with samples of one class."""
        check_is_fitted(self)
        return int(np.count_nonzero(self.member_sizes_ == 0)) + self._n_single_class

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the label that the members elect for each input."""
        check_is_fitted(self)
        inputs = self.samples_of(X)
        if len(self.classes_) == 1:
            return np.repeat(self.classes_, len(inputs))
        elected = self._elect(self._ranked(self.features_of(inputs)))
        return np.asarray(self.classes_[elected.prediction])

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """Return the share of each class among the first choices of members, for thresholds and rankings.

        The shape is that of scikit-learn: (n_samples, n_classes), or, for two classes, (n_samples,) with the share of
        the second minus that of the first. If the election does not elect the class with the most first choices, the
        share of the prediction is raised just above the largest. These numbers are not certified.
        """
        check_is_fitted(self)
        inputs = self.samples_of(X)
        if len(self.classes_) == 1:
            return np.ones(len(inputs))
        ballots = self._ranked(self.features_of(inputs))
        first = ballots.argmax(axis=2)
        shares = np.stack([(first == c).mean(axis=1) for c in range(len(self.classes_))], axis=1)
        elected = self._elect(ballots).prediction
        other = np.flatnonzero(shares.argmax(axis=1) != elected)
        shares[other, elected[other]] = np.nextafter(shares[other].max(axis=1), 2)
        return shares[:, 1] - shares[:, 0] if len(self.classes_) == 2 else shares

    @property
    def predict_proba(self) -> NoReturn:
        """Absent: shares of votes are not probabilities. See `decision_function`."""
        raise AttributeError(
            f"{type(self).__name__} has no predict_proba, since shares of votes are not probabilities: use "
            "decision_function(X), or scikit-learn's CalibratedClassifierCV around it, which is not certified"
        )

    def certify(self, X: Any) -> Certificates:
        """Return predictions with their proven radii: `.prediction` and `.runner_up` are labels.

        With at most `radius[i]` training samples inserted, deleted or relabelled, the classifier fitted on the edited
        samples, with the same settings, still predicts `prediction[i]`. If `random_state` is not a number, the settings
        include the seed drawn from it. If the classifier was fitted with `groups`, the radius counts sources instead,
        whatever they contribute; with `threat="labels"` it counts changed labels, and inserted or deleted samples are
        not covered. `.unit` is the unit of the radius.
        """
        check_is_fitted(self)
        if self._fixed_classes is None:
            raise InputError(f"{LABELS_NOT_FIXED} (y holds {self.classes_.tolist()!r:.100})")
        if not self._has_learnt() and (refused := next((m for m in self.members_ if m.refused), None)):
            raise MemberError(
                f"there is nothing to certify, since no member could be trained; {checking.reason(refused)}"
            )
        inputs = self.samples_of(X)
        if len(self.classes_) < 2:
            raise InputError(f"certificates need at least 2 classes, got {self.classes_.tolist()}: extend classes=")
        certificates = self._elect(self._ranked(self.features_of(inputs)), self.bound)
        return certificates.named(self.classes_, self.partition_.fingerprint)

    def _elect(self, ballots: Ballots, bound: str | None = None) -> Certificates:
        """Return certificates with class indices; without a bound, the fastest one, for predictions only."""
        if bound is None:
            bound = "paper" if get(self.election).in_paper else self.bound
        partition = self.partition_
        return certify(ballots, election=self.election, spread=partition.spread, bound=bound, unit=partition.unit)

    def fit_undefended(self, X: Any = None, y: Any = None) -> Self:
        """Return one model of the same kind as the members, trained on all samples, as the undefended baseline.

        By default it is trained on the training samples of this ensemble; a loaded ensemble has none, so pass X and y.
        It is an ensemble with a single member, so `predict` and `score` work as usual, and its radii are 0.
        """
        check_is_fitted(self)
        if X is None and self._samples is None:
            raise InputError("a loaded classifier has no training samples: pass them, as in fit_undefended(X, y)")
        alone = clone(self).set_params(n_partitions=1, spread=1, n_seeds=1, random_state=self._seed)
        if "checkpoints" in alone.get_params(deep=False):  # these contain the networks of the members
            alone.set_params(checkpoints=None)
        fitted: Self = alone.fit(self._samples.data, self._labels) if X is None else alone.fit(X, y)
        return fitted

    def update(self, add: Edit | None = None, remove: Edit | None = None) -> Self:
        """Insert and delete training samples; only members whose buckets changed are retrained.

        The result is bit for bit that of `fit` on the new data. Removing a sample unlearns it: the d members that were
        trained on it are retrained. To relabel a sample, remove and add it. Without `classes=`, an update that adds or
        removes a label retrains all members.

        If the classifier was fitted with `groups`, pass them too: `add=(X, y, groups)`, `remove=(X, y, groups)`. With
        `threat="labels"`, the samples are fixed, so an update can only relabel: remove and add the same X.
        """
        check_is_fitted(self)
        self._check_samples()
        removed = None if remove is None else self._hashed("remove", remove)
        added = None if add is None else self._hashed("add", add)
        data = edited(
            self.training_samples(),
            removed,
            added,
            self.partition_.unit,
        )
        touched = [samples.buckets for samples in (removed, added) if samples is not None]
        changed = np.unique(np.concatenate([np.empty(0, np.int64), *touched]))
        with self._all_or_nothing():
            self._samples, self._labels, self._digests, self._sources, self._buckets = data
            self._features = self.features_of(data.samples, data.digests)
            self.updated_members_ = np.unique(self.partition_.spread[changed])
            if self._fixed_classes is None and not same_classes(np.unique(data.labels), self.classes_):
                self.updated_members_ = np.arange(self.partition_.n_members)
            self._train_members(self.updated_members_.tolist())
        return self

    def fitted_state(self) -> FittedState:
        """Return the state of this fitted ensemble, without its settings and its members."""
        check_is_fitted(self)
        return FittedState(
            partition=self.partition_,
            classes=self.classes_,
            classes_fixed=self._fixed_classes is not None,
            training_sets=self._training_sets,
            member_sizes=self.member_sizes_,
            seed=self._seed,
            n_seeds=self._n_seeds,
            width=self._width,
            sources=self._source_sizes,
            n_single_class=self._n_single_class,
            numbers=self._numbers.name,
        )

    def restore(self, state: FittedState) -> None:
        """Set the state of a fitted ensemble, without training samples; the caller sets the members."""
        self.partition_, self.hash_key = state.partition, state.partition.key
        self.classes_ = state.classes
        self._fixed_classes = self.classes = state.classes if state.classes_fixed else None
        self._training_sets, self.member_sizes_ = state.training_sets, state.member_sizes
        self._seed, self._n_seeds, self._width = state.seed, state.n_seeds, state.width
        self._samples, self._source_sizes, self.shared_, self.encoder_ = None, state.sources, None, None
        self._n_single_class, self._numbers = state.n_single_class, np.dtype(state.numbers)
        self.threat = "labels" if state.partition.unit == "labels" else "samples"

    def _check_samples(self) -> None:
        """Raise InputError unless the training samples are available and unchanged."""
        if getattr(self, "_samples", None) is None:
            raise InputError("a loaded classifier has no training samples to update: fit it again")
        if not np.array_equal(self.partition_.digests(self._samples), self._digests):
            raise InputError("X was changed in place since fit, so it cannot be updated: fit again")

    def _hashed(self, name: str, edit: Edit) -> Hashed:
        """Return the samples to add or remove, with their digests and buckets."""
        with_groups = self._sources is not None
        check_edit(name, edit, with_groups)
        X, y = self._checked(edit[0], edit[1], reset=False)
        digests = self.partition_.digests(X)
        sources = self.partition_.sources(edit[2], len(X)) if with_groups else None
        return Hashed(X, y, digests, sources, self._find_buckets(X, digests, sources))

    def samples_of(self, X: Any) -> Samples:
        """Return X as samples, which must have the form of those in `fit`."""
        return self._samples_of(X, reset=False)

    def buckets_of(self, X: Samples, groups: Any = None) -> NDArray[np.int64]:
        """Return the buckets of samples; `groups` names their sources, if the ensemble was fitted with groups."""
        sources = None if groups is None else self.partition_.sources(groups, len(X))
        return self._find_buckets(X, self.partition_.digests(X), sources)

    def _find_buckets(self, X: Samples, digests: hashing.Digests, sources: Any) -> NDArray[np.int64]:
        if self.partition_.unit == "labels":
            return buckets_of_known(digests, self._digests, self._buckets)
        return self.partition_.buckets(X, digests, sources)

    def _check_settings(self) -> None:
        check_settings(self)

    def _checked(self, X: Any, y: Any, reset: bool) -> tuple[Samples, NDArray[Any]]:
        X = self._samples_of(X, reset)
        array, values = labels.checked(y, fixed=self._fixed_classes is not None)
        if len(X) != len(array):
            raise InputError(f"X and y must be of the same length, got {len(X)} samples and {len(array)} labels")
        if self._fixed_classes is not None:
            return X, self._fixed_classes[labels.codes(values, self._fixed_classes)]
        if not reset and (array.dtype.kind in "US") != (self._labels.dtype.kind in "US"):
            known = self._labels[:1].tolist()[0]
            raise InputError(f"y must hold labels like {known!r:.60} as in fit, got {values[0]!r:.60}")
        return X, array

    def _samples_of(self, X: Any, reset: bool) -> Samples:
        """Return X as samples; they must have the form of those in `fit`, which is recorded with `reset`."""
        checked = checking.checked_samples(self, X, reset)
        form = (checked.kind, checked.width())
        if reset:
            self._width = form
        elif form != self._width:
            fitted, given = (checking.described_form(*described) for described in (self._width, form))
            raise InputError(f"X must be {fitted}, as in fit, got {given}")
        if not len(checked):
            raise InputError("X must hold at least one sample, got 0 sample(s)")
        return checked

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings, with the key wrapped so that scikit-learn's text and HTML displays do not print it."""
        if isinstance(self.hash_key, bytes) and not isinstance(self.hash_key, hashing.Key):
            self.hash_key = hashing.Key(self.hash_key)
        params: dict[str, Any] = super().get_params(deep)
        return params
