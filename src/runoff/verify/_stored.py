"""Verification of the stored networks of a run: ballots from their scores, and retraining."""

from __future__ import annotations

import re
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from runoff.verify import networks
from runoff.verify._report import SHOWN, counted
from runoff.verify._run_data import RunData
from runoff.verify.directory import UnfitError
from runoff.verify.networks import SCORES, Tensor

NETWORK = re.compile(r"members/member-(\d{6,9})-seed-(\d{4,9})\.safetensors")


class Trainer(Protocol):
    """Interface to training and scoring code of the caller, of which this package has none."""

    def unlike(self) -> str | None:
        """Return the reason why results on this machine would differ from the recorded ones, or None."""

    def scores(self, tensors: dict[str, Tensor], inputs: NDArray[Any]) -> NDArray[Any]:
        """Return the scores of a network for inputs."""

    def retrained(
        self, member: int, seed: int, x: NDArray[Any], rows: list[int], codes: NDArray[np.int64], inputs: NDArray[Any]
    ) -> tuple[dict[str, Tensor], NDArray[Any] | None]:
        """Train a network on these rows of x; return its tensors, and its scores for the inputs.

        The scores are None if the network cannot be used.
        """


class StoredNetworks(RunData):
    """Steps that check the stored networks of a run."""

    def _network(self, member: int, seed: int) -> tuple[dict[str, str], dict[str, Tensor]] | None:
        name = f"members/member-{member:06d}-seed-{seed:04d}.safetensors"
        return networks.tensors(self.directory.data(name)) if name in self.directory.present else None

    def compare_ballots(self, trainer: Trainer | None, why_absent: str) -> None:
        """Recompute the ballots from the stored scores of networks, and, for a sample, the scores from the weights."""
        report = self.report
        stored = sorted(name for name in self.directory.present if NETWORK.fullmatch(name))
        if not stored or not self.ballots:
            if self.ballots:
                report.skipped("that the ballots are those of the stored networks", "no network is in the directory")
            return
        trained = {int(found[1]) for found in map(NETWORK.fullmatch, stored) if found}
        wrong, unknown, refused = [], set(), []
        seeds = sorted(self.ballots)
        chosen = self.sampled(len(self.ballots[seeds[0]]))
        scorer = self._scorer(trainer, why_absent)
        scored = 0
        for m in range(self.parts.n_members):
            shares = None if self.divided is None else self.divided.shares(m, self.n_classes)
            member_scores = []
            for seed in range(min(seeds[-1], len(stored) + 1)):  # ballots may claim any number of networks
                try:
                    network = self._network(m, seed)
                    if network is not None:
                        if network[0].get("refused"):
                            refused.append(m)
                        scored += self._rescored(network, scorer, chosen, m, seed)
                        member_scores.append((seed, self._scores(network, m, seed)))
                    elif m in trained or (shares is not None and np.count_nonzero(shares) > 1):
                        report.files(f"member {m}", f"has no stored network of seed {seed}")
                except UnfitError as error:
                    report.files(f"members/member-{m:06d}-seed-{seed:04d}.safetensors", str(error))
                if len(report.failures) >= SHOWN:
                    return
            for n_seeds in seeds:
                ballots = self.ballots[n_seeds]
                averaged = [scores for seed, scores in member_scores if seed < n_seeds and scores is not None]
                mean = networks.mean_scores(averaged, shares, len(ballots))
                if mean is None or mean.shape != (len(ballots), self.n_classes):
                    unknown.add(m)
                    continue
                differ = np.flatnonzero((networks.ranking(mean) != ballots[:, m]).any(axis=1))
                if len(differ):
                    wrong.append((n_seeds, m, int(differ[0])))
        for n_seeds, m, i in wrong[:SHOWN]:
            report.files(
                f"ballots-{n_seeds}.npy, member {m}", f"does not rank input {i} by the scores of its stored networks"
            )
        if unknown:
            report.skipped(
                f"the ballots of {counted(len(unknown), 'member')}",
                "they vote by their class shares, which need the dataset",
            )
        if refused:
            named = ", ".join(map(str, sorted({*refused})[:SHOWN]))
            report.skipped(
                f"that {counted(len(refused), 'network')} could not be trained, as the files say",
                f"--retrain shows this for those that it picks (of members {named})",
            )
        if not wrong:
            n = self.parts.n_members - len(unknown)
            members = counted(n, "member")
            report.passed(f"the ballots of {members} for all inputs, ranked again from their stored scores")
        if scored:
            report.passed(
                f"the stored scores of {counted(scored, 'network')} for {counted(len(chosen), 'input')}, computed from "
                "their weights"
            )

    @property
    def _has_weights(self) -> bool:
        return bool(self.directory.manifest["dataset"].get("weights", True))

    def _scorer(self, trainer: Trainer | None, why_absent: str) -> Trainer | None:
        what = "that the stored scores are those of the stored weights"
        if not self._has_weights:
            why: str | None = "the run stores no weights"
        elif self.inputs is None:
            why = "the dataset is not available"
        else:
            why = why_absent if trainer is None else trainer.unlike()
        if why is None:
            return trainer
        self.report.skipped(what, why)
        return None

    def _rescored(self, network: Any, scorer: Trainer | None, chosen: NDArray[np.int64], member: int, seed: int) -> int:
        metadata, tensors = network
        weights = {name: tensor for name, tensor in tensors.items() if name != SCORES}
        if metadata.get("refused") or SCORES not in tensors:
            return 0
        if not weights and self._has_weights:
            raise UnfitError(f"has no weights, although the run stores them (seed {seed}, member {member})")
        if scorer is None or self.inputs is None or not weights:
            return 0
        new = np.asarray(scorer.scores(weights, self.inputs[chosen]))
        stored = tensors[SCORES].numbers()[chosen]
        differ = np.flatnonzero((networks.ranking(new) != networks.ranking(stored.astype(new.dtype))).any(axis=1))
        if len(differ):
            raise UnfitError(
                f"does not give the stored scores for input {chosen[differ[0]]} (seed {seed}, member {member})"
            )
        return 1

    def _scores(self, network: tuple[dict[str, str], dict[str, Tensor]], member: int, seed: int) -> NDArray[Any] | None:
        metadata, tensors = network
        if metadata.get("refused"):
            return None
        if SCORES not in tensors:
            raise UnfitError("has no stored scores")
        if self.inputs is not None and metadata.get("asked") != networks.inputs_digest(self.inputs):
            raise UnfitError(f"has scores for inputs that are not those of the dataset (member {member}, seed {seed})")
        return tensors[SCORES].numbers()

    def retrain(self, count: int, trainer: Trainer | None, why_absent: str) -> None:
        """Retrain networks chosen at random, and compare them with the stored ones bit for bit."""
        stored = sorted((int(m[1]), int(m[2])) for m in map(NETWORK.fullmatch, self.directory.present) if m)
        what = f"{counted(count, 'network')} retrained"
        if not stored or self.divided is None or self.x is None or self.inputs is None:
            self.report.skipped(what, "this needs the stored networks and the dataset")
            return
        why = why_absent if trainer is None else trainer.unlike()
        if trainer is None or why is not None:
            self.report.skipped(what, why or "")
            return
        picked = sorted(self.draws.permutation(len(stored))[:count].tolist())
        same = []
        for member, seed in (stored[i] for i in picked):
            name = f"members/member-{member:06d}-seed-{seed:04d}.safetensors"
            self.progress(f"training member {member}, seed {seed}")
            network = self._network(member, seed)
            rows = self.divided.rows[member]
            codes = np.array([self.divided.codes[i] for i in rows], np.int64)
            new, scores = trainer.retrained(member, seed, self.x, rows, codes, self.inputs)
            metadata, tensors = network if network is not None else ({}, {})
            weights = {tensor: value for tensor, value in tensors.items() if tensor != SCORES}
            stored_scores = tensors.get(SCORES)
            refused = bool(metadata.get("refused"))
            if refused != (scores is None):
                marked = ("cannot be used", "can be used")
                what = f"is stored as a network that {marked[not refused]}, but the retrained one {marked[refused]}"
                self.report.files(name, f"{what} (member {member})")
            elif (weights or self._has_weights) and weights != new:
                names = sorted({*weights, *new})
                at = next((n for n in names if weights.get(n) != new.get(n)), "")
                self.report.files(name, f"differs from the retrained network of member {member}: tensor {at!r:.60}")
            elif scores is not None and (stored_scores is None or not _same(scores, stored_scores)):
                self.report.files(name, f"has scores that differ from the retrained network of member {member}")
            else:
                same.append(f"{member}" if seed == 0 else f"{member} (seed {seed})")
        if same:
            networks_retrained = f"{counted(len(same), 'network')} retrained"
            self.report.passed(f"{networks_retrained}, bit for bit the same: members {', '.join(same[:12])}")


def _same(scores: NDArray[Any], stored: Tensor) -> bool:
    numbers = stored.numbers()
    return bool(np.array_equal(scores.astype(numbers.dtype), numbers, equal_nan=True))
