"""Queues: what is in them, pausing, emptying."""

import pytest

from accoda import App, InvalidInput, ManualClock
from accoda.admin import queues
from accoda.errors import Conflict, NotFound
from accoda.model import NewJob


async def test_queues_are_listed_with_their_counts_and_system_queues_when_asked_for(app: App) -> None:
    @app.handler("idle")
    async def idle(payload: object) -> None: ...

    await app.storage.enqueue([NewJob("b"), NewJob("a"), NewJob("a", delay=9), NewJob("accoda.webhooks")])
    listed = await queues.list(app)
    assert [(each.name, each.ready, each.delayed, each.total, each.handled) for each in listed] == [
        ("a", 1, 1, 2, False),
        ("b", 1, 0, 1, False),
        ("idle", 0, 0, 0, True),
    ]
    everything = {each.name: each for each in await queues.list(app, system=True)}
    assert everything["accoda.webhooks"].system and not everything["a"].system


async def test_a_queue_that_never_was_is_not_found(app: App) -> None:
    with pytest.raises(NotFound) as error:
        await queues.get(app, "never")
    assert (error.value.kind, error.value.name) == ("queue", "never")
    with pytest.raises(InvalidInput):
        await queues.get(app, "a b")


async def test_a_pause_lasts_for_its_seconds_or_until_it_is_resumed(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("a")])
    view = await queues.pause(app, "a", 30)
    assert view.paused and view.paused_until == "2023-11-14T22:13:50.000Z"
    assert await app.storage.take("a", 1) == []
    clock.advance(30)
    assert not (await queues.get(app, "a")).paused
    assert (await queues.pause(app, "a")).paused_until is None
    assert not (await queues.resume(app, "a")).paused
    with pytest.raises(InvalidInput, match="until"):
        await queues.pause(app, "a", -1)


async def test_purging_deletes_one_state_in_parts_and_tells_how_far_it_is(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("a") for _ in range(2500)] + [NewJob("a", delay=60)])
    told: list[int] = []
    assert await queues.purge(app, "a", "ready", progress=told.append) == 2500
    assert told == [1000, 2000, 2500]
    assert (await queues.get(app, "a")).delayed == 1


async def test_purging_may_spare_what_is_newer(app: App, clock: ManualClock) -> None:
    await app.storage.enqueue([NewJob("a")])
    clock.advance(10)
    await app.storage.enqueue([NewJob("a")])
    assert await queues.purge(app, "a", "ready", clock.now()) == 1


async def test_schedules_are_not_purged(app: App) -> None:
    with pytest.raises(Conflict, match="schedules themselves"):
        await queues.purge(app, "accoda.schedules", "delayed")
    with pytest.raises(InvalidInput, match="state"):
        await queues.purge(app, "a", "lost")  # type: ignore[arg-type]
