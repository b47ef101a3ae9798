"""Kernels compiled with numba: counting ballots, covering gaps with buckets, and certifying each election."""
