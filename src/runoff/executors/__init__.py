"""Executors, which train members in this process, with joblib, or on a Ray cluster.

All implement one interface, `Executor`. Members are bit-identical wherever they are trained.
"""

from runoff.executors.base import Executor, Place, Plan, Watch, Work
from runoff.executors.choice import NAMES, get
from runoff.executors.cluster import Ray
from runoff.executors.local import Joblib, Local
from runoff.executors.storage import Storage

__all__ = ["NAMES", "Executor", "Joblib", "Local", "Place", "Plan", "Ray", "Storage", "Watch", "Work", "get"]
