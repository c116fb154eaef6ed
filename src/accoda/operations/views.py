"""Records for people. On the wire their names are camelCase, and moments are RFC 3339 text in UTC."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from msgspec import Struct

from accoda.envelope import Event, unwrap, without_secrets
from accoda.fingerprint import fingerprint
from accoda.model import JobInfo, QueueStats, State
from accoda.names import is_system
from accoda.operations.host import Host
from accoda.operations.levels import Level, level_of
from accoda.operations.moments import rfc3339
from accoda.operations.redaction import redacted
from accoda.runtime.results import Progress

T = TypeVar("T")


class Page(Struct, Generic[T], frozen=True):
    """Some of many. `next` is the cursor of the next page; None: this was the last."""

    items: list[T]
    next: str | None = None


class JobView(Struct, rename="camel", frozen=True, kw_only=True):
    """A job, as people see it. `priority` is None where its rank does not tell a level; `tick` is a moment.

    `attempts` counts how often it came back to the queue; `tries` how often it was retried because its handler failed,
    since it was enqueued, revived or replaced.
    """

    id: int
    queue: str
    name: str | None = None
    state: State
    priority: Level | None = None
    rank: float = 0.0
    payload: Any = None
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
    crashes: int = 0
    keep_for: float = 0.0
    progress: Progress | None = None

    @classmethod
    def of(cls, host: Host, info: JobInfo, progress: Progress | None = None) -> JobView:
        """What is shown of a stored job, with its secrets hidden."""
        metadata = unwrap(info.data)[0]
        seen = redacted(host, info)
        return cls(
            **same(info, "id queue state rank attempts tries cost key waiters crashes keep_for"),
            name=metadata.name,
            priority=level_of(host, info),
            payload=seen.payload,
            max_retries=None if metadata.max_attempts is None else metadata.max_attempts - 1,
            created_at=rfc3339(info.created_at),
            scheduled_at=rfc3339(info.start_time),
            taken_at=rfc3339(info.taken_at),
            lease_until=rfc3339(info.lease_until),
            ended_at=rfc3339(info.ended_at),
            worker=info.worker or None,
            reason=without_secrets(info.reason or "", seen.secrets) or None,
            fingerprint=fingerprint(info.reason) if info.reason else None,
            result=seen.result,
            webhook_url=None if metadata.hook is None else metadata.hook.url,
            webhook_on=None if metadata.hook is None else list(metadata.hook.on),
            schedule=metadata.schedule,
            tick=rfc3339(metadata.tick),
            progress=None
            if progress is None
            else Progress(progress.fraction, without_secrets(progress.message, seen.secrets)),
        )


class QueueView(Struct, rename="camel", frozen=True, kw_only=True):
    """A queue in numbers. `done`, `retried`, `buried`, `expired` count since the store was made; `oldest_age` is in
    seconds. `handled`: this app has a handler for it."""

    name: str
    ready: int = 0
    delayed: int = 0
    taken: int = 0
    dead: int = 0
    total: int = 0
    done: int = 0
    retried: int = 0
    buried: int = 0
    expired: int = 0
    oldest_age: float = 0.0
    paused: bool = False
    paused_until: str | None = None
    system: bool = False
    handled: bool = False

    @classmethod
    def of(cls, host: Host, name: str, stats: QueueStats) -> QueueView:
        return cls(
            **same(stats, "ready delayed taken dead total done retried buried expired oldest_age paused"),
            name=name,
            paused_until=rfc3339(stats.paused_until),
            system=is_system(name),
            handled=name in host.handlers,
        )


def same(source: object, names: str) -> dict[str, Any]:
    """The named attributes of a record, for another record that has them too."""
    return {name: getattr(source, name) for name in names.split()}
