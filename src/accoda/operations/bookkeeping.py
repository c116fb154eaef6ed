"""Which queues are Accoda's own books: hidden from lists, totals and advice unless they are asked for.

accoda.*         system jobs
{demand}.cache   results of a demand, kept until they are old
{queue}.spent    the log of what a queue's jobs cost a budget
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from accoda.budget.books import DOCUMENT as BUDGETS
from accoda.budget.usage import SUFFIX as SPENT
from accoda.model import QueueStats
from accoda.names import is_system
from accoda.storage.protocol import Storage

COMPANIONS = (".cache", SPENT)
"""What the names of books that belong to a queue end with. A demand's `.deliver` holds work."""
_WORK = ("ready", "held", "taken", "dead", "done", "retried", "buried", "expired")


async def bookkeeping(store: Storage, stats: Mapping[str, QueueStats], demands: Collection[str] = ()) -> frozenset[str]:
    """Those of the queues that are books. `demands`: those that this process declares.

    A user may call a queue `web.cache` or `web.spent`. It is a book if `web` is a demand (declared here, or counted for
    by some process), or the log of the queue `web`: then the store has budgets, and nothing of it was ever handed out,
    because its lines are delayed for ever.
    """
    companions = {name for name in stats if name.endswith(COMPANIONS)}
    known = {document.name.split("/")[1] for document in await store.documents("demand/")} if companions else set()
    known.update(demands)
    logs = {name for name in companions if name.endswith(SPENT) and _is_log(name, stats)}
    if logs and await store.read(BUDGETS) is None:
        logs = set()
    return frozenset(
        name for name in stats if is_system(name) or name in logs or (name in companions and _owner(name) in known)
    )


def _is_log(name: str, stats: Mapping[str, QueueStats]) -> bool:
    return _owner(name) in stats and not any(getattr(stats[name], count) for count in _WORK)


def _owner(companion: str) -> str:
    return companion.rpartition(".")[0]
