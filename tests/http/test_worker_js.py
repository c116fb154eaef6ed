"""The worker of examples/worker-js in a real node, against a real service: killed, and the service killed under it."""

import asyncio
import os
import shutil
import signal
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from accoda import App, QueueStats

HERE = Path(__file__).parent
EXAMPLE = HERE.parent.parent / "examples" / "worker-js"
JOBS = 1000


@pytest.fixture(scope="module")
def node() -> str:
    found = shutil.which("node")
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail("node is missing: the JavaScript worker cannot be tested")
        pytest.skip("node is missing: the JavaScript worker is not tested")
    return found


class Stage:
    """A SQLite file, a service on a fixed port, and JavaScript workers that write down what they run."""

    def __init__(self, node: str, folder: Path) -> None:
        self.url = f"sqlite:///{folder}/jobs.db"
        self.app = App(self.url)
        self.journal = folder / "journal"
        self.journal.touch()
        self.log = folder / "worker.log"
        self.port = _free_port()
        self._node = node
        self._worker: asyncio.subprocess.Process | None = None

    @asynccontextmanager
    async def service(self) -> AsyncIterator[asyncio.subprocess.Process]:
        command = (sys.executable, HERE / "work_service.py", self.url, str(self.port))
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        try:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
            yield process
        finally:
            await _end(process)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[asyncio.subprocess.Process]:
        address = f"http://127.0.0.1:{self.port}"
        command = (self._node, HERE / "work_counts.mjs", EXAMPLE / "client.mjs", address, "counted", self.journal)
        with self.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
        self._worker = process
        try:
            yield process
        finally:
            await _end(process)

    async def fill(self, payloads: list[Any]) -> list[int]:
        return [one.id for one in await self.app.enqueue_many("counted", payloads)]

    def runs(self) -> Counter[int]:
        """How many times each job has run."""
        lines = self.journal.read_text().splitlines()
        return Counter(int(line.split()[0]) for line in lines if line.count(" ") == 1)

    def begun(self) -> int:
        """How many runs have begun."""
        begun = self.journal.with_name(self.journal.name + ".begun")
        return len(begun.read_text().splitlines()) if begun.exists() else 0

    async def counts(self) -> QueueStats:
        return (await self.app.storage.stats()).queues["counted"]

    async def until(self, reached: Callable[[QueueStats], bool]) -> QueueStats:
        async with asyncio.timeout(60):
            while not reached(counts := await self.counts()):
                assert self._worker is None or self._worker.returncode is None, self.log.read_text()
                await asyncio.sleep(0.02)
        return counts


@pytest_asyncio.fixture
async def stage(node: str, tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(node, tmp_path)
    yield stage
    await stage.app.close()


async def test_a_worker_that_is_killed_three_times_finishes_every_job(stage: Stage) -> None:
    ids = await stage.fill([{}] * JOBS)
    async with stage.service():
        for killed_at in (200, 450, 700):
            async with stage.worker() as worker:
                await stage.until(lambda counts, at=killed_at: counts.done >= at)  # type: ignore[misc]
                worker.kill()
        async with stage.worker() as worker:
            counts = await stage.until(lambda counts: counts.total == 0)
            worker.terminate()
            assert await worker.wait() == 0
    runs = stage.runs()
    assert set(runs) == set(ids)
    # Each was settled once: a run whose lease had ended counts for nothing.
    assert (counts.done, counts.buried, counts.taken) == (JOBS, 0, 0)
    # What was in hand at a kill ran again; no more than that.
    assert 0 < counts.expired <= 60
    assert runs.total() - JOBS <= counts.expired


async def test_a_service_that_is_killed_under_the_worker_loses_nothing(stage: Stage) -> None:
    ids = await stage.fill([{}] * JOBS)
    async with stage.worker() as worker:
        for killed_at in (250, 600):
            async with stage.service() as service:
                await stage.until(lambda counts, at=killed_at: counts.done >= at)  # type: ignore[misc]
                service.kill()
        async with stage.service():
            counts = await stage.until(lambda counts: counts.total == 0)
            worker.terminate()
            assert await worker.wait() == 0
    assert set(stage.runs()) == set(ids)
    assert (counts.done, counts.buried) == (JOBS, 0)


async def test_a_worker_that_is_told_to_stop_finishes_what_runs(stage: Stage) -> None:
    ids = await stage.fill([{"ms": 700}] * 5)
    async with stage.service(), stage.worker() as worker:
        # Not the store's count of taken jobs: a client that is told to stop before the answer has come hangs up on it.
        await stage.until(lambda counts: stage.begun() == 5)
        worker.terminate()
        assert await worker.wait() == 0
    counts = await stage.counts()
    assert (counts.done, counts.expired, counts.retried) == (5, 0, 0)
    assert stage.runs() == Counter(ids)


async def test_a_job_that_takes_longer_than_its_lease_is_kept_by_heartbeats(stage: Stage) -> None:
    await stage.fill([{"ms": 3500}])
    async with stage.service(), stage.worker():
        counts = await stage.until(lambda counts: counts.total == 0)
    assert (counts.done, counts.expired) == (1, 0)


async def test_what_a_handler_throws_or_returns_decides_about_its_own_job_alone(stage: Stage) -> None:
    kinds = ["bury", "retry", "throw", "huge", "big", "fine"]
    ids = await stage.fill([{"do": kind, "ms": 50} for kind in kinds])
    async with stage.service(), stage.worker():
        # Those that failed go back, after a pause of the default rule that is drawn anew each time.
        await stage.until(lambda counts: counts.done == 2 and counts.dead == 1 and counts.retried >= 4)
    jobs = {kind: await stage.app.find(id) for kind, id in zip(kinds, ids, strict=True)}
    assert jobs["fine"] is None and jobs["retry"] is None
    reasons = {kind: job.reason or "" for kind, job in jobs.items() if job is not None}
    assert reasons["bury"] == "no use"
    assert reasons["throw"].startswith("TypeError: broken\n    at handle")
    assert "outcomes[0].result" in reasons["huge"]
    assert "BigInt" in reasons["big"]


async def test_a_job_is_enqueued_even_if_the_service_comes_late_and_a_refusal_is_told_at_once(stage: Stage) -> None:
    script = f"""
        import {{ Accoda }} from "{EXAMPLE / "client.mjs"}";
        const accoda = new Accoda("http://127.0.0.1:{stage.port}/");
        console.log((await accoda.enqueue("counted", {{ to: "anna" }}, {{ priority: "HIGH", key: "anna" }})).what);
        await accoda.enqueue("counted", 1, {{ priority: "URGENT" }}).catch((error) => console.log(error.status));
    """
    command = (stage._node, "--input-type=module", "-e", script)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    async with stage.service():
        said, _ = await process.communicate()
    assert said.split() == [b"created", b"422"]
    job = await stage.app.find(1)
    assert job is not None and (job.queue, job.rank, job.key) == ("counted", 1.0, "anna")


async def test_the_example_runs_as_its_page_says(stage: Stage) -> None:
    await stage.app.enqueue("greetings", {"name": "Anna", "language": "it"}, keep_for=60)
    environment = os.environ | {"ACCODA_URL": f"http://127.0.0.1:{stage.port}"}
    async with stage.service():
        process = await asyncio.create_subprocess_exec(
            stage._node, EXAMPLE / "worker.mjs", stdout=asyncio.subprocess.PIPE, env=environment
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"Ciao Anna (job 1, run 1)\n"
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    job = await stage.app.find(1)
    assert job is not None and job.state == "done"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
        await process.wait()
