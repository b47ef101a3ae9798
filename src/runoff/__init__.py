"""Certified predictions from training data that cannot be fully trusted.

`certify` turns the scores of an ensemble into predictions, each with a proven number of training samples that anyone
may insert, delete or relabel without being able to change it.
"""

from runoff.ballots import rank
from runoff.certificates import Certificates, certified_accuracy, certify

__version__ = "0.1.0"
__all__ = ["Certificates", "certified_accuracy", "certify", "rank"]
