"""From a URL to a storage.

memory://                     this process only; gone when it ends
sqlite:///jobs.db             one file beside you;  sqlite:////var/lib/jobs.db  an absolute path
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import SplitResult, urlsplit

from accoda.clock import Clock, SystemClock
from accoda.errors import InvalidInput
from accoda.storage.protocol import Store
from accoda.storage.urls import options

Opener = Callable[[SplitResult, Clock | None], Awaitable[Store]]


async def open_storage(url: str, *, clock: Clock | None = None) -> Store:
    """Connect to the store behind `url`, create or upgrade what it needs there, and give it back.

    `clock` is for tests: with a `ManualClock`, time passes when the test says so, on servers too.
    """
    if not isinstance(url, str) or "://" not in url:
        raise InvalidInput("url", f"must look like sqlite:///jobs.db, not {url!r}")
    parts = urlsplit(url)
    opener = _OPENERS.get(parts.scheme)
    if opener is None:
        raise InvalidInput(
            "url", f"knows no {parts.scheme + '://'!r}; use one of {', '.join(s + '://' for s in _OPENERS)}"
        )
    return await opener(parts, clock)


async def _open_memory(parts: SplitResult, clock: Clock | None) -> Store:
    from accoda.storage.memory import MemoryStorage

    options(parts)
    if parts.netloc or parts.path:
        raise InvalidInput("url", "memory:// takes no name: every open_storage('memory://') is a store of its own")
    return MemoryStorage(clock)


async def _open_sqlite(parts: SplitResult, clock: Clock | None) -> Store:
    from accoda.storage.sqlite.open import open_sqlite

    return await open_sqlite(parts, clock or SystemClock())


# Drivers are imported when their scheme is asked for: none is loaded by `import accoda`.
_OPENERS: dict[str, Opener] = {"memory": _open_memory, "sqlite": _open_sqlite}
