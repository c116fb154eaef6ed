"""Handlers with something around them, for a child process to import."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from accoda import App, Batch

where: ContextVar[str] = ContextVar("where", default="nowhere")
local = threading.local()
ended: list[str] = []


@contextmanager
def entered(job: Any) -> Iterator[None]:
    """Leaves its marks in the context and in the thread."""
    token = where.set(f"{type(job).__name__} in {os.getpid()}")
    local.mark = "marked"
    try:
        yield
    except ValueError as error:
        ended.append(f"saw {error}")
        raise
    else:
        ended.append("well")
    finally:
        where.reset(token)


app = App("memory://", around=[entered])


def found() -> list[str]:
    return [where.get(), getattr(local, "mark", "unmarked"), str(os.getpid())]


@app.handler("loop", keep_for=60)
async def on_loop(fail: bool = False) -> list[str]:
    if fail:
        raise ValueError("no")
    return found()


@app.handler("thread", keep_for=60, max_attempts=1)
def in_thread(fail: bool = False) -> list[str]:
    if fail:
        raise ValueError("no")
    return found()


@app.handler("process", keep_for=60, run_in="process")
def in_process(fail: bool = False) -> list[str]:
    return found()


@app.handler("batches", keep_for=60)
async def batches(batch: Batch[int]) -> None:
    for job in batch:
        batch.done(job, found())
