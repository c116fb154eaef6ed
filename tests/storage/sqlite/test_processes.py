"""Several processes on one SQLite file: nothing lost, nothing leased twice, through kills."""

import asyncio
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

from accoda import NewJob, StorageClosed, open_storage

JOBS = 20_000
WORKER = Path(__file__).with_name("worker.py")


def start_worker(url: str, log: Path, lease: float, work: float) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(WORKER), url, str(log), str(lease), str(work)])


async def fill(url: str) -> None:
    async with await open_storage(url) as store:
        for _ in range(0, JOBS, 1000):
            await store.enqueue([NewJob("q", b"x", rank=float(random.randrange(4))) for _ in range(1000)])


async def check(url: str, logs: list[Path]) -> Counter[str]:
    """Every job was done once, and no lease was handed out twice. Returns how often each word was logged."""
    lines = [line for log in logs for line in log.read_text().splitlines()]
    words = Counter(line.split()[0] for line in lines)
    repeated = [line for line, count in Counter(lines).items() if count > 1]
    assert not repeated, "a lease (id, attempts) is one taker's alone, and is settled once"
    done = Counter(line.split()[1] for line in lines if line.startswith("done"))
    assert not [id for id, count in done.items() if count > 1], "a job that is done is never done again"
    async with await open_storage(url) as store:
        stats = (await store.stats()).queues["q"]
    assert (stats.total, stats.done) == (0, JOBS)
    return words


async def test_two_processes_settle_each_of_20_000_jobs_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    await fill(url)
    logs = [tmp_path / "a.log", tmp_path / "b.log"]
    async with await open_storage(url) as store:
        await store.pause("q", None)  # until both are there
        workers = [start_worker(url, log, lease=60, work=0) for log in logs]
        while not all(log.exists() for log in logs):
            await asyncio.sleep(0.01)
        await store.pause("q", 0)
    assert [await asyncio.to_thread(worker.wait, 120) for worker in workers] == [0, 0]
    words = await check(url, logs)
    assert words == {"took": JOBS, "done": JOBS}
    assert all(log.stat().st_size for log in logs), "both had a share"


async def test_a_process_killed_ten_times_loses_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    await fill(url)
    logs = [tmp_path / "steady.log", tmp_path / "victim.log"]
    steady = start_worker(url, logs[0], lease=1, work=0.02)
    for _ in range(10):
        victim = start_worker(url, logs[1], lease=1, work=0.02)
        await grown(logs[1], random.randrange(1, 4000), victim)
        assert victim.poll() is None, "the work ended before the kills did; give the test more jobs"
        victim.kill()
        victim.wait()
    assert await asyncio.to_thread(steady.wait, 120) == 0
    words = await check(url, logs)
    assert words["took"] >= JOBS


async def grown(log: Path, by: int, worker: subprocess.Popen[bytes]) -> None:
    """Wait until the worker has written that much, or has ended."""
    size = log.stat().st_size if log.exists() else 0
    while worker.poll() is None and (not log.exists() or log.stat().st_size < size + by):
        await asyncio.sleep(0.001)


async def test_a_waiting_process_is_woken_by_an_enqueue_of_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    waiter = (
        "import asyncio, sys\n"
        "from accoda import open_storage\n"
        "async def main():\n"
        "    async with await open_storage(sys.argv[1]) as store:\n"
        "        task = asyncio.create_task(store.wait(['q'], 60))\n"
        "        while not store._wakeups.sleepers: await asyncio.sleep(0)\n"
        "        print('waiting', flush=True)\n"
        "        print(await task, len(await store.take('q', 5)), flush=True)\n"
        "asyncio.run(main())\n"
    )
    async with await open_storage(url) as store:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", waiter, url, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"waiting\n"
        await store.enqueue([NewJob("q")])
        async with asyncio.timeout(20):  # far below the 60 s that the wait would take by itself
            assert await process.stdout.readline() == b"True 1\n"
        await process.wait()


async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    producer = (
        "import asyncio, os, sys\n"
        "from accoda import NewJob, open_storage\n"
        "async def main():\n"
        "    store = await open_storage(sys.argv[1])\n"
        "    while True:\n"
        "        [new] = await store.enqueue([NewJob('q')])\n"
        "        os.write(1, f'{new.id}\\n'.encode())\n"
        "asyncio.run(main())\n"
    )
    acknowledged: list[int] = []
    for _ in range(5):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", producer, url, stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        acknowledged += [int(await process.stdout.readline()) for _ in range(random.randrange(50, 150))]
        process.kill()
        acknowledged += [int(line) for line in (await process.stdout.read()).splitlines()]
        await process.wait()
    async with await open_storage(url) as store:
        stored = {job.id for job in await store.browse("q", "ready", limit=100_000)}
    assert len(acknowledged) == len(set(acknowledged)), "no id is given twice, not even after a kill"
    assert set(acknowledged) <= stored


async def test_ten_processes_that_open_a_new_file_at_once_all_succeed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    opener = (
        "import asyncio, sys\n"
        "from accoda import NewJob, open_storage\n"
        "async def main():\n"
        "    sys.stdin.readline()\n"
        "    async with await open_storage(sys.argv[1]) as store: await store.enqueue([NewJob('q')])\n"
        "asyncio.run(main())\n"
    )
    openers = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", opener, url, stdin=asyncio.subprocess.PIPE)
        for _ in range(10)
    ]
    await asyncio.gather(*(process.communicate(b"go\n") for process in openers))
    assert [process.returncode for process in openers] == [0] * 10
    async with await open_storage(url) as store:
        assert (await store.stats()).queues["q"].ready == 10


async def test_a_forked_child_is_told_to_open_its_own(tmp_path: Path) -> None:
    async with await open_storage(f"sqlite:///{tmp_path}/q.db") as store:
        await store.enqueue([NewJob("q")])
        child = os.fork()
        if child == 0:  # no pytest in here: answer by the exit code
            try:
                store.stats().send(None)
            except StorageClosed as error:
                os._exit(0 if "fork" in str(error) else 1)
            except BaseException:
                os._exit(2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert (await store.stats()).queues["q"].ready == 1
