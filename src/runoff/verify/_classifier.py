"""Verification of a saved classifier, with members of any kind, against its training data."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from runoff import check
from runoff.verify import _radii, networks
from runoff.verify._report import counted
from runoff.verify._settings import Verification, compare_members
from runoff.verify.directory import NETWORKS, UnfitError


class Members(Protocol):
    """Interface to scoring and training code of the caller, of which this package has none."""

    def unlike(self) -> str | None:
        """Return the reason why results on this machine would differ from the recorded ones, or None."""

    def scores(self, inputs: Any) -> NDArray[Any]:
        """Return the scores of the members, (n_inputs, n_members, n_classes)."""

    def certify(self, inputs: Any) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        """Return the claims of the classifier: predicted labels, labels of the runners-up, and radii."""

    def retrained(self, member: int, X: Any, y: Any, rows: list[int]) -> tuple[dict[str, str], dict[str, str]]:
        """Retrain a member on these rows; return digests by name of the stored and of the retrained member."""


class ClassifierVerifier(Verification):
    """The verification of a saved classifier."""

    classes: list[Any]
    data: tuple[Any, Any] | None = None

    def open(self) -> bool:
        """Check the digests, recompute the partition, and read the labels."""
        if not self.open_parts(run=False):
            return False
        try:
            self.classes = self.directory.array("classes.npy").tolist()
            sizes = self.directory.array("member_sizes.npy")
            fits = sizes.dtype.kind in "iu" and sizes.shape == (self.parts.n_members,)
            if not isinstance(self.classes, list) or len({*self.classes}) != len(self.classes) or not fits:
                raise UnfitError("must list each class once, and one size per member")
            self.sizes = sizes.tolist()
        except (UnfitError, KeyError, TypeError) as error:
            self.report.files("classes.npy, member_sizes.npy", str(error))
            return False
        return self._check_members()

    def _check_members(self) -> bool:
        """Return whether every member has the files that the manifest lists."""
        manifest, n = self.directory.manifest, self.parts.n_members
        listed = {name for name in self.directory.present if name.startswith("members/")}
        if self.directory.kind == NETWORKS:
            counts = manifest.get("networks")
            if not isinstance(counts, list) or len(counts) != n or not all(type(c) is int and c >= 0 for c in counts):
                self.report.files("manifest.json", f"must list the number of networks of {n} members")
                return False
            expected = {f"members/{m:06d}-{s:04d}.safetensors" for m in range(n) for s in range(min(counts[m], 10**6))}
        else:
            expected = {f"members/{m:06d}.skops" for m in range(n)}
        if listed != expected or manifest.get("members") != n:
            self.report.files(
                min(listed ^ expected, default="manifest.json"), f"does not match the {n} members of the partition"
            )
            return False
        return True

    def compare_data(self, X: Any, y: Any, why_absent: str, groups: Any = None) -> bool:
        """Compare the training sets derived from the data with those that the members were trained on."""
        report = self.report
        if self.parts.unit == "sources" and X is not None and groups is None:
            why = "they are divided by source, and no groups were passed (of a table, by --group-column)"
            report.skipped("the training sets of the members", why)
            return True
        if X is None or y is None:
            report.skipped("the training sets of the members", why_absent)
            return True
        before = len(report.failures)
        codes = self._codes(y)
        if codes is None:
            return False
        if self.directory.kind == NETWORKS:
            X = _as_images(X)
        if _length(X) != len(codes):
            report.files("the data", f"has {_length(X)} samples and {len(codes)} labels")
            return False
        self.progress("hashing the samples")
        try:
            self.divided = self.parts.divide(X, codes, groups=groups)
        except ValueError as error:
            report.files("the data", str(error))
            return False
        compare_members(self.directory.manifest, self.sizes, self.divided, report)
        if self.directory.kind == NETWORKS:
            self._compare_shares()
        self.data = (X, np.asarray(y))
        return len(report.failures) == before

    def _codes(self, y: Any) -> NDArray[np.int64] | None:
        """Return the class index of each label, matched by equality."""
        index = {label: i for i, label in enumerate(self.classes)}
        values = np.asarray(y).tolist()
        unknown = next((i for i, label in enumerate(values) if label not in index), None)
        if unknown is not None:
            self.report.files(
                "the data",
                f"has the label {values[unknown]!r:.40} of sample {unknown}, which is not one of the classes",
            )
            return None
        return np.array([index[label] for label in values], np.int64)

    def _compare_shares(self) -> None:
        try:
            shares = self.directory.array("shares.npy")
        except (UnfitError, KeyError) as error:
            self.report.files("shares.npy", str(error))
            return
        for m in range(self.parts.n_members) if self.divided is not None else ():
            expected = self.divided.shares(m, len(self.classes))  # type: ignore[union-attr]
            if shares.shape != (self.parts.n_members, len(self.classes)) or not np.array_equal(shares[m], expected):
                self.report.files(f"shares.npy, member {m}", "does not hold the member's class shares")
                return

    # -- claims ----------------------------------------------------------------------------------------------------

    def prove(self, inputs: Any, members: Members | None, why_absent: str) -> None:
        """Rank the members' scores for some inputs, and prove the classifier's claims about them."""
        settings, what = self.directory.manifest["settings"], "predictions and radii"
        election, bound = settings.get("election"), settings.get("bound")
        if inputs is None or members is None:
            self.report.skipped(what, why_absent if members is None else "no inputs were passed")
            return
        if election not in check.ELECTIONS or bound not in check.BOUNDS:
            self.report.skipped(what, f"the election {election!r:.40} is unknown")
            return
        selected = _selected(inputs, self.sampled(_length(inputs)))
        self.progress("scoring inputs")
        try:
            scores = np.asarray(members.scores(selected))
            prediction, runner_up, radius = members.certify(selected)
        except ValueError as error:
            self.report.skipped(what, " ".join(str(error).split()).rstrip(" ."))
            return
        index = {label: i for i, label in enumerate(self.classes)}
        claims = _radii.Certificates(
            "certify", election, bound,
            np.array([index.get(label, -1) for label in np.asarray(prediction).tolist()]),
            np.array([index.get(label, -1) for label in np.asarray(runner_up).tolist()]),
            np.asarray(radius, np.int64),
            self.parts.unit,
        )  # fmt: skip
        self.progress("proving radii")
        ballots = networks.ranking(scores)
        _radii.prove(claims, ballots, self.parts.spread(), range(min(len(ballots), self.sample)), self.report)

    def retrain(self, count: int, members: Members | None, why_absent: str) -> None:
        """Retrain members chosen at random, and compare them with the stored ones bit for bit."""
        what = f"{count} {'member' if count == 1 else 'members'} retrained"
        if members is None or self.divided is None or self.data is None:
            self.report.skipped(what, why_absent if members is None else "this needs the training data")
            return
        if (why := members.unlike()) is not None:
            self.report.skipped(what, why)
            return
        same = []
        for m in sorted(self.draws.permutation(self.parts.n_members)[:count].tolist()):
            self.progress(f"training member {m}")
            stored, retrained = members.retrained(m, *self.data, self.divided.rows[m])
            if stored != retrained:
                at = next(name for name in sorted({*stored, *retrained}) if stored.get(name) != retrained.get(name))
                self.report.files(f"member {m}", f"differs from the retrained member: {at}")
            else:
                same.append(str(m))
        if same:
            members_retrained = f"{counted(len(same), 'member')} retrained"
            self.report.passed(f"{members_retrained}, bit for bit the same: {', '.join(same[:12])}")


def _length(X: Any) -> int:
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _selected(X: Any, rows: NDArray[np.int64]) -> Any:
    """Return these rows of samples of any kind."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    if hasattr(X, "tocsr"):
        return X.tocsr()[rows]
    return X[rows] if hasattr(X, "shape") else [X[i] for i in rows]


def _as_images(X: Any) -> NDArray[Any]:
    """Return the samples of networks in the layout that is hashed: (n, height, width, channels) or (n, features)."""
    if hasattr(X, "detach"):  # a tensor has its channels first
        host = X.detach().cpu()
        array = np.asarray((host.float() if str(host.dtype) == "torch.bfloat16" else host).numpy())
        return array.transpose(0, 2, 3, 1) if array.ndim == 4 else networks.arranged(array)
    return networks.arranged(np.asarray(X.to_numpy() if hasattr(X, "iloc") else X))
