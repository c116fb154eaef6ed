"""Real worker processes under fire: killed, stopped, blocked, asked to leave."""

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest_asyncio

from accoda import QueueStats, Store, open_storage
from accoda.model import NewJob
from accoda.payload import encode

HERE = Path(__file__).parent
PATH = os.pathsep.join((str(HERE), *sys.path))


class Line(NamedTuple):
    what: str
    id: int
    attempts: int
    pid: int
    at: float


class Workers:
    """A store, worker processes on it, and the file in which every run is noted."""

    def __init__(self, folder: Path, url: str, store: Store) -> None:
        self.folder = folder
        self.url = url
        self.store = store
        self.log = folder / "runs.log"
        self.workers: list[subprocess.Popen[bytes]] = []

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "accoda", "worker", "fire_jobs:app", "--no-manager", *words]
        environment = {**os.environ, "ACCODA_URL": self.url, "FIRE_LOG": str(self.log), "PYTHONPATH": PATH}
        with (self.folder / "worker.err").open("ab") as errors:
            worker = subprocess.Popen(command, cwd=self.folder, env=environment, stderr=errors)
        self.workers.append(worker)
        return worker

    async def enqueue(self, queue: str, payloads: list[float]) -> list[int]:
        made = await self.store.enqueue([NewJob(queue, encode(payload)) for payload in payloads])
        return [one.id for one in made]

    async def stats(self, queue: str) -> QueueStats:
        return (await self.store.stats()).queues[queue]

    def lines(self, what: str = "") -> list[Line]:
        if not self.log.exists():
            return []
        found = [line.split() for line in self.log.read_text().splitlines()]
        made = [Line(w, int(i), int(a), int(p), float(t)) for w, i, a, p, t in found]
        return [line for line in made if not what or line.what == what]

    async def until(self, true: Callable[[], object], seconds: float = 60) -> None:
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.02)

    async def until_done(self, queue: str, count: int, seconds: float = 90) -> QueueStats:
        async with asyncio.timeout(seconds):
            while (stats := await self.stats(queue)).done < count:
                await asyncio.sleep(0.05)
        return stats

    def freeze(self, worker: subprocess.Popen[bytes]) -> None:
        """SIGSTOP, but not in the middle of a commit: that would lock the file for all processes."""
        while True:
            worker.send_signal(signal.SIGSTOP)
            probe = apsw.Connection(str(self.folder / "jobs.db"))
            try:
                probe.execute("BEGIN IMMEDIATE; ROLLBACK")
                return
            except apsw.BusyError:
                worker.send_signal(signal.SIGCONT)
                time.sleep(0.01)
            finally:
                probe.close()

    def errors(self) -> str:
        return (self.folder / "worker.err").read_text()

    def end(self) -> None:
        for worker in self.workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGCONT)
                worker.kill()
            worker.wait()


@pytest_asyncio.fixture
async def workers(tmp_path: Path) -> AsyncIterator[Workers]:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with await open_storage(url) as store:
        made = Workers(tmp_path, url, store)
        try:
            yield made
        finally:
            made.end()


async def test_twenty_kills_lose_nothing(workers: Workers) -> None:
    """10,000 jobs, two worker processes, leases of two seconds, one of the two killed by SIGKILL twenty times."""
    ids = await workers.enqueue("short", [0.0] * 10_000)
    chance = random.Random(7)
    pair = [workers.start("-q", "short", "-c", "40") for _ in range(2)]
    for kill in range(20):
        before = len(workers.lines("end"))
        await workers.until(lambda before=before: len(workers.lines("end")) > before + 20)
        victim = kill % 2
        pair[victim].kill()
        pair[victim].wait()
        pair[victim] = workers.start("-q", "short", "-c", "40")
        await asyncio.sleep(chance.uniform(0, 0.2))
    assert (await workers.stats("short")).done < 10_000, "too fast: the kills came when all was done"
    stats = await workers.until_done("short", 10_000, 180)  # what was killed runs alone, and some of it after pauses
    assert (stats.done, stats.total, stats.dead) == (10_000, 0, 0)

    runs = defaultdict(list)
    for line in workers.lines("start"):
        runs[line.id].append(line.attempts)
    assert sorted(runs) == sorted(ids)  # every job ran, and nothing else did
    twice = {id: attempts for id, attempts in runs.items() if len(attempts) > 1}
    for id, attempts in twice.items():
        assert attempts == sorted(set(attempts)), f"job {id} ran with attempts {attempts}"
    assert twice  # twenty kills in the middle of batches: some were under way
    sys.stdout.write(f"{len(twice)} of {len(runs)} jobs ran more than once; {stats.expired} leases ended\n")


async def test_a_blocked_event_loop_keeps_its_jobs(workers: Workers) -> None:
    """The handler blocks the loop for more than two leases, with another worker eager to take the jobs over."""
    ids = await workers.enqueue("block", [3.5, 0.0])
    workers.start("-q", "block")
    await workers.until(lambda: workers.lines("start"))
    workers.start("-q", "block")
    stats = await workers.until_done("block", 2)
    assert [(line.id, line.attempts) for line in workers.lines("start")] == [(id, 0) for id in ids]
    assert (stats.expired, stats.retried) == (0, 0)


async def test_a_stopped_process_loses_its_jobs_and_its_late_outcome_is_refused(workers: Workers) -> None:
    """SIGSTOP for longer than its lease: another runs the job, and what the first one says later does not count."""
    await workers.enqueue("nap", [2.0])
    first = workers.start("-q", "nap", "--metrics-port", "0")
    await workers.until(lambda: workers.lines("start"))
    workers.freeze(first)
    assert workers.lines("end") == []
    workers.start("-q", "nap")
    stats = await workers.until_done("nap", 1)
    assert stats.expired == 1
    first.send_signal(signal.SIGCONT)
    await workers.until(lambda: "lost" in workers.errors())
    assert [line.attempts for line in workers.lines("start")] == [0, 1]
    port = workers.errors().split("metrics at http://127.0.0.1:")[1].split("/")[0]
    page = await asyncio.to_thread(lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode())
    assert 'queue_lost_leases_total{queue="nap",queue_num=""} 1.0' in page
    assert (await workers.stats("nap")).done == 1


async def test_sigterm_under_load_leaves_cleanly_and_a_new_worker_takes_over_without_a_gap(workers: Workers) -> None:
    await workers.enqueue("short", [0.0] * 800)
    old = workers.start("-q", "short", "-c", "2")
    await workers.until(lambda: len(workers.lines("end")) > 50)
    new = workers.start("-q", "short", "-c", "2")
    await workers.until(lambda: any(line.pid == new.pid for line in workers.lines("start")))
    old.send_signal(signal.SIGTERM)  # the new one works already: the old one may go
    assert await asyncio.to_thread(old.wait, 30) == 0
    stats = await workers.stats("short")
    assert (stats.retried, stats.expired) == (0, 0)
    assert stats.ready > 0, "too fast: all was done before the old worker left"
    ended_by_old = [line for line in workers.lines("end") if line.pid == old.pid]
    assert len(ended_by_old) == len([line for line in workers.lines("start") if line.pid == old.pid])
    stats = await workers.until_done("short", 800)
    assert (stats.done, stats.retried, stats.expired, stats.total) == (800, 0, 0, 0)
    assert len(workers.lines("start")) == 800  # nothing that was finished ran again
    new.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(new.wait, 30) == 0


async def test_a_second_sigterm_gives_the_jobs_back_at_once(workers: Workers) -> None:
    await workers.enqueue("endless", [1])
    worker = workers.start("-q", "endless")
    await workers.until(lambda: workers.lines("start"))
    worker.send_signal(signal.SIGTERM)
    await workers.until(lambda: "asked to stop" in workers.errors())
    await asyncio.sleep(0.2)  # two signals at the same moment would be one request
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, 30) == 1
    stats = await workers.stats("endless")
    assert (stats.ready, stats.taken) == (1, 0)  # of a lease of a minute


async def test_two_signals_at_the_same_moment_are_one_wish(workers: Workers) -> None:
    """`timeout`, for one, signals the process and its group. The second must neither force nor block the first."""
    await workers.enqueue("short", [0.0] * 50)
    for _ in range(5):
        worker = workers.start("-q", "short")
        before = len(workers.lines("start"))
        await workers.enqueue("short", [0.0] * 20)
        await workers.until(lambda before=before: len(workers.lines("start")) > before)
        for _ in range(3):
            worker.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(worker.wait, 30) == 0


async def test_when_the_grace_is_over_even_a_blocked_loop_gives_its_jobs_back(workers: Workers) -> None:
    await workers.enqueue("block", [600.0])
    worker = workers.start("-q", "block", "--grace", "0.2")
    await workers.until(lambda: workers.lines("start"))
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, 30) == 1
    stats = await workers.stats("block")
    assert (stats.ready, stats.taken, stats.expired) == (1, 0, 0)


async def test_a_job_that_kills_its_worker_is_buried_and_takes_no_other_with_it(workers: Workers) -> None:
    ids = await workers.enqueue("poison", [1, 2, 0, 3, 4])
    supervisor = workers.start("-q", "poison", "--processes", "2")
    stats = await workers.until_done("poison", 4)
    async with asyncio.timeout(60):
        while not (stats := await workers.stats("poison")).dead:
            await asyncio.sleep(0.05)
    assert (stats.done, stats.dead) == (4, 1)
    [dead] = await workers.store.browse("poison", "dead")
    assert dead.id == ids[2]
    assert "poison: its lease ended 2 times" in (dead.reason or "")
    supervisor.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(supervisor.wait, 30) == 0


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z" if Path("/proc").exists() else True


async def test_children_leave_when_their_supervisor_is_killed(workers: Workers) -> None:
    await workers.enqueue("short", [0.0] * 500)
    supervisor = workers.start("-q", "short", "--processes", "2")
    await workers.until(lambda: len({line.pid for line in workers.lines()}) == 2)
    pids = {line.pid for line in workers.lines()}
    supervisor.kill()
    await workers.until(lambda: not any(alive(pid) for pid in pids), 30)
    stats = await workers.stats("short")
    assert stats.taken == 0  # they finished what they had


async def test_processes_share_one_metrics_page(workers: Workers) -> None:
    await workers.enqueue("counted", [1, 2, 3, -1])
    supervisor = workers.start("-q", "counted", "--processes", "2", "--metrics-port", "0")
    await workers.until_done("counted", 3)
    port = workers.errors().split("metrics at http://127.0.0.1:")[1].split("/")[0]

    def read(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return str(answer.read().decode())

    page = ""
    deadline = time.monotonic() + 20
    while 'outcome="done",queue="counted",queue_num="7"} 3.0' not in page and time.monotonic() < deadline:
        page = await asyncio.to_thread(read, "/metrics")
        await asyncio.sleep(0.1)
    await workers.until(lambda: len(set(re.findall(r"worker \S+ serves", workers.errors()))) == 2)
    page = await asyncio.to_thread(read, "/metrics")
    assert "queue_running_workers 2.0" in page
    assert 'queue_job_processor_cycle_duration_seconds_count{queue="counted",queue_num="7"}' in page
    assert await asyncio.to_thread(read, "/health/ready") == "ready\n"
    supervisor.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(supervisor.wait, 30) == 0


async def test_code_that_changes_is_loaded_anew(workers: Workers) -> None:
    module = workers.folder / "changing.py"
    code = "from accoda import App\napp = App()\n\n"
    code += "@app.handler('v')\ndef v(n: int) -> None: open('seen', 'a').write('{}')\n"
    module.write_text(code.format("one "))
    seen = workers.folder / "seen"
    command = [sys.executable, "-m", "accoda", "worker", "changing:app", "--watch"]
    environment = {**os.environ, "ACCODA_URL": workers.url, "PYTHONDONTWRITEBYTECODE": "1"}
    with (workers.folder / "worker.err").open("ab") as errors:
        worker = subprocess.Popen(command, cwd=workers.folder, env=environment, stderr=errors)
    workers.workers.append(worker)
    await workers.enqueue("v", [1])
    await workers.until(lambda: seen.exists() and seen.read_text() == "one ")
    module.write_text(code.format("two "))
    await workers.until(lambda: "code has changed" in workers.errors())
    async with asyncio.timeout(60):
        while not seen.read_text().endswith("two "):  # what comes before the restart is still run by the old code
            await workers.enqueue("v", [2])
            await asyncio.sleep(0.2)
    worker.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(worker.wait, 30) == 0


def test_what_is_wrong_with_the_app_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text("from accoda import App\nbackground = App()\n")
    (tmp_path / "bad.py").write_text("import no_such_module\n")
    (tmp_path / "worse.py").write_text("1 / 0\n")

    def told(*words: str) -> str:
        command = [sys.executable, "-m", "accoda", "worker", *words]
        environ = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=60)
        assert done.returncode in (1, 2)
        assert "Traceback" not in done.stderr
        return done.stderr

    assert "there is no module god here" in told("god:app")
    assert "there is no app in good. Apps in it: good:background" in told("good:app")
    assert "write module:app, such as shop.jobs:app, not 'good.py'" in told("good.py")
    assert "cannot import bad: it needs no_such_module, which is missing" in told("bad:app")
    assert "cannot import worse: ZeroDivisionError" in told("worse:app")
    assert "the app has no handlers" in told("good:background")
