"""Certificates: a prediction and a proven radius for every input."""

from runoff.certificates._accuracy import certified_accuracy, checked_budgets, checked_labels, targeted_rate
from runoff.certificates._certificates import Certificates
from runoff.certificates._certify import BOUNDS, LABELS_NOT_FIXED, certify
from runoff.certificates._one_input import other_scores

__all__ = [
    "BOUNDS",
    "LABELS_NOT_FIXED",
    "Certificates",
    "certified_accuracy",
    "certify",
    "checked_budgets",
    "checked_labels",
    "other_scores",
    "targeted_rate",
]
