"""The comparison of elections on traffic signs, on drawn images of a few classes."""

import sys

import numpy as np
import pytest

from benchmarks import signs


def test_histograms_of_a_slope_have_one_direction():
    across = np.tile(np.arange(48, dtype=np.uint8)[None, None, :, None], (1, 48, 1, 3))
    for image, direction in ((across, 0), (across.transpose(0, 2, 1, 3), signs.BINS // 2)):
        found = signs.histograms(image).reshape(36, signs.BINS)
        assert (found.argmax(axis=1) == direction).all()
        assert float((found**2).sum()) == pytest.approx(1)


def test_tables_of_an_ensemble(tmp_path, monkeypatch, capsys):
    draws = np.random.default_rng(0)
    y = np.repeat(np.arange(6), 30)
    stripes = np.sin(np.arange(16)[None, :, None] * (1 + y[:, None, None] / 2) * np.linspace(0.5, 1, 16))
    x = (120 + 100 * stripes[..., None] + draws.normal(0, 5, (180, 16, 16, 3))).clip(0, 255).astype(np.uint8)
    np.savez(tmp_path / "signs.npz", x_train=x[::2], y_train=y[::2], x_test=x[1::2], y_test=y[1::2])
    monkeypatch.setattr(sys, "argv", ["signs", str(tmp_path / "signs.npz"), "--k", "3", "--budgets", "0", "1"])
    signs.main()
    told = capsys.readouterr().out
    assert told.count("| plurality |") == 8
    assert "100.0 % of the pairs of a member and a class have a sample" in told
    rows = [line.split("|")[1:-1] for line in told.splitlines() if line.startswith("| runoff")]
    assert all(float(more) <= float(fewer) for _, fewer, more in rows)
    assert float(rows[0][1]) > 60
