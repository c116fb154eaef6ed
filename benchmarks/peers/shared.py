"""The harness's side of the file that it shares with workers; adapters/tally.py says what stands where."""

from __future__ import annotations

import math
import mmap
from pathlib import Path
from types import TracebackType
from typing import Self

CELLS = 8192
FOREIGN = slice(1, 9)
THREAD = 17
TIMES = CELLS * 8


class Shared:
    """Made anew for each run: all counts are 0, and no job has run."""

    def __init__(self, path: Path, jobs: int = 0) -> None:
        self.path = path
        with path.open("w+b") as file:
            file.truncate(TIMES + 8 * max(1, jobs))
            self._map = mmap.mmap(file.fileno(), 0)
        self._cells = memoryview(self._map)[:TIMES].cast("Q")
        self._times = memoryview(self._map)[TIMES:].cast("d")
        for place in range(len(self._times)):
            self._times[place] = math.nan

    def count(self) -> int:
        """The runs so far, of all threads of all workers.

        Each cell only grows and is written whole, so the sum is never more than has run, and in the end exact.
        """
        return sum(self._cells[FOREIGN]) + sum(self._cells[THREAD : THREAD + self._cells[0]])

    def late(self) -> list[float]:
        """By how many seconds each job that has run was late."""
        return [value for value in self._times if not math.isnan(value)]

    def close(self) -> None:
        self._cells.release()
        self._times.release()
        self._map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
