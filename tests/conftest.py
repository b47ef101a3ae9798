import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("dataset_helpers")  # it has assertions of its own

settings.register_profile("runoff", max_examples=150, deadline=None, derandomize=True)
settings.register_profile("fast", max_examples=25, deadline=None, derandomize=True)
settings.load_profile("runoff")
