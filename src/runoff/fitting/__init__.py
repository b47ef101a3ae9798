"""Fitting members: checks of X, labels as class codes, and the members as work for an executor."""
