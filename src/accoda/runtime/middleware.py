"""Code around every batch: one small protocol.

    async def timed(batch, run):
        started = time.monotonic()
        await run(batch)
        print(batch.queue, len(batch), time.monotonic() - started)

    app = App(middleware=[timed])

A middleware may look at the batch before and after, may say `done`, `retry` or `bury` of its jobs, and may leave the
handler out altogether. What it raises fails the jobs of which nothing was said.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from accoda.errors import InvalidInput
from accoda.runtime.batch import Batch

Run = Callable[[Batch[Any]], Awaitable[None]]


class Middleware(Protocol):
    """An async function of the batch, and of what runs it."""

    def __call__(self, batch: Batch[Any], run: Run, /) -> Awaitable[None]: ...


def check_middleware(middleware: Sequence[Middleware]) -> None:
    """Refuse what cannot be called as a middleware, before it fails every job."""
    for layer in middleware:
        try:
            if isinstance(layer, type):
                raise TypeError("it is a class")
            inspect.signature(layer).bind(None, None)
        except TypeError as error:
            name = getattr(layer, "__qualname__", repr(layer))
            raise InvalidInput(
                "middleware", f"{name} cannot be called with (batch, run): {error}; pass an async function of these two"
            ) from None
        except ValueError:  # it is written in C and does not tell its signature
            continue


def wrap(run: Run, middleware: Sequence[Middleware]) -> Run:
    """`run` with each middleware around it, the first outermost."""
    for layer in reversed(middleware):
        run = _around(layer, run)
    return run


def _around(layer: Middleware, inner: Run) -> Run:
    def call(batch: Batch[Any]) -> Awaitable[None]:
        return layer(batch, inner)

    return call
