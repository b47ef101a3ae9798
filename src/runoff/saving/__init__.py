"""Saving and loading of fitted estimators and certificates."""
