"""Records for people. On the wire their names are camelCase, and moments are RFC 3339 text in UTC."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from msgspec import Struct

from accoda.envelope import Event, unwrap
from accoda.fingerprint import fingerprint
from accoda.model import JobInfo, QueueStats, State
from accoda.operations.attempt_text import attempt_text, crash_text, max_attempts
from accoda.operations.handlers import options_of
from accoda.operations.health import Activity, Health
from accoda.operations.host import Host
from accoda.operations.levels import LEVELS, Level, level_of
from accoda.operations.moments import rfc3339
from accoda.operations.redaction import redacted
from accoda.operations.words import stamp
from accoda.runtime.results import Progress

T = TypeVar("T")


class Page(Struct, Generic[T], frozen=True):
    """Some of many. `next` is the cursor of the next page; None: this was the last."""

    items: list[T]
    next: str | None = None


class JobView(Struct, rename="camel", frozen=True, kw_only=True):
    """A job, as people see it. `priority` is None where its rank does not tell a level; `tick` is a moment. `turn`
    orders a ready job in place of its rank, where lanes take turns and the two differ.

    `attempt_text` is which attempt it is, for people: `attempt 2 of 3`. `tries` counts the failures it was retried
    after since it was enqueued, revived or replaced; `attempts` counts every return to the queue and is the fencing
    number of its lease: both are 0 on the first run. `crashes` counts leases that ended without an outcome;
    `crash_text` says so, and what it means for a waiting job. `flow` and `node` say where it is in its flow.
    """

    id: int
    queue: str
    type: str | None = None
    lane: str | None = None
    name: str | None = None
    state: State
    priority: Level | None = None
    rank: float = 0.0
    turn: float | None = None
    payload: Any = None
    attempt_text: str = "attempt 1"
    attempts: int = 0
    tries: int = 0
    max_retries: int | None = None
    cost: int = 0
    key: str | None = None
    waiters: int = 0
    created_at: str
    scheduled_at: str
    taken_at: str | None = None
    lease_until: str | None = None
    ended_at: str | None = None
    worker: str | None = None
    reason: str | None = None
    fingerprint: str | None = None
    result: Any = None
    webhook_url: str | None = None
    webhook_on: list[Event] | None = None
    schedule: str | None = None
    tick: str | None = None
    flow: str | None = None
    node: str | None = None
    crashes: int = 0
    crash_text: str | None = None
    keep_for: float = 0.0
    progress: Progress | None = None

    @property
    def has_own_rank(self) -> bool:
        """Whether its rank says more than its priority: its queue is an aging one, or ranks jobs otherwise."""
        return self.priority is None or self.rank != LEVELS.index(self.priority)

    @classmethod
    def of(cls, host: Host, info: JobInfo, progress: Progress | None = None) -> JobView:
        """What is shown of a stored job, with its secrets hidden."""
        metadata = unwrap(info.data)[0]
        seen = redacted(host, info)
        return cls(
            **same(info, "id queue lane state rank turn attempts tries cost key waiters crashes keep_for"),
            type=metadata.type,
            name=metadata.name,
            priority=level_of(host, info),
            attempt_text=attempt_text(info.tries, max_attempts(host, info)),
            crash_text=crash_text(info, stamp(info.start_time)) or None,
            payload=seen.payload,
            max_retries=None if metadata.max_attempts is None else metadata.max_attempts - 1,
            created_at=rfc3339(info.created_at),
            scheduled_at=rfc3339(info.start_time),
            taken_at=rfc3339(info.taken_at),
            lease_until=rfc3339(info.lease_until),
            ended_at=rfc3339(info.ended_at),
            worker=info.worker or None,
            reason=seen.mask.text(info.reason or "") or None,
            fingerprint=fingerprint(info.reason) if info.reason else None,
            result=seen.result,
            webhook_url=None if metadata.hook is None else metadata.hook.url,
            webhook_on=None if metadata.hook is None else list(metadata.hook.on),
            schedule=metadata.schedule,
            tick=rfc3339(metadata.tick),
            flow=None if metadata.flow is None else metadata.flow.id,
            node=None if metadata.flow is None else metadata.flow.node,
            progress=None if progress is None else Progress(progress.fraction, seen.mask.text(progress.message)),
        )


class QueueView(Struct, rename="camel", frozen=True, kw_only=True):
    """A queue in numbers. `held` jobs wait for a place in their lane, `taken` jobs are running. `done`, `retried`,
    `buried`, `expired`, `cancelled` and `promoted` (delayed jobs that became ready because their start time came)
    count since the store was made; `oldest_age` is in seconds. `number` is the one that its contract or handler gives
    it, if this app or a running worker knows it. `handled`: this app has a handler for it. `system`: it is one of
    Accoda's own."""

    name: str
    number: int | None = None
    health: Health
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
    promoted: int = 0
    oldest_age: float = 0.0
    paused: bool = False
    paused_until: str | None = None
    system: bool = False
    handled: bool = False

    @classmethod
    def of(cls, host: Host, name: str, stats: QueueStats, activity: Activity, system: bool) -> QueueView:
        options = options_of(host, name)
        return cls(
            **same(stats, "ready delayed held taken dead total done retried buried expired cancelled promoted"),
            **same(stats, "oldest_age paused"),
            name=name,
            number=activity.number(name) if options is None or options.number is None else options.number,
            paused_until=rfc3339(stats.paused_until),
            health=activity.health(name, stats),
            system=system,
            handled=name in host.handlers,
        )


def same(source: object, names: str) -> dict[str, Any]:
    """The named attributes of a record, for another record that has them too."""
    return {name: getattr(source, name) for name in names.split()}
