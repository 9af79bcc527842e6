"""A build backend (PEP 517) for the root of the repository, which builds the package in python/."""

import os
from pathlib import Path

os.chdir(Path(__file__).parents[1])

from maturin import *  # noqa: E402, F403
