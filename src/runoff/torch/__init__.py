"""Certified ensembles of PyTorch networks."""

from runoff.errors import MissingExtraError

try:
    import safetensors  # noqa: F401
    import torch  # noqa: F401
except ImportError as error:
    raise MissingExtraError(f"runoff.torch needs {error.name}. Install it with: pip install runoff[torch]") from None

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
