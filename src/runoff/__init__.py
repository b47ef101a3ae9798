"""Certified predictions from training data that cannot be fully trusted.

`certify` turns the scores of an ensemble into predictions, each with a proven number of training samples that anyone
may insert, delete or relabel without being able to change it.
"""

from typing import TYPE_CHECKING, Any

from runoff._version import __version__
from runoff.ballots import rank
from runoff.certificates import Certificates, certified_accuracy, certify
from runoff.estimates import out_of_part
from runoff.hashing import new_key

if TYPE_CHECKING:
    from runoff.classifier import RunoffClassifier
    from runoff.planning import plan


__all__ = [
    "Certificates",
    "RunoffClassifier",
    "__version__",
    "certified_accuracy",
    "certify",
    "new_key",
    "out_of_part",
    "plan",
    "rank",
]


def __getattr__(name: str) -> Any:
    """Import what needs scikit-learn on first access, so that `import runoff` stays fast."""
    if name == "RunoffClassifier":
        from runoff.classifier import RunoffClassifier

        return RunoffClassifier
    if name == "plan":
        from runoff.planning import plan

        return plan
    raise AttributeError(f"module 'runoff' has no attribute {name!r}")
