"""Virtual environments of the peers: each made once, from PyPI, beside this file."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from benchmarks.peers.catalogue import DISTRIBUTIONS, ENVIRONMENTS

FOLDER = Path(__file__).parent / ".venvs"
PATIENCE = 300.0


class NotInstalled(Exception):
    """The environment of a peer could not be made; says why."""


def python_of(adapter: str) -> str:
    """The interpreter that runs an adapter; its environment is made first if it is not there."""
    needs = ENVIRONMENTS[adapter]
    if not needs:
        return sys.executable
    folder = FOLDER / adapter
    ready = folder / "ready.json"  # written last: an environment that was left half made is made again
    if not ready.exists() or json.loads(ready.read_text()) != list(needs):
        _make(folder, needs)
        ready.write_text(json.dumps(needs))
    return str(folder / "bin" / "python")


def is_made(adapter: str) -> bool:
    return not ENVIRONMENTS[adapter] or (FOLDER / adapter / "ready.json").exists()


def versions(adapter: str) -> dict[str, str]:
    """The versions of the peer's distributions in its environment."""
    names = DISTRIBUTIONS.get(adapter, (adapter,))
    script = "import json, sys; from importlib.metadata import version as v; "
    script += "print(json.dumps({name: v(name) for name in sys.argv[1:]}))"
    done = subprocess.run(
        [python_of(adapter), "-c", script, *names], check=True, capture_output=True, text=True, timeout=PATIENCE
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _make(folder: Path, needs: tuple[str, ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needs]
    # An adapter must not find the packages of whoever runs the benchmark.
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=clean)
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"pip install {' '.join(needs)} did not end in {PATIENCE:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        raise NotInstalled(f"pip install {' '.join(needs)}: {lines[-1] if lines else 'failed without a word'}")
