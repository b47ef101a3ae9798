"""Downloads of the official archives: resumable, checked, and renamed into place atomically."""

from __future__ import annotations

import hashlib
import http.client
import ipaddress
import os
import re
import socket
import ssl
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from runoff._io.files import sync_directory
from runoff._io.progress import Received
from runoff._version import __version__
from runoff.datasets import catalogue
from runoff.datasets.catalogue import Archive
from runoff.datasets.places import command, data_directory
from runoff.errors import DatasetError, DownloadError, IntegrityError

TIMEOUT = 30.0  # seconds without data
ATTEMPTS = 4
PAUSE = 1.0  # seconds before the second attempt, doubled before each further one
CHUNK = 2**18
LARGEST = 2**29  # bytes: larger than every archive


def fetch(
    name: str,
    data_dir: str | os.PathLike[str] | None = None,
    *,
    url_base: str | None = None,
    progress: Received | None = None,
) -> list[Path]:
    """Download the official archives of a dataset, check them, and return their paths.

    Existing files are checked and kept. An interrupted download leaves a .part file, from which the next call resumes.
    Only https is used, unless `url_base` is the http address of a mirror.
    """
    archives = catalogue.get(name).archives
    plain_http = _checked_base(url_base)
    folder = data_directory(data_dir) / name
    done: list[Path] = []
    urls = [
        f"{(archive.url_base if url_base is None else url_base).rstrip('/')}/{archive.file}" for archive in archives
    ]
    for archive, url in zip(archives, urls, strict=True):
        _check_scheme(url, plain_http)
        job = _Download(archive, url, folder / archive.file, plain_http, progress or (lambda *_: None))
        try:
            job.run()
        except DownloadError as error:
            left = list(zip(archives, urls, strict=True))[len(done) :]
            missing = ", ".join(f"{a} from {u}" for a, u in left if a is archive or not _exists(folder / a.file))
            raise DownloadError(
                f"{error}; run the command again, or download {missing} into {folder} and run: "
                f"{command('check', name, data_dir)}"
            ) from None
        done.append(job.target)
    return done


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # an invalid file name
        return False


def _checked_base(url_base: str | None) -> bool:
    """Return whether the user chose plain http."""
    if url_base is None:
        return False
    parts = urlsplit(url_base)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DatasetError(f"url_base must be the address of a folder, as in https://example.org/data/, got {url_base}")
    return parts.scheme == "http"


def _check_scheme(url: str, plain_http: bool) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https" or (parts.scheme == "http" and (plain_http or _is_loopback(parts.hostname))):
        return
    raise DownloadError(f"{url} is not allowed: only https URLs are")


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


class _Redirects(HTTPRedirectHandler):
    """A redirect handler that applies the rule for the first address to all others."""

    def __init__(self, plain_http: bool) -> None:
        self.plain_http = plain_http

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        try:
            _check_scheme(newurl, self.plain_http)
        except DownloadError:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _RetryError(Exception):
    """A failure after which another attempt may succeed."""


@dataclass
class _Download:
    """The download of one file."""

    archive: Archive
    url: str
    target: Path
    plain_http: bool
    progress: Received
    resumed: bool = False  # from the .part file of an earlier attempt

    @property
    def part(self) -> Path:
        return self.target.with_name(f"{self.target.name}.part")

    def run(self) -> None:
        try:
            exists = self.target.exists()
            self.target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DownloadError(f"{self.target.parent} cannot be created ({error.strerror})") from None
        if exists:
            self.check_existing()
            return
        self.download()
        got = self.checksum(self.part)
        if self.resumed and got != self.archive.checksum:  # the .part file may be at fault, not the server
            self.part.unlink()
            self.download()
            got = self.checksum(self.part)
        self.finish(got)

    def download(self) -> None:
        """Complete the .part file, in a few attempts."""
        for attempt in range(ATTEMPTS):
            if attempt:
                time.sleep(PAUSE * 2 ** (attempt - 1))
            try:
                self.attempt()
                break
            except _RetryError as error:
                if attempt + 1 == ATTEMPTS:
                    raise DownloadError(f"{self.archive.file} cannot be downloaded ({error})") from None

    def check_existing(self) -> None:
        got = self.checksum(self.target)
        if got != self.archive.checksum:
            raise IntegrityError(
                f"{self.target} is not the official file: its {self.archive.algorithm} is {got}, expected "
                f"{self.archive.checksum}; remove it and run the command again"
            )
        size = self.target.stat().st_size
        self.progress(self.archive.file, size, size)

    def attempt(self) -> None:
        """Request the missing bytes, and append them to the .part file."""
        size = self.part.stat().st_size if self.part.exists() else 0
        headers = {"User-Agent": f"runoff/{__version__}"} | ({"Range": f"bytes={size}-"} if size else {})
        opener = build_opener(_Redirects(self.plain_http))
        try:
            request = Request(self.url, headers=headers)  # noqa: S310 - the scheme was checked
            with opener.open(request, timeout=TIMEOUT) as response:
                self.receive(response, size)
        except HTTPError as error:
            error.close()
            if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and size:
                self.check_complete()
            elif error.code < 500 and error.code not in (408, 429):
                raise DownloadError(
                    f"{self.archive.file} cannot be downloaded (the server responded with {error.code} {error.reason})"
                ) from None
            else:
                raise _RetryError(f"the server responded with {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            message = str(reason) or type(reason).__name__
            if isinstance(reason, (socket.gaierror, ssl.SSLCertVerificationError)):  # retrying would not help
                raise DownloadError(f"{self.archive.file} cannot be downloaded ({message})") from None
            raise _RetryError(message) from None

    def check_complete(self) -> None:
        """Check a .part file that is as long as the file on the server; delete it if its checksum is wrong."""
        if self.checksum(self.part) != self.archive.checksum:
            self.part.unlink()
            raise _RetryError("the .part file could not be used")

    def receive(self, response: Any, size: int) -> None:
        if response.status == http.HTTPStatus.PARTIAL_CONTENT:
            start = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
            if start is None or int(start[1]) != size:
                self.part.unlink(missing_ok=True)
                raise _RetryError("the server sent a different range than requested")
            self.resumed = True
        else:
            size = 0  # the server ignores ranges and starts over
        length = response.headers.get("Content-Length", "")
        total = size + int(length) if re.fullmatch(r"[0-9]{1,15}", length) else None
        with self.open_part(size) as file:
            self.progress(self.archive.file, size, total)
            while data := response.read1(CHUNK):
                size += len(data)
                if size > LARGEST:
                    file.close()
                    self.part.unlink()
                    raise IntegrityError(f"{self.url} sent over {LARGEST:,} bytes, so it is not {self.archive.file}")
                self.write(file, data)
                self.progress(self.archive.file, size, total)
        if total is not None and size < total:
            raise _RetryError(f"the connection was lost after {size} of {total} bytes")

    def open_part(self, size: int) -> Any:
        try:
            return self.part.open("ab" if size else "wb", buffering=0)
        except OSError as error:
            raise DownloadError(f"{self.part} cannot be written ({error.strerror})") from None

    def write(self, file: Any, data: bytes) -> None:
        try:
            while data:  # an unbuffered write may be partial
                data = data[file.write(data) :]
        except OSError as error:
            raise DownloadError(f"{self.part} cannot be written ({error.strerror})") from None

    def finish(self, got: str) -> None:
        """Rename the .part file to its final name if its checksum is correct."""
        if got != self.archive.checksum:
            self.part.unlink()
            raise IntegrityError(
                f"{self.archive.file} from {self.url} is not the official file: its {self.archive.algorithm} is {got}, "
                f"expected {self.archive.checksum}; it was removed; download it from a mirror with --url-base"
            )
        try:
            with self.part.open("rb+") as file:
                os.fsync(file.fileno())
            self.part.replace(self.target)
            sync_directory(self.target.parent)
        except OSError as error:
            raise DownloadError(f"{self.target} cannot be written ({error.strerror})") from None

    def checksum(self, path: Path) -> str:
        digest = hashlib.new(self.archive.algorithm, usedforsecurity=False)  # `load` checks the content by SHA-256
        try:
            with path.open("rb") as file:
                while data := file.read(CHUNK):
                    digest.update(data)
        except OSError as error:
            raise DownloadError(f"{path} cannot be read ({error.strerror})") from None
        return digest.hexdigest()
