"""Workers, by their heartbeats."""

from accoda import App, ManualClock
from accoda.operations import workers
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, encode


async def beat(app: App, clock: ManualClock, name: str = "w", problem: str = "") -> None:
    now = clock.now()
    states = (ProcessorState("a", 3, 7, now - 2000), ProcessorState())
    times = (now - 60_000, now - 1000)
    value = Heartbeat(name, name, "host", 7, *times, ("a", "b"), 2, states, problem=problem, slots=10, batches={"b": 5})
    await app.storage.write(f"worker/{name}", encode(value))


async def test_workers_are_seen_by_their_heartbeats(app: App, clock: ManualClock) -> None:
    await beat(app, clock, "w2", "the store is slow")
    await beat(app, clock, "w1")
    await app.storage.write("worker/broken", b"{")
    first, second = await workers.list(app)
    assert (first.id, first.running, first.slots, first.queues) == ("w1", 3, 20, ["a", "b"])
    assert (first.beat_age, first.started_at) == (1.0, "2023-11-14T22:12:20.000Z")
    assert (first.processors[0].busy_for, first.processors[1].busy_for) == (2.0, None)
    assert second.problem == "the store is slow"


async def test_what_a_worker_runs_is_added_up_by_queue(app: App, clock: ManualClock) -> None:
    now = clock.now()
    states = (
        ProcessorState("a", 1, 7, now - 2000),
        ProcessorState("b", 2, 8, now),
        ProcessorState("a", 3, 9, now - 500),
    )
    beat = Heartbeat("w", "w", "host", 7, now, now, ("a", "b"), 4, (*states, ProcessorState()))
    await app.storage.write("worker/w", encode(beat))
    assert workers.running_by_queue(await workers.get(app, "w")) == {"a": (4, 2.0), "b": (2, 0.0)}
