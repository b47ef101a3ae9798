"""Certified predictions from training data that cannot be fully trusted.

`certify` turns the scores of an ensemble into predictions, each with a proven number of training samples that anyone
may insert, delete or relabel without being able to change it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from runoff._version import __version__
from runoff.ballots import rank
from runoff.certificates import Certificates, certified_accuracy, certify, targeted_rate

if TYPE_CHECKING:
    from runoff.classifier import RunoffClassifier
    from runoff.collective import collective_accuracy, collective_attack
    from runoff.encoders import Encoder
    from runoff.hashing import new_key
    from runoff.planning import estimates as estimates
    from runoff.planning.choosing import plan
    from runoff.planning.estimates import out_of_part
    from runoff.planning.scoring import certified_scorer


__all__ = [
    "Certificates",
    "Encoder",
    "RunoffClassifier",
    "__version__",
    "certified_accuracy",
    "certified_scorer",
    "certify",
    "collective_accuracy",
    "collective_attack",
    "new_key",
    "out_of_part",
    "plan",
    "rank",
    "targeted_rate",
]


# Imported on first use, so that `import runoff` stays light.
_LATER = {
    "Encoder": "encoders",
    "RunoffClassifier": "classifier",
    "certified_scorer": "planning.scoring",
    "collective_accuracy": "collective",
    "collective_attack": "collective",
    "new_key": "hashing",
    "estimates": "planning",
    "out_of_part": "planning.estimates",
    "plan": "planning.choosing",
}


# Public modules, also imported on first use; runoff.torch needs its extra.
_MODULES = ("datasets", "elections", "errors", "executors", "heads", "report", "spreads", "torch", "verify")


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name in _MODULES:
        return import_module(f"runoff.{name}")
    if name not in _LATER:
        raise AttributeError(f"module 'runoff' has no attribute {name!r}")
    return getattr(import_module(f"runoff.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    attributes = {name for name in globals() if name.startswith("__")}
    return sorted({*attributes, *__all__, *_LATER, *_MODULES})
