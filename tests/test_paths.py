"""How many files a reader has to open: to follow one `app.enqueue`, and one run of a busy processor, to each store.

Counted by tracing which files of the package execute, plus the scripts that run in the server for these verbs.
"""

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import FrameType

import pytest
import pytest_asyncio

from accoda import App, Worker, WorkerOptions

SOURCE = Path(__file__).parents[1] / "src" / "accoda"

ENQUEUE_AT_MOST = 10
RUN_AT_MOST = 10


class Trace:
    """The files of the package that execute while it is on, in threads that were started since it was made, too."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.on = False

    def __call__(self, frame: FrameType, event: str, arg: object) -> None:
        # The lease heartbeat looks around once a second, whatever the processors do.
        if self.on and event == "call" and threading.current_thread().name != "accoda-leases":
            path = Path(frame.f_code.co_filename)
            if path.is_relative_to(SOURCE):
                self.files.add(str(path.relative_to(SOURCE)))

    def start(self) -> None:
        self.files.clear()
        self.on = True

    def stop(self) -> None:
        self.on = False


@pytest.fixture
def trace() -> Iterator[Trace]:
    trace = Trace()
    before = sys.getprofile()
    threading.setprofile(trace)
    sys.setprofile(trace)
    yield trace
    sys.setprofile(before)
    threading.setprofile(None)  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def app(url: str, trace: Trace) -> AsyncIterator[App]:
    async with App(url) as app:
        yield app


def scripts(url: str, *verbs: str) -> list[str]:
    """The scripts of these verbs, and what a server keeps them in otherwise: a file each."""
    folder = SOURCE / "storage" / url.partition(":")[0].replace("postgresql", "postgres")
    found = [path for path in folder.rglob("*") if path.suffix in (".lua", ".sql")]
    by_verb = [path for path in found if path.stem in verbs]
    return sorted(str(path.relative_to(SOURCE)) for path in by_verb or [p for p in found if p.stem == "queries"])


def check(files: list[str], at_most: int) -> None:
    assert len(files) <= at_most, f"{len(files)} files, at most {at_most}:\n" + "\n".join(files)


async def test_the_way_of_an_enqueue_is_short(app: App, trace: Trace, url: str) -> None:
    await asyncio.gather(*(app.enqueue(f"emails{n}", n) for n in range(8)))  # all connections are made, and then idle
    for n in range(3):
        await app.enqueue("emails", n)
    await asyncio.sleep(0.1)  # what goes on beside a call, as PostgreSQL's notification, has its connection too
    trace.start()
    await app.enqueue("emails", {"to": "anna@example.com", "n": 1})
    trace.stop()
    assert "app.py" in trace.files
    check(sorted(trace.files) + scripts(url, "enqueue"), ENQUEUE_AT_MOST)


async def test_the_way_of_a_run_is_short(app: App, trace: Trace, url: str) -> None:
    @app.handler("numbers", batch=5)
    async def handle(n: int) -> None:
        if n == 42:
            trace.start()
        elif n == 67:
            trace.stop()

    await app.enqueue_many("numbers", range(100))
    # A burst does none of what a worker does as soon as it runs, beside its jobs.
    worker = Worker(app, WorkerOptions(managed=False, system_jobs=False, burst=True))
    async with asyncio.timeout(30):
        await worker.run()
    assert "runtime/processor.py" in trace.files
    check(sorted(trace.files) + scripts(url, "take", "settle"), RUN_AT_MOST)
