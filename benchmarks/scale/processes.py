"""The processes of this benchmark. Imports little, since each of them imports it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_module(module: str, *args: str, stdin: int | None = None) -> subprocess.Popen[str]:
    """A process of this benchmark: `python -m benchmarks.scale.NAME`, from wherever this one was started."""
    root = str(Path(__file__).parent.parent.parent)
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH", "")) if part)
    return subprocess.Popen(
        [sys.executable, "-m", f"benchmarks.scale.{module}", *args],
        stdin=stdin if stdin is not None else subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
