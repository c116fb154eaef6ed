"""What a job's envelope says of its end is done in the step that ends it."""

import msgspec
import pytest

from accoda import App, Batch, BuryJob, RetryLater
from accoda.envelope import Hook, JobMetadata, wrap
from accoda.model import Bury, NewJob, Remove
from accoda.webhooks.call import QUEUE, read_call

URL = "https://hooks.example.com/jobs"


@pytest.fixture
async def app():
    async with App("memory://") as app:
        yield app


async def calls(app: App):
    return [read_call(job.data) for job in await app.storage.browse(QUEUE, "ready")]


async def test_a_job_that_is_done_calls_its_webhook_with_the_result(app):
    @app.handler("orders", secret=("card",))
    async def order(payload: dict[str, str]) -> dict[str, str]:
        return {"receipt": "R-1", "card": payload["card"]}

    sent = await order.enqueue({"card": "4111", "to": "Anna"}, webhook=URL, name="Order 1")
    await app.run_until_idle()
    (call,) = await calls(app)
    assert (call.url, call.event, call.subject.id, call.subject.name) == (URL, "job.done", sent.id, "Order 1")
    assert msgspec.json.decode(call.subject.result) == {"receipt": "R-1", "card": "•••"}
    assert msgspec.json.decode(call.subject.payload) == {"card": "•••", "to": "Anna"}


async def test_a_job_that_dies_calls_its_webhook_with_the_reason(app):
    @app.handler("orders")
    async def order(payload: str) -> None:
        raise BuryJob("no such article")

    await order.enqueue("x", webhook=URL)
    await app.run_until_idle()
    (call,) = await calls(app)
    assert (call.event, call.subject.reason) == ("job.dead", "no such article")


async def test_only_the_ends_that_were_asked_for_are_told(app):
    @app.handler("orders")
    async def order(payload: str) -> None:
        if payload == "bad":
            raise BuryJob("bad")

    await order.enqueue("good", webhook=Hook(URL, ("dead",)))
    await order.enqueue("bad", webhook=Hook(URL, ("done",)))
    await app.run_until_idle()
    assert await calls(app) == []


async def test_a_retry_is_no_end(app):
    @app.handler("orders", max_attempts=2)
    async def order(payload: str) -> None:
        raise RetryLater("later", delay=0)

    await order.enqueue("x", webhook=URL)
    await app.run_until_idle()
    (call,) = await calls(app)
    assert call.event == "job.dead", "called once, when it was given up"
    assert call.subject.attempts == 1


async def test_a_payload_that_cannot_be_read_is_told_too(app):
    @app.handler("orders")
    async def order(payload: int) -> None: ...

    await app.storage.enqueue([NewJob("orders", wrap(msgspec.msgpack.encode("text"), JobMetadata(hook=Hook(URL))))])
    await app.run_until_idle()
    (call,) = await calls(app)
    assert "the payload is no int" in call.subject.reason


async def test_a_job_that_no_budget_can_ever_pay_is_told_too(app):
    app.budget("keepa", capacity=5, refill=5, per=60)

    @app.handler("orders", budget="keepa", cost=50)
    async def order(payload: str) -> None: ...

    await order.enqueue("x", webhook=URL)
    await app.run_until_idle()
    (call,) = await calls(app)
    assert call.event == "job.dead"


async def test_a_run_whose_lease_was_lost_makes_no_call(app):
    @app.handler("orders")
    async def order(payload: str) -> None:
        (job,) = await app.storage.browse("orders", "taken")
        await app.storage.change([Remove(job.id)])

    await order.enqueue("x", webhook=URL)
    await app.run_until_idle()
    assert await calls(app) == []


async def test_a_batch_handlers_burial_is_told_as_well(app):
    @app.handler("orders")
    async def orders(batch: Batch[str]) -> None:
        for job in batch:
            batch.bury(job, "all bad")

    await orders.enqueue("x", webhook=URL)
    await app.run_until_idle()
    (call,) = await calls(app)
    assert call.subject.reason == "all bad"


def test_follow_ups_of_other_kinds_stay():
    from accoda.model import Job, Lease
    from accoda.runtime.envelope_outcome import with_call

    lease = Lease("orders", 1, 0, 0)
    data = wrap(b"\xa1x", JobMetadata(hook=Hook(URL)))
    job = Job(1, "orders", data, 0.0, 0, None, 0, 0, 0, None, 0, lease)
    outcome = with_call(Bury(lease, "why", (NewJob("others"),)), job)
    assert [follow_up.queue for follow_up in outcome.then] == ["others", QUEUE]


@pytest.mark.parametrize("max_attempts", [1, 5])
async def test_a_reason_that_quotes_a_secret_is_stored_without_it(app, max_attempts):
    @app.handler("orders", secret=("card",), max_attempts=max_attempts, retry=3600)
    async def order(payload: dict[str, str]) -> None:
        raise ValueError(f"card {payload['card']} was refused")

    sent = await order.enqueue({"card": "4111 1111"}, webhook=URL)
    await app.run_until_idle()
    job = await app.find(sent.id)
    assert "card ••• was refused" in job.reason
    for call in await calls(app):
        assert "4111" not in str(call)
