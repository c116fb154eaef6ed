"""The harness's side of the file in which members and joins are noted; adapters/joining.py says how."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.flows.tally import Note, Tally


class NotesFile:
    """Read as it grows: a look costs what is new."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._file = path.open("rb")
        self._rest = b""
        self._tally = Tally()

    def tally(self) -> Tally:
        """What all notes so far say."""
        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        self._tally.add(Note.read(line.decode()) for line in lines)
        return self._tally

    def close(self) -> None:
        self._file.close()


@contextmanager
def new_notes() -> Iterator[NotesFile]:
    with tempfile.TemporaryDirectory(prefix="accoda-flows-") as folder:
        notes = NotesFile(Path(folder) / "notes")
        try:
            yield notes
        finally:
            notes.close()
