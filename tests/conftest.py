import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("dataset_helpers")  # it has assertions of its own

settings.register_profile("runoff", max_examples=100, deadline=None, derandomize=True)
settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True)
settings.load_profile("runoff")


@pytest.fixture(scope="session")
def trained_run(tmp_path_factory):
    """A run on the digits with 2 members per bucket, trained once per session."""
    from helpers import SMALL, run

    out = tmp_path_factory.mktemp("runs") / "digits"
    result = run("train", "digits", *SMALL, "--d", 2, "--out", out, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["trained"] == 10
    return out


@pytest.fixture(scope="session")
def _two_seeds(tmp_path_factory):
    from helpers import SMALL, run

    out = tmp_path_factory.mktemp("runs") / "two-seeds"
    assert run("train", "digits", *SMALL, "--n-seeds", 2, "--out", out).exit_code == 0
    return out


@pytest.fixture
def two_seed_run(_two_seeds, tmp_path):
    """A run with two networks per member, and samples to add and to remove beside it."""
    from runoff import datasets

    shutil.copytree(_two_seeds, tmp_path / "run")
    data = datasets.load("digits")
    np.savez(tmp_path / "bad.npz", x=data.x_train[:1], y=data.y_train[:1])
    np.savez(tmp_path / "new.npz", x=data.x_test[:1], y=data.y_test[:1])
    return tmp_path / "run"
