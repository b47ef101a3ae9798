"""The user's own data in folders of images, and lists of their classes."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dataset_helpers import elsewhere as elsewhere
from dataset_helpers import error_message, images, own_arrays, picture, same
from runoff import datasets


def test_a_folder_of_images(tmp_path, monkeypatch):
    folder = tmp_path / "mine"
    cat = [picture(folder / "train/cat" / name, images(4, 5, 3)) for name in ("a.png", "b.PPM", "c.bmp")]
    dog = [picture(folder / "train/dog" / name, images(4, 5, 3)) for name in ("0.png", "1.tiff")]
    tests = [picture(folder / "test/dog/x.png", images(4, 5, 3))]
    (folder / "train/empty").mkdir()
    (folder / "train/cat/notes.txt").write_text("not an image")
    (folder / "train/cat/inner.png").mkdir()
    (folder / "train/readme.png").write_text("not in a class")
    for hidden in ("train/.hidden/a.png", "train/cat/._a.png"):
        picture(folder / hidden, images(4, 5, 3))
    picture(tmp_path / "outside/a.png", images(4, 5, 3))
    (folder / "train/linked").symlink_to(tmp_path / "outside")
    (folder / "train/cat/z.png").symlink_to(tmp_path / "outside/a.png")
    dataset = datasets.load(folder)
    assert (dataset.name, dataset.classes) == ("mine", ("cat", "dog", "empty"))
    assert not dataset.classes_fixed
    same(dataset, np.stack(cat + dog), [0, 0, 0, 1, 1], np.stack(tests), [1])
    listed = Path.iterdir
    monkeypatch.setattr(Path, "iterdir", lambda path: sorted(listed(path), reverse=True))
    assert datasets.load(str(folder)).fingerprint == dataset.fingerprint
    monkeypatch.setattr(Path, "iterdir", lambda path: sorted(listed(path)))
    assert datasets.load(str(folder)).fingerprint == dataset.fingerprint


def test_a_folder_of_images_of_many_sizes(tmp_path):
    big, small = images(9, 7, 3), images(4, 5, 3)
    picture(tmp_path / "train/a/0.png", big)
    picture(tmp_path / "train/b/0.png", small)
    picture(tmp_path / "test/a/0.png", small)
    with pytest.raises(datasets.DatasetError, match=r"one size, got 4 x 5 in .*b.0.png and 9 x 7 in .* pass size="):
        datasets.load(tmp_path)
    dataset = datasets.load(tmp_path, size=(4, 5))
    expected = np.asarray(Image.fromarray(big).resize((5, 4), Image.Resampling.BILINEAR))
    same(dataset, np.stack([expected, small]), [0, 1], small[None], [0])
    for size in ((0, 4), (4,), 5, (4.5, 4), (10**6, 1), "ab"):
        with pytest.raises(datasets.DatasetError, match="size must be "):
            datasets.load(tmp_path, size=size)
    np.savez("mine.npz", **own_arrays())
    with pytest.raises(datasets.DatasetError, match="size applies to folders of images only"):
        datasets.load("mine.npz", size=(4, 5))


def test_grey_stays_grey_and_nothing_is_changed_by_its_neighbour(tmp_path):
    grey = picture(tmp_path / "train/a/0.png", images(4, 4))
    picture(tmp_path / "test/a/0.png", grey)
    assert datasets.load(tmp_path).x_train.shape == (1, 4, 4)
    picture(tmp_path / "train/a/1.png", images(4, 4, 3))
    with pytest.raises(datasets.DatasetError, match=r"1.png is in colour and .*0.png is grey: convert one of them"):
        datasets.load(tmp_path)
    Image.fromarray(images(4, 4, 4)).save(tmp_path / "train/a/1.png")
    with pytest.raises(datasets.DatasetError, match="must be an 8-bit grey or RGB image, got mode RGBA"):
        datasets.load(tmp_path)
    palette = Image.fromarray(images(4, 4, 3)).quantize(4)
    for part in ("train/a/0.png", "train/a/1.png", "test/a/0.png"):
        palette.save(tmp_path / part, transparency=bytes([0, 9]))
    np.testing.assert_array_equal(datasets.load(tmp_path).x_test[0], np.asarray(palette.convert("RGB")))


def test_folders_that_will_not_do(tmp_path):
    refused = partial(pytest.raises, datasets.DatasetError)
    with refused(match=r"must be a folder of images, train/<class>/\* and test/<class>/\*: it has no train"):
        datasets.load(tmp_path)
    picture(tmp_path / "train/a/0.png", images(4, 4))
    with refused(match="it has no test"):
        datasets.load(tmp_path)
    picture(tmp_path / "test/b/0.png", images(4, 4))
    with refused(match="has test/b but no train/b"):
        datasets.load(tmp_path)
    (tmp_path / "train/b").mkdir()
    (tmp_path / "test/b/0.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with refused(match=r"0.png cannot be read as an image .*: replace or remove it"):
        datasets.load(tmp_path)
    (tmp_path / "test/b/0.png").unlink()
    with refused(match="test must hold images in folders named by class, got none"):
        datasets.load(tmp_path)


def two_pictures(tmp_path):
    return picture(tmp_path / "train/cat/0.png", images(4, 4)), picture(tmp_path / "test/dog/0.png", images(4, 4))


@pytest.mark.parametrize("text", ["dog\nbird\ncat\n", "dog\nbird\ncat", "\ufeffdog\r\nbird \r\n cat\r\n"])
def test_a_folder_with_a_list_of_its_classes(tmp_path, text):
    cat, dog = two_pictures(tmp_path)
    (tmp_path / "classes.txt").write_bytes(text.encode())
    dataset = datasets.load(tmp_path)  # no folder for birds, none for dogs in train
    assert (dataset.classes, dataset.classes_fixed) == (("dog", "bird", "cat"), True)
    same(dataset, cat[None], [2], dog[None], [0])
    for part in ("train", "test"):
        (tmp_path / part / "eel").mkdir()
        with pytest.raises(
            datasets.DatasetError, match=f"has the folder {part}/eel, which is not one of its 3 classes: "
        ):
            datasets.load(tmp_path)
        (tmp_path / part / "eel").rmdir()
    (tmp_path / "classes.txt").unlink()
    given = datasets.load(tmp_path, classes=["dog", "bird", "cat"])
    assert (given.fingerprint, given.classes_fixed) == (dataset.fingerprint, True)


def test_numbered_folders(tmp_path):
    picture(tmp_path / "train/10/0.png", images(4, 4))
    picture(tmp_path / "train/2/0.png", images(4, 4))
    picture(tmp_path / "test/9/0.png", images(4, 4))
    dataset = datasets.load(tmp_path, classes=11)
    assert (dataset.y_train.tolist(), dataset.y_test.tolist()) == ([2, 10], [9])
    with pytest.raises(datasets.DatasetError, match="has the folder train/10, which is not one of its 10 classes"):
        datasets.load(tmp_path, classes=10)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "must have no empty names, but number 1 is empty"),
        (b"cat\n\ndog\n", "must have no empty names, but number 2 is empty"),
        (b"cat\n \ndog\n", "must have no empty names, but number 2 is empty"),
        (b"cat\ndog\ncat\n", "must have different names, got 'cat' twice"),
        (b"cat\nd\xffg\n", "must be text in UTF-8, got an invalid byte at 5: save it as UTF-8"),
        (b"cat\ndog\n" + b"x" * 2**22, "cannot be read: classes.txt has more than 4194304 bytes"),
        (b"\n".join(b"%d" % i for i in range(65537)), "must have from 1 to 65536 names, got 65537"),
    ],
)
def test_lists_of_classes_that_will_not_do(tmp_path, data, message):
    two_pictures(tmp_path)
    (tmp_path / "classes.txt").write_bytes(data)
    assert error_message(datasets.load, tmp_path).startswith(f"{tmp_path}/classes.txt {message}")


def test_a_list_of_classes_leads_nowhere_else(tmp_path):
    folder = tmp_path / "mine"
    cat, dog = two_pictures(folder)
    picture(tmp_path / "secret/0.png", images(4, 4))
    (folder / "test/cat").symlink_to(tmp_path / "secret")
    names = ["cat", "dog", "../../secret", str(tmp_path / "secret")]
    same(datasets.load(folder, classes=names), cat[None], [0], dog[None], [1])
    (tmp_path / "names").write_text("cat\ndog\n")
    for link in (tmp_path / "names", tmp_path / "nothing"):
        (folder / "classes.txt").symlink_to(link)
        assert "classes.txt must be a regular file with one class name per line" in error_message(datasets.load, folder)
        (folder / "classes.txt").unlink()
    (folder / "classes.txt").mkdir()
    assert "classes.txt must be a regular file with one class name per line" in error_message(datasets.load, folder)
