"""The parts of the package whose errors would cause wrong certificates, and the tests for each part."""

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGE = ROOT / "src" / "runoff"
PROOFS = ("test_pinned.py", "test_cover.py", "test_reference.py", "test_adversary.py", "test_relations.py")


@dataclass(frozen=True)
class Part:
    """Some files, and the tests whose output says whether they are right: first those that are about these files."""

    files: tuple[str, ...]
    tests: tuple[str, ...]

    def present(self) -> list[str]:
        """Return the files that exist: a part may name files that do not exist yet."""
        return [str(p.relative_to(PACKAGE)) for file in self.files for p in sorted(PACKAGE.glob(file))]


PARTS = {
    "covering": Part(("_kernels/covering.py",), ("test_cover.py", "test_elections.py", "test_pinned.py")),
    "kernels": Part(
        ("_kernels/counting.py", "_kernels/plurality.py", "_kernels/runoff*.py"),
        ("test_work.py", "test_pinned.py", "test_adversary.py", *PROOFS, "test_inputs.py"),
    ),
    "maximin": Part(
        ("_kernels/maximin.py", "elections/maximin.py"),
        ("test_maximin.py", "test_work.py", "test_elections.py", *PROOFS, "test_inputs.py"),
    ),
    "targets": Part(
        ("_kernels/targets.py", "_kernels/targets_spread.py", "elections/overtaking.py"),
        ("test_work.py", "test_pinned.py", "test_targets.py", "test_certificates.py"),
    ),
    "elections": Part(
        (
            "elections/__init__.py",
            "elections/base.py",
            "elections/votes.py",
            "elections/plurality.py",
            "elections/runoff.py",
            "attacks.py",
        ),
        ("test_elections.py", "test_pinned.py", "test_adversary.py", "test_certificates.py", "test_targets.py"),
    ),
    "ballots": Part(("ballots.py", "scores.py"), ("test_inputs.py", "test_relations.py", "test_adversary.py")),
    "collective": Part(("collective/*.py", "_kernels/majorants.py"), ("test_collective.py",)),
    "spreads": Part(("spreads.py",), ("test_inputs.py", "test_relations.py", "test_adversary.py")),
    "partition": Part(
        ("partition.py",),
        ("test_partition.py", "test_hashing.py"),
    ),
    "hashing": Part(("hashing.py",), ("test_hashing.py", "test_source_names.py")),
    "isolation": Part(
        ("members.py", "ensemble.py", "samples.py", "isolation.py", "fitting/labels.py", "fitting/edits.py"),
        ("test_members.py", "test_samples.py", "test_ensemble.py"),
    ),
    "verify": Part(
        ("check.py", "verify/*.py"),
        (
            "test_verify_runs.py",
            "test_verify_files.py",
            "test_verify_classifiers.py",
            "test_verify_programs.py",
            "test_check_by_hand.py",
        ),
    ),
}
