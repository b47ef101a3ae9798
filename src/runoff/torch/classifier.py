"""TorchClassifier: certified predictions from ensembles of networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from runoff import encoders, executors, recipes
from runoff._io.progress import with_progress
from runoff.ballots import Ballots, points
from runoff.encoders import Encoder
from runoff.ensemble import Ensemble
from runoff.errors import InputError, check_whole
from runoff.fitting.edits import Edit
from runoff.recipes import Recipe
from runoff.samples import Dense, Rows, Samples
from runoff.torch import devices, inputs, starting
from runoff.torch.checkpoints import Checkpoints
from runoff.torch.heads import HeadTrainer
from runoff.torch.members import NetworkMember, scores_by_member
from runoff.torch.networks import Factory
from runoff.torch.pipeline import MemoryStore, Pipeline, class_shares, network_jobs
from runoff.torch.training.jobs import compact
from runoff.torch.training.results import Trained
from runoff.torch.training.trainer import Trainer
from runoff.torch.workload import HeadSettings, TrainerSettings


class TorchClassifier(Ensemble):
    """An ensemble of networks that certifies how many edits of the training samples cannot change a prediction.

    It works like `RunoffClassifier`, with networks as members. Each is trained only on the samples of its member's
    buckets, with the same bits whatever else is trained at the same time.

    Samples are images, as an array (n, height, width, channels) or (n, height, width) or as a tensor
    (n, channels, height, width), or rows of numbers (n, features). Each member normalises inputs by the mean and the
    standard deviation of its samples.

    Parameters
    ----------
    network : "nin" (the paper's), "small", or a function (shape, n_classes) -> nn.Module, where shape is the shape of
        one input in PyTorch: (channels, height, width) or (features,)
    recipe : a `Recipe` or the name of one: "paper", "paper-no-flip", "strong", "strong-no-flip", "quick". It must be
        fixed in advance
    weights : initial weights of all networks: None (random), the path of a safetensors file that does not depend on
        the training samples, as written by `runoff pretrain`, or "procedural" (weights of this kind in the package)
    encoder : members are ridge heads on the features of this trusted encoder, trained in closed form, in place of
        networks: the name of one ("efficientnet-lite0", "-lite1", "-lite2"; with "-no-flip" for images whose mirror
        image may have another class), the path of a safetensors file with such weights, an `Encoder`, or a function
        from X to features. `network`, `recipe` and `weights` are then ignored
    classes : all possible labels. Required: the outputs of the networks must not depend on the labels in y
    n_seeds : networks per member, with different seeds, whose scores are averaged (DPA*)
    device : "cpu", "cuda", "cuda:N". Default: a GPU if one is available
    in_flight : networks trained at a time. It affects the time, not the results
    checkpoints : a directory for finished networks, from which an interrupted fit resumes
    progress : show progress on stderr. Default: if warnings are enabled
    executor : where networks are trained: "local" (the default), "joblib", "ray", or an object of `runoff.executors`
        such as `Ray(gpus=1)`. `device` then determines where they are scored
    n_partitions, spread, election, bound, hash_key, random_state, hash, threat, shared : as in `RunoffClassifier`.
        Networks learn from what `shared` returns: rows of numbers, or images

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
        threat: str = "samples",
        shared: Any = None,
        encoder: Any = None,
        device: Any = None,
        in_flight: int | None = None,
        checkpoints: str | Path | None = None,
        progress: bool | None = None,
        executor: Any = None,
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
        self.threat = threat
        self.shared = shared
        self.encoder = encoder
        self.device = device
        self.in_flight = in_flight
        self.checkpoints = checkpoints
        self.progress = progress
        self.executor = executor

    def fit(self, X: Any, y: Any, groups: Any = None, *, score: Any = None, **unsupported: Any) -> Self:
        """Hash the samples into buckets and train every member on the samples of its buckets.

        With `groups`, the source of each sample, one edit is one source, as in `RunoffClassifier`. The inputs `score`
        are scored when each network finishes, so that certifying them later needs no inference.
        """
        self._to_score = None if score is None else self._as_scored(inputs.images(score, devices.find(self.device)))
        return super().fit(X, _host(y), _host(groups), **unsupported)

    def _undo(self, before: dict[str, Any]) -> None:
        """Restore the state before a failed call, but keep finished networks for the next call."""
        store = self.__dict__.get("_store")
        super()._undo(before)
        if store is not None:
            self._store: Any = store

    def add_seeds(self, n: int) -> Self:
        """Train n more networks per member with the same recipe; existing networks do not change."""
        check_is_fitted(self)
        check_whole("n", n, 1)
        self._check_samples()
        with self._all_or_nothing():
            self.n_seeds = self._n_seeds = self._n_seeds + int(n)
            self._train_members(range(self.partition_.n_members))
        return self

    def update(self, add: Edit | None = None, remove: Edit | None = None) -> Self:
        """Insert and delete training samples, and retrain only the members whose buckets changed.

        The result has the same bits as `fit` on the new data. With groups, `add` and `remove` are (X, y, groups).
        """

        def on_host(edit: Any) -> Any:
            return (edit[0], *map(_host, edit[1:])) if isinstance(edit, tuple) and edit else edit

        return super().update(on_host(add), on_host(remove))

    def save(self, path: str | Path) -> None:
        """Write the fitted classifier to a new directory, without its training samples."""
        from runoff.saving import networks

        check_is_fitted(self)
        if self.shared_ is not None:
            raise InputError("networks on shared features cannot be saved: save features, and train on them instead")
        networks.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path, *, network: Factory | None = None, device: Any = None) -> TorchClassifier:
        """Load a classifier from a directory written by `save`, after checking the SHA-256 of every file.

        Nothing is unpickled. A custom network must be passed again, because code is not stored.
        """
        from runoff.saving import networks

        return networks.load(cls, Path(path), network, device)

    def restore_networks(self, recipe: Recipe, network: Factory, first_weights: dict[str, str] | None) -> None:
        """Set the recipe, architecture and initial weights of a saved classifier; the caller sets the members."""
        self._recipe, self._network, self.first_weights_ = recipe, network, first_weights
        self._inputs: Any = None

    def restore_first_weights(self) -> None:
        """Load the recorded initial weights, which only training needs, from their file, which must exist."""
        self._network = starting.recorded(self.network, self.first_weights_)

    # -- methods that Ensemble calls -----------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        super()._check_settings()
        recipes.get(self.recipe)
        if self.executor is not None:
            executors.get(self.executor)
        starting.start(self.network, self.weights)
        if self.encoder is not None:
            self._check_only_encoder()
        if self.classes is None:
            raise InputError(
                "classes must be given, such as classes=range(10): if the outputs of the networks depended on the "
                "labels in y, one sample with a new label would change every member"
            )

    def _check_only_encoder(self) -> None:
        """Raise an error if settings of networks are combined with an encoder."""
        if self.weights is not None:
            raise InputError("weights are those of networks, which are not used with an encoder: leave one of them out")
        if self.n_seeds != 1:
            raise InputError(f"n_seeds must be 1 with an encoder, whose heads are not random, got {self.n_seeds}")
        if self.executor is not None and not executors.get(self.executor).here:
            raise InputError("executor must be 'local' with an encoder, whose features are computed on this machine")

    def _samples_of(self, X: Any, reset: bool) -> Samples:
        array = inputs.images(X, devices.find(self.device))
        if reset:
            if self.shared is None and self.encoder is None:
                inputs.suits(recipes.get(self.recipe), array)
            self._width = ("dense", array.shape[1:])
        elif array.shape[1:] != tuple(self._width[1]):
            raise InputError(f"X must have samples of shape {tuple(self._width[1])} as in fit, got {array.shape[1:]}")
        return Dense(array)

    def _find_encoder(self) -> Encoder | None:
        return None if self.encoder is None else encoders.get(self.encoder, self.device)

    def _as_scored(self, images: NDArray[Any]) -> NDArray[Any]:
        """Return inputs in the form that the trainer scores: unchanged for an encoder, else compact."""
        with np.errstate(all="ignore"):
            return images if self.encoder is not None else compact(images)

    def features_of(self, samples: Samples, digests: Any = None) -> Samples:
        """Return samples in the form for members, unchanged if there is an encoder, which the trainer applies."""
        if self.encoder is not None:
            return samples  # the trainer encodes them
        features = super().features_of(samples, digests)
        return features if self.shared_ is None else Dense(inputs.images(features.data, devices.find(self.device)))

    def _prepare(self) -> None:
        if self.shared is not None:
            inputs.suits(recipes.get(self.recipe), self._features.data)
        self._recipe, self._network = recipes.get(self.recipe), starting.start(self.network, self.weights)
        first = starting.first_weights_of(self._network)
        self.first_weights_ = None if first is None else first.described()
        to_score = self.__dict__.pop("_to_score", None)
        self._inputs = None if to_score is None else self._as_scored(self.features_of(Dense(to_score)).data)
        self._identities: dict[tuple[int, int], str] = {}  # by member and seed
        if self.checkpoints is not None:
            if self.encoder_ is not None and not self.encoder_.sha256:
                raise InputError(
                    "an encoder needs sha256= if heads are kept in checkpoints, to tell it from others: wrap it as "
                    "runoff.Encoder(function, name, sha256=...), or leave checkpoints out"
                )
            self._store = Checkpoints(self.checkpoints)
        elif not isinstance(getattr(self, "_store", None), MemoryStore):
            self._store = MemoryStore()  # an existing one contains the networks that a failed fit finished

    def trainer(self) -> Trainer:
        """Return the trainer that scores the networks of this fitted classifier, and trains them on this machine."""
        return self._trainer_settings().trainer()

    def _trainer_settings(self) -> TrainerSettings:
        if self.encoder_ is not None:
            return HeadSettings(
                HeadTrainer(
                    self.encoder_,
                    tuple(self._width[1]),
                    len(self.classes_),
                    device=self.device,
                    in_flight=self.in_flight,
                    progress=self.progress,
                )
            )
        shape = tuple(self._width[1]) if self.shared_ is None else self._features.data.shape[1:]
        return TrainerSettings(
            self._network, self._recipe, shape, len(self.classes_), device=self.device, in_flight=self.in_flight
        )

    def _train(self, which: Sequence[int], codes: NDArray[np.int64], rows: list[Rows]) -> list[NetworkMember]:
        jobs = network_jobs(self._features.data, codes, rows, which, self._seed, self._n_seeds)
        pipeline = Pipeline.plan(
            self._trainer_settings(), self._store, jobs, self._inputs, executor=executors.get(self.executor or "local")
        )
        self._trained_with = pipeline.trained_with
        networks: dict[int, list[Trained]] = {m: [] for m in which}
        for trained in pipeline.kept():
            networks[trained.member].append(trained)
        with closing(pipeline.train(self.progress)) as training:
            for trained in training:
                networks[trained.member].append(trained)
        # A removed sample must be unlearned, so networks that were trained on it are deleted.
        self._identities = {k: v for k, v in self._identities.items() if k[0] not in networks} | pipeline.identities
        self._store.keep_only(set(self._identities.values()))
        n_classes = len(self.classes_)
        return [NetworkMember.from_networks(m, class_shares(codes[rows[m]], n_classes), networks[m]) for m in which]

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
        """Yield the index and the scores of each member."""
        states = [((m.index, s), state) for m in self.members_ for s, state in enumerate(m.fitted)]
        scored = self._network_scores(states, self._as_scored(inputs.data))
        with_bar = with_progress(scored, "scoring inputs", len(states), show=self.progress)
        return scores_by_member(self.members_, with_bar, len(inputs))

    def _network_scores(self, states: list[Any], inputs: NDArray[Any]) -> Iterator[Any]:
        """Yield the scores of all networks, from memory if the inputs are those passed to `fit`."""
        if len(self.members_) != self.partition_.n_members:
            raise InputError("the classifier is only partially fitted: fit it again")
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
    """Return labels on the host: a tensor as an array, anything else unchanged."""
    return y.detach().cpu().numpy() if isinstance(y, torch.Tensor) else y
