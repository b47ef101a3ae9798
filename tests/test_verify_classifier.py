"""Saved classifiers, verified with their data; the verifier's own content hash; and its imports."""

import ast
import datetime
import shutil
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline

import runoff
from helpers import rehash, run
from runoff import hashing, samples, verify
from runoff.runs.retraining import members_of
from runoff.saving import classifiers
from runoff.verify import _content

KEY = bytes(range(32))


# --- the hash of content ----------------------------------------------------------------------------------------------


def same(X):
    ours = hashing.digests(samples.from_any(X).content(), KEY)
    assert np.array_equal(np.frombuffer(b"".join(_content.digests(X, KEY)), "<u8").reshape(-1, 2), ours)


NUMBERS = st.sampled_from(["u1", "i1", "?", "<i8", ">i4", "<f4", "<f8", "<f2", "u8", "O"])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_numbers_hash_alike(data):
    dtype = data.draw(NUMBERS)
    shape = data.draw(arrays.array_shapes(min_dims=2, max_dims=4, max_side=4))
    if dtype == "O":
        same(np.array(data.draw(arrays.arrays("<f8", shape)).tolist(), dtype=object).reshape(shape))
    else:
        same(data.draw(arrays.arrays(dtype, shape)))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=5))
def test_texts_hash_alike(texts):
    same(texts)
    same(np.array(texts, dtype=object))


CELL = st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), st.text(max_size=3),
                 st.binary(max_size=3), st.dates(datetime.date(1900, 1, 1), datetime.date(2100, 1, 1)))  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=4))
def test_tables_hash_alike(rows):
    same(pd.DataFrame({c: pd.Series([row[c] for row in rows], dtype=object) for c in (0, 1)}))


def test_more_tables_hash_alike():
    same(pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan]}))
    same(pd.DataFrame({"a": pd.to_datetime(["2020-01-02 00:00", "2021-05-06 07:08"]), "b": ["x", None]}))
    same(pd.DataFrame({"a": pd.to_timedelta([1, 2], unit="s"), "b": pd.Categorical(["x", "y"])}))
    same(pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [True, False]}))


@settings(max_examples=60, deadline=None)
@given(arrays.arrays("<f8", (3, 4), elements=st.sampled_from([0.0, -0.0, 1.0, 2.5, float("nan"), -3.0])))
def test_sparse_rows_hash_alike(dense):
    same(sparse.csr_matrix(dense))
    twice = sparse.coo_matrix(([1.0, 2.0, -3.0, 4.0], ([0, 0, 0, 1], [1, 1, 1, 2])), shape=(2, 3))
    same(twice)


def test_resized_images_hash_alike():
    digests = np.arange(32, dtype=np.uint8).reshape(2, 16)
    given = samples.Resized(np.zeros((2, 3, 3, 1), np.uint8), digests, np.array([5, 6]))
    ours = hashing.digests(given.content(), KEY)
    assert b"".join(_content.digests(given.data, KEY, digests)) == ours.astype("<u8").tobytes()
    assert _content.pixel_sums(given.data, given.original_sums) == given.pixel_sums()[:, 0].tolist()
    assert _content.pixel_sums(np.ones((2, 3), np.uint8)) == [3, 3]


# --- saved classifiers ------------------------------------------------------------------------------------------------


def kinds():
    draws = np.random.default_rng(0)
    y = np.arange(60) % 3
    x = draws.normal(size=(60, 4)) + y[:, None]
    words = np.array(["red", "green", "blue"])
    texts = [f"{words[c]} {draws.integers(5)}" for c in y]
    table = pd.DataFrame({"n": x[:, 0], "word": words[draws.integers(0, 3, 60)]})
    return {
        "numbers": (LogisticRegression(), x, words[y]),
        "images": (None, (20 * np.abs(x)).astype(np.uint8).reshape(60, 2, 2), y),
        "sparse": (MultinomialNB(), sparse.csr_matrix(np.abs(x).round()), y),
        "texts": (make_pipeline(CountVectorizer(), LogisticRegression()), texts, y),
        "table": (None, table, y),
    }


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder, made = tmp_path_factory.mktemp("saved"), {}
    for name, (estimator, X, y) in kinds().items():
        classes = sorted(set(np.asarray(y).tolist()))
        d = 2 if name == "numbers" else 1
        settings = {"n_partitions": 4, "spread": d, "classes": classes, "hash_key": KEY}
        election = "maximin" if name == "images" else "runoff"
        classifier = runoff.RunoffClassifier(estimator, election=election, **settings)
        classifier.fit(X, y).save(folder / name)
        made[name] = (folder / name, X, y)
    return made


@pytest.mark.parametrize("name", list(kinds()))
def test_a_classifier_of_any_kind_is_verified_with_its_data(name, saved):
    path, X, y = saved[name]
    members = members_of(path, "runoff classifier")
    report = verify.classifier(path, X, y, members=members, sample=4, retrain=2, seed=1)
    assert report.exit_code == 0, report.failures
    told = " ".join(report.checked)
    for expected in ("the SHA-256 of", "the training sets of", "predictions and radii", "2 members retrained"):
        assert expected in told
    assert report.not_checked == []
    others = np.roll(np.asarray(y), 1)
    report = verify.classifier(path, X, others)
    assert report.exit_code == 4
    assert report.failures[0].where.startswith("member ")


def test_what_is_changed_in_a_classifier_is_caught(saved, tmp_path):
    path, X, y = saved["numbers"]
    copy = shutil.copytree(path, tmp_path / "copy")
    for file in sorted(f for f in copy.rglob("*") if f.is_file()):
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        report = verify.classifier(copy, X, y)
        assert report.exit_code == 4
        assert report.failures[0].where == str(file.relative_to(copy))
        file.write_bytes(whole)
    changed = X.copy()
    changed[7, 1] += 1e-9
    assert verify.classifier(copy, changed, y).failures[0].where.startswith("member ")
    assert "which is not one of the classes" in str(verify.classifier(copy, X, ["mauve", *y[1:]]).failures[0])
    (copy / "key").write_bytes(bytes(32))
    rehash(copy)
    assert "does not follow from key and settings" in str(verify.classifier(copy, X, y).failures[0])


def test_swapped_members_of_a_classifier_are_caught_by_training_them_again(saved, tmp_path):
    path, X, y = saved["numbers"]
    copy = shutil.copytree(path, tmp_path / "copy")
    first, second = (classifiers.require_skops().load(copy / "members" / f"{m:06d}.skops", trusted=[]) for m in (0, 1))
    for m, state in ((0, second), (1, first)):
        (copy / "members" / f"{m:06d}.skops").write_bytes(classifiers.require_skops().dumps({**state, "index": m}))
    rehash(copy)
    members = members_of(copy, "runoff classifier")
    report = verify.classifier(copy, X, y, members=members, retrain=8, sample=2)
    assert report.exit_code == 4
    assert [f.where for f in report.failures] == ["member 0", "member 1"]
    members.manifest["versions"]["numpy"] = "1.0"
    report = verify.classifier(copy, X, y, members=members, retrain=8, sample=2)
    assert report.exit_code == 0
    assert "trained with numpy 1.0" in " ".join(report.not_checked)


def test_a_claim_that_is_wrong_is_caught(saved):
    path, X, y = saved["numbers"]

    class Boaster:
        def __init__(self, members):
            self.members = members

        def __getattr__(self, name):
            return getattr(self.members, name)

        def certify(self, inputs):
            prediction, runner_up, radius = self.members.certify(inputs)
            return prediction, runner_up, radius + 3

    report = verify.classifier(path, X, y, members=Boaster(members_of(path, "runoff classifier")), sample=6)
    assert report.exit_code == 3
    assert "claimed" in str(report.failures[0])


def test_a_classifier_from_the_command_line(saved, tmp_path):
    path, X, y = saved["numbers"]
    np.savez(tmp_path / "train.npz", x=X, y=y)
    result = run("verify", path, "--data", tmp_path / "train.npz", "--retrain", 1, "--sample", 3)
    assert result.exit_code == 0, result.output
    assert "Not checked" not in result.output
    result = run("verify", path)
    assert result.exit_code == 0
    assert "pass it as --data train.npz" in result.output
    np.savez(tmp_path / "other.npz", x=X + 1, y=y)
    assert run("verify", path, "--data", tmp_path / "other.npz").exit_code == 4
    assert run("verify", path, "--data", tmp_path / "absent.npz").exit_code == 2
    assert run("verify", tmp_path / "absent").exit_code == 2


def test_networks_are_verified_with_their_data(tmp_path):
    import torch

    from runoff.torch import TorchClassifier

    draws = np.random.default_rng(0)
    y = np.arange(40) % 2
    x = draws.integers(0, 100, (40, 4, 4), dtype=np.uint8) + (100 * y)[:, None, None].astype(np.uint8)
    classifier = TorchClassifier("small", "quick", n_partitions=3, spread=2, classes=range(2), device="cpu")
    classifier.fit(x, y).save(tmp_path / "model")
    path = tmp_path / "model"
    members = members_of(path, "runoff torch classifier", device="cpu")
    report = verify.classifier(path, x, y, members=members, sample=3, retrain=1)
    assert report.exit_code == 0, report.failures
    assert "1 member retrained" in " ".join(report.checked)
    tensor = torch.from_numpy(x[:, None])
    assert verify.classifier(path, tensor, y).exit_code == 0
    a, b = (path / "members" / f"{m:06d}-0000.safetensors" for m in (0, 1))
    first, second = a.read_bytes(), b.read_bytes()
    a.write_bytes(second)
    b.write_bytes(first)
    rehash(path)
    report = verify.classifier(path, x, y, members=members_of(path, "runoff torch classifier", device="cpu"), retrain=6)
    assert report.exit_code == 4
    assert {f.where for f in report.failures} >= {"member 0", "member 1"}


# --- imports of the verifier ------------------------------------------------------------------------------------------

PACKAGE = Path(runoff.__file__).parent
FILES = {"runoff._io.files", "runoff._io.locks", "runoff._io.text"}  # and words, no mathematics
ALLOWED = {"runoff.check", "runoff.errors", *FILES}
OUTSIDE = {"numpy", "portalocker", "pyarrow", "scipy"}


def imports(file):
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            yield from (f"{node.module}.{name.name}" for name in node.names)


def source_of(name):
    """The file of a module of runoff; of `module.name`, the module's."""
    for parts in (name.split(".")[1:], name.split(".")[1:-1]):
        for file in (PACKAGE.joinpath(*parts).with_suffix(".py"), PACKAGE.joinpath(*parts, "__init__.py")):
            if file.is_file() and parts:
                return file
    return None


def test_the_verifier_shares_no_code_with_what_it_verifies():
    """Check all imports, direct and indirect, anywhere in a file."""
    todo, seen = [*(PACKAGE / "verify").glob("*.py"), PACKAGE / "check.py"], set()
    while todo:
        file = todo.pop()
        seen.add(file)
        for name in imports(file):
            if name.split(".")[0] != "runoff":
                assert name.split(".")[0] in {*OUTSIDE, *sys.stdlib_module_names}, (file, name)
                continue
            own = source_of(name)
            assert own is not None, (file, name)
            assert own.parent == PACKAGE / "verify" or own in {source_of(f"{a}.x") for a in ALLOWED}, (file, name)
            todo += {own} - seen
    assert len(seen) > 8
