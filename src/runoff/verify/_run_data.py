"""The arrays of a run directory, and the dataset that the run was trained on."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runoff.verify import _content, networks
from runoff.verify._report import counted
from runoff.verify._settings import Verification, compare_members
from runoff.verify.directory import UnfitError

BALLOTS = re.compile(r"ballots-([1-9]\d{0,8})\.npy")
EDIT = re.compile(r"edits/\d{6,}-(add|remove)\.npz")


class RunData(Verification):
    """Steps that check the arrays of a run and its dataset."""

    x: NDArray[Any] | None = None  # training images after the edits
    inputs: NDArray[Any] | None = None

    def open(self) -> bool:
        """Check the digests and recompute the partition."""
        return self.open_parts(run=True) and self._check_arrays()

    def _check_arrays(self) -> bool:
        report, before = self.report, len(self.report.failures)
        self.n_classes = len(self.directory.manifest["dataset"]["classes"])
        self.ballots: dict[int, NDArray[Any]] = {}
        self.labels: NDArray[np.int64] | None = None
        present = self.directory.present
        try:
            if "spread.npy" in present:
                name = "spread.npy"
                if self.directory.array(name).tolist() != self.parts.spread():
                    report.files(name, "is not the spread that follows from the settings")
            if "labels.npy" in present:
                name = "labels.npy"
                labels = self.directory.array(name)
                if (
                    labels.ndim != 1
                    or labels.dtype.kind not in "iu"
                    or not ((labels >= 0) & (labels < self.n_classes)).all()
                ):
                    report.files(name, f"must hold classes 0 to {self.n_classes - 1}")
                else:
                    self.labels = labels.astype(np.int64)
            for name in sorted(present):
                if match := BALLOTS.fullmatch(name):
                    self.ballots[int(match[1])] = self._ballots(name)
        except UnfitError as error:
            report.files(name, str(error))
        if not self.ballots:
            report.skipped("ballots and certificates", "the run is not finished")
        return len(report.failures) == before

    def _ballots(self, name: str) -> NDArray[Any]:
        ballots = self.directory.array(name)
        expected = (self.parts.n_members, self.n_classes)
        dtype = np.uint8 if self.n_classes <= 256 else np.uint16
        if ballots.ndim != 3 or ballots.shape[1:] != expected or ballots.dtype != dtype or self.n_classes < 2:
            raise UnfitError(f"must hold ballots of shape (inputs, {expected[0]}, {expected[1]}), got {ballots.shape}")
        if self.labels is not None and len(self.labels) != len(ballots):
            raise UnfitError(f"must hold ballots for the {len(self.labels)} inputs of labels.npy, got {len(ballots)}")
        for start in range(0, len(ballots), 512):
            block = ballots[start : start + 512]
            bad = np.argwhere((np.sort(block, axis=-1) != np.arange(self.n_classes)).any(axis=-1))
            if len(bad):
                raise UnfitError(f"has a ballot that is not a ranking: input {start + bad[0][0]}, member {bad[0][1]}")
        return ballots

    def compare_dataset(self, dataset: Any, why_absent: str) -> bool:
        """Compare dataset, edits, labels and training sets with the records of the run."""
        report, manifest = self.report, self.directory.manifest
        if dataset is None:
            for what in ("the dataset", "the training sets of the members"):
                report.skipped(what, why_absent)
            return True
        before = len(report.failures)
        fingerprint = networks.dataset_fingerprint(dataset)
        if fingerprint != manifest["settings"].get("fingerprint"):
            report.files("the dataset", "does not have the fingerprint that the run records: its samples differ")
            return False
        if list(dataset.classes) != manifest["dataset"]["classes"]:
            report.files("the dataset", "does not have the classes that the run records")
            return False
        if self.labels is not None and not np.array_equal(self.labels, dataset.y_test):
            at = int(np.flatnonzero(self.labels != dataset.y_test)[0]) if len(self.labels) == len(dataset.y_test) else 0
            report.files("labels.npy", f"does not hold the labels of the dataset: input {at}")
        try:
            groups = None if dataset.groups is None else list(dataset.groups)
            x, y, groups = self._edited(np.asarray(dataset.x_train), np.asarray(dataset.y_train), groups)
            if (groups is None) == (self.parts.unit == "sources"):
                raise UnfitError("and settings disagree on whether samples have sources")
        except ValueError as error:
            report.files("edits/", str(error))
            return False
        self.x, self.inputs = networks.arranged(x), networks.arranged(np.asarray(dataset.x_test))
        self.divided = self.parts.divide(self.x, y, dataset.original_digests, dataset.original_sums, groups)
        if len(report.failures) == before:
            edits = len(manifest.get("edits", ()))
            with_edits = f", with {counted(edits, 'edit')} applied" if edits else ""
            report.passed(f"the dataset's fingerprint and the labels of the inputs{with_edits}")
        compare_members(manifest, manifest.get("member_sizes"), self.divided, report)
        return len(report.failures) == before

    def _edited(
        self, x: NDArray[Any], y: NDArray[Any], groups: list[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any], list[Any] | None]:
        """Return the samples after the edits that the run records, applied in order."""
        for name in self.directory.manifest.get("edits", []):
            match = EDIT.fullmatch(name) if isinstance(name, str) else None
            if match is None or name not in self.directory.present:
                raise UnfitError(f"do not match the manifest: {name!r:.60}")
            arrays = self.directory.arrays(name)
            images, labels = arrays.get("x"), arrays.get("y")
            if images is None or labels is None or images.shape[1:] != x.shape[1:] or labels.shape != images.shape[:1]:
                raise UnfitError(f"are not samples of the dataset's shape: {name}")
            names = arrays.get("groups")
            if (names is None) != (groups is None) or (names is not None and names.shape != labels.shape):
                raise UnfitError(f"do not have the sources of their samples: {name}")
            if match[1] == "add":
                x, y = np.concatenate([x, images]), np.concatenate([y, labels.astype(np.int64)])
                groups = None if groups is None or names is None else [*groups, *names]
                continue
            keep = np.ones(len(x), bool)
            for i, (image, label) in enumerate(zip(images, labels, strict=True)):
                same = np.flatnonzero(keep & (y == label) & (x == image).reshape(len(x), -1).all(axis=1))
                if groups is not None and names is not None:
                    wanted = _content.source_bytes(names[i])
                    same = np.array([j for j in same if _content.source_bytes(groups[j]) == wanted], np.int64)
                if not len(same):
                    raise UnfitError(f"remove a sample that is not a training sample: {name}")
                keep[same[-1]] = False
            x, y = x[keep], y[keep]
            groups = None if groups is None else [group for group, kept in zip(groups, keep, strict=True) if kept]
        return x, y, groups
