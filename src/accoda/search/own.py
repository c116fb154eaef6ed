"""Which queues are the user's, and which are kept by Accoda: our own, and the books of demands."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from accoda.names import is_system
from accoda.storage.protocol import Storage

BOOKS = (".cache", ".spent")
"""Companions of a demand that hold no work: its results, and the log of what they cost. `.deliver` holds work."""
DEMANDS = "demand/"


async def kept_by_us(store: Storage, names: Iterable[str], demands: Collection[str] = ()) -> frozenset[str]:
    """Those of the queues that nobody means who does not name them. `demands` are known without a look at the store.

    A user may call a queue `web.cache`: it is a book only where some process has counted for a demand `web`.
    """
    every = list(names)
    ours = {name for name in every if is_system(name)}
    books = {name for name in every if name.endswith(BOOKS)}
    if books:
        counted = {document.name.split("/")[1] for document in await store.documents(DEMANDS)}
        ours |= {name for name in books if _demand(name) in counted or _demand(name) in demands}
    return frozenset(ours)


def _demand(book: str) -> str:
    return book.rpartition(".")[0]
