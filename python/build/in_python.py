"""Builds the package of python/ for a caller that asks at the repository's root (PEP 517)."""

import os
from pathlib import Path

os.chdir(Path(__file__).parents[1])

from maturin import *  # noqa: E402, F403
