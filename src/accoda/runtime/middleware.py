"""Code around every batch: one small protocol.

    async def timed(batch, run):
        started = time.monotonic()
        await run(batch)
        print(batch.queue, len(batch), time.monotonic() - started)

    app = App(middleware=[timed])

A middleware may look at the batch before and after, may say `done`, `retry` or `bury` of its jobs, and may leave the
handler out altogether. What it raises fails the jobs of which nothing was said.

Code around every call of a handler, in the thread, task or child process that makes the call: a context manager.

    @contextmanager
    def in_tenant(job):
        with tenants.use(job.headers.get("tenant")):
            yield

    app = App(around=[in_tenant])
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, Protocol

from accoda.errors import InvalidInput
from accoda.runtime.batch import Batch

Run = Callable[[Batch[Any]], Awaitable[None]]


class Middleware(Protocol):
    """An async function of the batch, and of what runs it."""

    def __call__(self, batch: Batch[Any], run: Run, /) -> Awaitable[None]: ...


Around = Callable[[Any], AbstractContextManager[Any] | AbstractAsyncContextManager[Any]]
"""A function of the job that is about to run (of a handler of batches: of the batch) that gives a context manager. It
is entered where the handler is called, so what it sets in the thread or the context holds for the handler."""


def check_middleware(middleware: Sequence[Middleware]) -> None:
    """Refuse what cannot be called as a middleware, before it fails every job."""
    for layer in middleware:
        if isinstance(layer, type):
            raise InvalidInput("middleware", f"{_name(layer)} is a class; pass an async function of (batch, run)")
        _check_call("middleware", layer, ("batch", "run"), "pass an async function of these two")


def check_around(around: Sequence[Around]) -> None:
    """Refuse what cannot be called with a job."""
    for layer in around:
        _check_call("around", layer, ("job",), "pass a function that gives a context manager: @contextmanager")


def check_enqueue_middleware(middleware: Sequence[Callable[..., Any]]) -> None:
    """Refuse what cannot be called with a draft."""
    for layer in middleware:
        _check_call("enqueue_middleware", layer, ("draft",), "pass a plain function of it")
        if inspect.iscoroutinefunction(layer):
            raise InvalidInput("enqueue_middleware", f"{_name(layer)} is async; pass a plain function of the draft")


def _check_call(field: str, layer: Callable[..., Any], arguments: Sequence[str], advice: str) -> None:
    try:
        inspect.signature(layer).bind(*arguments)
    except TypeError as error:
        called = f"cannot be called with ({', '.join(arguments)})"
        raise InvalidInput(field, f"{_name(layer)} {called}: {error}; {advice}") from None
    except ValueError:  # it is written in C and does not tell its signature
        pass


def _name(layer: object) -> str:
    return str(getattr(layer, "__qualname__", repr(layer)))


def wrap(run: Run, middleware: Sequence[Middleware]) -> Run:
    """`run` with each middleware around it, the first outermost."""
    for layer in reversed(middleware):
        run = _around(layer, run)
    return run


def _around(layer: Middleware, inner: Run) -> Run:
    def call(batch: Batch[Any]) -> Awaitable[None]:
        return layer(batch, inner)

    return call
