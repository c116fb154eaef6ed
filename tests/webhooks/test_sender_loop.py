"""Calls to real receivers on loopback."""

import asyncio
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from standardwebhooks import Webhook
from webhook_calls import Calls, Names, Receiver, quick, running, until

from accoda.errors import InvalidInput, MissingDriver
from accoda.model import NewJob
from accoda.times import rfc3339
from accoda.webhooks import sender
from accoda.webhooks.call import ANSWER, QUEUE, Delivered
from accoda.webhooks.decide import TRIES, pause
from accoda.webhooks.dispatcher import SenderOptions
from accoda.webhooks.keys import rotate, show
from accoda.webhooks.log import deliveries
from accoda.webhooks.sender_loop import SenderLoop


async def test_a_call_is_delivered_and_its_signature_holds(calls: Calls, receiver: Receiver) -> None:
    id = await calls.add(receiver.url, result=msgspec.msgpack.encode({"sent": 3}))
    assert await calls.loop().run_once(calls.store) == 1
    [message] = receiver.got
    keys = await show(calls.store, calls.clock.now())
    told = Webhook(keys.current).verify(message.body, message.headers)
    assert told["type"] == "job.done" and told["data"]["result"] == {"sent": 3}
    assert message.headers["content-type"] == "application/json"
    info = await calls.info(id)
    assert info.state == "done" and info.result is not None
    kept = msgspec.msgpack.decode(info.result, type=Delivered)
    assert kept.status == 204 and kept.at == calls.clock.now()


async def test_after_a_rotation_old_and_new_keys_verify_what_is_sent(calls: Calls, receiver: Receiver) -> None:
    old = (await show(calls.store, calls.clock.now())).current
    new = (await rotate(calls.store, calls.clock.now())).current
    await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    [message] = receiver.got
    assert len(message.headers["webhook-signature"].split(" ")) == 2
    for key in (old, new):
        Webhook(key).verify(message.body, message.headers)


async def test_a_rotated_key_is_used_soon(calls: Calls, receiver: Receiver) -> None:
    loop = calls.loop()
    await calls.add(receiver.url)
    await loop.run_once(calls.store)
    await rotate(calls.store, calls.clock.now())
    calls.clock.advance(11)
    await calls.add(receiver.url)
    await loop.run_once(calls.store)
    assert [len(message.headers["webhook-signature"].split(" ")) for message in receiver.got] == [1, 2]


async def test_a_call_that_fails_is_tried_ten_times_with_growing_pauses_then_buried(
    calls: Calls, receiver: Receiver
) -> None:
    receiver.answer = 503
    id = await calls.add(receiver.url)
    loop = calls.loop()
    for tries in range(1, TRIES):
        assert await loop.run_once(calls.store) == 1
        [seen] = await deliveries(calls.store)
        assert (seen.state, seen.tries, seen.status) == ("delayed", tries, 503)
        waits = ((await calls.info(id)).start_time - calls.clock.now()) / 1000
        assert 0.79 * pause(tries) <= waits <= 1.21 * pause(tries)
        assert await loop.run_once(calls.store) == 0  # not before its time
        calls.clock.advance(waits)
    assert await loop.run_once(calls.store) == 1
    info = await calls.info(id)
    assert info.state == "dead" and info.reason == "HTTP 503 Service Unavailable (given up after 10 tries)"
    assert len(receiver.got) == TRIES
    assert len({message.id for message in receiver.got}) == len({message.body for message in receiver.got}) == 1
    assert len({message.headers["webhook-timestamp"] for message in receiver.got}) == TRIES


async def test_gone_is_not_tried_again(calls: Calls, receiver: Receiver) -> None:
    receiver.answer = 410
    id = await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    info = await calls.info(id)
    assert info.state == "dead" and (info.reason or "").startswith("HTTP 410 Gone")


async def test_retry_after_puts_the_call_off(calls: Calls, receiver: Receiver) -> None:
    async def busy(_: web.Request) -> web.Response:
        return web.Response(status=429, headers={"Retry-After": "900"}, text="slow\x1b[2J\r\ndown")

    receiver.answer = busy
    await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    [seen] = await deliveries(calls.store)
    assert seen.next_at == rfc3339(calls.clock.now() + 900_000)
    assert seen.reason == "HTTP 429 Too Many Requests: slow\ufffd[2J down"


async def test_an_endless_answer_is_read_to_its_limit_and_no_further(calls: Calls, receiver: Receiver) -> None:
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
    id = await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    async with asyncio.timeout(10):
        await ended.wait()
    info = await calls.info(id)
    assert info.state == "done" and info.result is not None
    assert msgspec.msgpack.decode(info.result, type=Delivered).answer == "x" * ANSWER
    assert sent < 64 << 20  # what the buffers of the system hold


async def test_an_answer_that_claims_to_be_huge_is_not_waited_for(
    calls: Calls, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "READ_FOR", 0.1)

    async def huge(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Length": str(10**12), "Content-Encoding": "gzip"})
        await response.prepare(request)
        await response.write(b"begin")
        await asyncio.sleep(60)
        return response

    receiver.answer = huge
    id = await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    info = await calls.info(id)
    assert info.state == "done" and info.result is not None  # the status alone decides
    assert msgspec.msgpack.decode(info.result, type=Delivered).answer == "begin"


async def test_no_answer_in_time_is_a_failed_try(calls: Calls, receiver: Receiver) -> None:
    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        return web.Response()

    receiver.answer = slow
    await calls.add(receiver.url)
    await calls.loop(**quick(0.2)).run_once(calls.store)
    [seen] = await deliveries(calls.store)
    assert seen.state == "delayed" and (seen.reason or "").startswith("no answer within 0.2 s")


async def test_a_refused_connection_and_an_unknown_name_are_failed_tries(calls: Calls, receiver: Receiver) -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError(-2, "Name or service not known")

    await receiver.__aexit__()
    await calls.add(receiver.url)
    await calls.loop().run_once(calls.store)
    await calls.add("https://no.test/")
    await calls.loop(resolve=nowhere).run_once(calls.store)
    reasons = [seen.reason or "" for seen in await deliveries(calls.store, state="delayed")]
    assert "no connection: " in reasons[1]
    assert reasons[0] == "the name no.test cannot be resolved: Name or service not known"


async def test_a_receiver_that_talks_nonsense_is_a_failed_try(calls: Calls) -> None:
    async def nonsense(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 smtp.example ESMTP\r\n")
        writer.close()

    async with await asyncio.start_server(nonsense, "127.0.0.1", 0) as server:
        await calls.add(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")
        await calls.loop().run_once(calls.store)
    [seen] = await deliveries(calls.store)
    assert seen.state == "delayed" and (seen.reason or "").startswith("no proper answer")


async def test_an_unreadable_call_is_buried(calls: Calls) -> None:
    [answer] = await calls.store.enqueue([NewJob(QUEUE, b"nonsense")])
    assert await calls.loop().run_once(calls.store) == 1
    info = await calls.info(answer.id)
    assert info.state == "dead" and (info.reason or "").startswith("unreadable call")


async def test_the_session_is_closed_when_there_is_nothing_to_call_and_opened_again(
    calls: Calls, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions: list[Any] = []

    opened = sender.open_session

    def open_session(tls: Any) -> Any:
        sessions.append(opened(tls))
        return sessions[-1]

    monkeypatch.setattr(sender, "open_session", open_session)
    async with running(calls.loop(), calls):
        assert not sessions
        for count in (1, 2):
            for _ in range(4):
                await calls.add(receiver.url)
            await until(lambda count=count: len(sessions) == count)

            def quiet() -> bool:
                calls.clock.advance(1)
                return bool(sessions[-1].closed)

            await until(quiet)
    assert len(receiver.got) == 8


async def test_the_session_is_not_closed_under_a_call(calls: Calls, receiver: Receiver) -> None:
    release = asyncio.Event()

    async def hang(_: web.Request) -> web.Response:
        await release.wait()
        return web.Response()

    receiver.answer = hang
    id = await calls.add(receiver.url)
    async with running(calls.loop(), calls):
        await receiver.called.wait()
        for _ in range(5):
            calls.clock.advance(8)  # longer than a quiet while, shorter than a lease
            await asyncio.sleep(0.01)
        release.set()

        async def ended() -> bool:
            return (await calls.info(id)).state != "taken"

        await until(ended)
    [seen] = await deliveries(calls.store)
    assert (seen.state, seen.tries) == ("done", 1)


def test_a_process_without_calls_does_not_import_the_extra() -> None:
    code = """
import asyncio, sys
from accoda.storage.open import open_storage
from accoda.webhooks.sender_loop import SenderLoop

async def main():
    async with await open_storage("memory://") as store:
        task = asyncio.create_task(SenderLoop().run(store))
        assert await SenderLoop().run_once(store) == 0
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    print(sorted({"aiohttp", "standardwebhooks", "yarl"} & set(sys.modules)))

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"


async def test_calls_are_made_as_they_come(calls: Calls, receiver: Receiver) -> None:
    async with running(calls.loop(), calls):
        for count in range(1, 4):
            await calls.add(receiver.url)
            await until(lambda count=count: len(receiver.got) == count)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=hooks.test "
        f"-addext subjectAltName=DNS:hooks.test -keyout {folder}/key.pem -out {folder}/cert.pem"
    )
    subprocess.run(command.split(), check=True, capture_output=True, timeout=30)
    return folder


async def test_tls_checks_the_name_although_the_connection_goes_to_an_address(calls: Calls, certificate: Path) -> None:
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    trusted = ssl.create_default_context(cafile=str(certificate / "cert.pem"))
    async with Receiver(tls=server) as secure:
        good = await calls.add(f"https://hooks.test:{secure.port}/")
        bad = await calls.add(f"https://other.test:{secure.port}/")
        await calls.loop(resolve=Names(["127.0.0.1"]), tls=trusted).run_once(calls.store)
        assert (await calls.info(good)).state == "done" and len(secure.got) == 1
        assert secure.got[0].headers["host"] == f"hooks.test:{secure.port}"
        info = await calls.info(bad)
        assert info.state == "delayed" and "certificate is not accepted" in (info.reason or "")


def test_without_the_extra_a_sender_says_which_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accoda.webhooks.sender_loop.find_spec", lambda name: None)
    with pytest.raises(MissingDriver, match=r"accoda\[webhooks\]"):
        SenderLoop()


def test_limits_that_outlast_the_lease_are_refused() -> None:
    with pytest.raises(InvalidInput, match="half of the lease"):
        SenderOptions(total=40)
