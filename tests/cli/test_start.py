"""The command starts within a second: what is not needed is not imported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import accoda

SLOW = {
    "apsw",
    "asyncio",
    "msgspec",
    "rich",
    "importlib.metadata",
    "hiredis",
    "asyncpg",
    "yaml",
    "starlette",
    "aiohttp",
}
OURS = {"accoda", "accoda.cli", "accoda.cli.codes", "accoda.cli.commands", "accoda.cli.groups", "accoda.errors"}

TELL = """
import atexit, json, os, sys
atexit.register(lambda: os.write(3, json.dumps(sorted(sys.modules)).encode()))
from accoda.cli import main
main()
"""


def imported(*words: str, folder: Path, **variables: str) -> set[str]:
    """What a process of its own has in memory when the command ends."""
    reader, writer = os.pipe()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ACCODA")}
    code = TELL.replace("os.write(3", f"os.write({writer}")
    with os.fdopen(reader, "rb") as told, (folder / "out").open("w") as out:
        subprocess.run(
            [sys.executable, "-c", code, *words],
            cwd=folder,
            env=environ | variables,
            pass_fds=[writer],
            stdout=out,
            stderr=subprocess.DEVNULL,
            timeout=60,
        )
        os.close(writer)
        return set(json.loads(told.read()))


def ours(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "accoda"}


@pytest.mark.parametrize("words", [["--help"], [], ["quues"]])
def test_help_imports_nothing_but_click(words: list[str], tmp_path: Path) -> None:
    modules = imported(*words, folder=tmp_path)
    assert "click" in modules
    assert modules & SLOW == set()
    assert ours(modules) <= OURS | {"accoda.cli.draw"}


def test_completion_of_a_command_imports_nothing_but_click(tmp_path: Path) -> None:
    asked = {"_ACCODA_COMPLETE": "bash_complete", "COMP_WORDS": "accoda que", "COMP_CWORD": "1"}
    modules = imported(folder=tmp_path, **asked)
    assert (tmp_path / "out").read_text() == "plain,queues\n"
    assert modules & SLOW == set()
    assert ours(modules) <= OURS


def test_the_help_of_a_command_imports_no_store(tmp_path: Path) -> None:
    for command in ("jobs", "queues", "dead", "enqueue"):
        modules = imported(command, "--help", folder=tmp_path)
        assert modules & SLOW == set(), command


def test_the_package_alone_imports_nothing_of_its_own() -> None:
    code = "import sys, accoda; print([name for name in sys.modules if name.startswith('accoda.')])"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert told.stdout == "[]\n"


def test_every_public_name_is_there_and_where_the_table_says() -> None:
    assert set(accoda._WHERE) == set(accoda.__all__)
    for name in accoda.__all__:
        assert getattr(accoda, name) is getattr(sys.modules[accoda._WHERE[name]], name)
    assert set(accoda.__all__) <= set(dir(accoda))


def test_type_checkers_see_the_same_names_in_the_same_places() -> None:
    import ast

    tree = ast.parse(Path(accoda.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {name.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for name in node.names}
    assert seen == accoda._WHERE


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'accoda' has no attribute 'Nothing'"):
        accoda.Nothing  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        from accoda import Nothing  # noqa: F401
