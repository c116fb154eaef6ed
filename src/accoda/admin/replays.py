"""Replays that go on by themselves, as people start, watch and stop them. `accoda.replays` says how they go on."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from msgspec import Struct

from accoda.admin.letters import DeadFilter, wanted
from accoda.admin.moments import shown
from accoda.admin.store import now_of
from accoda.errands import ErrandStatus
from accoda.errors import InvalidInput
from accoda.replays.steps import QUEUE, REPLAYS, Step

if TYPE_CHECKING:
    from accoda.app import App

FASTEST = 10_000.0


class ReplayView(Struct, rename="camel", frozen=True, kw_only=True):
    """A replay. `held` stay dead, because another job holds their key; `gone` were no longer there."""

    id: str
    status: ErrandStatus
    queue: str | None = None
    fingerprint: str | None = None
    rate: float | None = None
    started_at: str
    matched: int = 0
    revived: int = 0
    held: int = 0
    gone: int = 0

    @classmethod
    def of(cls, id: str, step: Step) -> ReplayView:
        return cls(
            id=id,
            status=step.status,
            queue=step.which.queue,
            fingerprint=step.which.fingerprint,
            rate=step.rate,
            started_at=shown(step.started_at) or "",
            matched=step.done.matched,
            revived=step.done.revived,
            held=step.done.held,
            gone=step.done.gone,
        )


def check_rate(rate: float | None) -> None:
    """Refuse what is no number of jobs a second."""
    if rate is None:
        return
    if (
        isinstance(rate, bool)
        or not isinstance(rate, (int, float))
        or not isfinite(rate)
        or not 0.001 <= rate <= FASTEST
    ):
        raise InvalidInput("rate", f"must be jobs a second, from 0.001 to {FASTEST:,.0f}, not {rate!r:.60}")


async def start_replay(app: App, filter: DeadFilter, rate: float | None = None) -> ReplayView:
    """Begin to revive the dead letters that fit, at most `rate` a second. It goes on wherever a worker or service runs.

    Those that die while it goes on are not revived a second time.
    """
    check_rate(rate)
    store = await app.connections.get()
    now = await now_of(store, QUEUE)
    step = Step(which=wanted(filter, now), rate=rate, started_at=now)
    return ReplayView.of(await REPLAYS.start(store, step), step)


async def replay_state(app: App, id: str) -> ReplayView:
    """How far a replay is."""
    return ReplayView.of(id, await REPLAYS.find(await app.connections.get(), id))


async def list_replays(app: App) -> list[ReplayView]:
    """Replays that go on, and those that have ended in the last week; the latest first."""
    return [ReplayView.of(id, step) for id, step in await REPLAYS.all(await app.connections.get())]


async def stop_replay(app: App, id: str) -> ReplayView:
    """End a replay before its end. What is revived stays so; the step that runs now may still revive its share."""
    return ReplayView.of(id, await REPLAYS.stop(await app.connections.get(), id))
