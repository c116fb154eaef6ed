"""The calls that told of one job's end."""

import pytest

from accoda import App, Bury, Done
from accoda.errors import NotFound
from accoda.operations import jobs, webhooks
from accoda.operations.new_jobs import NewJobRequest
from accoda.webhooks.call import QUEUE


async def end(app: App, queue: str) -> int:
    """A job with a webhook that is dead, with its call enqueued as a worker does it."""
    from accoda.envelope import Hook
    from accoda.webhooks.call import Facts, call_job

    request = NewJobRequest(queue=queue, webhook_url="https://example.com/hook")
    [made] = await jobs.create(app, [request])
    [job] = await app.storage.take(queue, 1)
    facts = Facts(id=job.id, queue=queue, attempts=job.attempts, created_at=job.created_at)
    await app.storage.settle([Bury(job.lease, "no")])
    await app.storage.enqueue([call_job(Hook("https://example.com/hook"), "job.dead", facts)])
    return made.id


async def test_calls_on_their_way_and_ended_ones_are_found_by_their_job(app: App) -> None:
    first, second = await end(app, "a"), await end(app, "a")
    [waiting] = await webhooks.of_job(app, await jobs.get(app, first))
    assert (waiting.job, waiting.state, waiting.event) == (first, "ready", "job.dead")
    [call] = await app.storage.take(QUEUE, 1)
    await app.storage.settle([Done(call.lease)])
    [done] = await webhooks.of_job(app, await jobs.get(app, first))
    assert (done.job, done.state) == (first, "done")
    assert [each.job for each in await webhooks.of_job(app, await jobs.get(app, second))] == [second]


async def test_a_job_without_a_webhook_has_no_calls(app: App) -> None:
    made = await app.enqueue("a")
    assert await webhooks.of_job(app, await jobs.get(app, made.id)) == []


async def test_a_call_is_sent_again(app: App) -> None:
    await end(app, "a")
    [call] = await app.storage.take(QUEUE, 1)
    await app.storage.settle([Bury(call.lease, "answered 500")])
    assert await webhooks.send_again(app, call.id) == call.id
    with pytest.raises(NotFound):
        await webhooks.send_again(app, 999)
