"""Planning: estimates of certified accuracy for different settings, from the training data only.

`estimates` needs NumPy and Numba only, so it is imported here. Modules that train members are imported by their users.
"""

from runoff.planning import estimates

__all__ = ["estimates"]
