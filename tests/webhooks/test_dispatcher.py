"""Which calls run, wait and go back: limits by host, leases, cancellation, and a store that is away."""

import asyncio
import contextlib
from typing import Any

import pytest
from aiohttp import web
from webhook_calls import Calls, Names, Receiver, running, until

from accoda.errors import StorageUnavailable
from accoda.webhooks import dispatcher
from accoda.webhooks.call import QUEUE
from accoda.webhooks.dispatcher import DispatchLimits
from accoda.webhooks.log import deliveries


async def test_a_call_that_is_cancelled_while_it_is_sent_goes_back_at_once(calls: Calls, receiver: Receiver) -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    receiver.answer = hang
    id = await calls.add(receiver.url)
    async with running(calls.loop(), calls):
        await receiver.called.wait()
    calls.clock.advance(0.001)
    receiver.answer = 200
    assert await calls.loop().run_once(calls.store) == 1
    [seen] = await deliveries(calls.store)
    assert (seen.id, seen.state, seen.tries) == (id, "done", 1)  # the cancelled one does not count
    assert len({message.id for message in receiver.got}) == 1 and len(receiver.got) == 2


class Held:
    """A store whose answers the test delays or turns into errors."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.take_done = asyncio.Event()
        self.go_on = asyncio.Event()
        self.go_on.set()
        self.settling = asyncio.Event()
        self.may_settle = asyncio.Event()
        self.may_settle.set()
        self.settle_errors = 0
        self.take_errors = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def take(self, *args: Any, **options: Any) -> Any:
        if self.take_errors:
            self.take_errors -= 1
            raise StorageUnavailable("away")
        jobs = await self._store.take(*args, **options)
        self.take_done.set()
        await self.go_on.wait()
        return jobs

    async def settle(self, outcomes: Any) -> Any:
        if self.settle_errors:
            self.settle_errors -= 1
            raise StorageUnavailable("away")
        self.settling.set()
        await self.may_settle.wait()
        return await self._store.settle(outcomes)


async def test_calls_that_were_just_taken_at_a_cancel_go_back_too(calls: Calls, receiver: Receiver) -> None:
    held: Any = Held(calls.store)
    held.go_on.clear()
    await calls.add(receiver.url)
    task = asyncio.create_task(calls.loop().run(held))
    await held.take_done.wait()
    task.cancel()
    await asyncio.sleep(0)
    held.go_on.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    calls.clock.advance(0.001)
    assert len(await calls.store.take(QUEUE, 5)) == 1 and not receiver.got


async def test_a_call_that_was_delivered_is_settled_in_spite_of_a_cancel(calls: Calls, receiver: Receiver) -> None:
    held: Any = Held(calls.store)
    held.may_settle.clear()
    id = await calls.add(receiver.url)
    task = asyncio.create_task(calls.loop().run(held))
    await held.settling.wait()
    task.cancel()
    await asyncio.sleep(0)
    held.may_settle.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert (await calls.info(id)).state == "done"


async def test_a_store_that_is_away_for_a_moment_is_waited_out(calls: Calls, receiver: Receiver) -> None:
    held: Any = Held(calls.store)
    held.take_errors, held.settle_errors = 2, 2
    id = await calls.add(receiver.url)
    task = asyncio.create_task(calls.loop().run(held))

    async def delivered() -> bool:
        return (await calls.info(id)).state == "done"

    await until(delivered)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(receiver.got) == 1


async def test_a_receiver_that_hangs_does_not_hold_up_the_others(calls: Calls) -> None:
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async with Receiver(hang) as slow, Receiver() as fast:
        for _ in range(150):  # more than may run, wait or be taken at once
            await calls.add(f"http://slow.test:{slow.port}/")
        for n in range(30):
            await calls.add(f"http://fast-{n % 10}.test:{fast.port}/")
        async with running(calls.loop(resolve=Names(["127.0.0.1"])), calls):
            await until(lambda: len(fast.got) == 30)
            assert slow.most_at_once == 4 and len(slow.got) == 4
            release.set()

            async def all_done() -> bool:
                calls.clock.advance(1)  # those that were given back become ready one by one
                return (await calls.store.stats()).queues[QUEUE].done == 180

            await until(all_done, 20)
        assert slow.most_at_once == 4 and len({message.id for message in slow.got}) == 150
    tries = [seen.tries for seen in await deliveries(calls.store, state="done", limit=200)]
    assert tries == [1] * 180  # being given back does not count


async def test_many_calls_to_one_host_are_made_a_few_at_a_time(calls: Calls, receiver: Receiver) -> None:
    for _ in range(15):
        await calls.add(receiver.url)
    assert await calls.loop().run_once(calls.store) == 15
    assert receiver.most_at_once <= 4 and len(receiver.got) == 15


async def test_leases_of_waiting_calls_are_renewed(calls: Calls, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher, "RENEWALS", 600)
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async with Receiver(hang) as slow:
        for _ in range(3):
            await calls.add(slow.url)
        async with running(calls.loop(limits=DispatchLimits(per_host=1)), calls):
            await slow.called.wait()
            calls.clock.advance(30)
            first = max(info.lease_until or 0 for info in await calls.store.browse(QUEUE, "taken"))

            async def renewed() -> bool:
                return min(info.lease_until or 0 for info in await calls.store.browse(QUEUE, "taken")) > first

            await until(renewed)
            release.set()

            async def all_done() -> bool:
                return (await calls.store.stats()).queues[QUEUE].done == 3

            await until(all_done)
        assert len(slow.got) == 3
