"""The verifier's own readers: manifests, digests, arrays and networks of a directory that nobody trusts."""

import hashlib
import io
import json
import os
import shutil
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from helpers import write_manifest
from runoff import hashing, verify
from runoff.verify import directory, networks
from runoff.verify.directory import UnfitError
from verified import IMAGES, TENSOR, Y, a_run, dataset, floats, network_file, safetensors


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return a_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture
def path(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def open_(path):
    report = verify.Report("")
    found = directory.open_directory(path, report)
    assert (found is None) == bool(report.failures)
    return [str(failure) for failure in report.failures]


def test_every_file_that_does_not_match_is_named_up_to_five(path):
    for m in range(6):
        (path / network_file(m, 0)).write_bytes(b"x")
    (path / "labels.npy").unlink()
    assert open_(path) == [
        "labels.npy: cannot be read (No such file or directory)",
        *(
            f"{network_file(m, 0)}: does not match the SHA-256 in the manifest: it was altered or damaged"
            for m in range(4)
        ),
        "manifest.json: 2 more of the listed files do not match",
    ]
    for file in path.glob("members/*"):
        file.unlink()
    (path / "members" / "other").write_text("")
    assert open_(path) == ["labels.npy: cannot be read (No such file or directory)"]
    (path / "members" / "member-x").write_text("")
    assert len(open_(path)) == 6


def test_links_and_other_kinds_of_files(path, tmp_path):
    for kind, told in (("link", "cannot be read (it is a symbolic link)"), ("fifo", "is not a regular file"),
                       ("folder", "is not a regular file")):  # fmt: skip
        file = path / "labels.npy"
        data = file.read_bytes() if file.is_file() else b""
        file.unlink()
        if kind == "link":
            (tmp_path / "there").write_bytes(data)
            file.symlink_to(tmp_path / "there")
        elif kind == "fifo":
            os.mkfifo(file)
        else:
            file.mkdir()
        assert open_(path) == [f"labels.npy: {told}"]
        if kind != "folder":
            file.unlink()
            file.write_bytes(data)
    (path / "labels.npy").rmdir()
    (path / "labels.npy").write_bytes(data)
    outside = shutil.copytree(path / "certificates", tmp_path / "outside")
    shutil.rmtree(path / "certificates")
    (path / "certificates").symlink_to(outside)
    assert open_(path) == [
        f"certificates/runoff-tight-{n}.csv: lies outside the directory, through a link" for n in (1, 2)
    ]


def test_a_report_as_plain_data():
    report = verify.Report("run", facts={"seed": 5})
    report.passed("this")
    report.skipped("that", "too long")
    report.files("a.npy", "is gone")
    report.failed(verify.CERTIFICATE, "input 3", "is wrong")
    assert report.to_dict() == {
        "subject": "run", "exit_code": 4, "checked": ["this"], "not_checked": ["that: too long"], "seed": 5,
        "failures": [{"exit_code": 4, "where": "a.npy", "what": "is gone"},
                     {"exit_code": 3, "where": "input 3", "what": "is wrong"}],
    }  # fmt: skip
    assert [str(failure) for failure in report.failures] == ["a.npy: is gone", "input 3: is wrong"]
    assert (verify.CERTIFICATE, verify.FILES, verify.Report("").exit_code) == (3, 4, 0)


def test_the_limits_of_a_directory(path, monkeypatch):
    assert verify.SAMPLE == 20
    assert directory.VERSIONS == {"runoff run": 1, "runoff classifier": 2, "runoff torch classifier": 2}
    assert (directory.MOST_MANIFEST, directory.MOST_FILES, directory.MOST_FILE) == (2**28, 10**7, 2**33)
    monkeypatch.setattr(directory, "MOST_FILES", 19)
    assert open_(path) == []
    monkeypatch.setattr(directory, "MOST_FILES", 18)
    assert open_(path) == ["manifest.json: does not list files"]


def test_large_files_are_not_read(path, monkeypatch):
    size = (path / "spread.npy").stat().st_size
    monkeypatch.setattr(directory, "MOST_FILE", max(f.stat().st_size for f in path.rglob("*") if f.is_file()))
    assert open_(path) == []
    largest = max((f for f in path.rglob("*") if f.is_file()), key=lambda f: f.stat().st_size)
    monkeypatch.setattr(directory, "MOST_FILE", largest.stat().st_size - 1)
    assert any(f"has more than {largest.stat().st_size - 1:,} bytes" in told for told in open_(path))
    assert directory.read(path / "spread.npy", size) == (path / "spread.npy").read_bytes()
    with pytest.raises(UnfitError, match=f"has more than {size - 1:,} bytes"):
        directory.read(path / "spread.npy", size - 1)
    with pytest.raises(UnfitError, match="cannot be read"):
        directory.read(path / "absent", 5)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda m: m.update(format="runoff report"), "describes neither a run nor a saved classifier"),
        (lambda m: m.update(version=2), "has version 2, which this release does not know"),
        (lambda m: m.update(version=True), "has version True, which this release does not know"),
        (lambda m: m.pop("files"), "does not list files"),
        (lambda m: m.update(files=["a"]), "does not list files"),
        (lambda m: m.update(dataset=None), "must name the classes of the dataset"),
        (lambda m: m["dataset"].update(classes="ab"), "must name the classes of the dataset"),
        (lambda m: m["dataset"].update(classes=["a"]), "must name the classes of the dataset"),
        (lambda m: m["dataset"].update(classes=["a", 1]), "must name the classes of the dataset"),
        (lambda m: m.update(edits={}), "must have a list of edits"),
        (lambda m: m.update(member_sizes=4), "must have a list of member sizes"),
        *((lambda m, name=name: m["files"].update({name: "0" * 64}), f"names a file outside the directory, {name!r}")
          for name in ("/etc/x", "../x", "a/../x", "a//x", "./x", "a\\x", "a\0x", "", "a/")),
        (lambda m: m["files"].update(x="0" * 63), "has an invalid SHA-256 for 'x'"),
        (lambda m: m["files"].update(x="A" * 64), "has an invalid SHA-256 for 'x'"),
        (lambda m: m["files"].update(x=1), "has an invalid SHA-256 for 'x'"),
    ],
)  # fmt: skip
def test_forms_of_a_manifest(change, told, path):
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    write_manifest(path, manifest)
    assert open_(path) == [f"manifest.json: {told}"]


def test_a_manifest_is_sealed(path):
    manifest = json.loads((path / "manifest.json").read_text())
    without = {name: value for name, value in manifest.items() if name != "digest"}
    for altered in ({**manifest, "digest": "0" * 64}, {**manifest, "election": "maximin"}, without):
        (path / "manifest.json").write_text(json.dumps(altered, indent=1))
        assert open_(path) == ["manifest.json: does not match its own SHA-256: it was altered"]
    renamed = {("seal" if name == "digest" else name): value for name, value in manifest.items()}
    (path / "manifest.json").write_text(json.dumps(renamed, indent=1))
    assert open_(path) == ["manifest.json: does not match its own SHA-256: it was altered"]
    first = {"digest": manifest["digest"], **manifest}
    (path / "manifest.json").write_text(json.dumps(first, indent=1))
    assert open_(path) == ["manifest.json: does not match its own SHA-256: it was altered"]
    (path / "manifest.json").write_text(json.dumps(manifest, indent=2))
    assert open_(path) == ["manifest.json: is not formatted as runoff writes it: it was altered"]
    (path / "manifest.json").write_text('{"a": 1, "a": 2}')
    assert open_(path) == ["manifest.json: names a key twice"]
    (path / "manifest.json").write_text('{"a": -Infinity}')
    assert open_(path) == ["manifest.json: holds -Infinity"]
    (path / "manifest.json").write_text("{")
    assert open_(path) == ["manifest.json: is not JSON"]
    assert verify.kind_of(path) is None
    (path / "manifest.json").write_text(json.dumps({"format": "x" * 99}))
    assert verify.kind_of(path) == "x" * 60
    for text in ("[]", "{}"):
        (path / "manifest.json").write_text(text)
        assert verify.kind_of(path) is None


def test_a_file_that_changes_while_it_is_verified(path):
    report = verify.Report("")
    opened = directory.open_directory(path, report)
    assert (opened.kind, opened.digest) == ("runoff run", directory.sha256(path / "manifest.json"))
    assert opened.data("key") == hashing.derived_key(5)
    with pytest.raises(UnfitError, match="changed while it was being verified"):
        opened.data("manifest.json")
    (path / "key").write_bytes(bytes(32))
    with pytest.raises(UnfitError, match="changed while it was being verified"):
        opened.data("key")


def npy(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_arrays_are_read_completely_or_not_at_all():
    for array in (np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.array(["a", "bc"])):
        np.testing.assert_array_equal(directory.npy(npy(array)), array)
    assert directory.npy(npy(np.array(5))).tolist() == 5
    nothing = npy(np.array([""])).replace(b"<U1", b"<U0")[:-4]
    for data in (npy(np.arange(3))[:-1], npy(np.arange(3)) + b"x", b"", npy(np.zeros((0, 3))), nothing,
                 b"\x93NUMPY\x01\x00"):  # fmt: skip
        with pytest.raises(UnfitError, match=r"is not a complete \.npy file of plain numbers or strings"):
            directory.npy(data)
    file = io.BytesIO()
    np.save(file, np.array([{}], object), allow_pickle=True)
    with pytest.raises(UnfitError, match=r"is not a complete \.npy file"):
        directory.npy(file.getvalue())


def test_archives_of_arrays_are_read_up_to_a_size(monkeypatch):
    file = io.BytesIO()
    np.savez_compressed(file, x=np.arange(3), y=np.array([7]))
    found = directory.npz(file.getvalue())
    assert {name: array.tolist() for name, array in found.items()} == {"x": [0, 1, 2], "y": [7]}
    for data in (b"", b"PK", file.getvalue()[:-30]):
        with pytest.raises(UnfitError, match=r"is not a complete \.npz file"):
            directory.npz(data)
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", npy(np.zeros(10**6, np.uint8)))
        archive.writestr("y.npy", npy(np.zeros(10**6, np.uint8)))
    data, unpacked = bomb.getvalue(), 2 * len(npy(np.zeros(10**6, np.uint8)))
    assert len(data) * directory.RATIO < unpacked
    for most, fits in ((unpacked, True), (unpacked - 1, False)):
        monkeypatch.setattr(directory, "MOST_UNPACKED", most)
        if fits:
            assert directory.npz(data)["x"].sum() == 0
            continue
        with pytest.raises(UnfitError, match=r"is not a complete \.npz file"):
            directory.npz(data)
    monkeypatch.setattr(directory, "RATIO", -(-unpacked // len(data)))
    assert directory.npz(data)["y"].size == 10**6
    # The directory at the end of the archive may claim any size.
    claimed = data.replace((unpacked // 2).to_bytes(4, "little"), (2**31 - 1).to_bytes(4, "little"))
    assert claimed != data
    with pytest.raises(UnfitError, match=r"is not a complete \.npz file"):
        directory.npz(claimed)


# --- networks ---------------------------------------------------------------------------------------------------------


def test_tensors_are_read_by_their_header():
    stored = {
        "b": floats(np.arange(4.0).reshape(2, 2), "F16"), "a": floats(np.array([1.5]), "F64"),
        "n": TENSOR("I64", (), bytes(8)), "e": TENSOR("BF16", (0, 3), b""), "u": TENSOR("U8", (3,), b"abc"),
    }  # fmt: skip
    metadata, found = networks.tensors(safetensors(stored, asked="x"))
    assert (metadata, found) == ({"asked": "x"}, stored)
    assert found["b"].numbers().tolist() == [[0, 1], [2, 3]]
    assert found["a"].numbers().tolist() == [1.5]
    assert found["b"].numbers().dtype == np.float16
    assert networks.SIZES == {
        "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1,
    }  # fmt: skip
    with pytest.raises(UnfitError, match="holds scores of type U8"):
        found["u"].numbers()
    whole = safetensors(stored)
    assert networks.tensors(whole)[0] == {}
    for data in (
        b"",
        whole[:7],
        (10**9).to_bytes(8, "little") + whole[8:],
        len(whole).to_bytes(8, "little") + whole[8:],
    ):
        with pytest.raises(UnfitError, match="is not a safetensors file"):
            networks.tensors(data)
    with pytest.raises(UnfitError, match="has bytes that belong to no tensor"):
        networks.tensors(whole + b"x")
    exact = json.dumps({}).encode()
    assert networks.tensors(len(exact).to_bytes(8, "little") + exact) == ({}, {})


def header_of(change):
    header = {
        "__metadata__": {}, "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "U8", "shape": [3], "data_offsets": [8, 11]},
    }  # fmt: skip
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(11)


PROMISES = "does not hold the tensor 'a' that its header promises"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _: None, None),
        (lambda h: h["__metadata__"].update(a=1), "has metadata that are not strings"),
        (lambda h: h["a"].update(data_offsets=[0, 4]), PROMISES),
        (lambda h: h["a"].update(data_offsets=[1, 9]), PROMISES),
        (lambda h: h["a"].update(shape=[3]), PROMISES),
        (lambda h: h["a"].update(shape=[-1, -2]), PROMISES),
        (lambda h: h["a"].update(shape=[2.0]), PROMISES),
        (lambda h: h["a"].update(shape=[True, 2]), PROMISES),
        (lambda h: h["a"].update(dtype="F64"), PROMISES),
        (lambda h: h["a"].update(dtype="C64"), "has a damaged header"),
        (lambda h: h["a"].pop("shape"), "has a damaged header"),
        (lambda h: h.update(a=[1]), "has a damaged header"),
        (lambda h: h.update(__metadata__=[]), "has a damaged header"),
        (lambda h: h["b"].update(data_offsets=[8, 12], shape=[4]), "has bytes that belong to no tensor"),
        (lambda h: h["b"].update(data_offsets=[0, 3]), "does not hold the tensor"),
    ],
)
def test_headers_that_do_not_fit(change, told):
    if told is None:
        assert {*networks.tensors(header_of(change))[1]} == {"a", "b"}
        return
    with pytest.raises(UnfitError, match=told):
        networks.tensors(header_of(change))


def test_rankings_and_means():
    scores = np.array([[0.5, 0.5, 0.1], [0.0, -0.0, 1.0], [np.inf, 1, -np.inf]])
    assert networks.ranking(scores).tolist() == [[2, 1, 0], [1, 0, 2], [2, 1, 0]]
    for n, dtype in ((256, np.uint8), (257, np.uint16)):
        ranked = networks.ranking(np.arange(n)[None] * 1.0)
        assert (ranked.dtype, ranked[0].tolist()) == (dtype, list(range(n)))
    shares = np.array([0.25, 0.75])
    assert networks.mean_scores([], None, 2) is None
    assert networks.mean_scores([], shares, 2).tolist() == [[0.25, 0.75]] * 2
    a, b = np.float32([[0, 1], [np.nan, 1]]), np.float32([[1, 3], [0, 1]])
    assert networks.mean_scores([a[:1], b[:1]], None, 1).tolist() == [[0.5, 2.0]]
    assert networks.mean_scores([a, b], None, 2) is None
    found = networks.mean_scores([a, b], shares, 2)
    assert (found.tolist(), found.dtype) == ([[0.5, 2.0], [0.25, 0.75]], np.float32)
    assert networks.arranged(np.zeros((2, 3, 4))).shape == (2, 3, 4, 1)
    assert networks.arranged(np.zeros((2, 3))).shape == (2, 3)
    assert networks.arranged(np.zeros((2, 3, 4, 3))).shape == (2, 3, 4, 3)


def test_digests_of_inputs_and_datasets():
    images = IMAGES[:2]
    told = hashlib.sha256(b"|u1 (2, 2, 2) " + images.tobytes()).hexdigest()
    assert networks.inputs_digest(images) == networks.inputs_digest(np.asfortranarray(images)) == told
    data = dataset(original_sums=np.arange(30), groups=np.array(["a", "b"]))
    expected = hashlib.sha256(b"runoff dataset 1\n")
    for name in ("x_train", "y_train", "x_test", "y_test"):
        array = getattr(data, name)
        shape = ",".join(map(str, array.shape))
        expected.update(f"{name} {array.dtype.name} {shape}\n".encode() + array.tobytes())
    expected.update(b"original_digests none\n")
    expected.update(b"original_sums int64 30\n" + data.original_sums.tobytes())
    expected.update(b"groups str32 2\n" + data.groups.tobytes())
    assert networks.dataset_fingerprint(data) == expected.hexdigest()
    big = dataset(y_train=Y.astype(">i8"), original_sums=np.arange(30).astype(">i8"), groups=data.groups.astype(">U1"))
    assert networks.dataset_fingerprint(big) == expected.hexdigest()
    bare = SimpleNamespace(**{k: v for k, v in vars(dataset()).items() if k != "groups"})
    assert networks.dataset_fingerprint(bare) == networks.dataset_fingerprint(dataset())
