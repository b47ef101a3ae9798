"""RunoffClassifier: certified predictions from any scikit-learn classifier."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from runoff import executors
from runoff._io.progress import with_progress
from runoff.ballots import Ballots
from runoff.ensemble import Ensemble
from runoff.errors import MemberError
from runoff.executors import Executor, Place, Watch
from runoff.fitting.checking import accepts_nan, member_estimator, number_type, warn_of_texts
from runoff.fitting.work import Fitting, kind_here, modules_of, require_versions
from runoff.isolation import undisturbed
from runoff.members import PROBES, Member, MemberEstimator, default_estimator, rank_member, score_member
from runoff.samples import Rows, Samples

INPUTS = 8192  # per block of scoring; constant, since the last bits may depend on it


class RunoffClassifier(Ensemble):
    """A classifier whose predictions come with a proven number of edits that cannot change them.

    Each member is trained only on the samples of its buckets, and the members elect the prediction. If at most
    `certify(X).radius[i]` training samples are inserted, deleted or relabelled, the classifier fitted on the edited
    data predicts the same label for input i.

    With `fit(X, y, groups)`, where `groups` names the source of each sample (its sender, annotator or client), radii
    count sources instead: the prediction does not change, whatever that many sources contribute.

    Put everything that is fitted *inside* the estimator: `RunoffClassifier(make_pipeline(StandardScaler(), SVC()))`. A
    scaler fitted on all samples, in front of this classifier, invalidates the guarantee.

    Parameters
    ----------
    estimator : any scikit-learn classifier with predict_proba, decision_function or only predict
        Its settings must be fixed in advance. Default: a logistic regression, after scaling, TF-IDF or one-hot encoding
        depending on the kind of X; with an encoder, `runoff.heads.RidgeHead`.
    n_partitions : the number k of parts of the data. The largest radius is about k / 2
    spread : the number d of members that each bucket reaches; there are k * d members (1: DPA, more: FA)
    n_seeds : the number of fits per member, with different seeds, whose scores are averaged (DPA*)
    election, bound : as in `runoff.certify`
    classes : all possible labels, fixed in advance. `certify` requires them; by default they are those in y
    hash_key : secret bytes from `runoff.new_key()`. Default: derived from random_state, for reproducible fits
    n_jobs : the number of members trained in parallel, through joblib
    random_state : int
    hash : "content", "pixel-sum" (the paper's) or a function from X to integers
    threat : "samples", or "labels" if samples are trusted and labels are not. Then an edit is one changed label, and
        inserted or deleted samples are not covered. Parts have equal sizes
    encoder : a trusted function from inputs to features, on which members are trained instead of X: a function, such as
        the `transform` of a transformer that was fitted on trusted data, an `Encoder`, a name such as
        "efficientnet-lite2", or the path of a safetensors file. The guarantee holds if no attacker could change it
    shared : for threat="labels" only, a transformer that is fitted once for all members, on all of X and no label
    dtype : the type of numbers for the members, "float32" or "float64". Default: float64, independently of the type of
        X, which other samples can change. Samples are hashed by their exact values in both cases
    verbose : show progress of `fit` on standard error: a bar on terminals, else a line every 30 seconds
    executor : where members are trained: "joblib" (the default, with n_jobs), "local", "ray", or an object of
        `runoff.executors` such as `Ray(address=...)`

    Attributes
    ----------
    classes_ : the labels, sorted
    partition_ : the `Partition`: hash, key, offsets, spread, fingerprint
    members_ : the trained members
    member_sizes_ : the number of samples per member
    updated_members_ : the members that the last `update` retrained
    encoder_ : the `Encoder`, or None
    shared_ : the fitted `shared`, as `shared_.fitted`, or None

    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_partitions: int = 50,
        spread: int = 1,
        n_seeds: int = 1,
        election: str = "runoff",
        bound: str = "tight",
        classes: Any = None,
        hash_key: bytes | None = None,
        n_jobs: int | None = None,
        random_state: Any = 0,
        hash: Any = "content",
        threat: str = "samples",
        shared: Any = None,
        encoder: Any = None,
        dtype: Any = None,
        verbose: bool | int = False,
        executor: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_partitions = n_partitions
        self.spread = spread
        self.n_seeds = n_seeds
        self.election = election
        self.bound = bound
        self.classes = classes
        self.hash_key = hash_key
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.hash = hash
        self.threat = threat
        self.shared = shared
        self.encoder = encoder
        self.dtype = dtype
        self.verbose = verbose
        self.executor = executor

    def _check_settings(self) -> None:
        super()._check_settings()
        member_estimator(self.estimator)
        number_type(self.dtype)
        if self.executor is not None:
            executors.get(self.executor)

    def _prepare(self) -> None:
        estimator = self.estimator
        if estimator is None:
            estimator = self._default_estimator()
        self._unfitted = MemberEstimator(estimator)

    def _default_estimator(self) -> Any:
        if self.encoder_ is None:
            warn_of_texts(self._features, stacklevel=5)
            return default_estimator(self._features.kind)
        from runoff.heads import RidgeHead

        return RidgeHead()

    def _train(self, which: Sequence[int], codes: NDArray[np.int64], rows: list[Rows]) -> list[Member]:
        labels = self.classes_[codes]  # with the type of the classes, which no sample can change
        executor = executors.get("joblib" if self.executor is None else self.executor, self.n_jobs)
        kind = partial(kind_here, modules=modules_of(self._unfitted.unfitted))
        kinds = () if executor.here else executor.kinds(kind)
        require_versions(kinds, kind(Place()) if kinds else {})
        parts = {m: rows[m] for m in which}
        work = Fitting(self._unfitted, self._features, labels, parts, self._seed, self._n_seeds, kinds)
        with undisturbed():  # also for threads of joblib, as the first to finish must not restore the number of threads
            trained = self._run(executor, work, list(which))
            if not self.members_ and len(rows) > 1:  # in `fit` only: updates use the same estimator
                self._check_repeats(trained, executor, work)
        return trained

    def _run(self, executor: Executor, work: Fitting, which: list[int]) -> list[Member]:
        quiet = False if executor.here or len(which) < 2 else None
        watch = Watch(show=True if self.verbose and len(which) > 1 else quiet)  # not for the check of one member
        with closing(executor.results(work, which, watch=watch)) as results:
            members = with_progress(results, "training members", len(which), show=watch.show, note=watch.note)
            return sorted((member for _, member in members), key=lambda member: member.index)

    def _check_repeats(self, trained: Sequence[Member], executor: Executor, work: Fitting) -> None:
        """Raise an error if the estimator is not reproducible: score one member twice, and again after retraining it.

        With unseeded random numbers, untouched members would differ between two fits, and no radius would hold.
        """
        first = next((member for member in trained if member.fitted), None)
        if first is None:
            return
        m = first.index
        [again] = self._run(executor, work, [m])
        probes = self._features.select(np.unique(np.linspace(0, len(self._features) - 1, PROBES).astype(np.int64)))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = [member.scores(probes, self.classes_) for member in (first, first, again)]
        if not np.array_equal(scores[0], scores[1]):
            raise MemberError(
                f"estimator must give the same scores for the same inputs every time, but member {m} does not: it uses "
                "threads or random numbers that runoff cannot control; turn them off in its settings"
            )
        if not np.array_equal(scores[0], scores[2]):
            raise MemberError(
                f"estimator must learn the same from the same samples every time, but member {m} does not: it draws "
                "random numbers that runoff cannot seed; set its random_state or seed"
            )

    def _scored(self, inputs: Samples) -> NDArray[np.float64]:
        return np.stack(self._by_members(score_member, inputs), axis=1)

    def _ranked(self, inputs: Samples) -> Ballots:
        blocks = [np.arange(s, min(s + INPUTS, len(inputs))) for s in range(0, len(inputs), INPUTS)]
        return np.concatenate([np.stack(self._by_members(rank_member, inputs.select(b)), axis=1) for b in blocks])

    def _by_members(self, function: Any, inputs: Samples) -> list[NDArray[Any]]:
        with undisturbed():
            results = Parallel(n_jobs=self.n_jobs)(delayed(function)(m, inputs, self.classes_) for m in self.members_)
        return list(results)

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a new directory, without its training samples."""
        from runoff.saving import classifiers

        check_is_fitted(self)
        classifiers.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, trusted: tuple[str, ...] = ()) -> RunoffClassifier:
        """Load a directory written by `save`, after checking the SHA-256 of every file; nothing is unpickled.

        `trusted` names further types (`module.Class`) that members may contain.
        """
        from runoff.saving import classifiers

        return classifiers.load(cls, Path(path), trusted)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = accepts_nan(self.estimator)
        if self.estimator is None:
            tags.input_tags.sparse = True
        else:
            tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
            tags.classifier_tags.multi_class = True
        return tags
