"""`accoda settings`, as a person types it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOML = """[worker.queue.default]
max_processors = 4
[worker.queue.emails]
visibility_timeout = "30s"
[worker.queue.default.queue.7]
batch_size = 20
"""
APP = """
from accoda.app import App

app = App("memory://")

@app.handler("sms", batch=7, timeout=9, number=7)
async def sms(text: str) -> None: ...

@app.handler("calls", batch=8)
async def calls(text: str) -> None: ...
"""


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOML)
    (tmp_path / "jobs.py").write_text(APP)


def accoda(*words: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from accoda.cli import main; main()", "settings", *words]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("ACCODA_")} | variables
    environ["COLUMNS"] = "80"
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60)


def test_the_table_shows_every_value_with_its_source_in_80_columns(tmp_path: Path) -> None:
    long = "ACCODA_WORKER_QUEUE_A_RATHER_LONG_NAME_OF_A_QUEUE_VISIBILITY_TIMEOUT"
    told = accoda("--settings", "s.toml", folder=tmp_path, **{long: "5m"})
    assert (told.returncode, told.stderr) == (0, "")
    lines = [line.rstrip() for line in told.stdout.splitlines()]
    assert lines[:2] == ["worker default of service accoda", "  max_processors               4  s.toml:2"]
    emails = lines.index("queue emails")
    assert lines[emails + 2 : emails + 4] == [
        "  visibility_timeout        30 s  s.toml:4",
        "  batch_size                  10  default",
    ]
    assert "every other queue" in lines and "queue a_rather_long_name_of_a_queue" in lines
    assert long in "".join(line.strip() for line in lines).replace("environment ", ""), "folded, not cut off"
    assert max(len(line) for line in lines) <= 80


def test_json_has_the_same_for_a_program_and_the_handlers_of_an_app(tmp_path: Path) -> None:
    told = accoda("jobs:app", "--json", "--service", "shop", folder=tmp_path, ACCODA_SETTINGS="s.toml")
    assert (told.returncode, told.stderr) == (0, "")
    answer = json.loads(told.stdout)
    assert (answer["service"], answer["worker"], answer["files"], answer["problems"]) == (
        "shop",
        "default",
        ["s.toml"],
        [],
    )
    rows = {(row["queue"], row["setting"]): (row["value"], row["unit"], row["source"]) for row in answer["settings"]}
    assert rows[None, "max_processors"] == (4, "", "s.toml:2")
    assert rows["sms", "timeout"] == (9.0, "s", "handler")
    assert rows["sms", "batch_size"] == (20, "", "s.toml:6"), "by its number"
    assert rows["calls", "batch_size"] == (8, "", "handler")
    assert {queue for queue, _ in rows} == {None, "sms", "calls", "emails", "*"}


def test_check_exits_with_1_and_tells_every_problem(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(TOML + "bach_size = 1\ntimeout = 0\n")
    words = ("--settings", "s.toml", "--settings", "gone.yaml", "--check")
    told = accoda(*words, folder=tmp_path, ACCODA_WORKER_QUEUE_EMAILS_BATCH_SIZE="x")
    assert told.returncode == 1
    nothing, *problems = told.stderr.split("Problem: ")
    assert nothing == "" and max(map(len, told.stderr.splitlines())) <= 80
    assert [problem.split()[0] for problem in problems] == ["environment", "s.toml:7:", "s.toml:8:", "gone.yaml:"]
    assert "did you mean 'batch_size'?" in " ".join(problems[1].split())
    assert accoda(*words[:-1], folder=tmp_path).returncode == 0
    assert accoda("--check", folder=tmp_path).returncode == 0


@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("jobs.py", 2, "write module:app"),
        ("nothing:app", 1, "Error: there is no module nothing here; run accoda in the folder"),
        ("jobs:other", 1, "Error: jobs:other: there is no other in jobs. Apps in it: jobs:app"),
        ("jobs:sms", 1, "Error: jobs:sms: sms is no App in jobs. Apps in it: jobs:app"),
    ],
)
def test_an_app_that_is_not_there_is_said(tmp_path: Path, target: str, code: int, said: str) -> None:
    told = accoda(target, folder=tmp_path)
    assert told.returncode == code
    assert said in told.stderr and "Traceback" not in told.stderr
