"""Trying to break runoff, as a command: see `python -m tests.torture --help`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # as tests/conftest.py does
