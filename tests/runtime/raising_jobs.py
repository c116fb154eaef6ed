"""Handlers of every form, in every runner, that raise what their payload names; at the top of a module, so that child
processes can import them."""

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from accoda import App, Batch, RetryLater


class Own(BaseException):
    """A class of the user's that is no Exception."""


RAISED: dict[str, Callable[[], BaseException]] = {
    "GeneratorExit": GeneratorExit,
    "KeyboardInterrupt": KeyboardInterrupt,
    "SystemExit": lambda: SystemExit(3),
    "CancelledError": asyncio.CancelledError,
    "Own": Own,
    "BaseExceptionGroup": lambda: BaseExceptionGroup("several", [KeyboardInterrupt(), ValueError()]),
    "StopIteration": StopIteration,
    "StopAsyncIteration": StopAsyncIteration,
}


def retry_later(reason: str = "", cause: BaseException | None = None) -> BaseException:
    later = RetryLater(reason, delay=3600)
    later.__cause__ = cause
    return later


ASKED: dict[str, Callable[[], BaseException]] = {
    "asked": lambda: retry_later("busy"),
    "without a reason": retry_later,
    "of a retry": lambda: retry_later(cause=retry_later("busy")),
    "of an error": lambda: retry_later(cause=ValueError(17)),
    "of an error, with a reason": lambda: retry_later("busy", ValueError(17)),
}
"""Retries that a handler asks for: only the last two are errors."""

app = App("memory://")
begun: list[str] = []
"""What waits to be stopped, in this process."""
never = threading.Event()


def act(payload: list[str]) -> None:
    what, when = payload
    if what == "nothing":
        return
    try:
        if when == "stopped":
            begun.append(what)
            while not never.wait(0.005):
                pass
        elif when:  # a file: the worker's side of a child process looks for it
            Path(when).touch()
            never.wait()
    finally:
        raise (RAISED | ASKED)[what]()


async def act_async(payload: list[str]) -> None:
    what, when = payload
    if what == "nothing":
        return
    if when == "stopped":
        begun.append(what)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    elif when == "waited":
        await asyncio.sleep(0)
    elif when:
        Path(when).touch()
        await asyncio.Event().wait()
    raise (RAISED | ASKED)[what]()


@app.handler("loop-single", batch=1, retry=3600)
async def loop_single(payload: list[str]) -> None:
    await act_async(payload)


@app.handler("loop-batch", batch=1, retry=3600)
async def loop_batch(batch: Batch[list[str]]) -> None:
    await act_async(batch[0].payload)


@app.handler("thread-single", batch=1, retry=3600)
def thread_single(payload: list[str]) -> None:
    act(payload)


@app.handler("thread-batch", batch=1, retry=3600)
def thread_batch(batch: Batch[list[str]]) -> None:
    act(batch[0].payload)


@app.handler("process-single", batch=1, retry=3600, run_in="process")
def process_single(payload: list[str]) -> None:
    act(payload)


@app.handler("process-batch", batch=1, retry=3600, run_in="process")
def process_batch(batch: Batch[list[str]]) -> None:
    act(batch[0].payload)


@app.handler("process-async", batch=1, retry=3600, run_in="process")
async def process_async(payload: list[str]) -> None:
    await act_async(payload)
