"""Schedules, as people see and change them, and the jobs that they made."""

import pytest

from accoda import App, ManualClock
from accoda.errors import NotFound
from accoda.operations import schedules
from accoda.schedules import Schedule, Scheduler, create


@pytest.fixture
def report() -> Schedule:
    return Schedule(name="report", queue="reports", every=60, payload={"to": "anna"}, source="api")


async def test_a_schedule_is_told_with_its_next_ticks(app: App, report: Schedule) -> None:
    await create(app.storage, report)
    [view] = await schedules.list(app)
    assert (view.name, view.state, view.queue, view.payload) == ("report", "active", "reports", {"to": "anna"})
    assert len(view.upcoming) == 5 and view.upcoming[0] == view.next_at
    assert await schedules.get(app, "report") == view
    with pytest.raises(NotFound):
        await schedules.get(app, "none")


async def test_pause_resume_and_delete(app: App, report: Schedule) -> None:
    await create(app.storage, report)
    assert (await schedules.pause(app, "report")).state == "paused"
    assert (await schedules.resume(app, "report")).state == "active"
    await schedules.delete(app, "report")
    assert await schedules.list(app) == []
    with pytest.raises(NotFound):
        await schedules.delete(app, "report")


async def test_the_jobs_that_it_made_are_found_among_others(app: App, report: Schedule, clock: ManualClock) -> None:
    await create(app.storage, report)
    await app.enqueue("reports", {"by": "hand"})
    made = await schedules.trigger(app, "report")
    clock.advance(60)
    await Scheduler(app.new_job).run_once(await app.connections.get())
    found = await schedules.recent(app, await schedules.get(app, "report"))
    assert [job.schedule for job in found] == ["report", "report"]
    assert found[-1].id == made.id and found[0].tick is not None and found[-1].tick is None
