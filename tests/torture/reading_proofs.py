"""Readers of evidence under test: proofs, attestations, and directories as the verifier reads them."""

import hashlib
import json
from typing import Any

from runoff import verify
from runoff.check import MalformedError
from runoff.verify import attestation
from runoff.verify._report import Report
from tests.torture import bases, damage
from tests.torture.damage import Random
from tests.torture.reading import Files, Models, NotHereError, Reader, RunFiles


class FailedError(Exception):
    """The first failure of a report: how the verifier says that something is wrong."""


class Proofs(Reader):
    """proof.json, by the checker that stands alone."""

    allowed = (MalformedError,)
    strict = False
    about = ("it ", "must", "ballots", "input", "spread")

    def make(self) -> None:
        path = bases.a_proof(self.folder)
        if path is None:
            raise NotHereError
        self.files = {"proof.json": path.read_bytes()}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        change = damage.in_bytes if rng.random() < 0.2 else damage.in_json
        return {"proof.json": change(rng, self.files["proof.json"])}, False

    def read(self) -> Any:
        from runoff import check  # type: ignore[attr-defined]

        proof = check.read(self.folder / "proof.json")
        return len(check.check(proof)[0])


class Attestations(Reader):
    """An attestation that is compared with a verified run: one that passes must say what the run says."""

    allowed = (FailedError,)
    strict = False

    def make(self) -> None:
        report = verify.run(bases.a_run(self.folder / "run"), seed=0)
        self.facts = json.loads(json.dumps(report.facts))
        self.statement = json.loads(json.dumps(attestation.statement(report)))
        self.files = {"attestation.json": json.dumps(self.statement).encode()}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        change = damage.in_bytes if rng.random() < 0.2 else damage.in_json
        return {"attestation.json": change(rng, self.files["attestation.json"])}, False

    def read(self) -> Any:
        path = self.folder / "attestation.json"
        report = Report("run", facts=self.facts)
        attestation.compare(path, report)
        if report.failures:
            raise FailedError(str(report.failures[0]))
        found = json.loads(path.read_bytes())
        names = ("_type", "subject", "predicateType")
        same = [found[name] == self.statement[name] for name in names]
        same += [found["predicate"].get(name) == self.statement["predicate"].get(name) for name in attestation.FIELDS]
        if not all(same):
            raise AssertionError("an attestation passes that differs from the run")
        return report.checked


def listed(folder: Any) -> list[str]:
    """The digests of the files that a manifest lists."""
    names = json.loads((folder / "manifest.json").read_bytes())["files"]
    return [
        hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in sorted(names) if (folder / name).exists()
    ]


class VerifiedRuns(RunFiles):
    """`runoff verify RUN`: what passes although no manifest was forged must be what was saved."""

    allowed = (FailedError,)
    about = (": ",)  # the file, the member or the input comes first

    def make(self) -> None:
        path = bases.a_run(self.folder)
        bases.certified(path)
        self.files = {f"run/{name}": data for name, data in bases.contents(path).items() if not name.endswith(".lock")}

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        if rng.random() < 0.6:
            return super().damaged(rng)
        text = damage.in_json(rng, self.files["run/manifest.json"])
        return {"run/manifest.json": bases.resealed(text) if rng.random() < 0.7 else text}, False

    def read(self) -> Any:
        report = verify.run(self.folder / "run", seed=0, sample=0)
        if report.failures:
            raise FailedError(str(report.failures[0]))
        return listed(self.folder / "run")


class VerifiedModels(Models):
    """`runoff verify MODEL`, without its training data."""

    allowed = (FailedError,)
    about = (": ",)  # the file, the member or the input comes first

    def damaged(self, rng: Random) -> tuple[Files, bool]:
        changed, strict = super().damaged(rng)
        text = changed.get("model/manifest.json")
        if text is not None and rng.random() < 0.7:
            changed["model/manifest.json"] = bases.resealed(text)
        return changed, strict

    def read(self) -> Any:
        report = verify.classifier(self.folder / "model", seed=0, sample=0)
        if report.failures:
            raise FailedError(str(report.failures[0]))
        return listed(self.folder / "model")
