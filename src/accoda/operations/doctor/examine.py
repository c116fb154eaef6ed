"""The whole examination: this machine, the store, and what goes on in it."""

from __future__ import annotations

from importlib import import_module
from urllib.parse import SplitResult

from accoda.errors import AccodaError, InvalidInput
from accoda.operations.doctor import environment
from accoda.operations.doctor.findings import Finding, Looked, note, problem
from accoda.operations.host import Host
from accoda.storage.common.urls import shown_url
from accoda.storage.open import read_url, split_timeout

# All others are kinds of Redis.
_MODULES = {"sqlite": "sqlite", "postgresql": "postgres", "postgres": "postgres", "tarantool": "tarantool"}


async def examine(url: str, host: Host | None = None) -> list[Finding]:
    """Everything that can be found out about a deployment, in the order in which it was examined.

    Nothing is created, upgraded or set. With `host`, its handlers are compared with what is in the store. The last
    part, queues and workers, is left out if the store cannot be opened without changing it; reading queues applies what
    is due by the clock, as every call does.
    """
    try:
        parts = read_url(split_timeout(url)[0])
    except InvalidInput as error:
        return [problem("url", str(error).removeprefix("url: "), "see docs/architecture.md for the URLs of all stores")]
    findings = environment.look(parts.scheme)
    if parts.scheme == "memory":
        return [*findings, note("store", "memory:// ends with its process", "use sqlite:///jobs.db, or a server")]
    looked = await _store(parts, shown_url(url))
    findings += looked.findings
    if looked.usable:
        findings += await _life(url, host)
    return findings


async def _store(parts: SplitResult, url: str) -> Looked:
    try:
        module = import_module(f"accoda.operations.doctor.{_MODULES.get(parts.scheme, 'redis')}")
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("accoda"):
            raise
        return Looked([])  # the driver is missing; the findings about the environment say so
    try:
        looked: Looked = await module.look(parts, url)
        return looked
    except InvalidInput as error:
        return Looked([problem("url", str(error).removeprefix("url: "), "correct the URL")])
    except AccodaError as error:
        return Looked([problem("store", str(error), "see that the store is up, and that the URL is right")])


async def _life(url: str, host: Host | None) -> list[Finding]:
    from accoda.operations.doctor import life
    from accoda.storage.open import open_storage

    try:
        async with await open_storage(url) as store:
            return await life.look(store, host)
    except AccodaError as error:
        return [problem("store", f"it cannot be opened: {error}", "see the findings above")]
