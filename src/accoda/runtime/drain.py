"""Asking a worker to take nothing more: the document `drain/{worker id}`, which it reads with each heartbeat.

A worker that drains finishes what it runs and stays alive, so that it can be looked at, stopped, or sent back to work.
The document lives for a day and the worker renews it: a worker that restarts has another id, and is not drained.
"""

from __future__ import annotations

from accoda.limits import DOCUMENT_NAME
from accoda.storage.protocol import Storage

PREFIX = "drain/"
KEPT = 86_400.0


async def ask(storage: Storage, worker: str, on: bool) -> None:
    """Ask a worker to drain, or to work again."""
    await storage.write(PREFIX + worker, b"drain", ttl=KEPT if on else 0)


async def asked_for(storage: Storage) -> set[str]:
    """The workers that are asked to drain."""
    return {document.name.removeprefix(PREFIX) for document in await storage.documents(PREFIX)}


async def is_asked(storage: Storage, worker: str, now: int) -> bool:
    """Whether this worker is asked to. It sees to it that this is not forgotten while it lives."""
    if len(PREFIX + worker) > DOCUMENT_NAME:
        return False
    found = await storage.read(PREFIX + worker)
    if found is None:
        return False
    if found.expires_at is not None and found.expires_at - now < KEPT * 1000 / 2:
        await storage.write(PREFIX + worker, b"drain", ttl=KEPT)
    return True
