"""A dashboard over a store in memory, asked with plain HTTP, for the tests of its pages."""

import asyncio
import http.client
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import unquote, urlencode

from proof.service import Reply, ServiceRunner

from accoda import App, Bury, Done, Retry
from accoda.model import ById, Job, NewJob
from accoda.storage.protocol import Store

T = TypeVar("T")

HOSTILE = "<script>alert('x')</script>\"'&\u202e"
"""A text that must never get into a page as it is."""


class Dash:
    """A running dashboard. `token`: what its requests log in with."""

    def __init__(self, service: ServiceRunner, token: str | None = None) -> None:
        self.service = service
        self.app: App = service.app
        self.token = token

    def get(self, path: str) -> Reply:
        return self.service.get(path, **self._cookie())

    def text(self, path: str) -> str:
        """A page that is there, with no trace of anything hostile in it."""
        reply = self.get(path)
        assert reply.status == 200, (path, reply.status, reply.body[-2000:])
        page = reply.body.decode()
        assert "<script>alert" not in page and '" onerror=x' not in page
        return page

    def do(self, path: str, **form: str) -> Reply:
        """Send a form, as a browser does from a page of ours."""
        body = urlencode({name.replace("__", "-"): value for name, value in form.items()}).encode()
        headers = {"Content_Type": "application/x-www-form-urlencoded", "Sec_Fetch_Site": "same-origin"}
        return self.service.post(path, body, **headers, **self._cookie())

    def done(self, path: str, **form: str) -> tuple[str, str]:
        """Send a form that is accepted: where it leads, and what it says."""
        reply = self.do(path, **form)
        assert reply.status == 303, (path, reply.status, reply.body[-2000:])
        said = reply.headers.get("set-cookie", "").partition("=")[2].partition(";")[0]
        return reply.headers["location"], unquote(said)

    def _cookie(self) -> dict[str, str]:
        return {} if self.token is None else {"Cookie": f"accoda={self.token}"}

    # -- what is stored

    def store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        async def run() -> T:
            return await work(await self.app.connections.get())

        return asyncio.run(run())

    def run(self, work: Callable[[App], Awaitable[T]]) -> T:
        async def run() -> T:
            return await work(self.app)

        return asyncio.run(run())

    def enqueue(self, queue: str, payload: Any = None, **options: Any) -> int:
        return self.run(lambda app: app.enqueue(queue, payload, **options)).id

    def take(self, queue: str, count: int = 1) -> list[Job]:
        return self.store(lambda store: store.take(queue, count, worker="mailer-1"))

    def bury(self, queue: str, *reasons: str) -> list[int]:
        async def work(store: Store) -> list[int]:
            await store.enqueue([NewJob(queue) for _ in reasons])
            jobs = await store.take(queue, len(reasons))
            await store.settle([Bury(job.lease, why) for job, why in zip(jobs, reasons, strict=True)])
            return [job.id for job in jobs]

        return self.store(work)

    def settle(self, *outcomes: Done | Retry | Bury) -> None:
        assert not self.store(lambda store: store.settle(outcomes))

    def state(self, id: int) -> str | None:
        job = self.store(lambda store: store.look(ById(id))).job
        return None if job is None else job.state


class Stream:
    """A browser's EventSource, as far as it is needed."""

    def __init__(self, service: ServiceRunner, page: str = "/", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
        self._connection.request("GET", f"/live?page={page}", headers=headers)
        self.answer = self._connection.getresponse()

    def line(self) -> str:
        return self.answer.readline().decode()

    def event(self) -> tuple[str, str]:
        """The next event: its name and its text."""
        name, lines = "", []
        while True:
            line = self.line()
            assert line, "the stream has ended"
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                lines.append(line[6:])
            elif line == "\n" and name:
                return name, "".join(lines)

    def rest(self) -> str:
        return self.answer.read().decode()

    def close(self) -> None:
        self.answer.close()
        self._connection.close()
