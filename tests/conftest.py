import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import portalocker
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("dataset_helpers")  # it has assertions of its own

settings.register_profile("runoff", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True)
settings.load_profile("runoff")


def trained_once(tmp_path_factory, name, *options):
    """Return a copy of a run on the digits, which one of the workers of pytest trains for all."""
    from helpers import SMALL, run

    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder  # the one that workers share
    with portalocker.Lock(folder / f"{name}.lock", timeout=600):
        if not (folder / name).exists():
            result = run("train", "digits", *SMALL, *options, "--out", folder / f"{name}.new", "--json")
            assert result.exit_code == 0, result.output
            assert json.loads(result.stdout)["trained"] == 10
            (folder / f"{name}.new").rename(folder / name)
    return shutil.copytree(folder / name, tmp_path_factory.mktemp("runs") / name)


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory):
    """A run on the digits with 2 members per bucket, trained once per session."""
    return trained_once(tmp_path_factory, "digits", "--d", 2)


@pytest.fixture(scope="session")
def _two_seeds(tmp_path_factory):
    return trained_once(tmp_path_factory, "two-seeds", "--n-seeds", 2)


@pytest.fixture
def two_seed_run(_two_seeds, tmp_path):
    """A run with two networks per member, and samples to add and to remove beside it."""
    from runoff import datasets

    shutil.copytree(_two_seeds, tmp_path / "run")
    data = datasets.load("digits")
    np.savez(tmp_path / "bad.npz", x=data.x_train[:1], y=data.y_train[:1])
    np.savez(tmp_path / "new.npz", x=data.x_test[:1], y=data.y_test[:1])
    return tmp_path / "run"
