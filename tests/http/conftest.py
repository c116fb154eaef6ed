"""Lets the tests of this folder share `raw_http`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
