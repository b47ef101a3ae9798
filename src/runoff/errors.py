"""Errors that runoff raises on purpose, each with one sentence: what was expected, what was given, how to fix it.

All derive from `RunoffError`, which is a `ValueError`. Any other exception is a bug. `runoff.cli.errors` maps each to
an exit code.
"""

from numbers import Integral


class RunoffError(ValueError):
    """Base class of the errors that runoff raises on purpose."""


class InputError(RunoffError):
    """Invalid argument, array or file from the user."""


class FittedInFrontWarning(UserWarning):
    """X appears to be transformed by a step that was fitted on all samples, which invalidates the radii."""


class NoSuchInputError(InputError, IndexError):
    """Index of an input that is out of range of the certificates."""


class MissingExtraError(RunoffError, ImportError):
    """Missing optional dependency; the message says how to install it."""


class MemberError(RunoffError):
    """A member that could not be trained or scored; the message names it."""


class DeviceError(InputError):
    """A device that does not exist, or that cannot keep the guarantee."""


class RunError(InputError):
    """A run that does not match the arguments of the command."""


class ClusterError(RunoffError):
    """A cluster that failed or cannot be reached; finished members are kept."""


class BusyError(RunoffError):
    """A run that another command is working on."""


class StorageError(RunoffError):
    """A stored file or directory that was altered, is damaged, or has another format."""


class CheckpointError(StorageError):
    """A checkpoint that cannot be used."""


class DatasetError(InputError):
    """A file or folder that is not a dataset."""


class MissingError(DatasetError):
    """A dataset that does not exist at the expected path or cannot be read."""


class IntegrityError(DatasetError):
    """A dataset file whose content differs from the official one."""


class DownloadError(DatasetError):
    """A file that could not be downloaded."""


def check_whole(name: str, value: object, least: int) -> None:
    """Raise InputError unless a value is a whole number of at least `least`."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputError(f"{name} must be a whole number of at least {least}, got {value!r:.60}")
