"""The tests of examples/testing are run as a user runs them, and the page shows nothing else."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "examples" / "testing"
PAGE = ROOT / "docs" / "testing-your-jobs.md"
SKETCHES = ("def accoda_app():", "def _jobs(self, accoda_jobs):")
"""Blocks that are tested in test_plugin.py, in other words."""


def run(folder: Path, *command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_examples_pass() -> None:
    pytest.importorskip("fastapi", reason="it is in the extra dev")
    out = run(PROJECT, "-m", "pytest", "-p", "no:schemathesis", "-p", "no:cacheprovider", "-W", "error")
    tests = sum(path.read_text().count("def test_") for path in (PROJECT / "tests").glob("*.py"))
    assert f"{tests} passed" in out


def test_django_s_own_runner_runs_its_examples() -> None:
    pytest.importorskip("django", reason="it is in the extra django")
    assert "Ran 2 tests" in run(PROJECT / "django_project", "-W", "error", "manage.py", "test")


def test_every_block_of_the_page_is_in_an_example() -> None:
    code = "\n".join(path.read_text() for path in PROJECT.rglob("*.py"))
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    shown = [block for block in blocks if not any(sketch in block for sketch in SKETCHES)]
    assert len(shown) > 10
    for block in shown:
        assert block in code, block


def test_every_condition_is_in_the_page() -> None:
    from accoda.app_testing import Expected

    for name in (*Expected.__annotations__, "payload", "count"):
        assert f"`{name}`" in PAGE.read_text(), name


def test_the_examples_please_mypy_in_its_strict_mode() -> None:
    run(PROJECT, "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache" / "testing"), "shop", "tests")
    run(PROJECT / "django_project", "-m", "mypy", "--strict", "--cache-dir", str(ROOT / ".mypy_cache" / "testing"), ".")


def test_the_examples_please_pyright_in_its_strict_mode(tmp_path: Path) -> None:
    pytest.importorskip("basedpyright", reason="it is in the extra dev")
    include = [str(PROJECT / name) for name in ("shop", "tests")]
    paths = [str(ROOT / "src"), str(PROJECT)]
    settings = {"typeCheckingMode": "strict", "extraPaths": paths, "include": include}
    (tmp_path / "pyrightconfig.json").write_text(msgspec.json.encode(settings).decode())
    command = [sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    found: list[Any] = msgspec.json.decode(done.stdout)["generalDiagnostics"]
    assert [(each["file"], each["range"]["start"]["line"] + 1, each["message"]) for each in found] == []
