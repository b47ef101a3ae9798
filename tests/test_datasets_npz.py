"""Users' own data in .npz files, and its classes."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from dataset_helpers import elsewhere as elsewhere
from dataset_helpers import images, own_arrays, picture, run, same
from runoff import datasets
from runoff._io.files import open_array


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_npz_file(save):
    arrays = own_arrays(x_train=np.asfortranarray(images(5, 3, 4)), unused=np.zeros(3))
    save("mine.npz", **arrays)
    dataset = datasets.load("mine.npz")
    same(dataset, *(arrays[name] for name in ("x_train", "y_train", "x_test", "y_test")))
    assert (dataset.name, dataset.classes) == ("mine.npz", ("0", "1", "2"))
    assert not dataset.classes_fixed
    save("mine.npz", **arrays, classes=np.array(["a", "b", "c", "d"]))
    named = datasets.load(Path("mine.npz"))
    assert named.classes == ("a", "b", "c", "d")
    assert named.classes_fixed
    assert named.fingerprint == dataset.fingerprint


@pytest.mark.parametrize(
    ("classes", "names"),
    [
        (3, ("0", "1", "2")),
        (np.int64(12), tuple(map(str, range(12)))),
        (["a", "b", "c"], ("a", "b", "c")),
        (np.array(["a", "b", "c", "d"]), ("a", "b", "c", "d")),
    ],
)
def test_classes_that_are_decided_beforehand(classes, names):
    """The number of outputs does not follow from the samples."""
    np.savez("mine.npz", **own_arrays())
    dataset = datasets.load("mine.npz", classes=classes)
    assert dataset.classes == names
    assert all(type(name) is str for name in dataset.classes)
    assert dataset.classes_fixed
    np.savez("mine.npz", **own_arrays(y_train=np.array([0, 2, 1, 1, 30])))
    assert not datasets.load("mine.npz").classes_fixed
    with pytest.raises(datasets.DatasetError, match=f"y_train must be classes 0 to {len(names) - 1}, got 30"):
        datasets.load("mine.npz", classes=classes)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (0, "classes must be from 1 to 65536, got 0"),
        (10**9, "classes must be from 1 to 65536, got 1000000000"),
        ([], "classes must have from 1 to 65536 names, got 0"),
        (True, "classes must be a number of classes or a list of their names, got True"),
        (3.0, "classes must be a number of classes or a list of their names, got 3.0"),
        ("abc", "classes must be a number of classes or a list of their names, got 'abc'"),
        ({"a": 0, "b": 1, "c": 2}, "classes must be a number of classes or a list of their names, got {"),
        (np.array([["a", "b", "c"]]), "classes must be a number of classes or a list of their names, got array"),
        (range(3), "classes must be names (str), got 0 of type int"),
        ([["a"], "b", "c"], "classes must be names (str), got ['a'] of type list"),
        (["a", "b", "a"], "classes must have different names, got 'a' twice: remove one of them"),
        (["a", " ", "c"], "classes must have no empty names, but number 2 is empty: remove it"),
    ],
)
def test_classes_that_will_not_do(classes, message, tmp_path):
    np.savez("mine.npz", **own_arrays())
    picture(tmp_path / "mine/train/a/0.png", images(4, 4))
    picture(tmp_path / "mine/test/a/0.png", images(4, 4))
    for path in ("mine.npz", "mine"):
        with pytest.raises(datasets.DatasetError) as told:
            datasets.load(path, classes=classes)
        assert str(told.value).startswith(message)


def test_classes_must_agree_with_those_that_are_stored(tmp_path):
    names = ["a", "b", "c"]
    np.savez("mine.npz", **own_arrays(classes=np.array(names)))
    picture(tmp_path / "mine/train/a/0.png", images(4, 4))
    picture(tmp_path / "mine/test/c/0.png", images(4, 4))
    (tmp_path / "mine/classes.txt").write_text("a\nb\nc\n")
    for path, where in (("mine.npz", "the classes in mine.npz"), ("mine", "mine/classes.txt")):
        for classes in (None, names, 3):
            dataset = datasets.load(path, classes=classes)
            assert (dataset.classes, dataset.classes_fixed) == (("a", "b", "c"), True)
        for classes, told in ((4, "4 classes instead of 3"), (["a", "c", "b"], "'c' instead of 'b'")):
            with pytest.raises(datasets.DatasetError) as error:
                datasets.load(path, classes=classes)
            assert str(error.value) == f"classes must agree with {where}, got {told}: leave classes out"


def test_an_npz_file_of_another_program():
    """Read arrays of more than one chunk, and headers of every version."""
    array = images(3, 2**12, 2**11)
    with zipfile.ZipFile("mine.npz", "w") as archive:
        for name, value, version in (
            ("x_train", array, (2, 0)),
            ("y_train", np.arange(3), (3, 0)),
            ("x_test", array[:1], (1, 0)),
            ("y_test", np.zeros(1, ">i4"), (1, 0)),
        ):
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, value, version)
    same(datasets.load("mine.npz"), array, np.arange(3), array[:1], [0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y_test": None}, "mine.npz must hold x_train, y_train, x_test, y_test, but has no y_test"),
        ({"y_test": np.array([{}, {}])}, "got pickled objects in y_test, which are never loaded"),
        ({"x_test": np.zeros((2, 3, 4))}, "mine.npz: x_test must be 8-bit images.* got float64"),
        ({"y_train": np.array([0, 1, 2, 3, -4])}, "y_train must be classes 0 to 3, got -4"),
        ({"y_train": np.array([0, 1, 2, 3, 2**60])}, "y_train must be classes 0 to 65535, got 1152921504606846976"),
        ({"y_train": np.array(["a"] * 5)}, "y_train must be integers"),
        ({"y_train": np.zeros(0, int)}, "y_train must be integers"),
        ({"classes": np.arange(3)}, "classes must be a list of strings, got int64"),
        ({"groups_train": np.arange(5)}, "groups_train: the sources of the training images must be named groups"),
        ({"classes": np.array(["a", "b"])}, "y_train must be classes 0 to 1, got 2"),
        ({"classes": np.array(["a", "b", "a"])}, "mine.npz: classes must have different names, got 'a' twice"),
        ({"classes": np.array(["a", "", "b"])}, "mine.npz: classes must have no empty names, but number 2 is empty"),
    ],
)
def test_npz_files_that_will_not_do(changes, message):
    arrays = {name: array for name, array in own_arrays(**changes).items() if array is not None}
    np.savez("mine.npz", **arrays)
    with pytest.raises(datasets.DatasetError, match=message):
        datasets.load("mine.npz")
    result = run("check", "mine.npz")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1


def test_damaged_npz_files():
    np.savez("mine.npz", **own_arrays())
    whole = Path("mine.npz").read_bytes()
    hostile = b"cos\nsystem\n(S'touch owned'\ntR."
    at = whole.index(b"\x93NUMPY")
    for wrong in (whole[:-40], b"", hostile, whole[: at + 130] + b"\xaa\xbb\xcc" + whole[at + 133 :]):
        Path("mine.npz").write_bytes(wrong)
        with pytest.raises(datasets.DatasetError, match=r"mine.npz cannot be read as a .npz file"):
            datasets.load("mine.npz")
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        stored = {name: archive.read(name) for name in archive.namelist()}
    for n, message in (
        (9, "is damaged: x_train has fewer than the 108 bytes its header claims"),
        (4, "more bytes than its header claims"),
        (-5, "cannot be read as a .npz file: it has a header of version"),
        (f"0, {2**70}", "cannot be read as a .npz file: "),
    ):
        wrong = stored["x_train.npy"].replace(b"'shape': (5, 3, 4)", f"'shape': ({n}, 3, 4)".encode())
        with zipfile.ZipFile("mine.npz", "w") as archive:
            for name, data in (stored | {"x_train.npy": wrong}).items():
                archive.writestr(name, data)
        with pytest.raises(datasets.DatasetError, match=message):
            datasets.load("mine.npz")
    for offset in (2**62, 2**63):  # further than a file can be
        with zipfile.ZipFile("mine.npz", "w") as archive:
            for name, data in stored.items():
                archive.writestr(name, data)
            archive.infolist()[0].header_offset = offset
        with pytest.raises(datasets.DatasetError, match=r"mine.npz cannot be read as a .npz file"):
            datasets.load("mine.npz")
    assert not Path("owned").exists()


def test_damage_to_the_list_of_arrays_hides_none():
    np.savez("mine.npz", **own_arrays(classes=np.array(["a", "b", "c"]), groups=np.array(list("vwxyz"))))
    whole = Path("mine.npz").read_bytes()
    last = whole.rindex(b"PK\x01\x02")
    before = whole.rindex(b"PK\x01\x02", 0, last)
    swallowed = whole[: before + 32] + (64).to_bytes(2, "little") + whole[before + 34 :]  # in the comment on classes
    for damaged in (whole[:last] + whole[last:].replace(b"groups", b"troups"), swallowed):
        assert "groups.npy" not in zipfile.ZipFile(io.BytesIO(damaged)).namelist()
        Path("mine.npz").write_bytes(damaged)
        with pytest.raises(datasets.DatasetError, match=r"mine.npz (is damaged|cannot be read)"):
            datasets.load("mine.npz")


def test_characters_that_do_not_exist():
    groups = np.array([65, 66, 0x110000, 67, 68], "<u4").view("<U1")
    np.savez("mine.npz", **own_arrays(groups=groups))
    with pytest.raises(datasets.DatasetError, match=r"mine.npz is damaged: groups has characters that do not exist"):
        datasets.load("mine.npz")
    np.save("labels.npy", groups)
    with pytest.raises(ValueError, match=r"labels.npy is damaged: it has characters that do not exist"):
        open_array("labels.npy")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_damaged_npz_files_of_every_compression(method):
    """Some bytes of the first array, then each byte that says how it is compressed."""
    arrays = own_arrays(x_train=images(5, 30, 40), x_test=images(2, 30, 40))  # of more than one read
    with zipfile.ZipFile("mine.npz", "w", method) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array)
    whole = Path("mine.npz").read_bytes()
    same(datasets.load("mine.npz"), *arrays.values())
    end = whole.index(b"PK\x03\x04", 4)
    central = whole.index(b"PK\x01\x02")
    refused = []
    places = [*range(30, 200), *range(200, end, 97), *range(central, central + 46)]
    for i in places:
        damaged = bytearray(whole)
        damaged[i] ^= 0x55
        Path("mine.npz").write_bytes(damaged)
        try:
            datasets.load("mine.npz")
        except datasets.DatasetError as error:
            refused.append(str(error))
    assert len(refused) > len(places) // 2
    assert {told.split()[0] for told in refused} <= {"mine.npz", "mine.npz:"}
