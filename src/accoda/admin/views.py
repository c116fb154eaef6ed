"""Records for people. On the wire their names are camelCase, and moments are RFC 3339 text in UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from msgspec import Struct

from accoda.admin.moments import shown
from accoda.admin.requests import Level
from accoda.envelope import Event, unwrap, without_secrets
from accoda.fingerprint import fingerprint
from accoda.model import JobInfo, QueueStats, State
from accoda.names import is_system
from accoda.runtime.results import Progress
from accoda.shown.levels import level_of
from accoda.shown.secrets import Shown, seen_of

if TYPE_CHECKING:
    from accoda.app import App

T = TypeVar("T")

__all__ = ["JobView", "Page", "ProgressView", "QueueView", "is_system", "reason_of"]


class Page(Struct, Generic[T], frozen=True):
    """Some of many. `next` is the cursor of the page after it; None: this was the last."""

    items: list[T]
    next: str | None = None


class ProgressView(Struct, frozen=True):
    """How far a job is: a fraction from 0 to 1, and a line for people."""

    fraction: float | None = None
    message: str = ""


class JobView(Struct, rename="camel", frozen=True, kw_only=True):
    """A job, as people see it. `priority` is None where its rank does not tell a level; `tick` is a moment."""

    id: int
    queue: str
    name: str | None = None
    state: State
    priority: Level | None = None
    rank: float = 0.0
    payload: Any = None
    attempts: int = 0
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
    progress: ProgressView | None = None

    @classmethod
    def of(cls, app: App, info: JobInfo, progress: Progress | None = None) -> JobView:
        """What is shown of a stored job, with what is secret hidden."""
        extras = unwrap(info.data)[0]
        seen = seen_of(app, info)
        return cls(
            id=info.id,
            queue=info.queue,
            name=extras.name,
            state=info.state,
            priority=level_of(app, info),
            rank=info.rank,
            payload=seen.payload,
            attempts=info.attempts,
            max_retries=None if extras.max_attempts is None else extras.max_attempts - 1,
            cost=info.cost,
            key=info.key,
            waiters=info.waiters,
            created_at=shown(info.created_at) or "",
            scheduled_at=shown(info.start_time) or "",
            taken_at=shown(info.taken_at),
            lease_until=shown(info.lease_until),
            ended_at=shown(info.ended_at),
            worker=info.worker or None,
            reason=without_secrets(info.reason or "", seen.secrets) or None,
            fingerprint=fingerprint(info.reason) if info.reason else None,
            result=seen.result,
            webhook_url=None if extras.hook is None else extras.hook.url,
            webhook_on=None if extras.hook is None else list(extras.hook.on),
            schedule=extras.schedule,
            tick=shown(extras.tick),
            crashes=info.crashes,
            keep_for=info.keep_for,
            progress=_progress(progress, seen),
        )


class QueueView(Struct, rename="camel", frozen=True, kw_only=True):
    """A queue in numbers. `done`, `retried`, `buried`, `expired` count since the store was made; `oldest_age` is in
    seconds. `handled`: this app has a handler of it."""

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
    def of(cls, app: App, name: str, stats: QueueStats) -> QueueView:
        return cls(
            name=name,
            ready=stats.ready,
            delayed=stats.delayed,
            taken=stats.taken,
            dead=stats.dead,
            total=stats.total,
            done=stats.done,
            retried=stats.retried,
            buried=stats.buried,
            expired=stats.expired,
            oldest_age=stats.oldest_age,
            paused=stats.paused,
            paused_until=shown(stats.paused_until),
            system=is_system(name),
            handled=name in app.handlers,
        )


def reason_of(app: App, info: JobInfo) -> str:
    """Why a job was last retried or buried, without what is secret of its payload."""
    if not info.reason:
        return ""
    seen = seen_of(app, info)
    return without_secrets(info.reason, seen.secrets)


def _progress(progress: Progress | None, seen: Shown) -> ProgressView | None:
    if progress is None:
        return None
    return ProgressView(progress.fraction, without_secrets(progress.message, seen.secrets))
