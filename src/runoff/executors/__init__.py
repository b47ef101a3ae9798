"""Executors, which train members in this process, with joblib, or on a Ray cluster.

All implement one interface, `Executor`. Members are bit-identical wherever they are trained.
"""

from typing import TYPE_CHECKING, Any

from runoff.executors.base import Executor, Place, Plan, Watch, Work
from runoff.executors.choice import NAMES, get
from runoff.executors.local import Joblib, Local

if TYPE_CHECKING:
    from runoff.executors.cluster import Ray
    from runoff.executors.storage import Storage

__all__ = ["NAMES", "Executor", "Joblib", "Local", "Place", "Plan", "Ray", "Storage", "Watch", "Work", "get"]


def __getattr__(name: str) -> Any:
    """Import what only clusters need on first use."""
    if name == "Ray":
        from runoff.executors.cluster import Ray

        return Ray
    if name == "Storage":
        from runoff.executors.storage import Storage

        return Storage
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
