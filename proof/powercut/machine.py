"""A machine with one disk and one store on it, which can be cut off and started again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from accoda.clock import Clock
from accoda.storage.open import open_storage
from accoda.storage.sqlite.storage import SqliteStorage
from proof.powercut.disk import Disk
from proof.powercut.vfs import PowerVFS

FILE = "jobs.db"


class Machine:
    def __init__(self, vfs: PowerVFS, folder: Path) -> None:
        self.path = folder / FILE
        self._vfs = vfs

    def insert(self, disk: Disk) -> Disk:
        """Start with this disk. All that had the store open before must be closed."""
        self._vfs.disks[self.path.parent] = disk
        for left in self.path.parent.iterdir():
            left.unlink()  # the real file, for its locks, and the shared memory: no cut leaves it
        return disk

    async def open(self, clock: Clock | None = None, durability: str = "full") -> SqliteStorage:
        store = await open_storage(f"sqlite:///{self.path}?durability={durability}", clock=clock)
        assert isinstance(store, SqliteStorage)
        return store


@contextmanager
def machine(vfs: PowerVFS) -> Iterator[Machine]:
    with TemporaryDirectory(prefix="accoda-power-") as folder:
        place = Path(folder).resolve()  # as SQLite will name it
        try:
            yield Machine(vfs, place)
        finally:
            vfs.disks.pop(place, None)
