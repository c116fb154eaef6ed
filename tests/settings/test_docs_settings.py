"""What docs/settings.md shows is what happens."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from accoda.settings import KNOBS, Settings
from accoda.settings.paths import SettingPath, parse_path

ROOT = Path(__file__).parent.parent.parent
PATH = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
PAGE = (ROOT / "docs" / "settings.md").read_text()
BLOCKS = dict(re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL))


@pytest.mark.parametrize("kind", ["toml", "yaml", "conf", "sh"])
def test_every_example_says_the_same(tmp_path: Path, kind: str) -> None:
    environ = {}
    if kind == "sh":
        environ = dict(line.split("=") for line in BLOCKS["sh"].split())
    else:
        (tmp_path / f"settings.{kind}").write_text(BLOCKS[kind])
        environ["ACCODA_SETTINGS"] = f"{tmp_path}/settings.{kind}"
    settings = Settings.load(service="shop", environ=environ)
    assert settings.problems == ()
    assert settings.worker("max_processors").value == 4
    assert settings.queue("emails", "visibility_timeout").value == 30
    assert settings.queue("emails", "batch_size").value == 20
    assert settings.queue("sms", "batch_size").value == 10


def test_the_example_in_python_prints_what_the_files_say(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(BLOCKS["toml"])
    run = subprocess.run(
        [sys.executable, "-c", BLOCKS["python"]], cwd=tmp_path, env=PATH, capture_output=True, text=True, timeout=60
    )
    assert (run.stdout, run.stderr) == ("Value(value=4, source='settings.toml:2')\n20\ncommand line\n", "")


def test_the_table_on_the_page_looks_as_the_command_prints_it(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text(BLOCKS["toml"])
    command = [sys.executable, "-c", "from accoda.cli import main; main()", "settings", "--settings", "settings.toml"]
    environment = {"COLUMNS": "80", **PATH}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    printed = {line.rstrip() for line in run.stdout.splitlines()}
    shown = PAGE.partition("$ accoda settings")[2].partition("```")[0].splitlines()[1:]
    assert len(shown) > 5
    assert {line for line in shown if line != "…"} <= printed


def test_the_page_lists_every_knob_with_its_default_and_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (worker|queue) \| (.+?) \| .+? \| (.+?) \|$", PAGE, re.MULTILINE)
    shown = [
        (
            knob.name,
            knob.of,
            "none" if knob.default is None else f"{knob.default:g} {knob.unit}".strip(),
            knob.help,
        )
        for knob in KNOBS
    ]
    assert rows == shown


def test_the_page_names_each_argument_of_a_handler_that_is_a_setting() -> None:
    for knob in KNOBS:
        if knob.option:
            assert re.search(rf"@app\.handler\([^)]*\b{knob.option}=", PAGE), knob.option


def test_every_path_of_the_table_is_a_place() -> None:
    paths = re.findall(r"^\| `(worker/queue/[^`]+)` \|", PAGE, re.MULTILINE)
    assert len(paths) == 8
    assert all(isinstance(parse_path(tuple(path.split("/"))), SettingPath) for path in paths)
