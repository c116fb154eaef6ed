"""Taking, settling and extending over HTTP: a real service on a real socket."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import msgspec
import pytest
import pytest_asyncio

from accoda import App, NewJob
from accoda.clock import ManualClock
from accoda.envelope import Extras, Hook, wrap
from accoda.http.options import ServiceOptions
from accoda.http.server import Server, configuration
from accoda.http.service import Service
from accoda.http.taking import _take_whole
from accoda.http.work import OPERATIONS, TakeRequest
from accoda.model import Job
from accoda.retry import Fixed
from accoda.storage.protocol import Store

NOW = 1_893_456_000_000  # 2030-01-01T00:00:00Z


class World:
    """A service, its store, its clock, and a client."""

    def __init__(self, app: App, server: Server, port: int, session: aiohttp.ClientSession, clock: ManualClock) -> None:
        self.app = app
        self.server = server
        self.port = port
        self.session = session
        self.clock = clock

    @property
    def store(self) -> Store:
        return self.app.storage

    async def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        url = f"http://127.0.0.1:{self.port}/api/v1/queues/{path}"
        async with self.session.post(url, json={} if body is None else body) as answer:
            text = await answer.text()
            assert answer.status == status, text
            return json.loads(text)

    async def take(self, queue: str = "emails", **ask: Any) -> list[dict[str, Any]]:
        return (await self.post(f"{queue}/take", ask))["jobs"]  # type: ignore[no-any-return]

    async def settle(self, *outcomes: dict[str, Any], status: int = 200) -> Any:
        return await self.post("emails/settle", {"outcomes": outcomes}, status)

    async def enqueue(self, *payloads: Any, queue: str = "emails", **options: Any) -> list[int]:
        jobs = [self.app.new_job(queue, payload, options) for payload in payloads]  # type: ignore[arg-type]
        return [one.id for one in await self.store.enqueue(jobs)]

    async def counts(self, queue: str = "emails") -> Any:
        return (await self.store.stats()).queues[queue]


@pytest_asyncio.fixture
async def world() -> AsyncIterator[World]:
    clock = ManualClock(NOW)
    app = App("memory://", clock=clock)
    service = Service(app, ServiceOptions(errands=False), OPERATIONS)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        started = asyncio.Event()
        server = Server(configuration(service), leave=service.leave, started=started.set)
        serving = asyncio.create_task(server._serve([listener]))  # `serve` would take the test runner's signals
        await started.wait()
        async with aiohttp.ClientSession() as session:
            yield World(app, server, listener.getsockname()[1], session, clock)
        server.should_exit = True
        await serving


async def test_a_job_is_taken_with_all_that_a_worker_needs_and_settled(world: World) -> None:
    [id] = await world.enqueue({"to": "anna"}, name="Welcome", key="anna", cost=3)
    [job] = await world.take(count=5, lease=30, worker="mailer-1")
    token = job.pop("lease")
    assert job == {
        "id": id,
        "queue": "emails",
        "name": "Welcome",
        "payload": {"to": "anna"},
        "attempts": 0,
        "crashes": 0,
        "createdAt": "2030-01-01T00:00:00.000Z",
        "scheduledAt": "2030-01-01T00:00:00.000Z",
        "prevStartTime": None,
        "cost": 3,
        "key": "anna",
        "waiters": 0,
        "schedule": None,
        "tick": None,
        "leaseUntil": "2030-01-01T00:00:30.000Z",
    }
    info = await world.store.find(id)
    assert info is not None and (info.worker, info.lease_until) == ("mailer-1", NOW + 30_000)
    assert await world.settle({"lease": token, "do": "done"}) == {"refused": []}
    assert (await world.counts()).done == 1


async def test_secrets_reach_the_worker_and_bytes_are_marked(world: World) -> None:
    payload = msgspec.msgpack.encode({"card": "4111", "photo": b"hi", 7: float("inf")})
    await world.store.enqueue([NewJob("emails", wrap(payload, Extras(secret=("card",))))])
    [job] = await world.take()
    assert job["payload"] == {"card": "4111", "photo": {"$bytes": "aGk="}, "7": {"$float": "inf"}}


async def test_a_late_outcome_changes_nothing_and_is_given_back(world: World) -> None:
    [id] = await world.enqueue("a")
    [first] = await world.take(lease=5)
    world.clock.advance(5)
    [second] = await world.take()
    assert (second["attempts"], second["crashes"]) == (1, 1)
    answer = await world.settle({"lease": first["lease"], "do": "done"}, {"lease": second["lease"], "do": "done"})
    assert answer == {"refused": [{"lease": first["lease"], "id": id, "why": "lost"}]}
    assert (await world.counts()).done == 1
    again = await world.settle({"lease": second["lease"], "do": "done"})
    assert again["refused"][0]["why"] == "lost"


async def test_extend_keeps_what_is_held_and_names_what_is_lost(world: World) -> None:
    await world.enqueue("a", "b")
    first, second = await world.take(count=2, lease=5)
    await world.settle({"lease": first["lease"], "do": "done"})
    answer = await world.post("emails/extend", {"leases": [first["lease"], second["lease"]], "lease": 60})
    assert [one["id"] for one in answer["refused"]] == [first["id"]]
    world.clock.advance(59)
    assert await world.take() == []
    assert await world.settle({"lease": second["lease"], "do": "done"}) == {"refused": []}


async def test_done_keeps_the_result_and_enqueues_what_follows_in_the_same_step(world: World) -> None:
    [id] = await world.enqueue("a", keep_for=60)
    [job] = await world.take()
    then = [{"queue": "bills", "payload": 1, "priority": "HIGH"}, {"type": "emails", "payload": 2, "delay": 10}]
    await world.settle({"lease": job["lease"], "do": "done", "result": {"sent": 2}, "then": then})
    info = await world.store.find(id)
    assert info is not None and (info.state, msgspec.msgpack.decode(info.result or b"")) == ("done", {"sent": 2})
    assert ((await world.counts("bills")).ready, (await world.counts()).delayed) == (1, 1)
    # Refused: nothing follows.
    await world.settle({"lease": job["lease"], "do": "done", "then": then})
    assert (await world.counts("bills")).ready == 1


async def test_retry_goes_back_as_told_and_bury_keeps_the_reason(world: World) -> None:
    await world.enqueue("now", "later", "at", "never")
    leases = [job["lease"] for job in await world.take(count=4)]
    await world.settle(
        {"lease": leases[0], "do": "retry", "reason": "busy"},
        {"lease": leases[1], "do": "retry", "delay": 30},
        {"lease": leases[2], "do": "retry", "at": "2030-01-01T01:01:00+01:00"},
        {"lease": leases[3], "do": "bury", "reason": "no such address"},
    )
    assert [job["payload"] for job in await world.take(count=4)] == ["now"]
    [dead] = await world.store.browse("emails", "dead")
    assert dead.reason == "no such address"
    delayed = await world.store.browse("emails", "delayed")
    assert [job.start_time - NOW for job in delayed] == [30_000, 60_000]


async def test_fail_lets_the_rule_and_the_limits_of_the_queue_decide(world: World) -> None:
    seen: list[tuple[int, str]] = []

    def rule(tries: int, error: BaseException) -> float:
        seen.append((tries, str(error)))
        return 7.0

    @world.app.handler("emails", retry=rule, max_attempts=2)
    async def send(to: str) -> None: ...

    [id] = await world.enqueue("anna")
    [job] = await world.take()
    await world.settle({"lease": job["lease"], "do": "fail", "error": "TypeError: to is undefined"})
    info = await world.store.find(id)
    assert info is not None and (info.state, info.start_time, info.reason) == (
        "delayed",
        NOW + 7000,
        "TypeError: to is undefined",
    )
    world.clock.advance(7)
    [job] = await world.take()
    await world.settle({"lease": job["lease"], "do": "fail", "error": "again"})
    info = await world.store.find(id)
    assert info is not None and (info.state, info.reason) == ("dead", "failed 2 times, the last time with again")
    assert seen == [(0, "TypeError: to is undefined")]


async def test_a_jobs_own_limit_of_attempts_wins_and_a_revived_job_starts_afresh(world: World) -> None:
    world.app.handler("emails", retry=Fixed(0), max_attempts=1)(_nothing)
    [id] = await world.enqueue("anna", max_attempts=2)
    for _ in range(2):
        for expected in ("ready", "dead"):
            [job] = await world.take()
            await world.settle({"lease": job["lease"], "do": "fail", "error": "no"})
            info = await world.store.find(id)
            assert info is not None and info.state == expected
        assert await world.store.revive([id]) == 1


async def test_a_call_that_a_job_asked_for_is_stored_in_the_step_in_which_it_ends(world: World) -> None:
    url = "https://example.com/hook"
    await world.enqueue("done", "failed", "again", webhook=url)
    await world.enqueue("quiet", webhook=Hook(url, on=("dead",)))
    await world.store.enqueue([NewJob("emails", wrap(b"\xc1", Extras(hook=Hook(url))))])
    leases = [job["lease"] for job in await world.take(count=10)]
    assert (await world.counts("accoda.webhooks")).ready == 1  # of the one that could not be read
    await world.settle(
        {"lease": leases[0], "do": "done", "then": [{"queue": "bills"}]},
        {"lease": leases[1], "do": "bury", "reason": "no"},
        {"lease": leases[2], "do": "retry"},
        {"lease": leases[3], "do": "done"},
    )
    assert (await world.counts("accoda.webhooks")).ready == 3
    assert (await world.counts("bills")).ready == 1
    # A lease that was lost calls nobody.
    await world.settle({"lease": leases[0], "do": "done"}, {"lease": leases[2], "do": "bury", "reason": "late"})
    assert (await world.counts("accoda.webhooks")).ready == 3


async def test_a_secret_that_an_error_quotes_is_not_kept(world: World) -> None:
    payload = msgspec.msgpack.encode({"card": "4111-2222"})
    await world.store.enqueue([NewJob("emails", wrap(payload, Extras(secret=("card",))))])
    await world.store.enqueue([NewJob("emails", payload)])  # its producer did not know the handler
    world.app.handler("emails", secret=("card",))(_nothing)
    jobs = await world.take(count=2)
    await world.settle(*({"lease": job["lease"], "do": "bury", "reason": "card 4111-2222 refused"} for job in jobs))
    dead = await world.store.browse("emails", "dead")
    assert [job.reason for job in dead] == ["card ••• refused"] * 2


async def test_done_with_the_waiters_seen_is_refused_when_more_have_joined(world: World) -> None:
    def waits(name: bytes) -> NewJob:
        return NewJob("emails", b"\x01", key="k", on_duplicate="attach", waiter=name)

    await world.store.enqueue([waits(b"one")])
    [job] = await world.take()
    await world.store.enqueue([waits(b"two")])
    answer = await world.settle({"lease": job["lease"], "do": "done", "waiters": job["waiters"]})
    assert answer["refused"][0]["why"] == "grown"
    assert await world.settle({"lease": job["lease"], "do": "done", "waiters": 2}) == {"refused": []}


async def test_what_cannot_be_read_is_buried_alone_and_the_others_are_handed_over(world: World) -> None:
    good = msgspec.msgpack.encode("good")
    await world.store.enqueue([NewJob("emails", data) for data in (b"\xc1junk", good, b"", b"\x93\x01")])
    assert [job["payload"] for job in await world.take(count=10)] == ["good"]
    dead = await world.store.browse("emails", "dead")
    assert len(dead) == 3 and all("UnreadablePayload" in (job.reason or "") for job in dead)


async def test_a_take_that_finds_only_what_must_be_buried_looks_further(world: World) -> None:
    jobs = [NewJob("emails", b"\xc1")] * 4 + [NewJob("emails", msgspec.msgpack.encode("good"))]
    await world.store.enqueue(jobs)
    assert [job["payload"] for job in await world.take(count=2)] == ["good"]


async def test_a_job_that_kills_its_workers_is_buried_in_the_end(world: World) -> None:
    await world.enqueue("poison")
    for _ in range(5):
        assert await world.take(lease=1)
        world.clock.advance(1)
    assert await world.take() == []
    [dead] = await world.store.browse("emails", "dead")
    assert (dead.reason or "").startswith("poison: its lease ended 5 times")


async def test_bad_input_names_its_place_and_settles_nothing(world: World) -> None:
    await world.enqueue("a", "b")
    await world.enqueue("c", queue="bills")
    first, second = [job["lease"] for job in await world.take(count=2)]
    [other] = [job["lease"] for job in await world.take("bills")]
    good = {"lease": first, "do": "done"}
    for bad, field in (
        ({"lease": "nonsense", "do": "done"}, "outcomes[1].lease"),
        ({"lease": second[:-1] + ("A" if second[-1] != "A" else "B"), "do": "done"}, "outcomes[1].lease"),
        ({"lease": second + "==", "do": "done"}, "outcomes[1].lease"),
        ({"lease": "ü" * 20, "do": "done"}, "outcomes[1].lease"),
        ({"lease": other, "do": "done"}, "outcomes[1].lease"),
        ({"lease": second, "do": "retry", "delay": 1, "at": "2030-01-01T00:00:00Z"}, "outcomes[1].at"),
        ({"lease": second, "do": "retry", "at": "tomorrow"}, "outcomes[1].at"),
        ({"lease": second, "do": "done", "then": [{"queue": "x"}, {}]}, "outcomes[1].then[1].queue"),
        ({"lease": second, "do": "done", "then": [{"queue": "accoda.schedules"}]}, "outcomes[1].then[0].queue"),
        ({"lease": second, "do": "done", "result": [[]] * 100_001}, "outcomes[1].result"),
    ):
        status = 413 if field.endswith("result") else 422
        problem = await world.settle(good, bad, status=status)
        assert problem["field"] == field, problem
    assert ((await world.counts()).taken, (await world.counts()).done) == (2, 0)
    problem = await world.post("emails/extend", {"leases": [first, "x"]}, 422)
    assert problem["field"] == "leases[1]"


async def test_queues_that_only_accoda_itself_can_run_are_refused(world: World) -> None:
    deals = world.app.demand("deals", fresh_for=1, keep_for=2)
    deals.fetch(_fetch)
    world.app.budget("keepa", capacity=20, refill=20, per=60)
    world.app.handler("calls", budget="keepa", cost=5)(_nothing)
    assert "is a system queue" in (await world.post("accoda.schedules/take", {}, 409))["detail"]
    assert "belongs to a demand" in (await world.post("deals/take", {}, 409))["detail"]
    assert (await world.post("calls/take", {}, 422))["field"] == "maxCost"
    await world.enqueue("a", "b", queue="calls")
    assert len(await world.take("calls", count=2, maxCost=5)) == 1


@pytest.mark.parametrize(
    "ask",
    [{"count": 0}, {"count": 1001}, {"lease": 0.5}, {"lease": 86_401}, {"wait": 61}, {"worker": "-x"}, {"cuont": 1}],
    ids=lambda ask: next(iter(ask)),
)
async def test_what_is_out_of_bounds_is_refused(world: World, ask: dict[str, Any]) -> None:
    problem = await world.post("emails/take", ask, 422)
    assert problem["field"] == next(iter(ask))


async def test_a_long_poll_ends_with_the_first_job(world: World) -> None:
    waiting = asyncio.create_task(world.take(wait=60))
    await polling(world)
    await world.enqueue("late")
    assert [job["payload"] for job in await waiting] == ["late"]


async def test_a_long_poll_wakes_for_a_start_time(world: World) -> None:
    await world.enqueue("later", delay=10)
    waiting = asyncio.create_task(world.take(wait=60))
    await polling(world)
    world.clock.advance(10)
    assert [job["payload"] for job in await waiting] == ["later"]


async def test_a_client_that_hangs_up_in_the_poll_is_given_nothing(world: World) -> None:
    waiting = asyncio.create_task(world.take(wait=60))
    await polling(world)
    waiting.cancel()
    await asyncio.wait([waiting])
    await polling(world, 0)
    await world.enqueue("a")
    [job] = await world.take()
    assert job["attempts"] == 0  # it was never handed to the one who had left


async def test_a_job_taken_for_a_client_that_has_left_goes_back_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client hangs up while its take is under way in the store: that is after the last look at the connection."""
    store = await world.app.connections.get()
    taking, go_on = asyncio.Event(), asyncio.Event()
    take = store.take

    async def slow_take(*args: Any, **kwargs: Any) -> list[Job]:
        jobs = await take(*args, **kwargs)
        taking.set()
        await go_on.wait()
        return jobs

    monkeypatch.setattr(store, "take", slow_take)
    [id] = await world.enqueue("a")
    waiting = asyncio.create_task(world.take(lease=3600))
    await taking.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    monkeypatch.undo()
    go_on.set()
    async with asyncio.timeout(10):
        await store.wait(["emails"], 10)
    info = await store.find(id)
    assert info is not None and (info.state, info.attempts) == ("ready", 1)
    assert (info.reason or "").startswith("given back")


async def test_a_client_that_hangs_up_in_the_very_moment_of_the_take_is_noticed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await world.app.connections.get()
    take = store.take
    client = socket.create_connection(("127.0.0.1", world.port))

    async def take_and_lose(*args: Any, **kwargs: Any) -> list[Job]:
        jobs = await take(*args, **kwargs)
        client.close()  # the kernel has told the server, whose loop has not yet looked
        return jobs

    monkeypatch.setattr(store, "take", take_and_lose)
    [id] = await world.enqueue("a")
    head = b"POST /api/v1/queues/emails/take HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    client.sendall(head + b'Content-Length: 16\r\n\r\n{"lease":3600.0}')
    async with asyncio.timeout(10):
        while (info := await store.find(id)) is None or info.attempts == 0:
            await asyncio.sleep(0.001)
    assert (info.state, (info.reason or "")[:10]) == ("ready", "given back")


async def test_a_take_that_is_cancelled_half_way_gives_back_what_it_got(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the server's time for open requests is up while the store is slow."""
    store = await world.app.connections.get()
    taking, go_on = asyncio.Event(), asyncio.Event()
    take = store.take

    async def slow_take(*args: Any, **kwargs: Any) -> list[Job]:
        jobs = await take(*args, **kwargs)
        taking.set()
        await go_on.wait()
        return jobs

    monkeypatch.setattr(store, "take", slow_take)
    [id] = await world.enqueue("a")
    cancelled = asyncio.create_task(_take_whole(store, TakeRequest(lease=3600.0), "emails", ""))
    await taking.wait()
    cancelled.cancel()
    go_on.set()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    info = await store.find(id)
    assert info is not None and (info.state, info.attempts) == ("ready", 1)


async def test_a_service_that_stops_lets_go_of_its_polls_at_once(world: World) -> None:
    waiting = asyncio.create_task(world.take(wait=60))
    await polling(world)
    world.server.should_exit = True
    async with asyncio.timeout(5):
        assert await waiting == []


async def test_a_head_that_is_too_dear_does_not_make_a_poll_spin(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await world.app.connections.get()
    takes = 0
    take = store.take

    async def counted(*args: Any, **kwargs: Any) -> list[Job]:
        nonlocal takes
        takes += 1
        return await take(*args, **kwargs)

    monkeypatch.setattr(store, "take", counted)
    await world.enqueue("dear", cost=10)
    assert await world.take(maxCost=5, wait=0.5) == []
    assert takes < 100


async def polling(world: World, many: int = 1) -> None:
    """Wait until so many polls wait."""
    polls = world.server.config.app.polls  # type: ignore[union-attr]
    async with asyncio.timeout(10):
        while len(polls) != many:
            await asyncio.sleep(0.001)


async def _nothing(payload: str) -> None: ...


async def _fetch(key: str) -> str:
    return key
