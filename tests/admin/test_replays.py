"""Replays as people start, watch and stop them."""

import pytest

from accoda import App, Bury, InvalidInput, ManualClock
from accoda.admin.dead import DeadFilter, list_replays, replay_state, start_replay, stop_replay
from accoda.errors import Conflict, NotFound
from accoda.model import NewJob
from accoda.replays import Replayer
from accoda.storage.protocol import Store


async def bury(app: App, count: int, queue: str = "a") -> None:
    store = app.storage
    await store.enqueue([NewJob(queue) for _ in range(count)])
    await store.settle([Bury(job.lease, "broken") for job in await store.take(queue, count)])


async def ready(app: App) -> int:
    return (await app.storage.stats()).queues["a"].ready


async def finish(app: App, clock: ManualClock, id: str) -> int:
    """Let it go on to its end; how many seconds that took."""
    seconds = 0
    while (await replay_state(app, id)).status == "running":
        while await Replayer().run_once(app.storage):
            pass
        clock.advance(1)
        seconds += 1
    return seconds


async def test_a_stopped_replay_revives_no_more(app: App, clock: ManualClock) -> None:
    await bury(app, 25)
    view = await start_replay(app, DeadFilter(), rate=10)
    for _ in range(2):
        await Replayer().run_once(app.storage)
        clock.advance(1)
    stopped = await stop_replay(app, view.id)
    assert (stopped.status, stopped.revived) == ("stopped", 10)
    clock.advance(5)
    assert await Replayer().run_once(app.storage) == 0
    assert await ready(app) == 10 and (await replay_state(app, view.id)).status == "stopped"
    with pytest.raises(Conflict, match="is stopped already"):
        await stop_replay(app, view.id)


async def test_one_that_is_stopped_while_a_step_runs_is_not_followed_by_another(app: App, clock: ManualClock) -> None:
    await bury(app, 25)
    view = await start_replay(app, DeadFilter(), rate=10)
    await Replayer().run_once(app.storage)
    clock.advance(1)
    store: Store = await app.connections.get()
    revive = store.revive

    async def stop_in_between(ids: list[int]) -> int:
        await stop_replay(app, view.id)
        return await revive(ids)

    store.revive = stop_in_between  # type: ignore[method-assign, assignment]
    assert await Replayer().run_once(store) == 0, "its settlement is refused"
    clock.advance(100)
    assert await Replayer().run_once(store) == 0
    assert (await replay_state(app, view.id)).status == "stopped"


async def test_replays_are_listed_with_those_that_have_ended(app: App, clock: ManualClock) -> None:
    await bury(app, 2)
    first = await start_replay(app, DeadFilter(queue="none"))
    await finish(app, clock, first.id)
    second = await start_replay(app, DeadFilter(), rate=1)
    assert [(each.id, each.status) for each in await list_replays(app)] == [
        (second.id, "running"),
        (first.id, "finished"),
    ]


async def test_a_replay_that_never_was_is_not_found(app: App) -> None:
    for id in ("nope", "", "a/b", "x" * 100):
        with pytest.raises(NotFound):
            await replay_state(app, id)
        with pytest.raises(NotFound):
            await stop_replay(app, id)
    with pytest.raises(InvalidInput, match="rate"):
        await start_replay(app, DeadFilter(), rate=0)
