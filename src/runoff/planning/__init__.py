"""Planning: what to expect of settings, from the training data alone.

`estimates` needs NumPy and numba only, so it is imported at once. What trains members is imported by its users.
"""

from runoff.planning import estimates

__all__ = ["estimates"]
