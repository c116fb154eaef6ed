"""No connection, and nothing that is making one, outlives `close`, a cancelled call or a failure half-way.

Each scenario has an event loop of its own. When that has ended and the garbage is collected, whatever was left open
says so by a warning, and whatever failed unseen tells the loop's exception handler: `left_by` gives it all.
"""

import asyncio
import gc
import inspect
import socket
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, Self, cast

import asyncpg
import pytest
import uvloop
from proof.servers.postgres import PostgresServer
from proof.servers.pytest import need

from accoda import open_storage
from accoda.errors import NotADatabase, StorageClosed, StorageUnavailable
from accoda.model import Done, Lease, NewJob, Stats
from accoda.storage.postgres import PostgresStorage

GATE = "gate"  # the name of the gate's own asyncio tasks
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'tested'"
SLEEP = "SELECT pg_sleep(60)"
SLEEPERS = f"{SESSIONS} AND state = 'active' AND query = '{SLEEP}'"
# So that a session that sleeps is gone when its client is.
SETTINGS = ["synchronous_commit=off", "client_connection_check_interval=10"]

# How many messages of a new connection are let through: it asks for encryption, then it logs in.
BEFORE_THE_FIRST_ANSWER, BEFORE_IT_IS_WELCOME = 0, 1
STAGES = (BEFORE_THE_FIRST_ANSWER, BEFORE_IT_IS_WELCOME)

Scenario = Callable[["Gate"], Coroutine[Any, Any, None]]
LeftBy = Callable[[Scenario], list[str]]


class Gate:
    """Between a storage and its server. It stops new connections on their way, or everything."""

    def __init__(self, server: PostgresServer) -> None:
        self.server = server
        self.stop_at: int | None = None  # how many messages of a new connection are let through
        self.held = asyncio.Event()  # something was stopped
        self.ends: set[Near] = set()

    async def __aenter__(self) -> Self:
        self._door = await asyncio.get_running_loop().create_server(lambda: Near(self), "127.0.0.1", 0)
        self.port = self._door.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._door.close()
        await self._door.wait_closed()
        for end in list(self.ends):
            end.close()
        while self.ends or any(each.get_name() == GATE for each in asyncio.all_tasks()):
            await asyncio.sleep(0)

    @property
    def url(self) -> str:
        return f"postgresql://accoda@127.0.0.1:{self.port}/accoda?application_name=tested&pool=2"

    def stop(self, at: int) -> None:
        """From now on, new connections come so far and no further."""
        self.stop_at = at
        self.held.clear()

    def freeze(self) -> None:
        """Nothing comes through any more."""
        self.stop(0)
        for end in self.ends:
            end.stop_at = 0

    def open(self) -> None:
        self.stop_at = None
        for end in list(self.ends):
            end.stop_at = None
            end.forward()

    async def sessions(self, count: int, which: str = SESSIONS) -> None:
        """Return when the server has that many connections of the storage."""
        watch = await asyncpg.connect(self.server.url)
        try:
            while await watch.fetchval(which) != count:
                await asyncio.sleep(0.005)
        finally:
            await watch.close()


class Near(asyncio.Protocol):
    """The storage's side of a connection."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.stop_at = gate.stop_at
        self.sent = 0
        self.kept: list[bytes] = []
        self.far: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self.gate.ends.add(self)
        asyncio.get_running_loop().create_task(self._reach(), name=GATE)

    async def _reach(self) -> None:
        to = ("127.0.0.1", self.gate.server.port)
        with suppress(OSError):
            far, _ = await asyncio.get_running_loop().create_connection(lambda: Far(self), *to)
            self.far = cast(asyncio.Transport, far)
        if self.far is None or self.transport.is_closing():
            self.close()
        self.forward()

    def data_received(self, data: bytes) -> None:
        self.kept.append(data)
        self.forward()

    def forward(self) -> None:
        while self.kept and self.far and (self.stop_at is None or self.sent < self.stop_at):
            self.far.write(self.kept.pop(0))
            self.sent += 1
        if self.kept and self.stop_at is not None and self.sent >= self.stop_at:
            self.gate.held.set()

    def close(self) -> None:
        self.transport.abort()
        if self.far:
            self.far.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self.close()
        self.gate.ends.discard(self)


class Far(asyncio.Protocol):
    """The server's side of a connection."""

    def __init__(self, near: Near) -> None:
        self.near = near

    def data_received(self, data: bytes) -> None:
        if not self.near.transport.is_closing():
            self.near.transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self.near.transport.close()


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with need(lambda: PostgresServer(durable=False, settings=SETTINGS)) as running:
        asyncio.run(prepare(running.url))
        yield running


async def prepare(url: str) -> None:
    await (await open_storage(url)).close()


@pytest.fixture(params=["asyncio", "uvloop"])
def left_by(request: pytest.FixtureRequest, server: PostgresServer) -> LeftBy:
    """Runs a scenario in a loop of its own, and tells what is left of it after that."""
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def left_by(scenario: Scenario) -> list[str]:
        told: list[str] = []

        async def main() -> None:
            loop = asyncio.get_running_loop()
            loop.set_exception_handler(lambda _, context: None if asyncpgs(context) else told.append(str(context)))
            async with asyncio.timeout(10), Gate(server) as gate:
                await scenario(gate)

        gc.collect()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(main())
            gc.collect()
        return told + [str(warning.message) for warning in caught]

    return left_by


def asyncpgs(context: dict[str, Any]) -> bool:
    """Whether it is a future of asyncpg's own, whose connection was lost in the very step in which we gave it up: then
    asyncpg sees the cancel, and nobody reads why the connection was lost."""
    return (
        str(context.get("exception")) == "unexpected connection_lost() call" and "never retrieved" in context["message"]
    )


class Scenarios:
    """Its tests are scenarios: each is run by `left_by`, and must leave nothing."""

    def __init_subclass__(cls) -> None:
        for name, scenario in list(vars(cls).items()):
            if name.startswith("test_"):
                setattr(cls, name, leaves_nothing(scenario))


def leaves_nothing(scenario: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    def test(self: object, left_by: LeftBy, **values: Any) -> None:
        assert left_by(lambda gate: scenario(self, gate, **values)) == []

    test.__dict__.update(scenario.__dict__)  # its marks
    own, _, *others = inspect.signature(scenario).parameters.values()
    given = inspect.Parameter("left_by", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    test.__signature__ = inspect.Signature([own, given, *others])  # type: ignore[attr-defined]
    return test


async def opened(gate: Gate) -> PostgresStorage:
    store = await open_storage(gate.url)
    assert isinstance(store, PostgresStorage)
    return store


async def nothing_runs() -> None:
    """Of the storage's asyncio tasks none is left, but for those that end by themselves in the next moments."""
    for _ in range(20):
        await asyncio.sleep(0)
    tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task() and each.get_name() != GATE]
    assert tasks == []


async def cancelled(task: asyncio.Task[Any]) -> None:
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


class TestOpen(Scenarios):
    @pytest.mark.parametrize("stage", [*STAGES, 2, 3])  # the last two: in the look at the schema
    async def test_is_cancelled(self, gate: Gate, stage: int) -> None:
        gate.stop(stage)
        opening = asyncio.create_task(open_storage(gate.url))
        await gate.held.wait()
        await cancelled(opening)
        await nothing_runs()

    @pytest.mark.parametrize("stage", [*STAGES, 2, 3])
    async def test_is_cancelled_twice(self, gate: Gate, stage: int) -> None:
        gate.stop(stage)
        opening = asyncio.create_task(open_storage(gate.url))
        await gate.held.wait()
        opening.cancel()
        await asyncio.sleep(0)
        await cancelled(opening)
        await nothing_runs()

    async def test_is_under_way_when_the_loop_ends(self, gate: Gate) -> None:
        gate.stop(BEFORE_IT_IS_WELCOME)
        opening = asyncio.create_task(open_storage(gate.url))
        opening.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        await gate.held.wait()

    async def test_gets_no_answer(self, gate: Gate) -> None:
        gate.stop(BEFORE_THE_FIRST_ANSWER)
        with pytest.raises(StorageUnavailable):
            await open_storage(f"{gate.url}&connect_timeout=1")
        await nothing_runs()

    async def test_is_cancelled_while_the_server_does_not_accept(self, gate: Gate) -> None:
        with socket.socket() as deaf, socket.socket() as first, socket.socket() as second:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            for other in (first, second):  # the line in front of the door is full now
                other.setblocking(False)
                other.connect_ex(deaf.getsockname())
            opening = asyncio.create_task(open_storage(f"postgresql://127.0.0.1:{deaf.getsockname()[1]}/db"))
            await asyncio.sleep(0.05)
            await cancelled(opening)
            await nothing_runs()

    async def test_finds_a_schema_of_another_program(self, gate: Gate) -> None:
        watch = await asyncpg.connect(gate.server.url)
        await watch.execute("DROP SCHEMA IF EXISTS theirs CASCADE; CREATE SCHEMA theirs; CREATE TABLE theirs.jobs ()")
        await watch.close()
        with pytest.raises(NotADatabase):
            await open_storage(f"{gate.url}&schema=theirs")
        await nothing_runs()
        await gate.sessions(0)


async def busy(gate: Gate, store: PostgresStorage) -> asyncio.Task[Any]:
    """A call that keeps the connection that is there, so that the next one has to make its own."""
    store._client._calls["sleep"] = SLEEP
    call = asyncio.create_task(store._client.fetch("sleep", repeat=False))
    await gate.sessions(1, SLEEPERS)
    return call


class TestCall(Scenarios):
    @pytest.mark.parametrize("stage", STAGES)
    @pytest.mark.parametrize("times", [1, 2])
    async def test_is_cancelled_while_it_connects(self, gate: Gate, stage: int, times: int) -> None:
        store = await opened(gate)
        sleeping = await busy(gate, store)
        gate.stop(stage)
        call = asyncio.create_task(store.stats())
        await gate.held.wait()
        for _ in range(times - 1):
            call.cancel()
            await asyncio.sleep(0)
        await cancelled(call)  # at once: the gate is still shut
        gate.open()
        assert len(await store.enqueue([NewJob("q")])) == 1, "there is room in the pool for another"
        await cancelled(sleeping)
        await store.close()
        await nothing_runs()
        await gate.sessions(0)

    @pytest.mark.parametrize("stage", STAGES)
    async def test_connects_when_the_storage_is_closed(
        self, gate: Gate, stage: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("accoda.storage.postgres.client.CLOSE_PATIENCE", 0.05)
        store = await opened(gate)
        sleeping = await busy(gate, store)
        gate.stop(stage)
        call = asyncio.create_task(store.stats())
        await gate.held.wait()
        await store.close()
        with pytest.raises(StorageClosed):
            await call
        with pytest.raises(StorageUnavailable):
            await sleeping
        await nothing_runs()
        gate.open()
        await gate.sessions(0)

    @pytest.mark.parametrize("cancel", [False, True])
    async def test_is_given_a_connection_in_the_moment_of_the_close(self, gate: Gate, cancel: bool) -> None:
        store = await open_storage(gate.url.replace("pool=2", "pool=1"))
        assert isinstance(store, PostgresStorage)
        second: asyncio.Task[Any]

        async def first() -> None:
            await store.stats()
            # Here the second one's turn has come, but it has not run yet.
            if cancel:
                second.cancel()
            await store._client.close()

        calls = [asyncio.create_task(first()), second := asyncio.create_task(store.stats())]
        mine, its = await asyncio.gather(*calls, return_exceptions=True)
        assert mine is None
        assert isinstance(its, asyncio.CancelledError if cancel else (StorageClosed, Stats))
        await gate.sessions(0)
        await store.close()
        await nothing_runs()


class TestClose(Scenarios):
    async def test_ends_a_call_that_takes_too_long(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("accoda.storage.postgres.client.CLOSE_PATIENCE", 0.05)
        store = await opened(gate)
        call = await busy(gate, store)
        await store.close()
        with pytest.raises(StorageUnavailable):
            await call
        await nothing_runs()

    @pytest.mark.parametrize("times", [1, 2])
    async def test_is_cancelled_while_calls_are_under_way(self, gate: Gate, times: int) -> None:
        store = await opened(gate)
        listening = asyncio.create_task(store.wait(["nothing"], 60))
        await gate.sessions(2)
        call = await busy(gate, store)
        gate.freeze()
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0.01)
        for _ in range(times - 1):
            closing.cancel()
            await asyncio.sleep(0)
        await cancelled(closing)
        with pytest.raises(StorageUnavailable):
            await call
        with pytest.raises(StorageClosed):
            await listening
        await nothing_runs()
        await store.close()
        await gate.sessions(0)

    async def test_ends_a_call_that_could_be_repeated(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("accoda.storage.postgres.client.CLOSE_PATIENCE", 0.05)
        store = await opened(gate)
        await store.stats()
        gate.freeze()
        call = asyncio.create_task(store.stats())
        await gate.held.wait()
        await store.close()
        with pytest.raises(StorageClosed):
            await call
        await nothing_runs()

    async def test_is_asked_for_twice_at_once(self, gate: Gate) -> None:
        store = await opened(gate)
        call = asyncio.create_task(store.stats())
        await asyncio.sleep(0)
        closings = [asyncio.create_task(store.close()) for _ in range(2)]
        await asyncio.wait(closings, return_when=asyncio.FIRST_COMPLETED)
        assert call.done(), "each of them waits for the end"
        await asyncio.gather(*closings, call)
        await nothing_runs()

    async def test_tells_others_of_a_job_before(self, gate: Gate) -> None:
        other = await open_storage(gate.server.url)
        waiting = asyncio.create_task(other.wait(["told"], 60))
        store = await opened(gate)
        await gate.sessions(1)
        store._client.is_quiet = lambda: False  # type: ignore[method-assign]
        await store.enqueue([NewJob("told")])
        await store.close()
        async with asyncio.timeout(2):
            assert await waiting
        await other.purge("told", "ready")
        await other.close()
        await nothing_runs()


class TestListener(Scenarios):
    @pytest.mark.parametrize("stage", [*STAGES, 2])
    async def test_the_storage_is_closed_while_it_connects(self, gate: Gate, stage: int) -> None:
        store = await opened(gate)
        gate.stop(stage)
        waiting = asyncio.create_task(store.wait(["q"], 60))
        await gate.held.wait()
        await store.close()
        with pytest.raises(StorageClosed):
            await waiting
        await nothing_runs()
        gate.open()
        await gate.sessions(0)

    @pytest.mark.parametrize("stage", STAGES)
    async def test_the_storage_is_closed_while_it_connects_again(self, gate: Gate, stage: int) -> None:
        store = await opened(gate)
        waiting = asyncio.create_task(store.wait(["nothing"], 60))
        await gate.sessions(2)
        gate.stop(stage)
        for end in list(gate.ends):
            end.close()
        await gate.held.wait()
        await store.close()
        with pytest.raises(StorageClosed):
            await waiting
        await nothing_runs()
        gate.open()
        await gate.sessions(0)

    async def test_a_wait_is_cancelled_while_it_connects(self, gate: Gate) -> None:
        store = await opened(gate)
        gate.stop(BEFORE_IT_IS_WELCOME)
        waiting = asyncio.create_task(store.wait(["q"], 60))
        await gate.held.wait()
        await cancelled(waiting)
        gate.open()
        await gate.sessions(2)
        await store.close()
        await nothing_runs()

    async def test_a_wait_begins_while_the_storage_is_closed(self, gate: Gate) -> None:
        store = await opened(gate)
        store._client.is_quiet = lambda: False  # type: ignore[method-assign]
        await store.enqueue([NewJob("q")])
        closing = asyncio.create_task(store.close())  # waits until the news is told
        waits = []
        while not closing.done():
            waits.append(asyncio.create_task(store.wait(["nothing"], 60)))
            await asyncio.sleep(0)
        await closing
        for answer in await asyncio.gather(*waits, return_exceptions=True):
            assert isinstance(answer, StorageClosed)
        await nothing_runs()
        await gate.sessions(0)


class TestVacuum(Scenarios):
    @pytest.mark.parametrize("stage", [*STAGES, 2])
    async def test_the_storage_is_closed_while_it_connects(
        self, gate: Gate, stage: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("accoda.storage.postgres.vacuum.LOOK_EVERY", 1)
        store = await opened(gate)
        gate.stop(stage)
        await store.settle([Done(Lease("q", 1, 0, 0))])
        await gate.held.wait()
        await store.close()
        await nothing_runs()
        gate.open()
        await gate.sessions(0)

    async def test_many_settle_while_the_storage_is_closed(self, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("accoda.storage.postgres.vacuum.LOOK_EVERY", 1)
        store = await opened(gate)
        await store.settle([Done(Lease("q", 1, 0, 0))])
        closing = asyncio.create_task(store.close())
        calls: list[Awaitable[Any]] = []
        while not closing.done():
            calls.append(asyncio.create_task(store.settle([Done(Lease("q", 1, 0, 0))])))
            await asyncio.sleep(0)
        await closing
        await asyncio.gather(*calls, return_exceptions=True)
        await nothing_runs()
        await gate.sessions(0)
