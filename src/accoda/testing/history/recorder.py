"""Writes down what clients ask of a store and what they are told."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from accoda.clock import Clock
from accoda.connections import Connections
from accoda.errors import (
    InvalidInput,
    MissingDriver,
    NotADatabase,
    SchemaMismatch,
    StorageClosed,
    StorageFull,
    StorageReadOnly,
    VersionConflict,
)
from accoda.storage.observed import Call, Observed
from accoda.storage.protocol import Store
from accoda.testing.history.facts import answered, begun
from accoda.testing.history.records import Certainty, Failed, Note
from accoda.testing.history.sinks import Sink

T = TypeVar("T")

# These say that nothing was changed. Every other error leaves open whether the call was carried out.
_REFUSALS = (
    InvalidInput,
    VersionConflict,
    StorageFull,
    StorageReadOnly,
    NotADatabase,
    SchemaMismatch,
    MissingDriver,
)


class Recorder:
    """One client's pen: a process, or a handle in it. `client` is its name in the history.

    `now` gives nanoseconds. The monotonic clock is one for all processes of a machine, so that their records compare.
    """

    def __init__(self, client: str, sink: Sink, now: Callable[[], int] = time.monotonic_ns) -> None:
        self.client = client
        self.sink = sink
        self.now = now
        self._pid = os.getpid()
        self._numbers = itertools.count(1)

    def number(self) -> int:
        """A new number for a call. Several threads may ask: `next` of a count is one step of the interpreter."""
        if os.getpid() != self._pid:
            # A forked child writes under the same name, perhaps to the same file: its numbers must not meet ours.
            self._pid = os.getpid()
            self._numbers = itertools.count((self._pid << 32) + 1)
        return next(self._numbers)

    def note(self, kind: str, **fields: Any) -> None:
        """Write down a fact from outside the store, for example `note("start", id=7, attempts=0)`.

        The rules know `start` and `end` (a run of a handler: id, attempts), `kill` (client), `server down`,
        `server up`, `damaged` (id: its record was spoilt from outside), `budget` and `spend`. A field `client` names
        another client than this one.
        """
        self.sink.put(Note(str(fields.pop("client", self.client)), self.now(), kind, fields))


class Recorded(Observed):
    """A `Store` that passes everything on and writes down each call when it starts and when it ends."""

    def __init__(self, store: Store, recorder: Recorder) -> None:
        super().__init__(store, _nobody)
        self.recorder = recorder
        self._closed = False

    async def close(self) -> None:
        await super().close()
        self._closed = True

    async def _report(self, verb: str, queue: str, size: int, call: Awaitable[T], *args: object) -> T:
        recorder, closed = self.recorder, self._closed
        client, number = recorder.client, recorder.number()
        # The record is with the kernel before the call is sent, and the verbs of a storage do nothing before they are
        # awaited: so whatever a killed process did is in its history, at least as begun.
        recorder.sink.put(begun(client, number, recorder.now(), verb, args))
        try:
            answer = await call
        except BaseException as error:
            # A store that was closed meanwhile may have sent the call before.
            refused = isinstance(error, _REFUSALS) or (closed and isinstance(error, StorageClosed))
            certainty: Certainty = "refused" if refused else "unknown"
            text = f"{type(error).__name__}: {error}"[:200]
            recorder.sink.put(Failed(client, number, recorder.now(), certainty, text))
            raise
        recorder.sink.put(answered(client, number, recorder.now(), verb, answer))
        return answer


class RecordedConnections(Connections):
    """An app's connections with every store recorded: `app.connections = RecordedConnections(url, recorder)`."""

    def __init__(self, url: str, recorder: Recorder, clock: Clock | None = None) -> None:
        super().__init__(url, clock)
        self.recorder = recorder

    async def open(self) -> Store:
        store = await super().open()
        if isinstance(store, Recorded):
            return store  # the shared one, in memory
        recorded = Recorded(store, self.recorder)
        if self.in_memory:
            self._shared = recorded
        return recorded


def _nobody(call: Call) -> None:
    """The records say it all."""
