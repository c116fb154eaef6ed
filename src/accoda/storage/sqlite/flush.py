"""Whether a commit waits until the disk has it.

Nearly all do: what is acknowledged survives a power cut. A take or an extension need not, if its leases are held by a
process of this machine (`accoda.storage.holding`): the cut ends that process too. Afterwards the store is as it was
before the take, or before a few of the latest takes:

- The job is ready, where its lease would have had to end first. Nothing of it is lost: the commit that stored it was
  flushed, and a flush writes the log up to its end, so never something later without all that was earlier.
- Its token, made of id and attempts, is given out once more. Who had it is dead, so nobody can use it against the new
  holder. What he had settled by then was flushed, and the take before it.
- What a take applies besides (a delayed job starts, a lease that is over gives `attempts + 1`, an unreadable record is
  set aside) follows from what is stored and from the time, so the next call does it again. The lease that had ended was
  lost before the take and is lost after the cut: its end is compared with the clock.
- An extension that is forgotten leaves an earlier end to a lease that nobody holds.

A process that is killed takes nothing with it: what it wrote is the kernel's.
"""

from __future__ import annotations

import apsw

_FULL = 2  # how SQLite numbers the values of this pragma


class Flush:
    """The setting of one connection. Changed only between transactions: inside of one SQLite refuses."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._cursor = connection.cursor()
        self._on = connection.pragma("synchronous") == _FULL
        self.is_choice = self._on  # where no commit is flushed (`durability=fast`), none is

    def set(self, on: bool) -> None:
        """Let the next commits wait for the disk, or not."""
        if on != self._on and self.is_choice:
            # It takes effect when it is compiled, so a statement that is compiled already would do nothing. 0.8 µs.
            self._cursor.execute("PRAGMA synchronous = " + ("FULL" if on else "NORMAL"), can_cache=False)
            self._on = on
