"""The whole examination: this machine, the store, and what goes on in it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from accoda.doctor import environment
from accoda.doctor.findings import Finding, Looked, note, problem
from accoda.errors import AccodaError, InvalidInput
from accoda.storage.open import read_url
from accoda.storage.urls import shown_url

if TYPE_CHECKING:
    from accoda.app import App

_LOOKS = {
    "sqlite": "accoda.doctor.sqlite",
    "redis": "accoda.doctor.redis",
    "rediss": "accoda.doctor.redis",
    "redis+sentinel": "accoda.doctor.redis",
    "redis+cluster": "accoda.doctor.redis",
    "postgresql": "accoda.doctor.postgres",
    "tarantool": "accoda.doctor.tarantool",
}


async def examine(url: str, app: App | None = None) -> list[Finding]:
    """Everything that can be found out about a deployment, in the order in which it was looked at.

    Nothing is created, upgraded or set. With `app`, its handlers are compared with what is in the store. The last part,
    the look at queues and workers, is left out where the store cannot be opened without changing it; a look at queues
    applies what is due by the clock, as every look does.
    """
    try:
        parts = read_url(url)
    except InvalidInput as error:
        return [problem("url", str(error).removeprefix("url: "), "see docs/architecture.md for the URLs of all stores")]
    findings = environment.look(parts.scheme)
    if parts.scheme == "memory":
        return [*findings, note("store", "memory:// is gone with its process", "use sqlite:///jobs.db, or a server")]
    looked = await _store(parts, shown_url(url))
    findings += looked.findings
    if looked.usable:
        findings += await _life(url, app)
    return findings


async def _store(parts: SplitResult, url: str) -> Looked:
    try:
        look: Callable[[SplitResult, str], Awaitable[Looked]] = import_module(_LOOKS[parts.scheme]).look
    except ModuleNotFoundError:  # the driver; the environment's findings have told already
        return Looked([])
    try:
        return await look(parts, url)
    except InvalidInput as error:
        return Looked([problem("url", str(error).removeprefix("url: "), "correct the URL")])
    except AccodaError as error:
        return Looked([problem("store", str(error), "see that the store is up, and that the URL is right")])


async def _life(url: str, app: App | None) -> list[Finding]:
    from accoda.doctor import life
    from accoda.storage.open import open_storage

    try:
        async with await open_storage(url) as store:
            return await life.look(store, app)
    except AccodaError as error:
        return [problem("store", f"it cannot be opened: {error}", "see the findings above")]
