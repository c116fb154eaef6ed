"""Wraps any storage and tells an observer about every call: for metrics, tracing and tests.

tally = Tally()
store = observe(await open_storage(url), tally)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, cast

from msgspec import Struct

from accoda.storage.protocol import Store
from accoda.storage.wrapper import Wrapper


class Call(Struct, frozen=True, gc=False):
    """One call that has ended: which verb, for which queue ("" if none or several), of how many jobs or names, how long
    it took, and the error that it raised, if any."""

    verb: str
    queue: str
    size: int
    seconds: float
    error: BaseException | None


Observer = Callable[[Call], None]


class Total(Struct):
    """What a verb came to: calls, jobs or names in them, seconds, errors."""

    calls: int = 0
    size: int = 0
    seconds: float = 0.0
    errors: int = 0


class Tally:
    """The simplest observer: sums by verb."""

    def __init__(self) -> None:
        self.totals: dict[str, Total] = {}

    def __call__(self, call: Call) -> None:
        total = self.totals.setdefault(call.verb, Total())
        total.calls += 1
        total.size += call.size
        total.seconds += call.seconds
        total.errors += call.error is not None


class Observed(Wrapper):
    """Passes everything on to another storage and reports each call when it has ended."""

    def __init__(self, store: Store, observer: Observer) -> None:
        self._store = store
        self._observer = observer

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        error: BaseException | None = None
        try:
            return await getattr(self._store, verb)(*args, **kwargs)
        except BaseException as raised:
            error = raised
            raise
        finally:
            self._observer(Call(verb, *_subject(verb, args), time.perf_counter() - start, error))


def observe(store: Store, observer: Observer) -> Store:
    """The same storage, with an observer that is told about every call."""
    return cast(Store, Observed(store, observer))


def _subject(verb: str, args: tuple[Any, ...]) -> tuple[str, int]:
    """Which queue a call is about, and how many jobs or names."""
    if not args:
        return "", 0
    first = args[0]
    if verb == "take":
        return first, args[1] if len(args) > 1 else 0
    if verb in ("read", "write", "documents"):
        return "", 1
    if isinstance(first, str):
        return first, 1
    if isinstance(first, Sequence):
        return _queue_of(first[0]) if first else "", len(first)
    return _queue_of(first), 1


def _queue_of(item: object) -> str:
    """The queue of a job, an outcome, a lease, a change or a target."""
    item = getattr(item, "lease", item)
    return getattr(item, "queue", None) or ""
