"""The suite itself: it is complete, its example works, and its model stands alone."""

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accoda.testing import conformance, reference
from accoda.testing.conformance.base import Suite

DOCS = Path(__file__).parents[2] / "docs" / "testing.md"
MODULES = [module.name for module in pkgutil.iter_modules(conformance.__path__)]


@pytest.mark.parametrize("module", MODULES)
def test_every_test_class_is_exported(module: str) -> None:
    loaded = importlib.import_module(f"{conformance.__name__}.{module}")
    classes = {
        name for name, value in vars(loaded).items() if isinstance(value, type) and value.__module__ == loaded.__name__
    }
    assert classes - {"Suite"} <= set(conformance.__all__)


def test_every_exported_class_has_tests_with_a_time_limit() -> None:
    for name in set(conformance.__all__) - {"store"}:
        suite = getattr(conformance, name)
        assert issubclass(suite, Suite)
        tests = [value for key, value in vars(suite).items() if key.startswith("test_")]
        assert tests
        assert all(hasattr(test, "__wrapped__") for test in tests)


def test_each_of_the_twelve_promises_has_its_class() -> None:
    numbers = [int(name[11:13]) for name in conformance.__all__ if name.startswith("TestPromise")]
    assert sorted(numbers) == list(range(1, 13))


def test_the_docs_name_every_module() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [module for module in MODULES if module != "base" and f"`{module}`" not in text] == []


def test_the_model_knows_no_storage() -> None:
    tree = ast.parse(Path(reference.__file__).read_text(encoding="utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any((module or "").startswith("accoda.storage") for module in imported)


def test_the_kit_needs_nothing_that_is_not_installed_with_it() -> None:
    """`proof`, `tests` and `benchmarks` are in the repository only."""
    for file in Path(reference.__file__).parent.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        names |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert not {name.split(".")[0] for name in names} & {"proof", "tests", "benchmarks"}, file


def test_the_example_of_the_docs_works(tmp_path: Path) -> None:
    match = re.search(r"```python\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    assert match is not None
    (tmp_path / "test_mine.py").write_text(match[1], encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-k", "TestTake or TestWait or TestMachine", "test_mine.py"]
    environment = {**os.environ, "ACCODA_EXAMPLES": "5"}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert result.returncode == pytest.ExitCode.OK, result.stdout + result.stderr
    assert re.search(r"\d\d passed", result.stdout)
