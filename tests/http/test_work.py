"""Taking, settling and extending over HTTP: a real service on a real socket."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import apsw
import msgspec
import pytest
import pytest_asyncio

from accoda import App, ById, NewJob, Revive
from accoda.clock import ManualClock
from accoda.envelope import Hook, JobMetadata, wrap
from accoda.http.options import ServiceOptions
from accoda.http.server import Server, configuration
from accoda.http.service import Service
from accoda.http.table import operations
from accoda.http.taking import _take_whole
from accoda.http.worker_api import TakeRequest
from accoda.model import Job
from accoda.retry import Fixed
from accoda.storage.protocol import Store

NOW = 1_893_456_000_000  # 2030-01-01T00:00:00Z


class ServedQueues:
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
async def served() -> AsyncIterator[ServedQueues]:
    async with serve("memory://") as served:
        yield served


@asynccontextmanager
async def serve(url: str) -> AsyncIterator[ServedQueues]:
    clock = ManualClock(NOW)
    app = App(url, clock=clock)
    service = Service(app, ServiceOptions(system_jobs=False), operations())
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.bind(("127.0.0.1", 0))
        started = asyncio.Event()
        server = Server(configuration(service), leave=service.leave, started=started.set)
        serving = asyncio.create_task(server._serve([listener]))  # `serve` would take the test runner's signals
        await started.wait()
        async with aiohttp.ClientSession() as session:
            yield ServedQueues(app, server, listener.getsockname()[1], session, clock)
        server.should_exit = True
        await serving


async def test_a_job_is_taken_with_all_that_a_worker_needs_and_settled(served: ServedQueues) -> None:
    [id] = await served.enqueue({"to": "anna"}, name="Welcome", key="anna", cost=3, type="welcome", lane="anna's")
    [job] = await served.take(count=5, lease=30, worker="mailer-1")
    token = job.pop("lease")
    assert job == {
        "id": id,
        "queue": "emails",
        "type": "welcome",
        "lane": "anna's",
        "name": "Welcome",
        "payload": {"to": "anna"},
        "attempts": 0,
        "tries": 0,
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
    info = (await served.store.look(ById(id))).job
    assert info is not None and (info.worker, info.lease_until) == ("mailer-1", NOW + 30_000)
    assert await served.settle({"lease": token, "do": "done"}) == {"refused": []}
    assert (await served.counts()).done == 1


async def test_secrets_reach_the_worker_and_bytes_are_marked(served: ServedQueues) -> None:
    payload = msgspec.msgpack.encode({"card": "4111", "photo": b"hi", 7: float("inf")})
    await served.store.enqueue([NewJob("emails", wrap(payload, JobMetadata(secret=("card",))))])
    [job] = await served.take()
    assert job["payload"] == {"card": "4111", "photo": {"$bytes": "aGk="}, "7": {"$float": "inf"}}


async def test_a_late_outcome_changes_nothing_and_is_given_back(served: ServedQueues) -> None:
    [id] = await served.enqueue("a")
    [first] = await served.take(lease=5)
    served.clock.advance(5)
    [second] = await served.take()
    assert (second["attempts"], second["crashes"]) == (1, 1)
    answer = await served.settle({"lease": first["lease"], "do": "done"}, {"lease": second["lease"], "do": "done"})
    assert answer == {"refused": [{"lease": first["lease"], "id": id, "why": "lost"}]}
    assert (await served.counts()).done == 1
    again = await served.settle({"lease": second["lease"], "do": "done"})
    assert again["refused"][0]["why"] == "lost"


async def test_a_lease_from_before_the_store_was_put_back_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with serve(f"sqlite:///{path}") as served:
        await served.store.stats()  # makes the file
        backup = apsw.Connection(":memory:")
        copy(apsw.Connection(str(path)), backup)
        await served.enqueue(*(f"old {n}" for n in range(20)))
        old = await served.take(count=20, lease=600)
        copy(backup, apsw.Connection(str(path)))
        served.clock.advance(0.001)
        await served.enqueue(*(f"new {n}" for n in range(20)))
        new = await served.take(count=20, lease=600)
        assert [(job["id"], job["attempts"]) for job in new] == [(job["id"], job["attempts"]) for job in old]
        for do in ("done", "retry", "bury"):
            more = {"reason": "old"} if do == "bury" else {}
            answer = await served.settle(*({"lease": job["lease"], "do": do, **more} for job in old))
            assert [one["why"] for one in answer["refused"]] == ["lost"] * 20
        answer = await served.post("emails/extend", {"leases": [job["lease"] for job in old], "lease": 60})
        assert len(answer["refused"]) == 20
        assert await served.settle(*({"lease": job["lease"], "do": "done"} for job in new)) == {"refused": []}
        counts = await served.counts()
        assert (counts.done, counts.total) == (20, 0)


def copy(source: apsw.Connection, target: apsw.Connection) -> None:
    """As `sqlite3 TARGET ".restore SOURCE"` does."""
    with target.backup("main", source, "main") as backup:
        backup.step()


async def test_extend_keeps_what_is_held_and_names_what_is_lost(served: ServedQueues) -> None:
    await served.enqueue("a", "b")
    first, second = await served.take(count=2, lease=5)
    await served.settle({"lease": first["lease"], "do": "done"})
    answer = await served.post("emails/extend", {"leases": [first["lease"], second["lease"]], "lease": 60})
    assert [one["id"] for one in answer["refused"]] == [first["id"]]
    served.clock.advance(59)
    assert await served.take() == []
    assert await served.settle({"lease": second["lease"], "do": "done"}) == {"refused": []}


async def test_done_keeps_the_result_and_enqueues_what_follows_in_the_same_step(served: ServedQueues) -> None:
    [id] = await served.enqueue("a", keep_for=60)
    [job] = await served.take()
    then = [{"queue": "bills", "payload": 1, "priority": "HIGH"}, {"queue": "emails", "payload": 2, "delay": 10}]
    await served.settle({"lease": job["lease"], "do": "done", "result": {"sent": 2}, "then": then})
    info = (await served.store.look(ById(id))).job
    assert info is not None and (info.state, msgspec.msgpack.decode(info.result or b"")) == ("done", {"sent": 2})
    assert ((await served.counts("bills")).ready, (await served.counts()).delayed) == (1, 1)
    # Refused: nothing follows.
    await served.settle({"lease": job["lease"], "do": "done", "then": then})
    assert (await served.counts("bills")).ready == 1


async def test_retry_goes_back_as_told_and_bury_keeps_the_reason(served: ServedQueues) -> None:
    await served.enqueue("now", "later", "at", "never")
    leases = [job["lease"] for job in await served.take(count=4)]
    await served.settle(
        {"lease": leases[0], "do": "retry", "reason": "busy"},
        {"lease": leases[1], "do": "retry", "delay": 30},
        {"lease": leases[2], "do": "retry", "at": "2030-01-01T01:01:00+01:00"},
        {"lease": leases[3], "do": "bury", "reason": "no such address"},
    )
    [now] = await served.take(count=4)
    assert (now["payload"], now["attempts"], now["tries"]) == ("now", 1, 0)
    [dead] = await served.store.browse("emails", "dead")
    assert dead.reason == "no such address"
    delayed = await served.store.browse("emails", "delayed")
    assert [job.start_time - NOW for job in delayed] == [30_000, 60_000]


async def test_fail_lets_the_rule_and_the_limits_of_the_queue_decide(served: ServedQueues) -> None:
    seen: list[tuple[int, str]] = []

    def rule(tries: int, error: BaseException) -> float:
        seen.append((tries, str(error)))
        return 7.0

    @served.app.handler("emails", retry=rule, max_attempts=2)
    async def send(to: str) -> None: ...

    [id] = await served.enqueue("anna")
    [job] = await served.take()
    await served.settle({"lease": job["lease"], "do": "fail", "error": "TypeError: to is undefined"})
    info = (await served.store.look(ById(id))).job
    assert info is not None and (info.state, info.start_time, info.reason) == (
        "delayed",
        NOW + 7000,
        "TypeError: to is undefined",
    )
    served.clock.advance(7)
    [job] = await served.take()
    assert (job["attempts"], job["tries"]) == (1, 1)
    await served.settle({"lease": job["lease"], "do": "fail", "error": "again"})
    info = (await served.store.look(ById(id))).job
    assert info is not None and (info.state, info.reason) == ("dead", "failed 2 times, the last time with again")
    assert seen == [(0, "TypeError: to is undefined")]


async def test_a_jobs_own_limit_of_attempts_wins_and_a_revived_job_starts_afresh(served: ServedQueues) -> None:
    served.app.handler("emails", retry=Fixed(0), max_attempts=1)(_nothing)
    [id] = await served.enqueue("anna", max_attempts=2)
    for _ in range(2):
        for expected in ("ready", "dead"):
            [job] = await served.take()
            await served.settle({"lease": job["lease"], "do": "fail", "error": "no"})
            info = (await served.store.look(ById(id))).job
            assert info is not None and info.state == expected
        assert await served.store.change([Revive(id)]) == 1


async def test_a_call_that_a_job_asked_for_is_stored_in_the_step_in_which_it_ends(served: ServedQueues) -> None:
    url = "https://example.com/hook"
    await served.enqueue("done", "failed", "again", webhook=url)
    await served.enqueue("quiet", webhook=Hook(url, on=("dead",)))
    await served.store.enqueue([NewJob("emails", wrap(b"\xc1", JobMetadata(hook=Hook(url))))])
    leases = [job["lease"] for job in await served.take(count=10)]
    assert (await served.counts("accoda.webhooks")).ready == 1  # of the one that could not be read
    await served.settle(
        {"lease": leases[0], "do": "done", "then": [{"queue": "bills"}]},
        {"lease": leases[1], "do": "bury", "reason": "no"},
        {"lease": leases[2], "do": "retry"},
        {"lease": leases[3], "do": "done"},
    )
    assert (await served.counts("accoda.webhooks")).ready == 3
    assert (await served.counts("bills")).ready == 1
    # A lost lease makes no call.
    await served.settle({"lease": leases[0], "do": "done"}, {"lease": leases[2], "do": "bury", "reason": "late"})
    assert (await served.counts("accoda.webhooks")).ready == 3


async def test_a_secret_that_an_error_quotes_is_not_kept(served: ServedQueues) -> None:
    payload = msgspec.msgpack.encode({"card": "4111-2222"})
    await served.store.enqueue([NewJob("emails", wrap(payload, JobMetadata(secret=("card",))))])
    await served.store.enqueue([NewJob("emails", payload)])  # its producer did not know the handler
    served.app.handler("emails", secret=("card",))(_nothing)
    jobs = await served.take(count=2)
    await served.settle(*({"lease": job["lease"], "do": "bury", "reason": "card 4111-2222 refused"} for job in jobs))
    dead = await served.store.browse("emails", "dead")
    assert [job.reason for job in dead] == ["card ••• refused"] * 2


async def test_done_with_the_waiters_seen_is_refused_when_more_have_joined(served: ServedQueues) -> None:
    def waits(name: bytes) -> NewJob:
        return NewJob("emails", b"\x01", key="k", on_duplicate="attach", waiter=name)

    await served.store.enqueue([waits(b"one")])
    [job] = await served.take()
    await served.store.enqueue([waits(b"two")])
    answer = await served.settle({"lease": job["lease"], "do": "done", "waiters": job["waiters"]})
    assert answer["refused"][0]["why"] == "grown"
    assert await served.settle({"lease": job["lease"], "do": "done", "waiters": 2}) == {"refused": []}


async def test_what_cannot_be_read_is_buried_alone_and_the_others_are_handed_over(served: ServedQueues) -> None:
    good = msgspec.msgpack.encode("good")
    await served.store.enqueue([NewJob("emails", data) for data in (b"\xc1junk", good, b"", b"\x93\x01")])
    assert [job["payload"] for job in await served.take(count=10)] == ["good"]
    dead = await served.store.browse("emails", "dead")
    assert len(dead) == 3 and all("UnreadablePayload" in (job.reason or "") for job in dead)


async def test_a_take_that_finds_only_what_must_be_buried_looks_further(served: ServedQueues) -> None:
    jobs = [NewJob("emails", b"\xc1")] * 4 + [NewJob("emails", msgspec.msgpack.encode("good"))]
    await served.store.enqueue(jobs)
    assert [job["payload"] for job in await served.take(count=2)] == ["good"]


async def test_jobs_that_may_have_killed_their_worker_are_handed_over_one_by_one(served: ServedQueues) -> None:
    first, second = await served.enqueue("a", "b")
    await served.take(count=2, lease=1)
    served.clock.advance(1)
    [third] = await served.enqueue("c")
    for expected in (first, second, third):
        [job] = await served.take(count=3)
        assert job["id"] == expected
        await served.settle({"lease": job["lease"], "do": "done"})


async def test_a_job_that_kills_its_workers_is_quarantined_for_longer_and_longer(served: ServedQueues) -> None:
    await served.enqueue("poison")
    pauses = []
    for _ in range(5):
        waited = 0
        while not await served.take(lease=1):
            served.clock.advance(1)
            waited += 1
        pauses.append(waited)
        served.clock.advance(1)
    assert pauses == [0, 0, 10, 20, 40]
    assert (await served.counts()).dead == 0, "no number of crashes buries a job unless max_crashes says so"


async def test_a_job_that_kills_its_workers_is_buried_where_its_crashes_have_a_limit(served: ServedQueues) -> None:
    served.app.handler("emails", max_crashes=2)(_nothing)
    await served.enqueue("poison")
    for _ in range(2):
        assert await served.take(lease=1)
        served.clock.advance(1)
    assert await served.take() == []
    [dead] = await served.store.browse("emails", "dead")
    assert (dead.reason or "").startswith("poison: its lease ended 2 times")


async def test_a_worker_that_asks_about_a_lease_that_ended_has_not_crashed(served: ServedQueues) -> None:
    for call in ("settle", "extend"):
        [id] = await served.enqueue(call)
        [job] = await served.take(lease=1)
        served.clock.advance(1)
        assert (await served.store.look(ById(id))).job.crashes == 1  # type: ignore[union-attr]
        if call == "settle":
            answer = await served.settle({"lease": job["lease"], "do": "done"})
        else:
            answer = await served.post("emails/extend", {"leases": [job["lease"]], "lease": 60})
        assert answer["refused"][0]["why"] == "lost"
        assert (await served.store.look(ById(id))).job.crashes == 0  # type: ignore[union-attr]
        await served.store.purge("emails", "ready")


async def test_bad_input_names_its_place_and_settles_nothing(served: ServedQueues) -> None:
    await served.enqueue("a", "b")
    await served.enqueue("c", queue="bills")
    first, second = [job["lease"] for job in await served.take(count=2)]
    [other] = [job["lease"] for job in await served.take("bills")]
    good = {"lease": first, "do": "done"}
    for bad, field in (
        ({"lease": "nonsense", "do": "done"}, "outcomes[1].lease"),
        ({"lease": second[:-1] + ("A" if second[-1] != "A" else "B"), "do": "done"}, "outcomes[1].lease"),
        ({"lease": second + "==", "do": "done"}, "outcomes[1].lease"),
        ({"lease": "ü" * 20, "do": "done"}, "outcomes[1].lease"),
        ({"lease": other, "do": "done"}, "outcomes[1].lease"),
        ({"lease": second, "do": "retry", "delay": 1, "at": "2030-01-01T00:00:00Z"}, "outcomes[1].at"),
        ({"lease": second, "do": "retry", "at": "tomorrow"}, "outcomes[1].at"),
        ({"lease": second, "do": "done", "then": [{"queue": "x"}, {"queue": ""}]}, "outcomes[1].then[1].queue"),
        ({"lease": second, "do": "done", "then": [{"queue": "accoda.schedules"}]}, "outcomes[1].then[0].queue"),
        ({"lease": second, "do": "done", "result": [[]] * 100_001}, "outcomes[1].result"),
    ):
        status = 413 if field.endswith("result") else 422
        problem = await served.settle(good, bad, status=status)
        assert problem["field"] == field, problem
    assert ((await served.counts()).taken, (await served.counts()).done) == (2, 0)
    problem = await served.post("emails/extend", {"leases": [first, "x"]}, 422)
    assert problem["field"] == "leases[1]"


async def test_queues_that_only_accoda_itself_can_run_are_refused(served: ServedQueues) -> None:
    deals = served.app.demand("deals", fresh_for=1, keep_for=2)
    deals.fetch(_fetch)
    served.app.budget("keepa", capacity=20, refill=20, per=60)
    served.app.handler("calls", budget="keepa", cost=5)(_nothing)
    assert "is a system queue" in (await served.post("accoda.schedules/take", {}, 409))["detail"]
    assert "belongs to a demand" in (await served.post("deals/take", {}, 409))["detail"]
    assert (await served.post("calls/take", {}, 422))["field"] == "maxCost"
    await served.enqueue("a", "b", queue="calls")
    assert len(await served.take("calls", count=2, maxCost=5)) == 1


@pytest.mark.parametrize(
    "ask",
    [{"count": 0}, {"count": 1001}, {"lease": 0.5}, {"lease": 86_401}, {"wait": 61}, {"worker": "-x"}, {"cuont": 1}],
    ids=lambda ask: next(iter(ask)),
)
async def test_what_is_out_of_bounds_is_refused(served: ServedQueues, ask: dict[str, Any]) -> None:
    problem = await served.post("emails/take", ask, 422)
    assert problem["field"] == next(iter(ask))


async def test_a_long_poll_ends_with_the_first_job(served: ServedQueues) -> None:
    waiting = asyncio.create_task(served.take(wait=60))
    await polling(served)
    await served.enqueue("late")
    assert [job["payload"] for job in await waiting] == ["late"]


async def test_a_long_poll_wakes_for_a_start_time(served: ServedQueues) -> None:
    await served.enqueue("later", delay=10)
    waiting = asyncio.create_task(served.take(wait=60))
    await polling(served)
    served.clock.advance(10)
    assert [job["payload"] for job in await waiting] == ["later"]


async def test_a_client_that_hangs_up_in_the_poll_is_given_nothing(served: ServedQueues) -> None:
    waiting = asyncio.create_task(served.take(wait=60))
    await polling(served)
    waiting.cancel()
    await asyncio.wait([waiting])
    await polling(served, 0)
    await served.enqueue("a")
    [job] = await served.take()
    assert job["attempts"] == 0  # it was never handed to the client that had left


async def test_a_job_taken_for_a_client_that_has_left_goes_back_at_once(
    served: ServedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client hangs up while its take is under way in the store: that is after the last look at the connection."""
    store = await served.app.connections.get()
    taking, go_on = asyncio.Event(), asyncio.Event()
    take = store.take

    async def slow_take(*args: Any, **kwargs: Any) -> list[Job]:
        jobs = await take(*args, **kwargs)
        taking.set()
        await go_on.wait()
        return jobs

    monkeypatch.setattr(store, "take", slow_take)
    [id] = await served.enqueue("a")
    waiting = asyncio.create_task(served.take(lease=3600))
    await taking.wait()
    waiting.cancel()
    await asyncio.wait([waiting])
    monkeypatch.undo()
    go_on.set()
    async with asyncio.timeout(10):
        await store.wait(["emails"], 10)
    info = (await store.look(ById(id))).job
    assert info is not None and (info.state, info.attempts, info.tries) == ("ready", 1, 0)
    assert (info.reason or "").startswith("given back")


async def test_a_client_that_hangs_up_in_the_very_moment_of_the_take_is_noticed(
    served: ServedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await served.app.connections.get()
    take = store.take
    client = socket.create_connection(("127.0.0.1", served.port))

    async def take_and_lose(*args: Any, **kwargs: Any) -> list[Job]:
        jobs = await take(*args, **kwargs)
        client.close()  # the kernel has told the server, whose loop has not yet looked
        return jobs

    monkeypatch.setattr(store, "take", take_and_lose)
    [id] = await served.enqueue("a")
    head = b"POST /api/v1/queues/emails/take HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    client.sendall(head + b'Content-Length: 16\r\n\r\n{"lease":3600.0}')
    async with asyncio.timeout(10):
        while (info := (await store.look(ById(id))).job) is None or info.attempts == 0:
            await asyncio.sleep(0.001)
    assert (info.state, (info.reason or "")[:10]) == ("ready", "given back")


async def test_a_take_that_is_cancelled_half_way_gives_back_what_it_got(
    served: ServedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the server's time for open requests is up while the store is slow."""
    store = await served.app.connections.get()
    taking, go_on = asyncio.Event(), asyncio.Event()
    take = store.take

    async def slow_take(*args: Any, **kwargs: Any) -> list[Job]:
        jobs = await take(*args, **kwargs)
        taking.set()
        await go_on.wait()
        return jobs

    monkeypatch.setattr(store, "take", slow_take)
    [id] = await served.enqueue("a")
    cancelled = asyncio.create_task(_take_whole(store, TakeRequest(lease=3600.0), "emails", ""))
    await taking.wait()
    cancelled.cancel()
    go_on.set()
    await asyncio.wait([cancelled])
    assert cancelled.cancelled()
    info = (await store.look(ById(id))).job
    assert info is not None and (info.state, info.attempts, info.tries) == ("ready", 1, 0)


async def test_a_service_that_stops_lets_go_of_its_polls_at_once(served: ServedQueues) -> None:
    waiting = asyncio.create_task(served.take(wait=60))
    await polling(served)
    served.server.should_exit = True
    async with asyncio.timeout(5):
        assert await waiting == []


async def test_a_head_that_is_too_dear_does_not_make_a_poll_spin(
    served: ServedQueues, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await served.app.connections.get()
    takes = 0
    take = store.take

    async def counted(*args: Any, **kwargs: Any) -> list[Job]:
        nonlocal takes
        takes += 1
        return await take(*args, **kwargs)

    monkeypatch.setattr(store, "take", counted)
    await served.enqueue("dear", cost=10)
    assert await served.take(maxCost=5, wait=0.5) == []
    assert takes < 100


async def polling(served: ServedQueues, many: int = 1) -> None:
    """Wait until so many polls wait."""
    polls = served.server.config.app.polls  # type: ignore[union-attr]
    async with asyncio.timeout(10):
        while len(polls) != many:
            await asyncio.sleep(0.001)


async def _nothing(payload: str) -> None: ...


async def _fetch(key: str) -> str:
    return key
