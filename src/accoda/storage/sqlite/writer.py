"""One thread that owns the connection. Callers that wait at the same moment share one transaction, and one sync.

A sync takes its time, whoever shares it: while one is under way, the calls that arrive wait together and go into the
next transaction. Nobody waits for others to come.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from accoda.clock import Clock
from accoda.errors import AccodaError, StorageClosed, StorageUnavailable
from accoda.storage.sqlite import jobs
from accoda.storage.sqlite.connection import translate, unsynced
from accoda.storage.sqlite.log import Log
from accoda.storage.sqlite.lookout import Lookout, Lookouts
from accoda.storage.sqlite.sync import Sync
from accoda.storage.sqlite.transaction import Transaction
from accoda.storage.sqlite.watch import Watch, shared_file, touch

T = TypeVar("T")
MOST_CALLS = 1000  # in one transaction, so that the first of them does not wait for ever


class Call:
    """One step for the thread, and where its answer goes."""

    __slots__ = ("args", "error", "future", "lasts", "loop", "result", "step", "undo", "writes")

    def __init__(self, step: Callable[..., Any], args: tuple[Any, ...], writes: bool) -> None:
        self.step = step
        self.args = args
        self.writes = writes
        self.lasts = writes  # whether it must survive a power cut
        self.undo: Callable[..., Any] | None = None
        self.future: asyncio.Future[Any] | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.result: Any = None
        self.error: BaseException | None = None


class Writer:
    def __init__(self, connection: apsw.Connection, path: Path, clock: Clock, durable: bool) -> None:
        self._connection = connection
        self._cursor = connection.cursor()
        self._sync = Sync(connection)
        self._log = Log(connection, self._sync)
        self._durable = durable
        self._path = path
        self._shared_file = str(shared_file(path))
        self._name = str(path)
        self._inode = path.stat().st_ino
        self._clock = clock
        self._watch = Watch(path)
        self._lookouts = Lookouts(clock, self._look_again)
        self._asleep = False
        self._news = False  # whether others may have changed the file since we looked
        self._told = False  # whether one of them has said so
        self._has_told = False  # whether we have said so: then we hear ourselves
        self._touched: set[str] = set()  # queues that our own commits have given something new
        self._numbers: dict[str, int] = {}
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._gate = threading.Lock()
        self._closed = ""  # why, once it is
        self._data_version: int | None = connection.pragma("data_version")
        self._left_some = False  # whether a look stopped before it came to everybody
        self._thread = threading.Thread(target=self._work, name=f"accoda {path.name}", daemon=True)
        self._thread.start()
        _writers.add(self)

    async def run(
        self,
        step: Callable[..., T],
        *args: Any,
        writes: bool = True,
        lasts: bool = True,
        undo: Callable[..., Any] | None = None,
    ) -> T:
        """Run `step(transaction, *args)` and give its answer once it is committed.

        Unless it `lasts`, a power cut may take it back: see `sync.py`.
        `undo(transaction, answer)` runs if the caller was cancelled before the answer could reach it.
        """
        if self._closed:
            raise StorageClosed(self._closed)
        call = Call(step, args, writes)
        call.lasts = writes and lasts
        call.undo = undo
        call.loop = asyncio.get_running_loop()
        call.future = call.loop.create_future()
        self._submit(call)
        return await call.future  # type: ignore[no-any-return]

    async def look_out(self, lookout: Lookout) -> bool:
        """Look for one who waits. False: there is nothing yet, and the thread will tell him when there is."""
        return await self.run(self._look_out, lookout, writes=False)

    @property
    def awaited(self) -> bool:
        """Whether anybody waits for jobs."""
        return self._lookouts.awaited

    def _look_again(self, lookout: Lookout) -> None:
        with contextlib.suppress(StorageClosed):
            self._submit(Call(self._look_at_moment, (lookout,), writes=False))

    async def close(self) -> None:
        with self._gate:
            if not self._closed:
                self._closed = "this SQLite storage was closed; open it again"
                self._calls.put(None)
                self._wake()
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
            self._wake()

    def _wake(self) -> None:
        # Under the same lock as the put, so that the thread has not ended and closed the bell.
        if self._asleep:
            self._watch.call()

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
            if self._lookouts.awaited:
                self._keep_watch()
            else:
                self._touched.clear()
            if live:
                self._log.shorten()
        self._lookouts.end(StorageClosed(self._closed))
        self._watch.close()
        # The last one to close makes a checkpoint. If that fails, the log stays, and is read at the next open.
        with contextlib.suppress(apsw.Error):
            self._sync.close()

    def _gather(self, calls: list[Call]) -> bool:
        """Wait for a call, then take along all that are there. False: it is time to close.

        Without a call, too, it comes back when one who waits for jobs must be looked for.
        """
        try:
            call = self._first()
            while call is not None:
                calls.append(call)
                if len(calls) == MOST_CALLS:
                    return True
                call = self._calls.get_nowait()
        except Empty:
            return True
        return False

    def _first(self) -> Call | None:
        if not self._lookouts.awaited:
            return self._calls.get()
        with contextlib.suppress(Empty):
            call = self._calls.get_nowait()
            self._news = True  # a busy thread does not sleep, and hears of nobody
            return call
        seconds, pause = self._lookouts.rest(), self._lookouts.pause()
        if self._news:  # nobody has looked at it yet: as soon as the pause is over
            return self._calls.get(timeout=pause)
        if pause or seconds < 0.001:
            # To the microsecond, which a poll cannot. What others do meanwhile is heard by the next poll.
            return self._calls.get(timeout=min(seconds, pause or seconds))
        self._sleep(seconds)
        return self._calls.get_nowait()

    def _sleep(self, seconds: float) -> None:
        self._asleep = True
        # A call that was put before this line is seen here; who puts one after it sees the flag, and wakes us.
        if self._calls.empty():
            self._told |= self._watch.sleep(seconds) and not self._has_told
            self._has_told = False
            self._news = True
        self._asleep = False

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
            touch(self._shared_file)
            self._has_told = True
            self._touched |= touched
        if self._durable:
            self._make_last(calls)

    def _make_last(self, calls: list[Call]) -> None:
        """Wait for the disk. Everybody sees the commit already: see `sync.py`."""
        lasting = [call for call in calls if call.lasts]
        try:
            if lasting:
                self._sync.wait()
        except (OSError, apsw.Error) as error:
            for call in lasting:
                call.error = call.error or unsynced(error, self._path)

    def _transact(self, calls: list[Call]) -> set[str]:
        cursor = self._cursor
        self._check_file()
        writes = any(call.writes for call in calls)
        if writes:
            self._sync.mend()
        # A transaction that will write must say so at its begin: one that begins as a reader can be refused later.
        cursor.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
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
        except BaseException as error:
            self._sync.doubt(error)
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise
        self._numbers.update(tx.new_numbers)  # only now: a queue made by a transaction that failed has no number
        return tx.touched

    def _check_file(self) -> None:
        """A file that was deleted or replaced under us would take every job with it, and SQLite would not say so."""
        try:
            same = os.stat(self._name).st_ino == self._inode  # noqa: PTH116 - before each transaction: half the time
        except FileNotFoundError:
            same = False
        if not same:
            raise StorageUnavailable(f"{self._path} was removed or replaced while it was open; open the storage again")

    def _keep_watch(self) -> None:
        """Look for those who wait, where something may have come for them."""
        try:
            if self._touched:
                touched, self._touched = self._touched, set()
                self._look_for(self._lookouts.of(touched))
            if self._news and not self._lookouts.pause():
                self._news = False
                if self._has_changed():
                    self._look_for_all()
            due = self._lookouts.due()
            if due:
                self._check_file()
                self._look_for(due)
        except Exception as error:  # they hear it, as they would if they looked for themselves
            self._lookouts.end(translate(error, self._path))

    def _has_changed(self) -> bool:
        """Whether another connection has committed something since the last answer."""
        told, self._told = self._told, False
        # Who was told need not ask: that would cost a cold statement on the way of a job. Whatever is committed from
        # here on counts as a change when we ask the next time.
        version = None if told else self._cursor.execute("PRAGMA data_version").get
        changed = version is None or version != self._data_version
        self._data_version = version
        return changed

    def _look_for_all(self) -> None:
        """After a change of others. The first who has something is told at once, and most often comes for it at once:
        the thread is there for him, and sees to the others in its next round."""
        first = not self._left_some
        self._left_some = self._look_for(self._lookouts.all(), first=first)
        if self._left_some:
            self._news, self._data_version = True, None

    def _look_for(self, lookouts: Sequence[Lookout], *, first: bool = False) -> bool:
        # No transaction: each look is one statement, and each sees what is committed.
        tx = Transaction(self._cursor, self._clock.now(), self._numbers)
        stopped = self._lookouts.look(lookouts, lambda queues: jobs.look(tx, queues), first=first)
        self._numbers.update(tx.new_numbers)
        return stopped

    def _look_out(self, tx: Transaction, lookout: Lookout) -> bool:
        found, moment = jobs.look(tx, lookout.queues)
        if not found:
            self._lookouts.keep(lookout, moment)
        return found

    def _look_at_moment(self, tx: Transaction, lookout: Lookout) -> None:
        self._lookouts.look([lookout], lambda queues: jobs.look(tx, queues))

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
