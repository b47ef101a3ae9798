"""CIFAR-10 in all its layouts, and hostile tar files."""

import gzip
import io
import tarfile
from pathlib import Path

import numpy as np
import pytest

from dataset_helpers import batches, planes, put, python_files, same
from dataset_helpers import cifar10 as cifar10
from dataset_helpers import elsewhere as elsewhere
from runoff import datasets
from runoff.datasets import _archives


def binary_files(arrays):
    return {
        f"cifar-10-batches-bin/{name}.bin": np.c_[y.astype(np.uint8), planes(x)].tobytes()
        for name, x, y in batches(arrays)
    }


def tar(path, files, **options):
    with tarfile.open(path, "w:gz", **options) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("place", [".", "cifar10"])
@pytest.mark.parametrize("version", ["binary", "python 2", "python 3", "python 3 as bytes"])
@pytest.mark.parametrize("packed", [False, True])
def test_cifar10_in_all_its_forms(cifar10, tmp_path, place, version, packed):
    protocols = {"python 2": 0, "python 3": 2, "python 3 as bytes": 4}
    files = binary_files(cifar10) if version == "binary" else python_files(cifar10, protocols[version])
    folder = tmp_path / "d" / place
    folder.mkdir(parents=True, exist_ok=True)
    if packed:
        kind = "binary" if version == "binary" else "python"
        tar(folder / f"cifar-10-{kind}.tar.gz", {"cifar-10-batches-bin/readme.html": b"x" * 700} | files)
    else:
        put(folder, files)
    dataset = datasets.load("cifar10", tmp_path / "d")
    same(dataset, *cifar10)
    assert dataset.classes[3] == "cat"
    assert dataset.fingerprint == datasets.Dataset("x", *cifar10, dataset.classes).fingerprint


def test_an_altered_cifar10_is_refused(cifar10, tmp_path):
    files = binary_files(cifar10)
    name = "cifar-10-batches-bin/data_batch_2.bin"
    for wrong, message in (
        (files[name][:-1] + bytes([files[name][-1] ^ 1]), "its pixels have SHA-256"),
        (files[name][:-1], "a batch must have 2 images of 37 bytes, got 73 bytes"),
        (files[name] + bytes(10**5), "has more than"),
    ):
        put(tmp_path, files | {name: wrong})
        with pytest.raises(datasets.IntegrityError, match=message):
            datasets.load("cifar10", tmp_path)


def hostile_tar(how, files):
    name = "cifar-10-batches-bin/data_batch_1.bin"
    path = Path("cifar-10-binary.tar.gz")
    if how == "absent":
        tar(path, {k: v for k, v in files.items() if k != name})
    elif how == "huge":
        tar(path, files | {name: bytes(10**6)})
    elif how == "padding":
        tar(path, {"other": bytes(2**25)} | files)
    elif how == "climbing":
        tar(path, {f"../{k}": v for k, v in files.items()})
    elif how == "extended header":  # tarfile would hold all of it in memory
        tar(path, {"x": b""} | files, format=tarfile.PAX_FORMAT, pax_headers={"comment": "x" * 2**21})
    elif how == "cut":
        tar(path, files)
        data = gzip.decompress(path.read_bytes())
        path.write_bytes(gzip.compress(data[:700]))
    elif how == "negative":
        tar(path, files)
        data = bytearray(gzip.decompress(path.read_bytes()))
        data[124:136] = b"\xff" * 11 + b"\0"  # a size of -256, in base 256
        data[148:156] = b"%06o\0 " % (sum(data[:148]) + 8 * ord(" ") + sum(data[156:512]))  # the header's checksum
        path.write_bytes(gzip.compress(bytes(data)))
    else:
        with tarfile.open(path, "w:gz") as archive:
            for member in files:
                info = tarfile.TarInfo(member)
                info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                archive.addfile(info)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("absent", "it has no cifar-10-batches-bin/data_batch_1.bin"),
        ("huge", "data_batch_1.bin has more than"),
        ("padding", "it contains more than the official archive"),
        ("climbing", "it has no cifar-10-batches-bin/data_batch_1.bin"),
        ("extended header", "it contains more than the official archive"),
        ("cut", r"it is truncated or damaged \(unexpected end of data\)"),
        ("negative", r"has a negative size|it is truncated or damaged"),
        ("links", "it has no cifar-10-batches-bin/data_batch_1.bin"),
    ],
)
def test_hostile_tar_files(cifar10, how, message):
    hostile_tar(how, binary_files(cifar10))
    with pytest.raises(datasets.IntegrityError, match=message):
        datasets.load("cifar10", ".")


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_tar_members_are_those_of_the_standard_library(kind):
    files = {"a": b"", "b/c": bytes(512), "d": bytes(range(200))}
    tar("x.tar.gz", {"x" * 60 + "/" + "x" * 60 + "/d": b"long"} | files, format=kind)
    assert _archives.tar_members(Path("x.tar.gz"), dict.fromkeys(files, 600)) == files
