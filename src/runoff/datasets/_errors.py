"""What can go wrong with data, by what the user has to do about it."""


class DatasetError(ValueError):
    """What was given is not a dataset: one sentence says why."""


class MissingError(DatasetError):
    """A dataset is not where it was looked for, or cannot be read there."""


class IntegrityError(DatasetError):
    """A file is there, and is not the one that it should be."""


class DownloadError(DatasetError):
    """A file could not be downloaded."""
