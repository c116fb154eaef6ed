"""Keeps SQLite's write-ahead log short: moves it into the database when it has grown, after the callers are answered.

SQLite would do so inside a commit, and the callers of that one commit would wait for it. It would also never wait for
readers, so that programs that read all the time, one after the other, could make the log grow for ever.
"""

from __future__ import annotations

import contextlib

import apsw

from accoda.storage.sqlite.connection import wait_for_lock
from accoda.storage.sqlite.sync import Sync

AFTER = 4000  # pages of log, 16 MB: measured, see docs/decisions/0002-sqlite.md
INSIST = 4  # times that; then readers are waited for
READER_PATIENCE = 0.5  # seconds; in that time nobody can write


class Log:
    """The log of one connection. Everything here happens in the thread that owns it."""

    def __init__(self, connection: apsw.Connection, sync: Sync) -> None:
        self.after = AFTER
        self.patience = READER_PATIENCE
        self._connection = connection
        self._sync = sync
        self._pages = 0  # in the log, as of a commit that was not looked at yet
        self._insisted_at = 0  # pages, when readers were last waited for in this log
        connection.set_wal_hook(self._note)

    def _note(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK

    def shorten(self) -> None:
        """Make a checkpoint if it is time for one. Where it fails, the log is longer and nothing is lost.

        The next commit comes here again: if the disk is the trouble, that commit's callers are told.
        """
        with contextlib.suppress(apsw.Error):  # whoever writes next tries again, and is told
            self._sync.mend()
        pages, self._pages = self._pages, 0
        if not pages or self._sync.in_doubt:
            return
        if pages < self.after:
            self._insisted_at = 0
            return
        try:
            # Not again before the log has grown by as much: a reader that stays may cost that time only so often.
            if pages >= max(self.after * INSIST, self._insisted_at + self.after):
                self._insisted_at = pages
                self._insist()
            else:
                # Takes what no reader needs any more. If that is all of it, the next commit begins the log anew.
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            self._sync.doubt(error)

    def _insist(self) -> None:
        self._connection.set_busy_handler(wait_for_lock(self.patience))
        try:
            self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        finally:
            self._connection.set_busy_handler(wait_for_lock())
