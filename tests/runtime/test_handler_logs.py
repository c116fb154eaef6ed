"""What handlers of each kind log, and how they fail, as `accoda worker` prints it in each format."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from accoda import open_storage
from accoda.envelope import JobMetadata, wrap
from accoda.model import NewJob
from accoda.payload import encode

PATH = os.pathsep.join((str(Path(__file__).parent), *sys.path))
SECRET = "tk-51HqLyjWDar"
SINGLE = ("loop", "thread", "child")
WHOLE = ("batch", "child-batch")
JOBS = {"good": (False, None), "retried": (True, None), "buried": (True, 1)}
"""Whether a job fails, and its own limit of attempts."""

Lines = list[dict[str, Any]]


def job(queue: str, kind: str) -> NewJob:
    fails, most = JOBS[kind]
    metadata = JobMetadata(type=f"{queue}.{kind}", max_attempts=most)
    return NewJob(queue, wrap(encode({"card": SECRET, "fails": fails}), metadata))


async def printed(folder: Path, app: str, jobs: list[NewJob], *words: str) -> str:
    """What a worker prints that runs these jobs."""
    url = f"sqlite:///{folder}/shop.db"
    async with await open_storage(url) as store:
        await store.enqueue(jobs)
    command = [sys.executable, "-m", "accoda", "worker", app, "--burst", "--no-manager", "--no-system-jobs", *words]
    environment = {**os.environ, "ACCODA_URL": url, "PYTHONPATH": PATH, "PYTHONUTF8": "1"}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)
    assert (run.returncode, run.stdout) == (0, ""), run.stderr
    return run.stderr


async def test_json_tells_the_job_in_every_line_of_every_kind_of_handler(tmp_path: Path) -> None:
    jobs = [job(queue, kind) for queue in SINGLE for kind in JOBS] + [job(queue, "good") for queue in WHOLE * 2]
    text = await printed(tmp_path, "logging_jobs:app", jobs, "--log-format", "json", "--log-jobs")
    assert SECRET not in text
    lines: Lines = [json.loads(line) for line in text.splitlines()]
    for queue in SINGLE:
        check_single(queue, [line for line in lines if line.get("queue") == queue])
    for queue in WHOLE:
        said = [line for line in lines if line.get("batch_jobs") == 2 and line["queue"] == queue]
        words = [(line["type"], re.sub(r"[\d.]+ s", "T", line["message"])) for line in said]
        assert words == [(f"{queue}.good", text) for text in ("started", "paying with •••", "done in T")]


def check_single(queue: str, lines: Lines) -> None:
    for kind in JOBS:
        mine = [line for line in lines if line.get("type") == f"{queue}.{kind}"]
        assert len({line["job_id"] for line in mine}) == 1 and {line["attempt"] for line in mine} == {1}
        words = [re.sub(r"[\d.]+ s", "T", line["message"]) for line in mine if line["logger"] == "accoda.jobs"]
        ended = "done in T" if kind == "good" else "raised after T"
        assert words[:2] == ["started", ended] and len(words) == (2 if kind == "good" else 3)
        paying = next(line for line in mine if line["logger"] == "shop.jobs" and "paying" in line["message"])
        assert (paying["level"], paying["message"]) == ("info", "paying with •••")
        assert (paying["order"], paying["queue_"]) == ({"card": "•••", "fails": kind != "good"}, "mine")
        if kind != "good":
            check_failure(kind, mine[-1])
    if queue == "loop":
        others = [line["message"].partition("UserWarning")[2] for line in lines if line["logger"] == "py.warnings"]
        assert others == [": old card"], "once for a line of code, as Python does it"
        assert sum(line["message"] == "in a thread" and "job_id" in line for line in lines) == 3


def check_failure(kind: str, line: dict[str, Any]) -> None:
    assert (line["level"], line["outcome"]) == (("error" if kind == "buried" else "warning"), kind)
    assert "ValueError: ••• is no card" in line["reason"]
    files = re.findall(r'File ".*?(\w+\.py)"', line["traceback"])
    assert files and set(files) == {"logging_jobs.py"}, "no frame of Accoda"
    assert line["traceback"].endswith("ValueError: ••• is no card")


async def test_text_tells_the_same(tmp_path: Path) -> None:
    jobs = [job(queue, "buried") for queue in SINGLE] + [job(queue, "good") for queue in WHOLE * 2]
    text = await printed(tmp_path, "logging_jobs:app", jobs)
    assert SECRET not in text and "started" not in text and "chatty" not in text
    lines = [re.sub(r"^\d\d:\d\d:\d\d (\w+) +(\S+) +", r"\1 \2 ", line) for line in text.splitlines()]
    for id, queue in enumerate(SINGLE, 1):
        head = f"{queue} {queue}.buried, job {id}, attempt 1: "
        assert f"INFO {head}paying with •••" in lines
        at = lines.index(f"ERROR {head}buried: failed: ValueError: ••• is no card")
        assert lines[at + 1] == "    | Traceback (most recent call last):"
        assert "    | ValueError: ••• is no card" in lines[at:]
    for queue in WHOLE:
        assert f"INFO {queue} {queue}.good, batch of 2 jobs: paying with •••" in lines


@pytest.mark.parametrize(
    "words", [(), ("--log-format", "json", "--processes", "2")], ids=["by the app", "by the command line"]
)
async def test_an_app_that_configured_logging_itself_is_left_alone(tmp_path: Path, words: tuple[str, ...]) -> None:
    jobs = [NewJob("configured", encode(7))]
    text = await printed(tmp_path, "configured_jobs:app", jobs, "--log-jobs", *words)
    mine = [line for line in text.splitlines() if line.startswith("mine: ")]
    ours: Lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert len(mine) + len(ours) == len(text.splitlines())
    assert {"mine: started (1, 1)", "mine: number 7 (1, 1)"} < set(mine)
    assert any(line.startswith("mine: worker ") for line in mine), "the lines of Accoda too"
    # A format that was chosen on the command line is written besides, also by the processes of `--processes`.
    seen = [(line["message"], line.get("job_id")) for line in ours if line["logger"] == "shop"]
    assert seen == ([("number 7", 1)] if words else [])


PAGE = (Path(__file__).parents[2] / "docs" / "logs.md").read_text()


def alike(transcript: str) -> set[str]:
    """The lines of a transcript without times, names and folders; not those of batches, which depend on the moment."""
    text = re.sub(r"/\S*/shop\.py", "shop.py", re.sub(r"\S+-\d+-[0-9a-f]{6}\b", "WORKER", transcript))
    lines = [re.sub(r"^\d\d:\d\d:\d\d |\"ts\":\"\S+?\"", "", line) for line in text.splitlines()]
    return {line for line in lines if not re.search(r"jobs? in [\d.]+ s", line)}


@pytest.mark.parametrize("words", ["", " --log-format json"], ids=["text", "json"])
async def test_the_transcripts_of_the_page_are_what_a_worker_prints(tmp_path: Path, words: str) -> None:
    (tmp_path / "shop.py").write_text(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[0])
    (shown,) = re.findall(rf"```console\n\$ accoda worker shop:app --burst{words}\n(.*?)```", PAGE, re.DOTALL)
    jobs = [NewJob("emails", encode(to)) for to in ("anna@example.com", "bruno")]
    printed_now = await printed(tmp_path, "shop:app", jobs, *words.split())
    assert alike(printed_now) == alike(shown)
