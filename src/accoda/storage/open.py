"""From a URL to a storage.

memory://                     this process only; gone when it ends
sqlite:///jobs.db             one file beside you;  sqlite:////var/lib/jobs.db  an absolute path
redis://host:6379/0           a Redis server; also rediss://, redis+sentinel://, redis+cluster://
postgresql://user:pw@host/db   a schema of a PostgreSQL database, 14 or newer; also postgres://
tarantool://user:pw@host      a Tarantool server, 2.6 or newer

`?timeout=2` on each of them: for how many seconds a call waits for a store that is away. An app's calls have 5 by
default; a worker's own calls wait out a restart.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, cast
from urllib.parse import SplitResult, parse_qsl, urlsplit

from accoda.clock import Clock, SystemClock
from accoda.errors import InvalidInput, MissingDriver
from accoda.storage.common.reconnecting import limited_patience
from accoda.storage.common.urls import options
from accoda.storage.protocol import Store
from accoda.storage.wrapper import Wrapper

Opener = Callable[[SplitResult, Clock | None], Awaitable[Store]]


async def open_storage(url: str, *, clock: Clock | None = None) -> Store:
    """Connect to the store behind `url`, create or upgrade what it needs there, and give it back.

    `clock` is for tests: with a `ManualClock`, time passes when the test says so, on servers too.
    """
    bare, timeout = split_timeout(url)
    parts = read_url(bare)
    if timeout is None:
        return await _OPENERS[parts.scheme](parts, clock)
    with limited_patience(timeout):
        return cast(Store, _Patient(await _OPENERS[parts.scheme](parts, clock), timeout))


def split_timeout(url: str) -> tuple[str, float | None]:
    """The URL without its option `timeout`, and its value."""
    parts = read_url(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    given = [value for name, value in pairs if name == "timeout"]
    if not given:
        return url, None
    try:
        seconds = float(given[-1])
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise InvalidInput("url", f"option timeout must be a number of seconds from 0.1 to 3600, not {given[-1]!r}")
    query = "&".join(text for text in parts.query.split("&") if text.partition("=")[0] != "timeout")
    head, _, tail = url.partition("?")
    fragment = tail.partition("#")[1:]
    return f"{head}{'?' if query else ''}{query}{''.join(fragment)}", seconds


class _Patient(Wrapper):
    """A store each of whose calls waits only so long for a server that is away."""

    def __init__(self, store: Store, timeout: float) -> None:
        self._store, self._timeout = store, timeout

    async def call(self, verb: str, *args: Any, **kwargs: Any) -> Any:
        with limited_patience(self._timeout):
            return await getattr(self._store, verb)(*args, **kwargs)


def read_url(url: object) -> SplitResult:
    """The parts of a URL whose scheme has a storage."""
    if not isinstance(url, str) or "://" not in url:
        raise InvalidInput("url", f"must look like sqlite:///jobs.db, not {url!r:.200}")
    try:
        url.encode()
        parts = urlsplit(url)
    except ValueError as error:  # a bracket without its pair, or text that is none
        raise InvalidInput("url", f"cannot be read: {error}; it must look like redis://host:6379/0") from error
    if "\0" in url or "%00" in url:
        raise InvalidInput("url", "has a NUL in it, which no host, file or password may have")
    if parts.scheme == "postgres":  # as many hosts write it
        parts = parts._replace(scheme="postgresql")
    if parts.scheme not in _OPENERS:
        known = ", ".join(f"{scheme}://" for scheme in _OPENERS)
        raise InvalidInput("url", f"there is no storage for {parts.scheme[:60]}://; use one of {known}")
    return parts


async def migrate(url: str) -> None:
    """Create or upgrade the store behind `url`, and leave it: `accoda migrate URL`, for a deploy's own step."""
    async with await open_storage(url):
        pass


async def _open_memory(parts: SplitResult, clock: Clock | None) -> Store:
    from accoda.storage.memory import MemoryStorage

    options(parts)
    if parts.netloc or parts.path:
        raise InvalidInput("url", "memory:// takes no name: every open_storage('memory://') is a store of its own")
    return MemoryStorage(clock)


async def _open_sqlite(parts: SplitResult, clock: Clock | None) -> Store:
    from accoda.storage.sqlite.open import open_sqlite

    return await open_sqlite(parts, clock or SystemClock())


async def _open_tarantool(parts: SplitResult, clock: Clock | None) -> Store:
    from accoda.storage.tarantool.open import open_tarantool

    return await open_tarantool(parts, clock)


async def _open_postgres(parts: SplitResult, clock: Clock | None) -> Store:
    try:
        from accoda.storage.postgres.open import open_postgres
    except ModuleNotFoundError as error:
        raise MissingDriver("postgresql:// needs asyncpg; install it with: pip install 'accoda[postgres]'") from error
    return await open_postgres(parts, clock)


async def _open_redis(parts: SplitResult, clock: Clock | None) -> Store:
    try:
        from accoda.storage.redis.open import open_redis
    except ModuleNotFoundError as error:
        raise MissingDriver(f"{parts.scheme}:// needs hiredis; install it with: pip install 'accoda[redis]'") from error
    return await open_redis(parts, clock)


# Drivers are imported when their scheme is asked for: none is loaded by `import accoda`.
_OPENERS: dict[str, Opener] = {
    "memory": _open_memory,
    "sqlite": _open_sqlite,
    "tarantool": _open_tarantool,
    "postgresql": _open_postgres,
    "postgres": _open_postgres,
    "redis": _open_redis,
    "rediss": _open_redis,
    "redis+sentinel": _open_redis,
    "redis+cluster": _open_redis,
}
