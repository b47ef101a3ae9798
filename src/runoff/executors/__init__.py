"""Executors: where members are trained. In this process, by joblib, or on a Ray cluster.

They share one interface, `Executor`. Members have the same bits wherever they are trained.
"""

from runoff.executors.base import Executor, Place, Plan, Watch, Work
from runoff.executors.choice import NAMES, get
from runoff.executors.cluster import Ray
from runoff.executors.local import Joblib, Local
from runoff.executors.storage import Storage

__all__ = ["NAMES", "Executor", "Joblib", "Local", "Place", "Plan", "Ray", "Storage", "Watch", "Work", "get"]
