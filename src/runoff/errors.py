"""Errors that runoff raises on purpose, each with one sentence: what was expected, what was given, how to fix it.

All derive from `RunoffError`, which is a `ValueError`. Any other exception is a bug. `runoff.cli.errors` maps each to
an exit code.
"""


class RunoffError(ValueError):
    """Base class of the errors that runoff raises on purpose."""


class InputError(RunoffError):
    """An argument, array or file from the user that is invalid."""


class FittedInFrontWarning(UserWarning):
    """X looks as if a step that was fitted on all samples had run in front of the classifier, which voids radii."""


class NoSuchInputError(InputError, IndexError):
    """The position of an input that certificates do not have."""


class MissingExtraError(RunoffError, ImportError):
    """An optional dependency that is not installed; the message says how to install it."""


class MemberError(RunoffError):
    """A member that could not be trained or scored; the message names it."""


class DeviceError(InputError):
    """A device that does not exist, or that cannot keep the guarantee."""


class RunError(InputError):
    """A run that does not match the arguments of the command."""


class BusyError(RunoffError):
    """A run that another command is working on."""


class StorageError(RunoffError):
    """A stored file or directory that was altered or damaged, or is of another kind."""


class CheckpointError(StorageError):
    """A checkpoint that cannot be used."""


class DatasetError(InputError):
    """A file or folder that is not a dataset."""


class MissingError(DatasetError):
    """A dataset that does not exist at the expected path, or cannot be read."""


class IntegrityError(DatasetError):
    """A dataset file whose content differs from the official one."""


class DownloadError(DatasetError):
    """A file that could not be downloaded."""
