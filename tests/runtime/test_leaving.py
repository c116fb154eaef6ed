"""A worker process is gone when it says so: whatever hangs in it, within its grace and a few seconds."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from accoda import Store, open_storage
from accoda.model import NewJob
from accoda.payload import encode

PATH = os.pathsep.join((str(Path(__file__).parent), *sys.path))
GIVEN_BACK = {"swallows", "blocks", "thread", "child", "mute"}
"""Queues whose job still runs when the grace is over."""
DONE = {"stray", "executor", "other-thread", "at-exit"}
"""Queues whose job leaves something behind that hangs."""


def start(folder: Path, queue: str, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "accoda", "worker", "leaving_jobs:app", "--no-manager", "-q", queue]
    environment = {**os.environ, "ACCODA_URL": f"sqlite:///{folder}/jobs.db", "PYTHONPATH": PATH}
    with (folder / f"{queue}.err").open("ab") as errors:
        where: Any = subprocess.PIPE if queue == "mute" else errors
        return subprocess.Popen([*command, "--grace", "0.3", *words], cwd=folder, env=environment, stderr=where)


async def leave(folder: Path, queue: str, *words: str) -> int:
    """Have a worker take the job of a queue, ask it to stop, and give its exit code."""
    worker = start(folder, queue, *words)
    try:
        await until((folder / f"began-{queue}").exists)
        await asyncio.sleep(0.2)  # what the job leaves behind begins to hang
        worker.send_signal(signal.SIGTERM)
        return await asyncio.to_thread(worker.wait, 40)
    finally:
        worker.kill()
        worker.wait()
        if worker.stderr is not None:
            worker.stderr.close()


async def until(true: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not true():
            await asyncio.sleep(0.02)


async def enqueue(folder: Path, queues: set[str]) -> Store:
    store = await open_storage(f"sqlite:///{folder}/jobs.db")
    await store.enqueue([NewJob(queue, encode(1)) for queue in queues])
    return store


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_a_process_leaves_whatever_hangs_in_it(tmp_path: Path) -> None:
    queues = sorted(GIVEN_BACK | DONE | {"quick"})
    async with await enqueue(tmp_path, set(queues)) as store:
        codes = await asyncio.gather(*(leave(tmp_path, queue) for queue in queues))
        assert dict(zip(queues, codes, strict=True)) == {queue: int(queue != "quick") for queue in queues}
        stats = (await store.stats()).queues
    assert {queue for queue in queues if stats[queue].ready} == GIVEN_BACK
    assert {queue for queue in queues if stats[queue].done} == {*DONE, "quick"}
    assert not any(stats[queue].taken or stats[queue].expired for queue in queues)
    assert "task never_ends" in (tmp_path / "stray.err").read_text()  # the log says what hung
    assert not lives(int((tmp_path / "began-child").read_text()))


@pytest.mark.parametrize("queue", ["stray", "swallows", "lock"])
async def test_a_supervisor_leaves_whatever_hangs_in_its_processes(tmp_path: Path, queue: str) -> None:
    async with await enqueue(tmp_path, {queue}) as store:
        assert await leave(tmp_path, queue, "--processes", "2") == 1
        taken = (await store.stats()).queues[queue].taken
    assert taken == (queue == "lock")  # its lease ends by itself: nothing in that process could give it back
    assert not lives(int((tmp_path / f"began-{queue}").read_text()))
