"""A store with calls in it, receivers on loopback, and helpers for loops that run beside a test."""

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import msgspec
from aiohttp import web

from accoda.clock import ManualClock
from accoda.envelope import Hook
from accoda.model import ById, JobInfo
from accoda.storage.open import open_storage
from accoda.storage.protocol import Store
from accoda.webhooks.call import Facts, call_job
from accoda.webhooks.dispatcher import DispatchLimits, SenderOptions
from accoda.webhooks.guard import Policy
from accoda.webhooks.sender_loop import SenderLoop

LOOPBACK = Policy.read("127.0.0.1")
Handle = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Message:
    """What a receiver got."""

    headers: dict[str, str]
    body: bytes
    path: str

    @property
    def id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


class Receiver:
    """A real HTTP server on loopback. `answer` says what it does; `got` is what it was sent."""

    def __init__(self, answer: Handle | int = 204, tls: ssl.SSLContext | None = None) -> None:
        self.answer = answer
        self.got: list[Message] = []
        self.called = asyncio.Event()
        self.at_once = 0
        self.most_at_once = 0
        self.port = 0
        self._tls = tls

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def __aenter__(self) -> Self:
        self._runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._tls)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        self.at_once += 1
        self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            headers = {name.lower(): value for name, value in request.headers.items()}
            self.got.append(Message(headers, await request.read(), request.path_qs))
            self.called.set()
            if isinstance(self.answer, int):
                return web.Response(status=self.answer)
            return await self.answer(request)  # type: ignore[arg-type]
        finally:
            self.at_once -= 1


@dataclass
class Calls:
    """A store whose clock only moves by hand. It starts at the true time, because receivers check the timestamp."""

    store: Store
    clock: ManualClock
    made: list[int] = field(default_factory=list)

    def loop(self, **options: Any) -> SenderLoop:
        """A sender that may call loopback, unless the options say otherwise."""
        return SenderLoop(SenderOptions(**{"policy": LOOPBACK, **options}), self.clock)

    async def add(self, url: str, **facts: Any) -> int:
        """Enqueue a call as a worker does; its id."""
        event = "job.dead" if "reason" in facts else "job.done"
        number = 1000 + len(self.made)
        told = {"id": number, "queue": "emails", "attempts": 2, "created_at": self.clock.now(), **facts}
        [answer] = await self.store.enqueue([call_job(Hook(url), event, Facts(**told))])
        self.made.append(answer.id)
        return answer.id

    async def info(self, id: int) -> JobInfo:
        found = (await self.store.look(ById(id))).job
        assert found is not None
        return found


@asynccontextmanager
async def open_calls() -> AsyncIterator[Calls]:
    clock = ManualClock(time.time_ns() // 1_000_000)
    async with await open_storage("memory://", clock=clock) as store:
        yield Calls(store, clock)


class Wire:
    """Sockets that were asked for (`asked`) and opened (`opened`), and connections that were attempted (`connects`)."""

    def __init__(self, opener: Callable[[tuple[Any, ...]], socket.socket]) -> None:
        self._opener = opener
        self.asked: list[str] = []
        self.opened: list[str] = []
        self.connects: list[str] = []
        self.cut = False

    def open_socket(self, info: tuple[Any, ...]) -> socket.socket:
        self.asked.append(info[4][0])
        made = self._opener(info)
        self.opened.append(info[4][0])
        if self.cut:  # after the check, and before any packet
            made.close()
            raise ConnectionRefusedError("the test's wire is cut")
        return made


class Names:
    """A resolver with fixed answers, used in turn; the last one is repeated. `asked` records the questions."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def quick(total: float = 0.3, **limits: Any) -> dict[str, Any]:
    """Options of a sender with short timeouts."""
    return {"total": total, "connect": min(total, 5.0), "limits": DispatchLimits(**limits)}


@asynccontextmanager
async def running(loop: SenderLoop, calls: Calls) -> AsyncIterator[asyncio.Task[None]]:
    """The loop beside a test, as a worker runs it."""
    task = asyncio.create_task(loop.run(calls.store))
    try:
        yield task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Any, timeout: float = 10.0) -> None:
    """Let the event loop run until the condition holds."""
    async with asyncio.timeout(timeout):
        while not (await found if asyncio.iscoroutine(found := condition()) else found):
            await asyncio.sleep(0.005)
