"""The page about contracts: its files are made, its commands run, and they print what it says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from accoda.cli.contract import contract, generate
from accoda.contract.loader import MOST_BYTES, MOST_DEFAULT, MOST_FIELDS, MOST_ID, MOST_NAME, MOST_QUEUES, MOST_TEXT
from accoda.contract.model import FIELD_TYPES
from accoda.contract.problems import Problems
from accoda.contract.schema import schema
from accoda.settings.yaml_tree import MOST_DEPTH, MOST_NODES

PAGE = (Path(__file__).parents[2] / "docs" / "contracts.md").read_text()
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
NAMED = re.compile(r"# (\S+\.(?:yaml|py))\n")


def test_the_commands_print_what_the_page_says(tmp_path: Path) -> None:
    ran = 0
    for kind, text in BLOCK.findall(PAGE):
        if named := NAMED.match(text):
            file = tmp_path / named[1]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        if kind == "console":
            assert run_all(text, tmp_path) == text
            ran += 1
    assert ran == 6


def run_all(text: str, folder: Path) -> str:
    commands = [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]
    return "".join(f"$ {command}\n{run(command, folder)}" for command in commands)


def run(command: str, folder: Path) -> str:
    program, *words = shlex.split(command)
    start = [sys.executable, "-m", "accoda"] if program == "accoda" else [sys.executable]
    path = os.pathsep.join((str(folder), os.environ.get("PYTHONPATH", "")))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONUTF8": "1"}
    done = subprocess.run(
        [*start, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    return done.stdout


def test_every_key_type_and_limit_is_in_the_page() -> None:
    queue = schema()["properties"]["queues"]["items"]
    field = queue["properties"]["fields"]["items"]
    for name in (*schema()["properties"], *queue["properties"], *field["properties"]):
        assert f"\n| `{name}` |" in PAGE, name
    for word, kind in FIELD_TYPES.items():
        [row] = [line for line in PAGE.splitlines() if re.match(rf"\| (`\S+`, )?`{re.escape(word)}`[, ]", line)]
        assert f"| `{kind.python.replace('Int64', 'int')}` |" in row
    told = {f"{MOST_BYTES >> 20} MiB", f"{MOST_NODES:,} values", f"nested {MOST_DEPTH} deep", f"1 to {MOST_ID}"}
    told |= {f"| {MOST_QUEUES:,} |", f"| {MOST_FIELDS} |", f"{MOST_TEXT:,} characters", f"{MOST_DEFAULT} characters"}
    told |= {f"at most {MOST_NAME} letters", f"| {Problems.MOST} |"}
    assert [words for words in told if words not in PAGE] == []


@pytest.mark.parametrize("command", [generate, *contract.commands.values()], ids=lambda command: str(command.name))
def test_every_option_is_in_the_page(command: object) -> None:
    for parameter in command.params:  # type: ignore[attr-defined]
        if parameter.param_type_name == "option":
            assert all(name in PAGE for name in parameter.opts), parameter.name
