"""Environments of the peers, each made once, beside this file: from PyPI, or from npm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import accoda
from benchmarks.peers.catalogue import DISTRIBUTIONS, ENVIRONMENTS, PACKAGES

ADAPTERS = Path(__file__).parent / "adapters"
FOLDER = Path(__file__).parent / ".venvs"
PATIENCE = 300.0


class NotInstalled(Exception):
    """The environment of a peer could not be made; says why."""


def command_of(adapter: str, script: str = "drain") -> list[str]:
    """What runs an adapter's script, and the script."""
    if adapter in PACKAGES:
        folder = ADAPTERS / adapter
        return ["node", str(next(path for end in ("cjs", "mjs") if (path := folder / f"{script}.{end}").exists()))]
    return [python_of(adapter), str(ADAPTERS / f"{script}_{adapter}.py")]


def clean_environment(adapter: str = "") -> dict[str, str]:
    """What an adapter sees: not the modules of this folder, nor the environment that runs the benchmark.

    One without an environment of its own is Accoda's, and must see the Accoda that is measured.
    """
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    clean = {name: value for name, value in os.environ.items() if name not in hidden}
    if adapter and not _needs(adapter):
        clean["PYTHONPATH"] = str(Path(accoda.__file__).parents[1])
    if adapter in PACKAGES:
        clean |= {"NODE_PATH": str(FOLDER / adapter / "node_modules"), "BULLMQ_HOME": str(FOLDER / adapter)}
    return clean


def python_of(adapter: str) -> str:
    """The interpreter that runs an adapter; its environment is made first if it is not there."""
    if not ENVIRONMENTS.get(adapter):
        return sys.executable
    make(adapter)
    return str(FOLDER / adapter / "bin" / "python")


def make(adapter: str) -> None:
    """Make the environment, if it is not there as it should be."""
    needs = _needs(adapter)
    if not needs or is_made(adapter):
        return
    folder = FOLDER / adapter
    if adapter in PACKAGES:
        _make_node(folder, ADAPTERS / adapter, PACKAGES[adapter])
    else:
        _make_python(folder, needs)
    (folder / "ready.json").write_text(json.dumps(needs))  # last: an environment that was left half made is made again


def is_made(adapter: str) -> bool:
    needs, ready = _needs(adapter), FOLDER / adapter / "ready.json"
    return not needs or (ready.exists() and json.loads(ready.read_text()) == list(needs))


def versions(adapter: str) -> dict[str, str]:
    """The versions of the peer's distributions in its environment."""
    make(adapter)
    names = DISTRIBUTIONS.get(adapter, (adapter,))
    if adapter in PACKAGES:
        modules = FOLDER / adapter / "node_modules"
        return {name: json.loads((modules / name / "package.json").read_text())["version"] for name in names}
    script = "import json, sys; from importlib.metadata import version as v; "
    script += "print(json.dumps({name: v(name) for name in sys.argv[1:]}))"
    done = subprocess.run([python_of(adapter), "-c", script, *names], capture_output=True, text=True, timeout=PATIENCE)
    if done.returncode:
        raise NotInstalled(f"{', '.join(names)}: {done.stderr.strip().splitlines()[-1]}")
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _needs(adapter: str) -> tuple[str, ...]:
    """What is installed; for npm with the lock that names every version, so that a new lock makes it anew."""
    if adapter not in PACKAGES:
        return ENVIRONMENTS.get(adapter, ())
    lock = ADAPTERS / adapter / "package-lock.json"
    return (*PACKAGES[adapter], lock.read_text() if lock.exists() else "")


def _make_python(folder: Path, needs: tuple[str, ...]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    _install([str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *needs])


def _make_node(folder: Path, adapter: Path, needs: tuple[str, ...]) -> None:
    """By the lock that is kept beside the adapter; without one the newest, which leaves a lock in the folder."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        raise NotInstalled("node and npm are not installed")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lock = adapter / "package-lock.json"
    if lock.exists():
        shutil.copy(adapter / "package.json", folder)
        shutil.copy(lock, folder)
        _install(["npm", "ci", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder)])
    else:
        _install(["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), *needs])


def _install(command: list[str]) -> None:
    words = " ".join(Path(word).name if place == 0 else word for place, word in enumerate(command))
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=clean_environment())
    except subprocess.TimeoutExpired:
        raise NotInstalled(f"{words} did not end in {PATIENCE:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "err" in line[:8].lower()] or done.stderr.splitlines()
        raise NotInstalled(f"{words}: {lines[-1] if lines else 'failed without a word'}")
