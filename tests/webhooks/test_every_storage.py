"""The life of calls on every storage: stored with the end of their job, made, given back, sent again."""

import asyncio
import contextlib
import time

from aiohttp import web
from webhook_calls import Calls, Receiver

from accoda.clock import ManualClock
from accoda.envelope import Hook
from accoda.model import Bury, Done, Job, NewJob
from accoda.storage.open import open_storage
from accoda.webhooks.call import QUEUE, Facts, call_job
from accoda.webhooks.log import deliveries, redeliver


def facts(job: Job) -> Facts:
    return Facts(id=job.id, queue=job.queue, attempts=job.attempts, created_at=job.created_at)


async def test_calls_live_on_every_storage(url: str, receiver: Receiver) -> None:
    clock = ManualClock(time.time_ns() // 1_000_000)
    async with await open_storage(url, clock=clock) as store:
        calls = Calls(store, clock)
        await store.enqueue([NewJob("emails"), NewJob("emails")])
        good, bad = await store.take("emails", 2)
        hook = Hook(receiver.url)
        ends = [
            Done(good.lease, then=[call_job(hook, "job.done", facts(good))]),
            Bury(bad.lease, "no such user", then=[call_job(hook, "job.dead", facts(bad))]),
        ]
        assert await store.settle(ends) == []
        assert await calls.loop().run_once(store) == 2
        assert {message.json["type"] for message in receiver.got} == {"job.done", "job.dead"}
        await _cancelled_in_the_middle(calls, receiver)
        receiver.answer = 410
        await calls.loop().run_once(store)
        [dead] = await deliveries(store, state="dead")
        receiver.answer = 500
        assert await redeliver(store, dead.id) == dead.id
        assert await calls.loop().run_once(store) == 1
        [waiting] = await deliveries(store, state="delayed")
        assert (waiting.id, waiting.tries, waiting.status) == (dead.id, 1, 500)
        receiver.answer = 200
        assert await redeliver(store, dead.id) == dead.id  # it need not wait
        assert await calls.loop().run_once(store) == 1
        for limit in (1, 2, 10):
            newest = await deliveries(store, limit=limit)
            assert [call.state for call in newest] == ["done"] * min(limit, 3) and newest[0].id == dead.id


async def _cancelled_in_the_middle(calls: Calls, receiver: Receiver) -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    receiver.answer = hang
    receiver.called.clear()
    id = await calls.add(receiver.url)
    task = asyncio.create_task(calls.loop().run(calls.store))
    async with asyncio.timeout(20):
        await receiver.called.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    calls.clock.advance(0.001)
    assert await calls.store.wait([QUEUE], 5)
    assert (await calls.info(id)).state == "ready"
