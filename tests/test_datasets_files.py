"""Files: headers of arrays, files written completely or not at all, and leftovers of killed programs."""

import errno
import os
import stat
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from dataset_helpers import elsewhere as elsewhere
from runoff._io import files
from runoff._io.files import leftovers, open_array, written_whole

HEADER = "{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }"


def npy_file(header, data=bytes(48), version=1):
    text = header.encode("latin-1")
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    Path("array.npy").write_bytes(b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H", len(text)) + text + data)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (HEADER.replace("}", ""), "must be a .npy file as numpy.save writes it, got something else"),
        (HEADER.replace("(2", "(-2"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("(2", "(-2, -1"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("(2", "(True"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("(2", f"(0, {2**70}"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("(2", f"({'1, ' * 70} 2"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("(2", f"({2**70}"), "is truncated: its header promises "),
        (HEADER.replace("{", "{[]: 0, "), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("{", "{0: 0, "), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("'<f8'", "('<f8',)"), "must be a .npy file as numpy.save writes it"),
        (HEADER.replace("'<f8'", "'|V0'"), "must hold numbers, got values of zero bytes: save a plain array"),
        (HEADER.replace("'<f8'", "'|O'"), "must hold numbers, got pickled objects, which are never loaded"),
    ],
)
def test_headers_that_will_not_do(header, message):
    npy_file(header)
    with pytest.raises(ValueError, match=r"^array.npy ") as told:
        open_array("array.npy")
    assert str(told.value).startswith(f"array.npy {message}")
    assert "\n" not in str(told.value)


def test_headers_that_will_do():
    npy_file(HEADER)
    np.testing.assert_array_equal(open_array("array.npy"), np.zeros((2, 3)))
    npy_file(HEADER.replace("(2", "(0"), b"")
    assert open_array("array.npy").shape == (0, 3)
    npy_file(HEADER, version=9)
    with pytest.raises(ValueError, match=r"array.npy must be a .npy file as numpy.save writes it"):
        open_array("array.npy")


def test_a_rename_is_synced_too(tmp_path, monkeypatch):
    synced, fsync = [], os.fsync

    def note(descriptor):
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink(), (tmp_path / "a").exists()))
        fsync(descriptor)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", note)
    with written_whole(tmp_path / "a") as file:
        file.write("all of it")
    (temporary, early), (folder, late) = synced
    assert (temporary.parent, early, folder, late) == (tmp_path, False, tmp_path, True)


@pytest.mark.parametrize(("number", "told"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_directories_that_cannot_be_synced(tmp_path, monkeypatch, number, told):
    fsync = os.fsync

    def partly(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, "not here")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", partly)
    with (
        pytest.raises(OSError, match="not here") if told else nullcontext(),
        written_whole(tmp_path / "a") as file,
    ):
        file.write("all of it")
    assert (tmp_path / "a").read_text() == "all of it"
    assert leftovers(tmp_path) == []


def test_what_a_killed_program_left_of_a_file_is_removed_when_it_is_written_again(tmp_path):
    code = "import os, sys; from runoff._io import files\nopen = [files.written_whole(name) for name in sys.argv[1:]]\n"
    code += "for one in open: one.__enter__()\nos.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code, tmp_path / "a", tmp_path / "a", tmp_path / "ab"], check=False)
    assert len(leftovers(tmp_path)) == 3
    (tmp_path / "mine").write_text("mine")
    (tmp_path / ".a.linked_1.runoff-tmp").symlink_to(tmp_path / "mine")
    with written_whole(tmp_path / "a", among_many=True) as file:
        file.write("first")
    assert len(leftovers(tmp_path)) == 3
    with written_whole(tmp_path / "a") as file:
        file.write("second")
        being_written = set(leftovers(tmp_path))
        assert len(being_written) == 2  # this one, and that of another file
        with written_whole(tmp_path / "a") as other:  # leaves the first alone, which is still being written
            other.write("third")
        assert set(leftovers(tmp_path)) == being_written
    assert (tmp_path / "a").read_text() == "second"
    assert [file.name[:4] for file in leftovers(tmp_path)] == [".ab."]
    assert (tmp_path / ".a.linked_1.runoff-tmp").is_symlink()


def test_a_temporary_file_that_another_process_took_for_abandoned_is_made_again(tmp_path, monkeypatch):
    taken = []

    def steal(descriptor, **_):
        taken.append(descriptor)
        if len(taken) == 1:
            leftovers(tmp_path)[0].unlink()
        return len(taken) != 2

    monkeypatch.setattr(files, "try_lock", steal)
    with written_whole(tmp_path / "a") as file:
        file.write("all of it")
    assert ((tmp_path / "a").read_text(), len(taken), leftovers(tmp_path)) == ("all of it", 3, [])


def test_what_a_killed_program_leaves_is_found(tmp_path):
    code = "import os, sys; from runoff._io import files\nopen = [files.written_whole(name) for name in sys.argv[1:]]\n"
    code += "for one in open: one.__enter__()\nos.kill(os.getpid(), 9)"
    (tmp_path / "inner").mkdir()
    names = ["manifest.json", "a\nb", "inner/x"]
    subprocess.run([sys.executable, "-c", code, *(tmp_path / name for name in names)], check=False)
    others = ["manifest.json", ".hidden", ".manifest.json.original", ".vimrc.abcdefgh", ".x.abcdefg.runoff-tmp"]
    others += ["x.abcdefgh.runoff-tmp", ".x.ABCDEFGH.runoff-tmp", ".x.abcdefgh.runoff-tmp~"]
    for name in others:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".d.abcdefgh.runoff-tmp").mkdir()
    (tmp_path / ".l.abcdefgh.runoff-tmp").symlink_to(tmp_path / "manifest.json")
    found = leftovers(tmp_path)
    assert sorted(file.name[: -len(".abcdefgh.runoff-tmp")] for file in found) == [".a\nb", ".manifest.json"]
    for file in found:
        file.unlink()
    assert leftovers(str(tmp_path)) == []
    assert len(leftovers(tmp_path / "inner")) == 1


def test_files_written_by_several_threads_have_the_permissions_that_the_umask_leaves(tmp_path):
    """To read the umask, it would have to be set to zero for a moment, for all threads."""

    def write(i):
        with written_whole(tmp_path / str(i)) as file:
            file.write("x")

    previous = os.umask(0o027)
    try:
        changed = AssertionError("the umask was changed")
        with patch.object(os, "umask", side_effect=changed), ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(20)))
        assert {file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {0o640}
        assert len(list(tmp_path.iterdir())) == 20
    finally:
        os.umask(previous)
