"""One thread that owns the connection. Callers that wait at the same moment share one transaction, and so one commit.

A commit costs a flush to disk, whoever shares it: while one is under way, the calls that arrive wait together and go
into the next. Nobody waits for others to come.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from accoda.clock import Clock
from accoda.errors import AccodaError, StorageClosed, StorageUnavailable
from accoda.storage.signal import Signal
from accoda.storage.sqlite.connection import translate
from accoda.storage.sqlite.log import Log
from accoda.storage.sqlite.transaction import Transaction
from accoda.storage.sqlite.watch import shared_file, touch

T = TypeVar("T")
MOST_CALLS = 1000  # in one transaction, so that the first of them does not wait for ever


class Call:
    """One step for the thread, and where its answer goes."""

    __slots__ = ("args", "error", "future", "loop", "result", "step", "undo", "writes")

    def __init__(self, step: Callable[..., Any], args: tuple[Any, ...], writes: bool) -> None:
        self.step = step
        self.args = args
        self.writes = writes
        self.undo: Callable[..., Any] | None = None
        self.future: asyncio.Future[Any] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    def __init__(self, connection: apsw.Connection, path: Path, clock: Clock, signal: Signal) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._log = Log(connection)
        self._path = path
        self._shared_file = shared_file(path)
        self._inode = path.stat().st_ino
        self._clock = clock
        self._signal = signal
        self._numbers: dict[str, int] = {}
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = ""  # why, once it is
        self._data_version = connection.pragma("data_version")
        self._thread = threading.Thread(target=self._work, name=f"accoda {path.name}", daemon=True)
        self._thread.start()
        _writers.add(self)

    async def run(
        self, step: Callable[..., T], *args: Any, writes: bool = True, undo: Callable[..., Any] | None = None
    ) -> T:
        """Run `step(transaction, *args)` and give its answer once it is committed.

        `undo(transaction, answer)` runs if the caller was cancelled before the answer could reach it.
        """
        if self._closed:
            raise StorageClosed(self._closed)
        call = Call(step, args, writes)
        call.undo = undo
        call.loop = asyncio.get_running_loop()
        call.future = call.loop.create_future()
        self._submit(call)
        return await call.future  # type: ignore[no-any-return]

    def look_for_foreign_writes(self) -> None:
        """Ring for everybody if another connection has changed the file. Callable from any thread."""
        with contextlib.suppress(StorageClosed):
            self._submit(Call(self._notice, (), writes=False))

    async def close(self) -> None:
        with self._gate:
            if not self._closed:
                self._closed = "this SQLite storage was closed; open it again"
                self._calls.put(None)
        await asyncio.to_thread(self._thread.join)

    def abandon(self) -> None:
        """In a forked child: its thread is gone, and its connection belongs to the parent."""
        self._closed = "this SQLite storage was opened before the process forked; open it again in the child"

    def _submit(self, call: Call) -> None:
        # Under the lock, nothing is put behind the None that ends the thread: it would never be answered.
        with self._gate:
            if self._closed:
                raise StorageClosed(self._closed)
            self._calls.put(call)

    # -- in the thread

    def _work(self) -> None:
        going = True
        while going:
            calls: list[Call] = []
            going = self._gather(calls)
            live = [call for call in calls if call.future is None or not call.future.cancelled()]
            if live:
                self._serve(live)
                self._answer(live)
                self._log.shorten()
        # The last one to close makes a checkpoint. If that fails, the log stays, and is read at the next open.
        with contextlib.suppress(apsw.Error):
            self._connection.close()

    def _gather(self, calls: list[Call]) -> bool:
        """Wait for a call, then take along all that are there. False: it is time to close."""
        call = self._calls.get()
        while call is not None:
            calls.append(call)
            if len(calls) == MOST_CALLS:
                return True
            try:
                call = self._calls.get_nowait()
            except Empty:
                return True
        return False

    def _serve(self, calls: list[Call]) -> None:
        try:
            touched = self._transact(calls)
        except Exception as error:
            if isinstance(error, apsw.BusyError):  # they have all waited long enough: not each of them once more
                for call in calls:
                    call.error = translate(error, self._path)
                return
            if len(calls) > 1:
                # One of them failed and took the others with it: each on its own, so that only the culprit gets the
                # error. Nothing was committed, so nothing happens twice.
                for call in calls:
                    self._serve([call])
                return
            calls[0].error = translate(error, self._path)
            return
        if touched:
            self._signal.ring(touched)
            touch(self._shared_file)

    def _transact(self, calls: list[Call]) -> set[str]:
        cursor = self._cursor
        self._check_file()
        # A transaction that will write must say so at its begin: one that begins as a reader can be refused later.
        cursor.execute("BEGIN IMMEDIATE" if any(call.writes for call in calls) else "BEGIN")
        try:
            tx = Transaction(cursor, self._clock.now(), self._numbers)
            for call in calls:
                call.result = call.error = None  # what a transaction that failed has said counts no longer
                try:
                    call.result = call.step(tx, *call.args)
                except AccodaError as error:  # a refusal, made before anything was changed
                    call.error = error
            tx.finish()
            cursor.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise
        self._numbers.update(tx.new_numbers)  # only now: a queue made by a transaction that failed has no number
        return tx.touched

    def _check_file(self) -> None:
        """A file that was deleted or replaced under us would take every job with it, and SQLite would not say so."""
        try:
            same = self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            same = False
        if not same:
            raise StorageUnavailable(f"{self._path} was removed or replaced while it was open; open the storage again")

    def _notice(self, tx: Transaction) -> None:
        version = self._connection.pragma("data_version")
        if version != self._data_version:
            self._data_version = version
            self._signal.ring()

    def _answer(self, calls: list[Call]) -> None:
        loops: dict[asyncio.AbstractEventLoop, list[Call]] = {}
        for call in calls:
            if call.loop is not None:
                loops.setdefault(call.loop, []).append(call)
        for loop, waiting in loops.items():
            try:
                loop.call_soon_threadsafe(self._resolve, waiting)
            except RuntimeError:  # that loop was closed: nobody waits there any more
                self._undo(waiting)

    # -- in the callers' loops

    def _resolve(self, calls: list[Call]) -> None:
        unseen = []
        for call in calls:
            assert call.future is not None
            if call.future.done():  # cancelled while the thread was at it
                unseen.append(call)
            elif call.error is not None:
                call.future.set_exception(call.error)
            else:
                call.future.set_result(call.result)
        self._undo(unseen)

    def _undo(self, calls: list[Call]) -> None:
        for call in calls:
            if call.undo is not None and call.result:
                with contextlib.suppress(StorageClosed):
                    self._submit(Call(call.undo, (call.result,), writes=True))


_writers: weakref.WeakSet[Writer] = weakref.WeakSet()
_inherited: list[Writer] = []


def _after_fork() -> None:
    for writer in _writers:
        writer.abandon()
        _inherited.append(writer)  # never collected, so that the child never closes the parent's connection


os.register_at_fork(after_in_child=_after_fork)
