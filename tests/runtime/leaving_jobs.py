"""The app of the tests of leaving: each queue is one way to keep a process from its end."""

import asyncio
import atexit
import os
import re
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from accoda import App

app = App()
strays: list[asyncio.Task[None]] = []


def began() -> None:
    """Say that the handler of this job runs, and in which process."""
    Path(f"began-{app.current.queue}").write_text(str(os.getpid()))


async def never_ends() -> None:
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


@app.handler("quick")
async def quick(n: int) -> None:
    began()


@app.handler("swallows")
async def swallows(n: int) -> None:
    began()
    await never_ends()


@app.handler("blocks")
async def blocks(n: int) -> None:
    began()
    time.sleep(3600)  # noqa: ASYNC251 - what must not be done, and is


@app.handler("stray")
async def stray(n: int) -> None:
    strays.append(asyncio.create_task(never_ends()))
    began()


@app.handler("executor")
async def executor(n: int) -> None:
    strays.append(asyncio.create_task(asyncio.to_thread(time.sleep, 3600)))
    await asyncio.sleep(0)
    began()


@app.handler("thread")
def thread(n: int) -> None:
    began()
    time.sleep(3600)


@app.handler("other-thread")
def other_thread(n: int) -> None:
    threading.Thread(target=time.sleep, args=(3600,), daemon=False).start()  # it would inherit True
    began()


@app.handler("at-exit")
def at_exit(n: int) -> None:
    atexit.register(time.sleep, 3600)
    began()


@app.handler("child", run_in="process")
def child(n: int) -> None:
    began()
    os.kill(os.getpid(), signal.SIGSTOP)


@app.handler("mute")
async def mute(n: int) -> None:
    """Nobody reads the log: whatever writes to it from here on is blocked."""
    os.set_blocking(2, False)
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(2, b"x" * size)
    os.set_blocking(2, True)
    began()
    await asyncio.sleep(3600)


@app.handler("lock")
def lock(n: int) -> None:
    """Python's global lock is held: no other thread of the process runs."""
    began()
    re.match(r"(a+)+$", "a" * 60 + "b")
