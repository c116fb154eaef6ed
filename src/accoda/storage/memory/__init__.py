"""Jobs in this process's memory."""

from accoda.storage.memory.storage import MemoryStorage

__all__ = ["MemoryStorage"]
