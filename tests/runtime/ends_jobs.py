"""Handlers of every kind, that end as their payload says; at the top of a module, so that child processes find them."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accoda import App, Batch

KINDS = ("loop", "thread", "process", "loop-batch", "thread-batch", "process-batch")
TIMEOUT = 1.0

app = App("memory://")


def begin(end: list[str]) -> float:
    """Act as asked, and give the seconds to wait."""
    what, note = end
    if what == "raise":
        raise ValueError("no such user")
    if what == "base":
        raise KeyboardInterrupt
    if what == "return":
        return 0.0
    Path(note).touch()
    return 60.0


async def act(end: list[str]) -> str:
    await asyncio.sleep(begin(end))
    return "finished"


def act_in_thread(end: list[str]) -> str:
    until = time.monotonic() + begin(end)
    while time.monotonic() < until:
        time.sleep(0.002)
    return "finished"


async def act_on_batch(batch: Batch[list[str]]) -> None:
    for job in batch:
        batch.done(job, await act(job.payload)) if job.payload[0] == "return" else await act(job.payload)


def act_on_batch_in_thread(batch: Batch[list[str]]) -> None:
    for job in batch:
        if job.payload[0] == "return":
            batch.done(job, act_in_thread(job.payload))
        else:
            act_in_thread(job.payload)


def _register(kind: str, type: str | None, function: Callable[..., Any], options: Any) -> Any:
    run_in = "process" if kind.startswith("process") else None
    options = {"run_in": run_in, "type": type, "retry": 3600, "keep_for": 3600, "lease": 2.0, **options}
    return app.add_handler(kind, function, options)


loop = _register("loop", None, act, {})
loop_timed = _register("loop", "timed", act, {"timeout": TIMEOUT})
thread = _register("thread", None, act_in_thread, {})
thread_timed = _register("thread", "timed", act_in_thread, {"timeout": TIMEOUT})
process = _register("process", None, act_in_thread, {"concurrency": 7})
process_timed = _register("process", "timed", act_in_thread, {"timeout": TIMEOUT})
loop_batch = _register("loop-batch", None, act_on_batch, {"batch": 1})
loop_batch_timed = _register("loop-batch", "timed", act_on_batch, {"timeout": TIMEOUT})
thread_batch = _register("thread-batch", None, act_on_batch_in_thread, {"batch": 1})
thread_batch_timed = _register("thread-batch", "timed", act_on_batch_in_thread, {"timeout": TIMEOUT})
process_batch = _register("process-batch", None, act_on_batch_in_thread, {"batch": 1})
process_batch_timed = _register("process-batch", "timed", act_on_batch_in_thread, {"timeout": TIMEOUT})
