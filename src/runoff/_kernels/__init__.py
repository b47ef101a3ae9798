"""Compiled with numba: counting ballots, covering gaps with buckets, and the certificates of each election."""
