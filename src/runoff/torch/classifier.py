"""TorchClassifier: certified predictions from networks in PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
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
from runoff.recipes import Recipe
from runoff.samples import Dense, Rows, Samples
from runoff.torch import devices, inputs, starting
from runoff.torch.building import State
from runoff.torch.checkpoints import Checkpoints
from runoff.torch.networks import Factory
from runoff.torch.pipeline import MemoryStore, Pipeline, class_shares, member_scores, network_jobs
from runoff.torch.training.jobs import compact
from runoff.torch.training.results import Trained
from runoff.torch.training.trainer import Trainer


@dataclass(frozen=True, eq=False)
class NetworkMember:
    """A member: `n_seeds` networks, or none where its samples have fewer than two classes."""

    index: int
    shares: NDArray[np.float64]  # of each class among its samples
    fitted: tuple[State, ...] = field(default=(), repr=False)
    scores: tuple[NDArray[np.float32] | None, ...] = field(default=(), repr=False)  # for the inputs given to `fit`
    refused: str | None = None

    @classmethod
    def of(cls, index: int, shares: NDArray[np.float64], trained: list[Trained]) -> NetworkMember:
        """Return the member made of these networks, without those that cannot be used."""
        usable = sorted((network for network in trained if network.refused is None), key=lambda network: network.seed)
        states, scores = tuple(network.state for network in usable), tuple(network.scores for network in usable)
        refused = next((network.refused for network in trained if network.refused is not None), None)
        return cls(index, shares, states, scores, None if usable else refused)


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
        self._inputs = None

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
        self._inputs = self.__dict__.pop("_to_score", None)
        self._identities: dict[tuple[int, int], str] = {}  # of the members' networks
        if self.checkpoints is not None:
            self._store = Checkpoints(self.checkpoints)
        elif not isinstance(getattr(self, "_store", None), MemoryStore):
            self._store = MemoryStore()  # an existing one still has what an earlier fit finished

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
        jobs = network_jobs(self._samples.data, codes, rows, which, self._seed, self._n_seeds)
        pipeline = Pipeline.plan(self.trainer(), self._store, jobs, self._inputs)
        networks: dict[int, list[Trained]] = {m: [] for m in which}
        for trained in chain(pipeline.kept(), pipeline.train(self.progress)):
            networks[trained.member].append(trained)
        # Networks of removed samples are forgotten: removing a sample is unlearning it.
        self._identities = {k: v for k, v in self._identities.items() if k[0] not in networks} | pipeline.identities
        self._store.keep_only(set(self._identities.values()))
        n_classes = len(self.classes_)
        return [NetworkMember.of(m, class_shares(codes[rows[m]], n_classes), networks[m]) for m in which]

    def _scored(self, inputs: Samples) -> NDArray[np.float32]:
        scores = np.empty((len(inputs), self.partition_.n_members, len(self.classes_)), np.float32)
        for m, part in self._by_member(inputs):
            scores[:, m] = part
        return scores

    def _ranked(self, inputs: Samples) -> Ballots:
        ballots: Any = None
        for m, part in self._by_member(inputs):
            ranked = points(part)
            if ballots is None:
                ballots = np.empty((len(inputs), self.partition_.n_members, len(self.classes_)), ranked.dtype)
            ballots[:, m] = ranked
        return ballots  # type: ignore[no-any-return]

    def _by_member(self, inputs: Samples) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield each member's scores."""
        states = [((m.index, s), state) for m in self.members_ for s, state in enumerate(m.fitted)]
        left = {m.index: len(m.fitted) for m in self.members_}
        parts: dict[int, dict[int, NDArray[np.float32]]] = {m.index: {} for m in self.members_}
        scored = self._network_scores(states, compact(inputs.data))
        for m in self.members_:
            if not m.fitted:
                yield m.index, member_scores((), m.shares, len(inputs))
        for (m, s), scores in with_progress(scored, "scoring inputs", len(states), show=self.progress):
            parts[m][s] = scores
            left[m] -= 1
            if not left[m]:
                by_seed = parts.pop(m)  # summed in order of seeds, whatever order they arrived in
                yield m, member_scores([by_seed[s] for s in sorted(by_seed)], self.members_[m].shares, len(inputs))

    def _network_scores(self, states: list[Any], inputs: NDArray[Any]) -> Iterator[Any]:
        """Yield the networks' scores, which are already known for the inputs that `fit` was given."""
        if len(self.members_) != self.partition_.n_members:
            raise InputError("the classifier is not completely fitted: fit it again")
        known = self._inputs is not None and np.array_equal(self._inputs, inputs)
        if known and all(scores is not None for m in self.members_ for scores in m.scores):
            yield from (((m.index, s), scores) for m in self.members_ for s, scores in enumerate(m.scores))
        elif states:
            yield from self.trainer().score(states, inputs)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _host(y: Any) -> Any:
    """Labels as an array."""
    return y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else y
