"""Every `curl` line of docs/http.md, run as it is printed; what it shows is what came, but for what varies."""

import asyncio
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from proof.service import ServiceRunner

from accoda import App
from accoda.http.options import ServiceOptions
from accoda.runtime.heartbeat import PREFIX, Heartbeat, encode

DOCS = Path(__file__).parents[2] / "docs" / "http.md"
ADDRESS = "ACCODA=http://127.0.0.1:8000"

# What differs from run to run: moments, lengths of time, the ids of jobs.
VARIES = (
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"), "MOMENT"),
    (re.compile(r'"(oldestAge|latency)":[0-9.e-]+'), r'"\1":N'),
    (re.compile(r'"id":\d+'), '"id":N'),
)


def commands() -> list[tuple[str, str]]:
    """The commands of the page in order, each with the answer that it shows."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"```console\n(.*?)```", DOCS.read_text(), re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, shown = part, ""
            lines = part.splitlines()
            last = next(number for number, line in enumerate(lines) if not line.endswith("\\"))
            command, shown = "\n".join(lines[: last + 1]), "\n".join(lines[last + 1 :])
            found.append((command, shown))
    return found


def masked(text: str) -> str:
    for pattern, stands_for in VARIES:
        text = pattern.sub(stands_for, text)
    return text.strip()


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_every_example_of_the_page_works_as_printed(tmp_path: Path) -> None:
    (address, nothing), *examples = commands()
    assert (address, nothing) == (ADDRESS, "")
    assert len(examples) > 20
    app = App(f"sqlite:///{tmp_path}/jobs.db")
    asyncio.run(beat(app))
    with ServiceRunner(app, ServiceOptions(system_jobs=False)) as service:
        for command, shown in examples:
            done = subprocess.run(
                ["bash", "-c", command],
                env={"ACCODA": service.url, "PATH": "/usr/local/bin:/usr/bin:/bin"},
                capture_output=True,
                text=True,
                timeout=30,
                cwd=tmp_path,
            )
            assert masked(done.stdout) == masked(shown), f"{command}\n{done.stderr}"


async def beat(app: App) -> None:
    """A worker that handles the queues of the page."""
    worker = Heartbeat("w1", "default", "host-1", 7, 0, 0, ("emails", "orders", "reports"), 1)
    async with app:
        await app.storage.write(PREFIX + worker.id, encode(worker), ttl=600)


def test_the_page_names_every_kind_of_operation() -> None:
    from accoda.http.table import operations

    text = DOCS.read_text()
    for operation in operations():
        if operation.group not in ("Work", "Service"):
            first = "/".join(operation.path.split("/")[:4])
            assert first in text, operation.path
