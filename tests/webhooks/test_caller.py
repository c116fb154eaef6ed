"""Calls to real receivers on loopback."""

import asyncio
import contextlib
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from standardwebhooks import Webhook
from webhook_world import Names, Receiver, World, quick

from accoda.errors import InvalidInput, MissingDriver, StorageUnavailable
from accoda.model import NewJob
from accoda.webhooks import QUEUE, Caller, CallerOptions, Room, connect, deliveries, sender, shift
from accoda.webhooks.body import moment
from accoda.webhooks.decide import TRIES, pause
from accoda.webhooks.keys import rotate, show
from accoda.webhooks.records import ANSWER, Delivered


@asynccontextmanager
async def running(caller: Caller, world: World) -> AsyncIterator[asyncio.Task[None]]:
    """The duty, as a clerk runs it."""
    task = asyncio.create_task(caller.run(world.store))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Any, timeout: float = 10.0) -> None:
    """Let the loop go on until something is so."""
    async with asyncio.timeout(timeout):
        while not (await found if asyncio.iscoroutine(found := condition()) else found):
            await asyncio.sleep(0.005)


async def test_a_call_is_delivered_and_its_signature_holds(world: World, receiver: Receiver) -> None:
    id = await world.call(receiver.url, result=msgspec.msgpack.encode({"sent": 3}))
    assert await world.caller().run_once(world.store) == 1
    [message] = receiver.got
    keys = await show(world.store, world.clock.now())
    told = Webhook(keys.current).verify(message.body, message.headers)
    assert told["type"] == "job.done" and told["data"]["result"] == {"sent": 3}
    assert message.headers["content-type"] == "application/json"
    info = await world.info(id)
    assert info.state == "done" and info.result is not None
    kept = msgspec.msgpack.decode(info.result, type=Delivered)
    assert kept.status == 204 and kept.at == world.clock.now()


async def test_after_a_rotation_old_and_new_keys_verify_what_is_sent(world: World, receiver: Receiver) -> None:
    old = (await show(world.store, world.clock.now())).current
    new = (await rotate(world.store, world.clock.now())).current
    await world.call(receiver.url)
    await world.caller().run_once(world.store)
    [message] = receiver.got
    assert len(message.headers["webhook-signature"].split(" ")) == 2
    for key in (old, new):
        Webhook(key).verify(message.body, message.headers)


async def test_a_caller_learns_of_a_rotation(world: World, receiver: Receiver) -> None:
    caller = world.caller()
    await world.call(receiver.url)
    await caller.run_once(world.store)
    await rotate(world.store, world.clock.now())
    world.clock.advance(11)
    await world.call(receiver.url)
    await caller.run_once(world.store)
    assert [len(message.headers["webhook-signature"].split(" ")) for message in receiver.got] == [1, 2]


async def test_a_call_that_fails_is_tried_ten_times_with_growing_pauses_then_buried(
    world: World, receiver: Receiver
) -> None:
    receiver.answer = 503
    id = await world.call(receiver.url)
    caller = world.caller()
    for tries in range(1, TRIES):
        assert await caller.run_once(world.store) == 1
        [seen] = await deliveries(world.store)
        assert (seen.state, seen.tries, seen.status) == ("delayed", tries, 503)
        waits = ((await world.info(id)).start_time - world.clock.now()) / 1000
        assert 0.79 * pause(tries) <= waits <= 1.21 * pause(tries)
        assert await caller.run_once(world.store) == 0  # not before its time
        world.clock.advance(waits)
    assert await caller.run_once(world.store) == 1
    info = await world.info(id)
    assert info.state == "dead" and info.reason == "HTTP 503 Service Unavailable (given up after 10 tries)"
    assert len(receiver.got) == TRIES
    assert len({message.id for message in receiver.got}) == len({message.body for message in receiver.got}) == 1
    assert len({message.headers["webhook-timestamp"] for message in receiver.got}) == TRIES


async def test_gone_is_not_tried_again(world: World, receiver: Receiver) -> None:
    receiver.answer = 410
    id = await world.call(receiver.url)
    await world.caller().run_once(world.store)
    info = await world.info(id)
    assert info.state == "dead" and (info.reason or "").startswith("HTTP 410 Gone")


async def test_retry_after_puts_the_call_off(world: World, receiver: Receiver) -> None:
    async def busy(_: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "900"}, text="slow\x1b[2J\r\ndown")

    receiver.answer = busy
    await world.call(receiver.url)
    await world.caller().run_once(world.store)
    [seen] = await deliveries(world.store)
    assert seen.next_at == moment(world.clock.now() + 900_000)
    assert seen.reason == "HTTP 429 Too Many Requests: slow\ufffd[2J down"


async def test_an_endless_answer_is_read_to_its_limit_and_no_further(world: World, receiver: Receiver) -> None:
    sent = 0
    ended = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
                sent += 65536
        finally:
            ended.set()

    receiver.answer = endless
    id = await world.call(receiver.url)
    await world.caller().run_once(world.store)
    async with asyncio.timeout(10):
        await ended.wait()
    info = await world.info(id)
    assert info.state == "done" and info.result is not None
    assert msgspec.msgpack.decode(info.result, type=Delivered).answer == "x" * ANSWER
    assert sent < 64 << 20  # what the buffers of the system hold, not what an endless answer has


async def test_an_answer_that_claims_to_be_huge_is_not_waited_for(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "READ_FOR", 0.1)

    async def huge(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(10**12), "Content-Encoding": "gzip"})
        await response.prepare(request)
        await response.write(b"begin")
        await asyncio.sleep(60)
        return response

    receiver.answer = huge
    id = await world.call(receiver.url)
    await world.caller().run_once(world.store)
    info = await world.info(id)
    assert info.state == "done" and info.result is not None  # the status had come, and it decides
    assert msgspec.msgpack.decode(info.result, type=Delivered).answer == "begin"


async def test_no_answer_in_time_is_a_failed_try(world: World, receiver: Receiver) -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    receiver.answer = slow
    await world.call(receiver.url)
    await world.caller(**quick(0.2)).run_once(world.store)
    [seen] = await deliveries(world.store)
    assert seen.state == "delayed" and (seen.reason or "").startswith("no answer within 0.2 s")


async def test_nobody_listening_and_no_such_name_are_failed_tries(world: World, receiver: Receiver) -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    await receiver.__aexit__()
    await world.call(receiver.url)
    await world.caller().run_once(world.store)
    await world.call("https://no.test/")
    await world.caller(resolve=nowhere).run_once(world.store)
    reasons = [seen.reason or "" for seen in await deliveries(world.store, state="delayed", after=0)]
    assert "no connection: " in reasons[0]
    assert reasons[1] == "the name no.test cannot be resolved: Name or service not known"


async def test_a_receiver_that_talks_nonsense_is_a_failed_try(world: World) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 smtp.example ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(nonsense, "127.0.0.1", 0) as server:
        await world.call(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        await world.caller().run_once(world.store)
    [seen] = await deliveries(world.store)
    assert seen.state == "delayed" and (seen.reason or "").startswith("no proper answer")


async def test_what_is_no_call_is_buried(world: World) -> None:
    [answer] = await world.store.enqueue([NewJob(QUEUE, b"nonsense")])
    assert await world.caller().run_once(world.store) == 1
    info = await world.info(answer.id)
    assert info.state == "dead" and (info.reason or "").startswith("unreadable call")


async def test_a_call_that_is_cancelled_in_the_middle_goes_back_at_once(world: World, receiver: Receiver) -> None:
    async def hang(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    receiver.answer = hang
    id = await world.call(receiver.url)
    async with running(world.caller(), world):
        await receiver.called.wait()
    world.clock.advance(0.001)
    receiver.answer = 200
    assert await world.caller().run_once(world.store) == 1
    [seen] = await deliveries(world.store)
    assert (seen.id, seen.state, seen.tries) == (id, "done", 1)  # the cancelled one was no try
    assert len({message.id for message in receiver.got}) == 1 and len(receiver.got) == 2


class Held:
    """A store some of whose answers come when the test says so, or not at all."""

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


async def test_calls_that_were_just_taken_when_it_is_cancelled_go_back_too(world: World, receiver: Receiver) -> None:
    held: Any = Held(world.store)
    held.go_on.clear()
    await world.call(receiver.url)
    task = asyncio.create_task(world.caller().run(held))
    await held.take_done.wait()
    task.cancel()
    await asyncio.sleep(0)
    held.go_on.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    world.clock.advance(0.001)
    assert len(await world.store.take(QUEUE, 5)) == 1 and not receiver.got


async def test_a_call_that_got_through_is_settled_although_it_is_cancelled(world: World, receiver: Receiver) -> None:
    held: Any = Held(world.store)
    held.may_settle.clear()
    id = await world.call(receiver.url)
    task = asyncio.create_task(world.caller().run(held))
    await held.settling.wait()
    task.cancel()
    await asyncio.sleep(0)
    held.may_settle.set()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert (await world.info(id)).state == "done"


async def test_a_store_that_is_away_for_a_moment_is_waited_out(world: World, receiver: Receiver) -> None:
    held: Any = Held(world.store)
    held.take_errors, held.settle_errors = 2, 2
    id = await world.call(receiver.url)
    task = asyncio.create_task(world.caller().run(held))

    async def delivered() -> bool:
        return (await world.info(id)).state == "done"

    await until(delivered)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert len(receiver.got) == 1


async def test_the_session_is_closed_when_there_is_nothing_to_call_and_opened_again(
    world: World, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[Any] = []

    def open_session(tls: Any) -> Any:
        sessions.append(connect.open_session(tls))
        return sessions[-1]

    monkeypatch.setattr(sender, "open_session", open_session)
    async with running(world.caller(), world):
        assert not sessions
        for count in (1, 2):
            for _ in range(4):
                await world.call(receiver.url)
            await until(lambda count=count: len(sessions) == count)

            def quiet() -> bool:
                world.clock.advance(1)
                return bool(sessions[-1].closed)

            await until(quiet)
    assert len(receiver.got) == 8


async def test_the_session_is_not_closed_under_a_call(world: World, receiver: Receiver) -> None:
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    receiver.answer = hang
    id = await world.call(receiver.url)
    async with running(world.caller(), world):
        await receiver.called.wait()
        for _ in range(5):
            world.clock.advance(8)  # longer than a quiet while, shorter than a lease
            await asyncio.sleep(0.01)
        release.set()

        async def ended() -> bool:
            return (await world.info(id)).state != "taken"

        await until(ended)
    [seen] = await deliveries(world.store)
    assert (seen.state, seen.tries) == ("done", 1)


def test_a_process_without_calls_does_not_import_the_extra() -> None:
    code = """
import asyncio, sys
from accoda.storage.open import open_storage
from accoda.webhooks import Caller

async def main():
    async with await open_storage("memory://") as store:
        task = asyncio.create_task(Caller().run(store))
        assert await Caller().run_once(store) == 0
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    print(sorted({"aiohttp", "standardwebhooks", "yarl"} & set(sys.modules)))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


async def test_calls_are_made_as_they_come(world: World, receiver: Receiver) -> None:
    async with running(world.caller(), world):
        for count in range(1, 4):
            await world.call(receiver.url)
            await until(lambda count=count: len(receiver.got) == count)


async def test_a_receiver_that_hangs_holds_back_nobody_else(world: World) -> None:
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async with Receiver(hang) as slow, Receiver() as fast:
        for _ in range(150):  # more than hands, more than may wait, and more than may be in hand
            await world.call(f"http://slow.test:{slow.port}/")
        for n in range(30):
            await world.call(f"http://fast-{n % 10}.test:{fast.port}/")
        async with running(world.caller(resolve=Names(["127.0.0.1"])), world):
            await until(lambda: len(fast.got) == 30)
            assert slow.most_at_once == 4 and len(slow.got) == 4
            release.set()

            async def all_done() -> bool:
                world.clock.advance(1)  # those that were put aside come back by and by
                return (await world.store.stats()).queues[QUEUE].done == 180

            await until(all_done, 20)
        assert slow.most_at_once == 4 and len({message.id for message in slow.got}) == 150
    tries = [seen.tries for seen in await deliveries(world.store, state="done", limit=200)]
    assert tries == [1] * 180  # to be put aside is no try


async def test_many_calls_to_one_host_flow_through_its_hands(world: World, receiver: Receiver) -> None:
    for _ in range(15):
        await world.call(receiver.url)
    assert await world.caller().run_once(world.store) == 15
    assert receiver.most_at_once <= 4 and len(receiver.got) == 15


async def test_leases_of_those_who_wait_are_renewed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shift, "RENEWALS", 600)
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    async with Receiver(hang) as slow:
        for _ in range(3):
            await world.call(slow.url)
        async with running(world.caller(room=Room(per_host=1)), world):
            await slow.called.wait()
            world.clock.advance(30)
            first = max(info.lease_until or 0 for info in await world.store.browse(QUEUE, "taken"))

            async def renewed() -> bool:
                return min(info.lease_until or 0 for info in await world.store.browse(QUEUE, "taken")) > first

            await until(renewed)
            release.set()

            async def all_done() -> bool:
                return (await world.store.stats()).queues[QUEUE].done == 3

            await until(all_done)
        assert len(slow.got) == 3


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=hooks.test "
        f"-addext subjectAltName=DNS:hooks.test -keyout {folder}/key.pem -out {folder}/cert.pem"
    )
    subprocess.run(command.split(), check=True, capture_output=True, timeout=30)
    return folder


async def test_tls_checks_the_name_although_the_connection_goes_to_an_address(world: World, certificate: Path) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    trusted = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    async with Receiver(tls=server) as secure:
        good = await world.call(f"https://hooks.test:{secure.port}/")
        bad = await world.call(f"https://other.test:{secure.port}/")
        await world.caller(resolve=Names(["127.0.0.1"]), tls=trusted).run_once(world.store)
        assert (await world.info(good)).state == "done" and len(secure.got) == 1
        assert secure.got[0].headers["host"] == f"hooks.test:{secure.port}"
        info = await world.info(bad)
        assert info.state == "delayed" and "certificate is not accepted" in (info.reason or "")


def test_without_the_extra_a_caller_says_which_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accoda.webhooks.extra.find_spec", lambda name: None)
    with pytest.raises(MissingDriver, match=r"accoda\[webhooks\]"):
        Caller()


def test_limits_that_outlast_the_lease_are_refused() -> None:
    with pytest.raises(InvalidInput, match="half of the lease"):
        CallerOptions(total=40)
