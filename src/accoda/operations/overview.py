"""The whole store in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from accoda.model import QueueStats
from accoda.operations.health import read_activity
from accoda.operations.history.sparks import Spark
from accoda.operations.host import Host
from accoda.operations.moments import now_of, rfc3339
from accoda.operations.queues import views
from accoda.operations.views import QueueView
from accoda.operations.words import many

LATELY = 4
"""Slots of 15 seconds that a rate is made of: the last minute."""


class Totals(Struct, rename="camel", frozen=True, kw_only=True):
    """All queues together, except Accoda's own. `held` jobs wait for a place in their lane, `taken` jobs are
    running."""

    queues: int = 0
    ready: int = 0
    delayed: int = 0
    held: int = 0
    taken: int = 0
    dead: int = 0
    total: int = 0
    done: int = 0
    retried: int = 0
    buried: int = 0
    expired: int = 0
    cancelled: int = 0
    paused: int = 0
    oldest_age: float = 0.0


class Rate(Struct, frozen=True):
    """Jobs done a second, and runs that failed a second, over the last minute."""

    done: float
    failed: float


class Overview(Struct, rename="camel", frozen=True, kw_only=True):
    """`rates` come from the history; None: nothing is recorded. `used` of the workers' `slots` have a job. Running
    jobs are another number: clients of the HTTP API run theirs without a slot. `running` says both."""

    at: str
    totals: Totals
    workers: int
    slots: int
    used: int
    running: str
    queues: list[QueueView]
    rates: dict[str, Rate] | None = None


async def overview(host: Host, *, system: bool = False) -> Overview:
    """Totals, queues, workers, and rates of the last minute. `system`: Accoda's own queues too."""
    store = await host.connections.get()
    found = (await store.stats()).queues
    activity = await read_activity(host)
    shown = await views(host, found, activity, system)
    totals = _totals({queue.name: found[queue.name] for queue in shown})
    slots = sum(beat.most for beat in activity.workers)
    used = sum(beat.running for beat in activity.workers)
    return Overview(
        at=rfc3339(await now_of(store)),
        totals=totals,
        workers=len(activity.workers),
        slots=slots,
        used=used,
        running=running_text(totals.taken, used, slots),
        queues=shown,
        rates=_rates([queue.name for queue in shown], activity.sparks),
    )


def running_text(jobs: int, used: int, slots: int) -> str:
    """
    >>> running_text(41, 39, 50), running_text(1, 0, 0)
    ('41 jobs running, 39 of 50 slots used', '1 job running')
    """
    text = f"{many(jobs, 'job')} running"
    return f"{text}, {used:,} of {many(slots, 'slot')} used" if slots else text


def _totals(queues: dict[str, QueueStats]) -> Totals:
    every = queues.values()
    counts = [name for name in Totals.__struct_fields__ if name not in ("queues", "oldest_age")]
    sums = {name: sum(getattr(each, name) for each in every) for name in counts}
    return Totals(queues=len(queues), oldest_age=max((each.oldest_age for each in every), default=0.0), **sums)


def _rates(names: Iterable[str], sparks: Mapping[str, Spark]) -> dict[str, Rate] | None:
    if not sparks:
        return None
    idle = Rate(0.0, 0.0)
    return {name: _rate(sparks[name]) if name in sparks else idle for name in sorted(names)}


def _rate(spark: Spark) -> Rate:
    return Rate(round(sum(spark.done[-LATELY:]) / LATELY, 3), round(sum(spark.failed[-LATELY:]) / LATELY, 3))
