"""The demand that all processes share: `accoda worker proof.chaos.demand.app:app`. Its workers die when told to."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import threading
from pathlib import Path

from accoda import App
from accoda.demand import Waiter
from proof.chaos.demand.settings import MANY, Pen, Settings
from proof.checker import FileSink, RecordedConnections, Recorder

settings = Settings.of_environment()
pen = Pen(settings.lines)
app = App()
if settings.recorded:
    history = FileSink(Path(settings.folder) / f"{settings.name}-{os.getpid()}.history")
    app.connections = RecordedConnections(app.url, Recorder(f"{settings.name}-{os.getpid()}", history))
deals = app.demand("deals", fresh_for=settings.fresh_for)


def note(what: str, subject: str) -> None:
    """Write it down, and die a little later if that is what was ordered for this moment."""
    job = app.current
    pen.note(what, subject, job.id, job.attempts)
    try:
        moment, delay = settings.doom.read_text().split()
    except FileNotFoundError:  # also if it is taken back just now
        return
    if moment == what:
        settings.doom.unlink(missing_ok=True)
        # A thread: it comes also while the loop is busy, at whatever the process does at that moment.
        threading.Timer(float(delay), os.kill, (os.getpid(), signal.SIGKILL)).start()


@deals.fetch(lease=settings.lease, max_crashes=settings.max_crashes, retry=0)
async def fetch(key: str) -> str:
    note("fetch", key)
    await asyncio.sleep(settings.fetch_for)
    note("fetched", key)
    return f"result of {key}"


@deals.deliver(lease=settings.lease, max_crashes=MANY, retry=0, batch=settings.batch)
async def deliver(waiter: Waiter[int], result: str) -> None:
    if settings.deliver_for:
        await asyncio.sleep(random.uniform(0, 2 * settings.deliver_for))
    assert waiter.id == f"w{waiter.data}" and result.startswith("result of ")
    note("deliver", waiter.id)
