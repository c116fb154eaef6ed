"""Which attempt people read, in every state of a real job."""

from typing import Any

import pytest

from accoda import App, ManualClock
from accoda.model import Done, Retry
from accoda.operations import jobs
from accoda.operations.attempt_text import attempt_text
from accoda.retry import Failed, Fixed, Limits, decide


async def said(app: App, id: int) -> tuple[str, str, int, int]:
    job = await jobs.get(app, id)
    return job.state, job.attempt_text, job.attempts, job.tries


async def test_it_counts_from_one_to_the_limit(app: App) -> None:
    """The failure that buries a job is not among its `tries`, and its attempt is the last one all the same."""
    id = (await app.enqueue("emails", 1, max_attempts=3)).id
    assert await said(app, id) == ("ready", "attempt 1 of 3", 0, 0)
    for number in (1, 2, 3):
        (job,) = await app.storage.take("emails", 1)
        assert (await said(app, id))[:2] == ("taken", f"attempt {number} of 3")
        await app.storage.settle([decide(job, Failed(ValueError("no")), Limits(rule=Fixed(0), max_attempts=3))])
    assert await said(app, id) == ("dead", "attempt 3 of 3", 2, 2)
    assert (await jobs.retry(app, id)).attempt_text == "attempt 1 of 3"


async def test_a_done_job_shows_the_attempt_that_succeeded(app: App) -> None:
    id = (await app.enqueue("emails", 1, keep_for=60)).id
    (job,) = await app.storage.take("emails", 1)
    await app.storage.settle([Done(job.lease)])
    assert await said(app, id) == ("done", "attempt 1", 0, 0)


async def test_a_return_that_is_no_failure_is_no_attempt(app: App) -> None:
    id = (await app.enqueue("emails", 1)).id
    (job,) = await app.storage.take("emails", 1)
    await app.storage.settle([Retry(job.lease, counts=False)])
    assert await said(app, id) == ("ready", "attempt 1", 1, 0)


async def test_the_limit_is_the_jobs_own_or_its_handlers(app: App) -> None:
    @app.handler("emails", max_attempts=5)
    async def send(payload: Any) -> None: ...

    assert (await said(app, (await app.enqueue("emails", 1)).id))[1] == "attempt 1 of 5"
    assert (await said(app, (await app.enqueue("emails", 1, max_attempts=2)).id))[1] == "attempt 1 of 2"


@pytest.mark.parametrize(("tries", "most", "text"), [(0, None, "attempt 1"), (1200, 2000, "attempt 1,201 of 2,000")])
def test_without_a_limit_there_is_no_of(tries: int, most: int | None, text: str) -> None:
    assert attempt_text(tries, most) == text


async def test_lost_leases_and_quarantine_are_told(app: App, clock: ManualClock) -> None:
    id = (await app.enqueue("emails", 1)).id
    assert (await jobs.get(app, id)).crash_text is None
    lost = "its lease ended {} without an outcome (the worker may have died)"
    for times in ("once", "2 times"):
        await app.storage.take("emails", 1, lease=30)
        clock.advance(31)
        text = (await jobs.get(app, id)).crash_text
        assert text is not None and text.startswith(f"{lost.format(times)}")
        assert ("quarantined" in text) == (times != "once")
    (job,) = await app.storage.take("emails", 1)
    assert (await jobs.get(app, id)).crash_text == lost.format("2 times")  # it runs
    await app.storage.settle([Retry(job.lease, delay=600, counts=False)])
    at = "2023-11-14 22:24:22 UTC"
    assert (await jobs.get(app, id)).crash_text == f"{lost.format('2 times')}; quarantined: it runs alone, next at {at}"
