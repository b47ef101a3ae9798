"""Fetching: downloads from a misbehaving server are resumed, checked and rejected."""

import dataclasses
import hashlib
import io
import os
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dataset_helpers import IDX, RNG, run
from dataset_helpers import elsewhere as elsewhere
from runoff import datasets
from runoff.datasets import _fetch, catalogue


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, files):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.asked, self.habits = files, [], []

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server_port}/files"

    def handle_error(self, request, client_address):
        """Ignore clients that disconnect."""


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_GET(self):
        server = self.server
        server.asked.append(self.headers.get("Range"))
        habit = server.habits.pop(0) if server.habits else ""
        data = server.files.get(self.path.removeprefix("/files/"))
        if habit.isdigit() or data is None:
            self.send_error(int(habit) if habit else 404)
            return
        if habit.startswith("to "):
            self.send_response(302)
            self.send_header("Location", habit[3:])
            self.end_headers()
            return
        start = 0
        if self.headers.get("Range") and habit != "no range":
            start = int(self.headers["Range"].removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                self.send_error(416)
                return
            self.send_response(206)
            told = 0 if habit == "other part" else start
            self.send_header("Content-Range", f"bytes {told}-{len(data) - 1}/{len(data)}")
        else:
            self.send_response(200)
        if habit != "no length":
            self.send_header("Content-Length", str(len(data) - start))
        self.end_headers()
        rest = data[start:]
        self.wfile.write(rest[: len(rest) // 2] if habit == "break" else rest)
        self.close_connection = True


@pytest.fixture
def server(monkeypatch):
    files = {name: RNG.bytes(300000 + i) for i, name in enumerate(f"{n}.gz" for n in IDX)}
    archives = tuple(
        catalogue.Archive(name, "https://example.invalid/mnist/", "sha256", hashlib.sha256(data).hexdigest())
        for name, data in files.items()
    )
    monkeypatch.setitem(catalogue.CATALOGUE, "mnist", dataclasses.replace(catalogue.MNIST, archives=archives))
    server = Server(files)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def fetched(folder):
    return {file.name: file.read_bytes() for file in (folder / "mnist").iterdir()}


FIRST = f"{IDX[0]}.gz"


def test_a_whole_download(server, tmp_path):
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 0, result.stderr
    assert fetched(tmp_path) == server.files
    assert result.stdout.splitlines() == [f"{tmp_path}/mnist/{name}: checksum correct" for name in server.files]
    assert server.asked == [None] * 4
    assert datasets.fetch("mnist", tmp_path, url_base=f"{server.address}/") == [
        tmp_path / "mnist" / name for name in server.files
    ]
    assert len(server.asked) == 4  # existing files are not requested again


def test_a_broken_connection_is_resumed(server, tmp_path):
    server.habits = ["break", "503", "break"]
    seen = []
    datasets.fetch("mnist", tmp_path, url_base=server.address, progress=lambda *told: seen.append(told))
    assert fetched(tmp_path) == server.files
    assert server.asked[:4] == [None, "bytes=150000-", "bytes=150000-", "bytes=225000-"]
    assert [told for told in seen if told[0] == FIRST][-1] == (FIRST, 300000, 300000)


def test_a_download_is_resumed_by_the_next_command(server, tmp_path, monkeypatch):
    monkeypatch.setattr(_fetch, "ATTEMPTS", 1)
    server.habits = ["break"]
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 1
    error = result.stderr.splitlines()[-1]
    assert f"Error: {FIRST} cannot be downloaded (the connection was lost after 150000 of 300000 bytes); run" in error
    assert f"download {FIRST} (sha256 {hashlib.sha256(server.files[FIRST]).hexdigest()}) from {server.address}" in error
    assert f"into {tmp_path}/mnist and run: runoff data check mnist --data-dir {tmp_path}" in error
    assert list(fetched(tmp_path)) == [f"{FIRST}.part"]
    assert run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address).exit_code == 0
    assert server.asked[1] == "bytes=150000-"
    assert fetched(tmp_path) == server.files


@pytest.mark.parametrize("habit", ["no range", "no length", "other part"])
def test_servers_that_do_not_know_parts(server, tmp_path, habit):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / f"{FIRST}.part").write_bytes(server.files[FIRST][:1000])
    server.habits = [habit]
    datasets.fetch("mnist", tmp_path, url_base=server.address)
    assert fetched(tmp_path) == server.files


@pytest.mark.parametrize("beyond", [b"", b"more"])
def test_a_part_that_is_complete_or_too_long(server, tmp_path, beyond):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / f"{FIRST}.part").write_bytes(server.files[FIRST] + beyond)
    datasets.fetch("mnist", tmp_path, url_base=server.address)
    assert fetched(tmp_path) == server.files


@pytest.mark.parametrize("n", [1, 1000, 299999])
def test_a_part_of_something_else_is_not_the_servers_fault(server, tmp_path, n):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / f"{FIRST}.part").write_bytes(bytes(n))
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 0, result.stderr
    assert fetched(tmp_path) == server.files
    assert server.asked == [f"bytes={n}-", None, None, None, None]


def test_a_download_from_a_wrong_server_is_restarted_once(server, tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / f"{FIRST}.part").write_bytes(server.files[FIRST][:1000])
    server.files[FIRST] = bytes(300000)
    server.habits = ["", "break"]
    with pytest.raises(datasets.IntegrityError, match=r"is not the official file: .* download it from a mirror"):
        datasets.fetch("mnist", tmp_path, url_base=server.address)
    assert server.asked == ["bytes=1000-", None, "bytes=150000-"]
    assert fetched(tmp_path) == {}


def test_a_wrong_checksum_is_refused_and_the_part_removed(server, tmp_path):
    server.files[FIRST] = b"something else"
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 4
    assert f"{FIRST} from {server.address}/{FIRST} is not the official file: its sha256 is" in result.stderr
    assert fetched(tmp_path) == {}


def test_a_wrong_file_that_is_there_is_left_alone(server, tmp_path):
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / FIRST).write_bytes(b"mine")
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 4
    assert "remove it and run the command again" in result.stderr
    assert fetched(tmp_path) == {FIRST: b"mine"}
    assert server.asked == []


def test_an_endless_file_is_cut_off(server, tmp_path, monkeypatch):
    monkeypatch.setattr(_fetch, "LARGEST", 1000)
    with pytest.raises(datasets.IntegrityError, match="sent over 1,000 bytes"):
        datasets.fetch("mnist", tmp_path, url_base=server.address)
    assert fetched(tmp_path) == {}


def test_a_file_that_the_server_does_not_have(server, tmp_path):
    del server.files[FIRST]
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 1
    assert f"{FIRST} cannot be downloaded (the server responded with 404 Not Found); run" in result.stderr
    assert len(server.asked) == 1
    server.files[FIRST], server.habits = b"", ["500"] * 4
    assert run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address).exit_code == 1
    assert len(server.asked) == 5


def test_redirections_keep_to_the_rule(server, tmp_path):
    server.habits = [f"to {server.address}/{FIRST}"]
    datasets.fetch("mnist", tmp_path / "a", url_base=server.address)
    assert fetched(tmp_path / "a") == server.files
    for address in ("ftp://127.0.0.1/x", "file:///etc/passwd"):
        server.habits = [f"to {address}"]
        with pytest.raises(datasets.DownloadError):
            datasets.fetch("mnist", tmp_path / "b", url_base=server.address)
    for address, right in (
        ("https://example.org/x", True),
        ("http://example.org/x", False),
        ("http://127.0.0.1:8000/x", True),
        ("http://[::1]/x", True),
        ("http://localhost/x", True),
        ("http://localhost.example.org/x", False),
        ("http://127.0.0.1.example.org/x", False),
        ("file:///etc/passwd", False),
    ):
        if right:
            _fetch._check_scheme(address, plain_http=False)
        else:
            with pytest.raises(datasets.DownloadError, match="only https URLs are"):
                _fetch._check_scheme(address, plain_http=False)
    redirects = _fetch._Redirects(plain_http=False)  # as after https
    with pytest.raises(datasets.DownloadError, match="only https URLs are"):
        redirects.redirect_request(None, io.BytesIO(), 302, "", {}, "http://example.org/x")


def test_without_a_network(server, tmp_path):
    closed = server.address.replace(f":{server.server_port}", ":9")
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", closed)
    assert result.exit_code == 1
    error = result.stderr.splitlines()[-1]
    assert error.startswith(f"Error: {FIRST} cannot be downloaded (")
    assert f"download {FIRST} (sha256 " in error
    for archive in datasets.catalogue.get("mnist").archives:  # all that are absent, not only the first
        assert f"{archive} from {closed}/{archive.file}" in error
    assert f" into {tmp_path}/mnist and run: runoff data check mnist" in error


@pytest.mark.parametrize("error", [socket.gaierror(-2, "Name or service not known"), TimeoutError("timed out")])
def test_an_unknown_address_is_tried_once(server, tmp_path, monkeypatch, error):
    asked = []

    def connect(address, *_, **__):
        asked.append(address)
        raise error

    monkeypatch.setattr(socket, "create_connection", connect)
    with pytest.raises(datasets.DownloadError, match=f"cannot be downloaded .*{error.args[-1]}"):
        datasets.fetch("mnist", tmp_path)
    assert asked == [("example.invalid", 443)] * (1 if isinstance(error, socket.gaierror) else _fetch.ATTEMPTS)
    assert server.asked == []


def test_a_disk_that_cannot_be_written(server, tmp_path):
    (tmp_path / "mnist").write_text("a file")
    result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 1
    assert "mnist cannot be created (File exists)" in result.stderr
    (tmp_path / "d" / "mnist" / f"{FIRST}.part").mkdir(parents=True)
    result = run("fetch", "mnist", "--data-dir", tmp_path / "d", "--url-base", server.address)
    assert result.exit_code == 1
    assert ".part cannot be written (Is a directory)" in result.stderr


def test_a_full_disk_keeps_the_part(server, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        result = run("fetch", "mnist", "--data-dir", tmp_path, "--url-base", server.address)
    assert result.exit_code == 1
    assert f"{FIRST} cannot be written (No space left on device); run the command again" in result.stderr
    assert list(fetched(tmp_path)) == [f"{FIRST}.part"]
    datasets.fetch("mnist", tmp_path, url_base=server.address)
    assert fetched(tmp_path) == server.files


def test_fetching_what_cannot_be_fetched():
    assert "comes with scikit-learn: nothing to download" in run("fetch", "digits").stdout
    result = run("fetch", "imagenet")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "must be one of digits, mnist, cifar10, gtsrb, spamassassin, got 'imagenet'" in result.stderr
    for base in ("ftp://example.org", "file:///data", "data", "https://"):
        result = run("fetch", "mnist", "--url-base", base)
        assert result.exit_code == 2
        assert f"url_base must be the address of a folder, as in https://example.org/data/, got {base}" in result.stderr
