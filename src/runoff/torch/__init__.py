"""Certified ensembles of PyTorch networks."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from runoff.errors import MissingExtraError

try:
    import safetensors  # noqa: F401
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError(f"runoff.torch needs {error.name}. Install it with: pip install 'runoff[torch]'") from None

if TYPE_CHECKING:
    from runoff.recipes import RECIPES, Recipe
    from runoff.torch.checkpoints import Checkpoints
    from runoff.torch.classifier import TorchClassifier
    from runoff.torch.encoders import image_encoder
    from runoff.torch.networks import NETWORKS, NetworkInNetwork, SmallNetwork
    from runoff.torch.training.jobs import Job
    from runoff.torch.training.results import Trained
    from runoff.torch.training.trainer import Trainer

__all__ = [
    "NETWORKS",
    "RECIPES",
    "Checkpoints",
    "Job",
    "NetworkInNetwork",
    "Recipe",
    "SmallNetwork",
    "TorchClassifier",
    "Trained",
    "Trainer",
    "image_encoder",
]

# Imported on first use: `runoff train` needs no estimator, and the estimator needs no encoder.
_LATER = {
    "NETWORKS": "torch.networks",
    "RECIPES": "recipes",
    "Checkpoints": "torch.checkpoints",
    "Job": "torch.training.jobs",
    "NetworkInNetwork": "torch.networks",
    "Recipe": "recipes",
    "SmallNetwork": "torch.networks",
    "TorchClassifier": "torch.classifier",
    "Trained": "torch.training.results",
    "Trainer": "torch.training.trainer",
    "image_encoder": "torch.encoders",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"runoff.{_LATER[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
