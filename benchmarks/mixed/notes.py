"""The harness's side of the file in which jobs note their starts and ends; adapters/timed.py says what stands where."""

from __future__ import annotations

import mmap
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.mixed.workload import Run

FLOATS = 3


class Notes:
    """Made anew for each run: no job has started."""

    def __init__(self, path: Path, jobs: int) -> None:
        self.path = path
        with path.open("w+b") as file:
            file.truncate(8 * FLOATS * jobs)
            self._map = mmap.mmap(file.fileno(), 0)
        self._floats: memoryview[float] = memoryview(self._map).cast("d")

    def ended(self, places: range) -> int:
        """How many of these jobs have ended."""
        ends: list[float] = list(self._floats[FLOATS * places.start + 1 : FLOATS * places.stop : FLOATS])
        return len(ends) - ends.count(0.0)

    def runs(self, places: range) -> list[Run]:
        floats = self._floats
        return [Run(floats[at], floats[at + 1], int(floats[at + 2])) for at in (FLOATS * place for place in places)]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._floats.release()
        self._map.close()
