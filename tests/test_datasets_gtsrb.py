"""GTSRB in all its layouts: decoded once, checked, and rejected if altered."""

import hashlib
import os
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

from dataset_helpers import RNG, expect, images, put, run, same, sha
from dataset_helpers import elsewhere as elsewhere
from runoff import datasets, hashing
from runoff.datasets import _gtsrb, catalogue, npz


def ppm(pixels):
    return b"P6\n%d %d\n255\n" % pixels.shape[1::-1] + pixels.tobytes()


def listing(rows):
    head = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId\r\n"
    return (head + "".join(f"{name};9;9;1;1;8;8;{label}\r\n" for name, label in rows)).encode()


class Signs:
    """A small GTSRB: its files by archive, and the arrays that reading must return."""

    def __init__(self, monkeypatch):
        self.train, self.test, self.truth = {}, {}, {}
        pixels, y_train = [], []
        for label in range(3):
            folder, rows = f"GTSRB/Final_Training/Images/{label:05d}", []
            for i in range(2 + label):
                pixels.append(images(*RNG.integers(15, 70, 2), 3))
                y_train.append(label)
                rows.append((f"{i // 2:05d}_{i % 2:05d}.ppm", label))
                self.train[f"{folder}/{rows[-1][0]}"] = ppm(pixels[-1])
            self.train[f"{folder}/GT-{label:05d}.csv"] = listing(rows)
        tests, y_test = [images(*RNG.integers(15, 70, 2), 3) for _ in range(4)], [2, 0, 1, 2]
        for i, test in enumerate(tests):
            self.test[f"GTSRB/Final_Test/Images/{i:05d}.ppm"] = ppm(test)
        self.test["GTSRB/Final_Test/Images/GT-final_test.test.csv"] = b"Filename;Width;Height\r\n"
        self.truth["GT-final_test.csv"] = listing([(f"{i:05d}.ppm", label) for i, label in enumerate(y_test)])
        small = [np.stack([self.resized(p) for p in part]) for part in (pixels, tests)]
        self.arrays = small[0], np.array(y_train), small[1], np.array(y_test)
        self.sums = np.array([p.sum(dtype=np.int64) for p in pixels])
        heads = [b"\0" + np.array(p.shape, "<i8").tobytes() for p in pixels]
        found = [hashlib.blake2b(h + p.tobytes(), digest_size=16).digest() for h, p in zip(heads, pixels, strict=True)]
        self.digests = np.frombuffer(b"".join(found), np.uint8).reshape(-1, 16)
        originals = sha(self.digests, self.sums)
        expect(monkeypatch, "gtsrb", *self.arrays, originals=originals, classes=("stop", "go", "wait"))

    @staticmethod
    def resized(pixels):
        return np.asarray(Image.fromarray(pixels).resize((48, 48), Image.Resampling.BILINEAR))

    def archives(self):
        names = [archive.file for archive in catalogue.GTSRB.archives]
        return dict(zip(names, (self.train, self.test, self.truth), strict=True))

    def zip(self, folder, only=None):
        folder.mkdir(parents=True, exist_ok=True)
        for name, files in self.archives().items():
            if only is None or name == only:
                with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as archive:
                    for file, data in files.items():
                        archive.writestr(file, data)

    def tree(self, folder, truth="GT-final_test.csv"):
        put(folder, self.train | self.test | {truth: self.truth["GT-final_test.csv"]})


@pytest.fixture
def signs(monkeypatch):
    return Signs(monkeypatch)


@pytest.mark.parametrize("place", [".", "gtsrb"])
@pytest.mark.parametrize(
    "form",
    ["zip", "GT-final_test.csv", "GTSRB/Final_Test/Images/GT-final_test.csv", "GTSRB/GT-final_test.csv", "mixed"],
)
def test_gtsrb_in_all_its_forms(signs, tmp_path, place, form):
    folder = tmp_path / "d" / place
    if form == "zip":
        signs.zip(folder)
    elif form == "mixed":
        put(folder, signs.test)
        for name in ("GTSRB_Final_Training_Images.zip", "GTSRB_Final_Test_GT.zip"):
            signs.zip(folder, name)
    else:
        signs.tree(folder, form)
    dataset = datasets.load("gtsrb", tmp_path / "d")
    same(dataset, *signs.arrays)
    np.testing.assert_array_equal(dataset.original_sums, signs.sums)
    np.testing.assert_array_equal(dataset.original_digests, signs.digests)
    assert dataset.classes == ("stop", "go", "wait")


def test_the_digest_is_that_of_an_image_that_was_never_resized(signs, tmp_path):
    signs.tree(tmp_path)
    dataset = datasets.load("gtsrb", tmp_path)
    with Image.open(tmp_path / "GTSRB/Final_Training/Images/00001/00001_00000.ppm") as image:
        row = np.asarray(image)[None]
    digest = hashing.digests(hashing.number_rows(row), b"").astype("<u8").view(np.uint8).reshape(16)
    np.testing.assert_array_equal(dataset.original_digests[4], digest)


def test_gtsrb_is_decoded_once(signs, tmp_path, monkeypatch):
    signs.tree(tmp_path / "gtsrb")
    first = datasets.load("gtsrb", tmp_path)
    cache = tmp_path / "gtsrb" / _gtsrb.CACHE
    assert datasets.located("gtsrb", tmp_path) == str(cache)

    def never(*_):
        raise AssertionError("decoded again")

    with monkeypatch.context() as patched:
        patched.setattr(_gtsrb, "decoded", never)
        again = datasets.load("gtsrb", tmp_path)
    same(again, *signs.arrays)
    assert again.fingerprint == first.fingerprint
    whole = cache.read_bytes()
    for wrong in (whole[:-30], whole[:3000] + bytes([whole[3000] ^ 1]) + whole[3001:], b"", b"PK"):
        cache.write_bytes(wrong)
        assert datasets.load("gtsrb", tmp_path).fingerprint == first.fingerprint
        assert cache.read_bytes() == whole
    assert sorted(f.name for f in (tmp_path / "gtsrb").iterdir()) == ["GT-final_test.csv", "GTSRB", _gtsrb.CACHE]


@pytest.mark.parametrize("field", ["x_train", "y_train", "x_test", "y_test", "original_digests", "original_sums"])
def test_a_cache_that_was_altered_with_care_is_not_used(signs, tmp_path, field):
    signs.tree(tmp_path)
    first = datasets.load("gtsrb", tmp_path)
    names = ("x_train", "y_train", "x_test", "y_test", "original_digests", "original_sums")
    arrays = {name: getattr(first, name).copy() for name in names}
    arrays[field].flat[0] = 1 - min(1, arrays[field].flat[0])
    npz.write(tmp_path / _gtsrb.CACHE, arrays)
    assert datasets.load("gtsrb", tmp_path).fingerprint == first.fingerprint
    arrays[field] = arrays[field][:-1]
    npz.write(tmp_path / _gtsrb.CACHE, arrays)
    assert datasets.load("gtsrb", tmp_path).fingerprint == first.fingerprint


def test_a_cache_goes_to_the_users_directory_or_nowhere(signs, tmp_path, monkeypatch):
    signs.tree(tmp_path / "d")
    written, refused = npz.write, []

    def write(path, arrays):
        if path.parent in refused:
            raise PermissionError(13, "Permission denied")
        written(path, arrays)

    monkeypatch.setattr(npz, "write", write)
    refused += [tmp_path / "d", tmp_path / "cache" / "runoff"]
    fingerprint = datasets.load("gtsrb", tmp_path / "d").fingerprint
    assert list(tmp_path.rglob("*.npz")) == []
    refused.pop()
    assert datasets.load("gtsrb", tmp_path / "d").fingerprint == fingerprint
    assert list(tmp_path.rglob("*.npz")) == [tmp_path / "cache" / "runoff" / _gtsrb.CACHE]
    assert datasets.located("gtsrb", tmp_path / "d") == str(tmp_path / "cache" / "runoff" / _gtsrb.CACHE)


def test_a_full_disk_leaves_no_part_of_a_cache(signs, tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    signs.tree(tmp_path / "d")
    monkeypatch.setattr(os, "fsync", full)
    same(datasets.load("gtsrb", tmp_path / "d"), *signs.arrays)
    assert sorted(f.name for f in (tmp_path / "d").iterdir()) == ["GT-final_test.csv", "GTSRB"]


CLASS_1 = "GTSRB/Final_Training/Images/00001/GT-00001.csv"
IMAGE = "GTSRB/Final_Training/Images/00001/00000_00001.ppm"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        (CLASS_1, listing([("../../../secret.ppm", 1)]), "must list Filename;...;ClassId, got '../../../secret.ppm'"),
        (CLASS_1, listing([("/etc/passwd", 1)]), "got '/etc/passwd'"),
        (CLASS_1, listing([("00000_00000.ppm", 2)] * 3), "lists images of another class"),
        (CLASS_1, listing([("00000_00000.ppm", 7)]), "lists class 7, expected 0 to 2"),
        (CLASS_1, listing([("00000_00000.ppm", -1)]), "of class '-1'"),
        (CLASS_1, listing([("00000_00000.ppm", 1)]), "it lists 7 training images, expected 9"),
        (CLASS_1, b"Filename;ClassId\n" + b"x" * 200000, "is not a list with semicolons"),
        (CLASS_1, b"\xff\xfe", "codec can't decode"),
        (CLASS_1, b"x" * (2**22 + 1), "has more than 4194304 bytes"),
        (IMAGE, b"P6\n30 30\n255\n", "00000_00001.ppm cannot be read as an image"),
        (IMAGE, b"P5\n1 1\n255\nx", "must be an RGB image"),
        (IMAGE, b"P6\n9000 9000\n255\n", "00000_00001.ppm must have at most 67,108,864 pixels, got 9000 x 9000"),
        (IMAGE, b"P6\n30000 30000\n255\n", "00000_00001.ppm cannot be read as an image"),
        (IMAGE, b"\x89PNG\r\n\x1a\n", "cannot be read as an image"),
        (IMAGE, ppm(np.zeros((20, 20, 3), np.uint8)), "its pixels have SHA-256"),
        (IMAGE, None, "(it has|there is) no .*00000_00001.ppm"),
    ],
)
def test_a_wrong_gtsrb_is_refused(signs, tmp_path, packed, name, data, message):
    if data is None:
        del signs.train[name]
    else:
        signs.train[name] = data
    (signs.zip if packed else signs.tree)(tmp_path)
    with pytest.raises(datasets.IntegrityError, match=message):
        datasets.load("gtsrb", tmp_path)


def test_invalid_zip_files(signs, tmp_path):
    signs.zip(tmp_path)
    path = tmp_path / "GTSRB_Final_Training_Images.zip"
    whole = path.read_bytes()
    for wrong in (b"", whole[:-10], b"\0" * 100, whole[:60] + b"\0\0\0\0" + whole[64:]):
        path.write_bytes(wrong)
        with pytest.raises(datasets.IntegrityError):
            datasets.load("gtsrb", tmp_path)
    truth = tmp_path / "GTSRB_Final_Test_GT.zip"
    with zipfile.ZipFile(truth, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("GT-final_test.csv", RNG.bytes(1000))
    packed = truth.read_bytes()
    truth.write_bytes(packed[:60] + b"\xaa" * 100 + packed[160:])
    with pytest.raises(datasets.IntegrityError, match="Corrupt input data"):
        datasets.load("gtsrb", tmp_path)


def test_a_hostile_name_in_a_zip_file_is_cut_in_the_message(signs, tmp_path):
    """The directory and the header of a file have different names, each of up to 65,535 bytes."""
    long = "GT-final_test.csv" + "x" * 60_000
    signs.zip(tmp_path)
    truth = tmp_path / "GTSRB_Final_Test_GT.zip"
    with zipfile.ZipFile(truth, "w") as archive:
        archive.writestr(long, signs.truth["GT-final_test.csv"])
    packed = truth.read_bytes()
    at = packed.rindex(b"PK\x01\x02")  # the directory: there the name is short, and the rest of it is a comment
    short = len(b"GT-final_test.csv")
    lengths = short.to_bytes(2, "little") + b"\0\0" + (len(long) - short).to_bytes(2, "little")
    truth.write_bytes(packed[: at + 28] + lengths + packed[at + 34 :])
    with pytest.raises(datasets.IntegrityError, match="File name in directory") as raised:
        datasets.load("gtsrb", tmp_path)
    assert "x" * 100 in str(raised.value)
    assert len(str(raised.value)) < 800
    assert "x" * 201 not in str(raised.value)


def test_only_the_archives_that_are_missing_are_named(signs, tmp_path):
    put(tmp_path, signs.train)
    signs.zip(tmp_path / "gtsrb", "GTSRB_Final_Test_Images.zip")
    with pytest.raises(datasets.MissingError, match=r"put GTSRB_Final_Test_GT.zip .md5 fe31\w*. from https://sid"):
        datasets.load("gtsrb", tmp_path)


def test_images_need_pillow_and_say_so(signs, tmp_path, monkeypatch):
    signs.tree(tmp_path)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"needs Pillow. Install it with: pip install 'runoff\[datasets\]'"):
        datasets.load("gtsrb", tmp_path)
    result = run("check", "gtsrb", "--data-dir", tmp_path)
    assert result.exit_code == 1
    assert "pip install 'runoff[datasets]'" in result.stderr
