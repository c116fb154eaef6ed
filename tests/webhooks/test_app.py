"""From a job with a webhook to the message that a receiver gets."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
from webhook_calls import LOOPBACK, Receiver

from accoda import App, BuryJob
from accoda.envelope import Hook
from accoda.errors import InvalidInput
from accoda.webhooks.call import QUEUE
from accoda.webhooks.dispatcher import SenderOptions
from accoda.webhooks.sender_loop import SenderLoop


@pytest.fixture
async def app() -> AsyncIterator[App]:
    made = App("memory://")

    @made.handler("reports", secret=("card",))
    async def report(order: dict[str, Any]) -> dict[str, int]:
        if order["year"] < 0:
            raise BuryJob("no such year")
        return {"pages": order["year"]}

    async with made.testing():
        yield made


async def finish(app: App) -> int:
    """Run the jobs, then make the calls."""
    await app.run_until_idle()
    return await SenderLoop(SenderOptions(policy=LOOPBACK)).run_once(app.storage)


async def test_a_job_that_is_done_or_dead_calls_its_webhook(app: App, receiver: Receiver) -> None:
    await app.enqueue("reports", {"year": 12, "card": "4111"}, webhook=receiver.url, name="Monthly")
    await app.enqueue("reports", {"year": -1}, webhook=Hook(receiver.url))
    assert await finish(app) == 2
    told = {message.json["type"]: message.json["data"] for message in receiver.got}
    assert told["job.done"]["result"] == {"pages": 12} and told["job.done"]["name"] == "Monthly"
    assert told["job.done"]["payload"] == {"year": 12, "card": "•••"}
    assert told["job.dead"]["reason"] == "no such year"


async def test_only_the_ends_that_were_asked_for_are_told(app: App, receiver: Receiver) -> None:
    await app.enqueue("reports", {"year": 12}, webhook=Hook(receiver.url, on=("dead",)))
    await app.enqueue("reports", {"year": -1}, webhook=Hook(receiver.url, on=("done",)))
    await app.enqueue("reports", {"year": 1})
    assert await finish(app) == 0
    assert QUEUE not in (await app.storage.stats()).queues or not receiver.got


async def test_a_url_that_could_never_be_called_is_refused_when_the_job_is_enqueued(app: App) -> None:
    for url in ("ftp://example.com/", "https://user@example.com/", "https://example.com/\r\nx: y", "https://a:22/"):
        with pytest.raises(InvalidInput, match="webhook"):
            await app.enqueue("reports", {"year": 12}, webhook=url)
    with contextlib.suppress(KeyError):
        assert (await app.storage.stats()).queues["reports"].total == 0
