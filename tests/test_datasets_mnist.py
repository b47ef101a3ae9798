"""Digits, and MNIST in all its locations: read, checked, and rejected if altered."""

import dataclasses
import os
from pathlib import Path

import numpy as np
import pytest

from dataset_helpers import IDX, PUBLIC, damage_mnist, put_mnist, run, same
from dataset_helpers import elsewhere as elsewhere
from dataset_helpers import mnist as mnist
from runoff import datasets
from runoff.datasets import catalogue

# Digits


def test_digits_come_with_scikit_learn(monkeypatch):
    from sklearn.datasets import load_digits

    dataset = datasets.load("digits")
    bunch, test = load_digits(), np.arange(1797) % 5 == 0
    same(dataset, bunch.images[~test], bunch.target[~test], bunch.images[test], bunch.target[test])
    assert dataset.x_train.max() == 16
    assert dataset.fingerprint == PUBLIC["digits"]
    assert dataset.original_digests is None
    assert dataset.original_sums is None
    altered = dataclasses.replace(catalogue.DIGITS, labels="0" * 64)
    monkeypatch.setitem(catalogue.CATALOGUE, "digits", altered)
    with pytest.raises(datasets.IntegrityError, match=r"its labels have SHA-256 9ac6.*reinstall scikit-learn"):
        datasets.load("digits")


# MNIST


@pytest.mark.parametrize("place", [".", "mnist", "MNIST/raw", "mnist/MNIST/raw"])
@pytest.mark.parametrize("compressed", [(False,) * 4, (True,) * 4, (True, False, False, True)])
def test_mnist_in_all_its_places(mnist, tmp_path, place, compressed):
    put_mnist(tmp_path / "d" / place, mnist, compressed)
    dataset = datasets.load("mnist", tmp_path / "d")
    same(dataset, *mnist)
    assert dataset.classes == tuple("0123456789")
    assert datasets.located("mnist", tmp_path / "d") == str(tmp_path / "d" / place)


def test_only_the_files_that_are_missing_are_named(mnist, tmp_path):
    put_mnist(tmp_path / "MNIST" / "raw", mnist)
    (tmp_path / "MNIST" / "raw" / IDX[2]).unlink()
    with pytest.raises(datasets.MissingError, match=r"put t10k-images-idx3-ubyte.gz .sha256 8d42\w*. from https"):
        datasets.load("mnist", tmp_path)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("pixel", "its pixels have SHA-256 [0-9a-f]{16}..., expected [0-9a-f]{16}...; remove it and run: runoff data"),
        ("label", "its labels have SHA-256"),
        ("no label", "must be classes 0 to 9, got 255"),
        ("short", "train-images-idx3-ubyte must have 136 bytes, got 135"),
        ("long", "train-images-idx3-ubyte has more than 136 bytes"),
        ("header", "train-images-idx3-ubyte is not an idx file of 6 x 5 x 4 bytes"),
        ("bomb", "train-images-idx3-ubyte.gz has more than 136 bytes"),
        ("no gzip", "Not a gzipped file"),
        ("cut", "Compressed file ended before"),
    ],
)
def test_an_altered_mnist_is_refused(mnist, tmp_path, how, message):
    put_mnist(tmp_path / "mnist", mnist)
    damage_mnist(how, tmp_path / "mnist")
    with pytest.raises(datasets.IntegrityError, match=f"mnist in .*mnist is not the official dataset: .*{message}"):
        datasets.load("mnist", tmp_path)
    result = run("check", "mnist", "--data-dir", tmp_path)
    assert (result.exit_code, result.stdout) == (4, "")
    assert result.stderr.startswith("Error: mnist in ")
    assert len(result.stderr.splitlines()) == 1


def test_what_cannot_be_read_is_not_called_altered(mnist, tmp_path, monkeypatch):
    put_mnist(tmp_path, mnist)
    opened = os.open

    def refuse(path, *arguments, **options):
        if Path(path).name == IDX[3]:
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(datasets.MissingError, match="t10k-labels-idx1-ubyte cannot be read: Permission denied"):
        datasets.load("mnist", tmp_path)
