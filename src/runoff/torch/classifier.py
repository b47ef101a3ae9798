"""TorchClassifier: certified predictions from networks in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from runoff import recipes
from runoff._io.progress import with_progress
from runoff.ballots import Ballots, points
from runoff.ensemble import Ensemble
from runoff.errors import InputError
from runoff.isolation import seeds_of
from runoff.recipes import Recipe
from runoff.samples import Dense, Rows, Samples
from runoff.torch import devices, inputs, starting
from runoff.torch.building import State
from runoff.torch.checkpoints import Checkpoints, Identities, Kept
from runoff.torch.networks import Factory
from runoff.torch.training.jobs import Job, array_digest, compact
from runoff.torch.training.results import Trained
from runoff.torch.training.trainer import Trainer


@dataclass(frozen=True, eq=False)
class NetworkMember:
    """What one part of the data taught: `n_seeds` networks, or none where there was nothing to learn."""

    index: int
    shares: NDArray[np.float64]  # of its samples, for every class
    fitted: tuple[State, ...] = field(default=(), repr=False)
    answers: tuple[NDArray[np.float32] | None, ...] = field(default=(), repr=False)  # to what fit was asked to score
    refused: str | None = None


class TorchClassifier(Ensemble):
    """An ensemble of networks whose predictions come with a proven number of edits that cannot change them.

    As `RunoffClassifier`, with networks for members: each is trained on its own buckets of the training samples alone,
    bit for bit the same whatever is trained beside it.

    Samples are images, as an array (n, height, width, channels) or (n, height, width) or as a tensor
    (n, channels, height, width), or rows of numbers (n, features). Each member normalises by the mean and the standard
    deviation of its own samples.

    Parameters
    ----------
    network : "nin" (the paper's), "small", or a function (shape, n_classes) -> nn.Module, where shape is that of one
        input as PyTorch sees it: (channels, height, width) or (features,)
    recipe : a `Recipe` or the name of one: "paper", "paper-no-flip", "strong", "strong-no-flip", "quick". Fixed
        beforehand
    weights : what all networks start from: None (random weights), the path of a safetensors file that no training
        sample has touched, as `runoff pretrain` writes it, or "procedural" (such weights that come with the package)
    classes : all labels there can be. Needed: the networks' outputs must not depend on which labels somebody brings
    n_seeds : networks for each member, with different seeds, whose scores are averaged (DPA*)
    device : "cpu", "cuda", "cuda:N". Default: a GPU if there is one
    in_flight : networks trained at a time. It changes the time only
    checkpoints : a directory where finished networks are kept, so that an interrupted fit goes on where it was
    progress : show progress on stderr. Default: if it is a terminal
    n_partitions, spread, election, bound, hash_key, random_state, hash : as in `RunoffClassifier`

    """

    def __init__(
        self,
        network: str | Factory = "small",
        recipe: str | Recipe = "quick",
        *,
        weights: str | Path | None = None,
        n_partitions: int = 50,
        spread: int = 1,
        n_seeds: int = 1,
        election: str = "runoff",
        bound: str = "tight",
        classes: Any = None,
        hash_key: bytes | None = None,
        random_state: Any = 0,
        hash: Any = "content",
        device: Any = None,
        in_flight: int | None = None,
        checkpoints: str | Path | None = None,
        progress: bool | None = None,
    ) -> None:
        self.network = network
        self.recipe = recipe
        self.weights = weights
        self.n_partitions = n_partitions
        self.spread = spread
        self.n_seeds = n_seeds
        self.election = election
        self.bound = bound
        self.classes = classes
        self.hash_key = hash_key
        self.random_state = random_state
        self.hash = hash
        self.device = device
        self.in_flight = in_flight
        self.checkpoints = checkpoints
        self.progress = progress

    def fit(self, X: Any, y: Any, *, score: Any = None) -> Self:
        """Hash the samples into buckets and train every member on its own.

        Inputs given as `score` are scored as each network is finished, and kept with it: asking for them afterwards
        costs nothing.
        """
        self._to_score = None if score is None else compact(inputs.images(score, devices.find(self.device)))
        return super().fit(X, _host(y))

    def _undo(self, before: dict[str, Any]) -> None:
        """What failed leaves no trace, but for networks that are finished: the next attempt finds them."""
        store = self.__dict__.get("_store")
        super()._undo(before)
        if store is not None:
            self._store: Any = store

    def add_seeds(self, n: int) -> Self:
        """Train n more networks for each member, by the same recipe; those that are there stay as they are."""
        check_is_fitted(self)
        if not isinstance(n, (int, np.integer)) or isinstance(n, bool) or n < 1:
            raise InputError(f"n must be a whole number of at least 1, got {n!r}")
        self._check_samples()
        before = self.__dict__.copy()
        try:
            self.n_seeds = self._n_seeds = self._n_seeds + int(n)
            self._train_members(range(self.partition_.n_members))
        except BaseException:
            self._undo(before)
            raise
        return self

    def update(self, add: tuple[Any, Any] | None = None, remove: tuple[Any, Any] | None = None) -> Self:
        """Insert and delete training samples; only members whose buckets changed are trained again.

        The result is, bit for bit, that of `fit` on the new data.
        """
        return super().update(*(None if pair is None else (pair[0], _host(pair[1])) for pair in (add, remove)))

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a new directory, without its training samples."""
        from runoff.saving import networks

        check_is_fitted(self)
        networks.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, network: Factory | None = None, device: Any = None) -> TorchClassifier:
        """Read a directory that `save` wrote. Nothing is unpickled; every file's SHA-256 is checked first.

        A network of your own must be given again: code is not stored.
        """
        from runoff.saving import networks

        return networks.load(cls, Path(path), network, device)

    def restore_networks(self, recipe: Recipe, network: Factory, first_weights: dict[str, str] | None) -> None:
        """Take over what the networks of a saved classifier were trained with; the members are set by the caller."""
        self._recipe, self._network, self.first_weights_ = recipe, network, first_weights
        self._asked = None

    # -- what Ensemble asks for ----------------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        super()._check_settings()
        recipes.get(self.recipe)
        starting.start(self.network, self.weights)
        if self.classes is None:
            raise InputError(
                "classes must be given, such as classes=range(10): if the outputs of the networks followed from the "
                "labels in y, one sample with a new label would change every member"
            )

    def _samples_of(self, X: Any, reset: bool) -> Samples:
        array = inputs.images(X, devices.find(self.device))
        if reset:
            inputs.suits(recipes.get(self.recipe), array)
            self._width = ("dense", array.shape[1:])
        elif array.shape[1:] != tuple(self._width[1]):
            raise InputError(f"X must have samples of shape {tuple(self._width[1])} as in fit, got {array.shape[1:]}")
        return Dense(array)

    def _prepare(self) -> None:
        self._recipe, self._network = recipes.get(self.recipe), starting.start(self.network, self.weights)
        first = starting.of(self._network)
        self.first_weights_ = None if first is None else first.described()
        self._asked = self.__dict__.pop("_to_score", None)
        self._names: dict[tuple[int, int], str] = {}  # the identities of the networks that the members have
        if self.checkpoints is not None:
            self._store = Checkpoints(self.checkpoints)
        elif not isinstance(getattr(self, "_store", None), Kept):
            self._store = Kept()  # and what an earlier fit finished is still in it

    def trainer(self) -> Trainer:
        """Return what trains and scores the networks of this fitted classifier."""
        return Trainer(
            self._network,
            self._recipe,
            tuple(self._width[1]),
            len(self.classes_),
            device=self.device,
            in_flight=self.in_flight,
        )

    def _train(self, which: Sequence[int], codes: NDArray[np.int64], rows: list[Rows]) -> list[NetworkMember]:
        trainer = self.trainer()
        identities = Identities(trainer)
        asked = None if self._asked is None else array_digest(self._asked)
        shares = {m: np.bincount(codes[rows[m]], minlength=len(self.classes_)) / max(1, len(rows[m])) for m in which}
        jobs = [
            Job(m, s, source, self._samples.data, rows[m], codes[rows[m]])
            for m in which
            if np.count_nonzero(shares[m]) > 1
            for s, source in enumerate(seeds_of(self._seed, m, self._n_seeds))
        ]
        names = {(job.member, job.seed): identities.of(job) for job in jobs}
        found = {(job.member, job.seed): self._store.get(job, names[job.member, job.seed], asked) for job in jobs}
        done: dict[tuple[int, int], Trained] = {key: value for key, value in found.items() if value is not None}
        missing = [job for job in jobs if (job.member, job.seed) not in done]
        training = trainer.train(missing, self._asked) if missing else iter(())
        for trained in with_progress(training, "training networks", len(missing), done=len(done), show=self.progress):
            done[trained.member, trained.seed] = self._store.put(trained, names[trained.member, trained.seed])
        # Networks of samples that are no longer there are forgotten: removing a sample is unlearning it.
        self._names = {k: v for k, v in self._names.items() if k[0] not in set(which)} | names
        self._store.keep_only(set(self._names.values()))
        return [self._member(m, shares[m], [done[key] for key in sorted(done) if key[0] == m]) for m in which]

    @staticmethod
    def _member(index: int, shares: NDArray[np.float64], trained: list[Trained]) -> NetworkMember:
        useful = [network for network in trained if network.refused is None]
        states, answers = tuple(network.state for network in useful), tuple(network.scores for network in useful)
        refused = next((network.refused for network in trained if network.refused is not None), None)
        return NetworkMember(index, shares, states, answers, None if useful else refused)

    def _scored(self, inputs: Samples) -> NDArray[np.float32]:
        scores = np.empty((len(inputs), self.partition_.n_members, len(self.classes_)), np.float32)
        for m, own in self._by_member(inputs):
            scores[:, m] = own
        return scores

    def _ranked(self, inputs: Samples) -> Ballots:
        ballots: Any = None
        for m, own in self._by_member(inputs):
            ranked = points(own)
            if ballots is None:
                ballots = np.empty((len(inputs), self.partition_.n_members, len(self.classes_)), ranked.dtype)
            ballots[:, m] = ranked
        return ballots  # type: ignore[no-any-return]

    def _by_member(self, inputs: Samples) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Each member's scores: the mean over its seeds; its classes' shares where there is no finite answer."""
        states = [((m.index, s), state) for m in self.members_ for s, state in enumerate(m.fitted)]
        left = {m.index: len(m.fitted) for m in self.members_}
        parts: dict[int, dict[int, NDArray[np.float32]]] = {m.index: {} for m in self.members_}
        asked = self._answers(states, compact(inputs.data))
        for m in self.members_:
            if not m.fitted:
                yield m.index, np.tile(m.shares.astype(np.float32), (len(inputs), 1))
        for (m, s), scores in with_progress(asked, "scoring inputs", len(states), show=self.progress):
            parts[m][s] = scores
            left[m] -= 1
            if not left[m]:
                own = parts.pop(m)  # added in the order of the seeds, in whichever order they came
                yield m, averaged([own[s] for s in sorted(own)], self.members_[m].shares)

    def _answers(self, states: list[Any], question: NDArray[Any]) -> Iterator[Any]:
        """The networks' scores, from what `fit` was asked to keep if that is the question."""
        if len(self.members_) != self.partition_.n_members:
            raise InputError("the classifier is not fitted whole: fit it again")
        known = self._asked is not None and np.array_equal(self._asked, question)
        if known and all(answer is not None for m in self.members_ for answer in m.answers):
            yield from (((m.index, s), answer) for m in self.members_ for s, answer in enumerate(m.answers))
        elif states:
            yield from self.trainer().score(states, question)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def averaged(scores: list[NDArray[np.float32]], shares: NDArray[np.float64]) -> NDArray[np.float32]:
    """A member's scores from those of its networks; its classes' shares for inputs without a finite answer."""
    mean: NDArray[np.float32] = np.mean([own.astype(np.float64) for own in scores], axis=0).astype(np.float32)
    mean[~np.isfinite(mean).all(axis=1)] = shares
    return mean


def _host(y: Any) -> Any:
    """Labels as an array."""
    return y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else y
