"""Fitted estimators and certificates as files."""
