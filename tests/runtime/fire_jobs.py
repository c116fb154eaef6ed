"""The app that the fire tests run in worker processes. Every run is written to a file, one line each, in one write."""

import asyncio
import os
import time
from pathlib import Path

from accoda import App

app = App()
LOG = Path(os.environ.get("FIRE_LOG", "runs.log"))


def note(what: str) -> None:
    """Append a line. One small O_APPEND write is whole or not there, also when the process is killed."""
    job = app.current
    line = f"{what} {job.id} {job.attempts} {os.getpid()} {time.time():.3f}\n"
    file = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line.encode())
    os.close(file)


@app.handler("short", lease=2, batch=10, retry=0)
async def short(n: float) -> None:
    note("start")
    await asyncio.sleep(0.03)
    note("end")


@app.handler("nap", lease=2, batch=1)
async def nap(seconds: float) -> None:
    note("start")
    await asyncio.sleep(seconds)
    note("end")


@app.handler("block", lease=1.5, batch=2)
async def block(seconds: float) -> None:
    note("start")
    time.sleep(seconds)  # noqa: ASYNC251 - what must not be done, and is
    note("end")


@app.handler("endless", lease=60, batch=1)
async def endless(n: int) -> None:
    note("start")
    try:
        await asyncio.sleep(3600)
    finally:
        note("end")


@app.handler("poison", lease=1, batch=10, max_crashes=2)  # before the first pause of its quarantine
async def poison(n: int) -> None:
    note("start")
    if n == 0:
        os._exit(9)
    note("end")


@app.handler("counted", number=7)
def counted(n: int) -> None:
    if n < 0:
        raise ValueError("below zero")
