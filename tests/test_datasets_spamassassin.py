"""The SpamAssassin corpus from its npm archive, and the fixed rules for senders, dates and signs."""

import base64
import bz2
import dataclasses
import gzip
import hashlib
import io
import os
import tarfile
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataset_helpers import PUBLIC, run
from dataset_helpers import elsewhere as elsewhere
from runoff import datasets
from runoff.datasets import _spamassassin, catalogue
from runoff.datasets.mails import headers, sender_domain, sent_on
from runoff.datasets.signs import SIGNS, signs_of, text_of
from runoff.hashing import source_name

REAL = os.environ.get("RUNOFF_DATA")
FILE = _spamassassin.FILES[0]
MAILS = {
    "easy-ham-1/00001": b"From a@x.org Thu\nFrom: A <a@lists.x.org>\nDate: Thu, 22 Aug 2002 13:17:22 +0100\n\nHi\n",
    "easy-ham-1/00002": b"From: caf\xe9 <b@y.ie>\n\nna\xefve\n",
    "hard-ham-1/00001": "From: c@news.z.co.uk\n\ncafé\n".encode(),
    "spam-1/00001": b"From: nobody\nSubject: FREE MONEY!!!\n\n<html>click here</html>\n",
    "easy-ham-2/00001": b"Subject: no sender\n\nHi\n",
    "spam-2/00001": b"From: d@1.2.3.4\n\nBuy!\n",
}


def path_of(name, data):
    return f"package/data/{name}.{hashlib.md5(data, usedforsecurity=False).hexdigest()}"


def package(mails, extra=()):
    """Return the archive as npm packs it: each mail with a .json file, in another order than the collections."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        files = [("package/LICENSE", b"PDDL")]
        for name, data in sorted(mails.items(), key=lambda mail: mail[0][-5:]):
            path = path_of(name, data)
            files += [(f"{path}.json", b"{}"), (f"{path}.txt", data)]
        for name, data in [*files, *extra]:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return stream.getvalue()


@pytest.fixture
def corpus(monkeypatch, tmp_path):
    """Install a small corpus whose checksums count as the official ones."""
    folder = tmp_path / "d" / "spamassassin"
    folder.mkdir(parents=True)
    (folder / FILE).write_bytes(package(MAILS))
    entry = dataclasses.replace(catalogue.SPAMASSASSIN, n_train=4, n_test=2)
    checksums = _spamassassin.find(tmp_path / "d", entry).read().checksums()
    monkeypatch.setitem(catalogue.CATALOGUE, "spamassassin", dataclasses.replace(entry, **checksums))
    return tmp_path / "d"


def test_mails_labels_sources_and_columns(corpus):
    data = datasets.load("spamassassin", corpus)
    assert list(data.x_train) == [
        MAILS[name].decode("latin-1" if name == "easy-ham-1/00002" else "utf-8")
        for name in ("easy-ham-1/00001", "easy-ham-1/00002", "hard-ham-1/00001", "spam-1/00001")
    ]
    assert [*data.y_train, *data.y_test] == [0, 0, 0, 1, 0, 1]
    assert list(data.groups_train) == ["x.org", "y.ie", "z.co.uk", "unknown"]
    assert list(data.groups_test) == ["unknown", "1.2.3.4"]
    assert list(data.columns_test["collection"]) == ["easy-ham-2", "spam-2"]
    assert data.columns_train["date"][0] == np.datetime64("2002-08-22")
    assert np.isnat(data.columns_train["date"][1])
    assert data.columns_train["name"][0].startswith("easy-ham-1/00001.")
    assert repr(data) == "TextDataset('spamassassin', 4 + 2 texts from 4 + 2 sources, 2 classes)"


def test_the_names_of_the_registry_and_of_npm_pack(corpus):
    first = datasets.load("spamassassin", corpus)
    (corpus / "spamassassin" / FILE).rename(corpus / _spamassassin.FILES[1])
    assert datasets.load("spamassassin", corpus).fingerprint == first.fingerprint
    assert datasets.located("spamassassin", corpus) == str(corpus / _spamassassin.FILES[1])


def test_the_fingerprint_reads_everything(corpus):
    data = datasets.load("spamassassin", corpus)
    seen = {data.fingerprint}
    for change in (
        {"x_train": [*data.x_train[:3], "other"]},
        {"y_test": data.y_test[::-1].copy()},
        {"groups_train": data.groups_train[::-1].copy()},
        {"columns_test": {**data.columns_test, "date": data.columns_test["date"] + 1}},
        {"columns_train": {**data.columns_train, "name": data.columns_train["name"][::-1].copy()}},
    ):
        if "columns_test" in change:
            change["columns_test"]["date"] = np.array(["2002-01-01", "2002-01-02"], "datetime64[D]")
        seen.add(dataclasses.replace(data, **change).fingerprint)
    assert len(seen) == 6
    with pytest.raises(datasets.DatasetError, match="groups_train must have one value for each of 4 texts"):
        dataclasses.replace(data, groups_train=data.groups_train[:3])
    with pytest.raises(datasets.DatasetError, match="y_train must be classes 0 to 1"):
        dataclasses.replace(data, y_train=data.y_train + 1)


def test_the_commands_know_it(corpus):
    listed = run("list", "--data-dir", corpus).stdout.splitlines()
    assert listed[5].split() == ["spamassassin", "4", "2", "text", "2", str(corpus / "spamassassin" / FILE)]
    checked = run("check", "spamassassin", "--data-dir", corpus)
    assert checked.stdout.startswith("spamassassin: correct, TextDataset('spamassassin', 4 + 2 texts")
    with pytest.raises(datasets.DatasetError, match="spamassassin holds texts, but networks are trained on images"):
        datasets.load_images("spamassassin", corpus)


def official(mails, suffix="", extra=()):
    """The five official archives by name, each with its folder and a file that is no mail."""
    archives = {}
    for collection, (file, folder) in _spamassassin.OFFICIAL.items():
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w:bz2") as archive:
            own = [(path_of(name, data), data) for name, data in mails.items() if name.startswith(f"{collection}/")]
            for path, data in [(f"package/data/{collection}/cmds", b"mv"), *own, *extra]:
                info = tarfile.TarInfo(f"{folder}/{path.rpartition('/')[2]}{suffix}")
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
        archives[file] = stream.getvalue()
    return archives


def put(corpus, archives):
    (corpus / "spamassassin" / FILE).unlink(missing_ok=True)
    for file, data in archives.items():
        (corpus / "spamassassin" / file).write_bytes(data)


def test_the_official_archives_hold_the_same(corpus):
    first = datasets.load("spamassassin", corpus)
    put(corpus, official(MAILS))
    data = datasets.load("spamassassin", corpus)
    assert data.fingerprint == first.fingerprint
    assert list(data.columns_test["name"]) == list(first.columns_test["name"])
    assert datasets.located("spamassassin", corpus) == str(corpus / "spamassassin")
    (corpus / "spamassassin" / "20030228_spam.tar.bz2").unlink()
    with pytest.raises(datasets.MissingError):
        datasets.load("spamassassin", corpus)


@pytest.mark.parametrize(
    ("archives", "message"),
    [
        (lambda: official(changed(spam_1_00001=b"From: x\n\nclack\n")), "its texts have SHA-256"),
        (lambda: official(without("spam-2/00001")), r"must have 4 \+ 2 mails, got 4 \+ 1"),
        (lambda: official(MAILS | {"spam-2/00002": b"x"}), "it contains more than the official archive"),
        (lambda: official(MAILS, suffix=".txt"), r"must have 4 \+ 2 mails, got 0 \+ 0"),
        (lambda: {file: data[:-20] for file, data in official(MAILS).items()}, "ended before|truncated"),
        (lambda: dict.fromkeys(official(MAILS), b"no archive"), "Invalid data stream"),
        (lambda: dict.fromkeys(official(MAILS), package(MAILS)), "Invalid data stream"),
        (lambda: dict.fromkeys(official(MAILS), bz2.compress(bytes(2**26))), "must have|truncated"),
        (lambda: official(changed(spam_1_00001=bytes(2**20 + 1))), "has more than 1048576 bytes"),
    ],
)
def test_altered_official_archives_are_refused(corpus, archives, message):
    put(corpus, archives())
    with pytest.raises(datasets.IntegrityError, match=f"is not the official dataset: .*(?:{message})"):
        datasets.load("spamassassin", corpus)


def changed(**changes):
    return {name: changes.get(name.replace("-", "_").replace("/", "_"), data) for name, data in MAILS.items()}


def without(name):
    return {other: data for other, data in MAILS.items() if other != name}


OFFICIAL = gzip.decompress(package(MAILS))
DAMAGED = {
    "letter": (package(changed(spam_1_00001=b"From: nobody\n\nclack here\n")), "its texts have SHA-256"),
    "one less": (package(without("spam-2/00001")), r"must have 4 \+ 2 mails, got 4 \+ 1"),
    "one more": (package(MAILS | {"spam-2/00002": b"x"}), "it contains more than the official archive"),
    "relabelled": (package(without("spam-1/00001") | {"easy-ham-1/00003": MAILS["spam-1/00001"]}), "its texts"),
    "twice": (package(MAILS, [(path_of("spam-2/00001", MAILS["spam-2/00001"]) + ".txt", b"")]), "twice"),
    "large": (package(changed(spam_1_00001=bytes(2**20 + 1))), "has more than 1048576 bytes"),
    "cut": (gzip.compress(OFFICIAL[:3000]), "truncated or damaged|must have|unexpected end"),
    "cut gzip": (package(MAILS)[:-300], "Compressed file ended|truncated or damaged"),
    "no gzip": (b"no archive", "Not a gzipped file"),
    "bomb": (gzip.compress(bytes(2**26)), "must have|holds more|truncated"),
    "empty": (b"", "must have|truncated|empty"),
}


@pytest.mark.parametrize("how", DAMAGED)
def test_an_altered_corpus_is_refused_in_one_sentence(corpus, how):
    data, message = DAMAGED[how]
    (corpus / "spamassassin" / FILE).write_bytes(data)
    with pytest.raises(
        datasets.IntegrityError, match=f"spamassassin in .* is not the official dataset: .*(?:{message})"
    ):
        datasets.load("spamassassin", corpus)
    result = run("check", "spamassassin", "--data-dir", corpus)
    assert (result.exit_code, result.stdout) == (4, "")
    assert len(result.stderr.splitlines()) == 1


def test_links_in_the_archive_are_not_followed(corpus, tmp_path):
    (tmp_path / "secret").write_text("From: me@home.org\n\nsecret")
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        info = tarfile.TarInfo(f"package/data/spam-1/00001.{'0' * 32}.txt")
        info.type, info.linkname = tarfile.SYMTYPE, str(tmp_path / "secret")
        archive.addfile(info)
    (corpus / "spamassassin" / FILE).write_bytes(stream.getvalue())
    with pytest.raises(datasets.IntegrityError, match=r"it must have 4 \+ 2 mails, got 0 \+ 0"):
        datasets.load("spamassassin", corpus)


# Senders, dates and signs


@pytest.mark.parametrize(
    ("value", "domain"),
    [
        ("a@example.org", "example.org"),
        ('"x@fake.com" <a@Mail.Example.ORG.>', "example.org"),
        ("<a@b.example.co.uk> (c@d.org)", "example.co.uk"),
        ("a@co.uk", "co.uk"),
        ("a@x.de", "x.de"),
        ("a@[10.0.0.1]", "10.0.0.1"),
        ("a@b@c.org", "c.org"),
        ("\n folded <a@example.org>", "example.org"),
        ("a@localhost", "unknown"),
        ("nobody", "unknown"),
        ("<>", "unknown"),
        ("", "unknown"),
        ("a@...", "unknown"),
        ("a@9007199254740993.0", "unknown"),  # no source can have this name
        ("a@exämple.org", "unknown"),
    ],
)
def test_sender_domains(value, domain):
    assert (
        sender_domain(f"From sender@mbox.org Thu\nX: 1\nfrom: {value}\nFrom: <b@second.org>\n\nFrom: c@body.org")
        == domain
    )


def test_without_a_from_header():
    assert sender_domain("From a@mbox.org Thu\nTo: b@x.org\n\nFrom: c@body.org\n") == "unknown"
    assert sender_domain("From: a@x.org\r\nTo: b\r\n\r\nFrom: b@y.org") == "x.org"
    assert headers("A: 1\nb:2\n 3\na: 4\n\nc: 5") == {"a": "1", "b": "2 3"}


@pytest.mark.parametrize(
    "value", ["", "tomorrow", "Mon, 1 Jan 102 00:00:00", "31 Feb 2002 00:00:00", "1 Jan 99999999999", "0"]
)
def test_invalid_dates(value):
    assert np.isnat(sent_on(f"Date: {value}\n\n"))


@settings(max_examples=50)
@given(mail=st.text() | st.text(alphabet="From:<>@[]=?.\n \té3D_!$", max_size=200))
def test_every_string_is_a_mail(mail):
    assert source_name(sender_domain(mail))
    sent_on(mail)
    assert signs_of([mail, f"From: {mail}\nDate: {mail}\nSubject: {mail}\n\n{mail}"]).shape == (2, len(SIGNS))


def test_signs():
    def sign(part, pattern):
        return SIGNS.index((part, pattern, 1))

    html = (
        "Subject: [list] hello\nContent-Type: text/html\n\n<HTML>FREE<br>click here</HTML>\n"
        + "_" * 40
        + "\nhttp://list"
    )
    table = signs_of([html, "Subject: Re: x\nX-List: text/html\n\nA =\nlong li=6Ee\n", ""])
    assert table.dtype == np.uint8
    assert list(table[:, sign("text", "FREE")]) == [1, 0, 0]
    assert list(table[:, sign("head", "content-type: text/html")]) == [1, 0, 0]
    assert list(table[:, sign("body", "(?i)https?://")]) == [0, 0, 0]  # in the footer of the list
    assert list(table[:, sign("subject", r"^(?:[Rr][Ee]|[Ff]w|FW|[Aa][Ww]): ?")]) == [0, 1, 0]
    assert list(table[:, sign("subject", r"^[a-z]")]) == [1, 0, 0]
    encoded = "Subject: x\n\n" + base64.encodebytes(b"FREE MONEY " * 20).decode()
    assert "FREE" not in encoded
    assert signs_of([encoded])[0, sign("text", "FREE")]


@pytest.mark.parametrize(
    "piece", ["a", "1", "A", "<", "=", "_", "\n", " ", "http://a/", "(", "; ", "A ", "[", "@", "-", "remove ", "AAAA\n"]
)
def test_no_mail_takes_long(piece):
    body = piece * (50_000 // len(piece))
    start = time.process_time()
    signs_of([f"Subject: {body}\n\n{body}", f"\n\n{body}"])
    sender_domain(f"From: {body}")
    sender_domain(body)
    assert time.process_time() - start < 2


def test_the_text_that_a_reader_sees():
    mail = (
        "From: a@x.org\nList-Id: secret\nSubject: [list] Hello\n\n"
        "<html>caf=C3=A9 &amp; <b>tea</b>=\nroom</html>\n" + "_" * 30 + "\nthe footer of a list\n"
    )
    text = text_of(mail)
    assert text.startswith("Hello\n")
    assert "tea" in text
    assert "=\n" not in text
    for hidden in ("<b>", "secret", "x.org", "[list]", "footer"):
        assert hidden not in text
    assert text_of("") == "\n"


def test_the_real_corpus_where_it_is():
    if not REAL or datasets.located("spamassassin", REAL) is None:
        pytest.skip("set RUNOFF_DATA to a folder that has spamassassin")
    data = datasets.load("spamassassin", REAL)
    assert data.fingerprint == PUBLIC["spamassassin"]
    assert (len(set(data.groups_train)), len(set(data.groups_test))) == (628, 821)
    assert [data.y_train.sum(), data.y_test.sum()] == [500, 1396]
