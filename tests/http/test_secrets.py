"""A value in a field that is marked secret is looked for in all that the service and the command line give out."""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import secrets
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from proof.service import ServiceRunner

from accoda.app import App
from accoda.cli.commands import COMMANDS, accoda
from accoda.http.options import ServiceOptions
from accoda.http.security import Security
from accoda.http.table import operations
from accoda.runtime.logs import LogMonitor
from accoda.runtime.worker import Worker, WorkerOptions
from accoda.webhooks.dispatcher import SenderOptions
from accoda.webhooks.guard import Policy
from accoda.webhooks.sender_loop import SenderLoop

JOBS = "/api/v1/jobs"


class Receiver:
    """Takes webhooks on loopback and keeps what came."""

    def __init__(self) -> None:
        got: list[bytes] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got.append(str(self.headers).encode() + self.rfile.read(int(self.headers["content-length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *args: Any) -> None:
                pass

        self.got = got
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))


class Log(logging.Handler):
    """Every record as text, with its arguments and tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.text = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.text += logging.Formatter().format(record) + repr(record.__dict__)


class SecretJobs:
    """A store with jobs in every state, each with the marker in a secret field."""

    def __init__(self, folder: Path, receiver: Receiver, quotes: bool) -> None:
        self.quotes = quotes
        self.marker = "MARK" + secrets.token_hex(12)
        self.url = f"sqlite:///{folder / 'jobs.db'}"
        self.folder = folder
        self.receiver = receiver
        self.app = self._app()
        self.ids: list[int] = []

    def _app(self) -> App:
        app = App(self.url)

        @app.handler("cards", secret=("number", "owner.phone"), keep_for=3600, max_attempts=1)
        async def charge(card: dict[str, Any]) -> dict[str, Any]:
            if card.get("fails"):
                raise ValueError(f"the card {card['number'] if self.quotes else ''} was refused")
            return {"number": card["number"], "left": 7}

        @app.handler("letters", keep_for=3600, max_attempts=1)
        async def post(letter: dict[str, Any]) -> None:
            if letter.get("fails"):
                raise ValueError(f"no such address: {letter['street'] if self.quotes else ''}")

        return app

    def card(self, **more: Any) -> dict[str, Any]:
        return {"number": self.marker, "owner": {"name": "Anna", "phone": self.marker}, **more}

    def requests(self) -> Iterator[dict[str, Any]]:
        hook = {"webhookUrl": self.receiver.url.replace("127.0.0.1", "hooks.test"), "name": "Charge"}
        yield {"queue": "cards", "payload": self.card(), **hook}
        yield {"queue": "cards", "payload": self.card(fails=True), **hook}
        letter = {"street": self.marker, "lines": [{"iban": self.marker}]}
        fields = ["street", "lines.iban"]
        yield {"queue": "letters", "payload": letter, "secretFields": fields, **hook}
        yield {"queue": "letters", "payload": {**letter, "fails": True}, "secretFields": fields, **hook}
        for queue in ("cards", "stays"):
            yield {"queue": queue, "payload": self.card(), "secretFields": ["number", "owner.phone"], "delay": 3600}
        yield {"queue": "stays", "payload": self.card(), "secretFields": ["number", "owner"], "key": "k"}
        yield {"queue": "taken", "payload": self.card(), "secretFields": ["number", "owner.phone"]}


@pytest.fixture(params=[False, True], ids=["plain", "errors that quote a secret"])
def secret_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[SecretJobs]:
    receiver = Receiver()
    receiver.thread.start()
    monkeypatch.setenv("ACCODA_WEBHOOK_ALLOW", "127.0.0.1")
    try:
        yield SecretJobs(tmp_path, receiver, request.param)
    finally:
        receiver.server.shutdown()
        receiver.server.server_close()
        receiver.thread.join(5)


@pytest.fixture
def log() -> Iterator[Log]:
    handler = Log()
    loggers = [logging.getLogger(name) for name in ("", "accoda")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.setLevel(logging.DEBUG)
    yield handler
    for logger, level in zip(loggers, before, strict=True):
        logger.removeHandler(handler)
        logger.setLevel(level)


def test_a_secret_is_in_nothing_that_is_given_out(
    secret_jobs: SecretJobs, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServiceRunner(secret_jobs.app, ServiceOptions(policy=Security(rate=1e6), system_jobs=False)) as service:
        given = [enqueue(secret_jobs, service), *problems(secret_jobs, service)]
        asyncio.run(work(secret_jobs))
        taken = service.post("/api/v1/queues/taken/take", {"count": 1, "lease": 600})
        assert secret_jobs.marker.encode() in taken.body, "a worker must see the whole payload"
        given += looks(secret_jobs, service)
        states = {service.get(f"{JOBS}/{id}").json()["state"] for id in secret_jobs.ids}
        assert states == {"ready", "delayed", "taken", "dead", "done"}
        given.append(retries(secret_jobs, service))
    given += commands(secret_jobs, monkeypatch)
    assert len(secret_jobs.receiver.got) == 4, "webhooks: two jobs done, two dead"
    given += [f"webhook: {body!r}" for body in secret_jobs.receiver.got]
    assert [text[:3000] for text in given if secret_jobs.marker in unfolded(text)] == []
    assert "•••" in "".join(given)
    assert [line for line in log.text.splitlines() if secret_jobs.marker in line] == []


@pytest.mark.parametrize("secret_jobs", [False], indirect=True, ids=[""])
def test_a_secret_of_a_schedule_is_in_nothing_that_is_given_out(
    secret_jobs: SecretJobs, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [*daily(secret_jobs), *commands(secret_jobs, monkeypatch)]
    assert [text[:3000] for text in given if secret_jobs.marker in unfolded(text)] == []
    assert secret_jobs.marker not in log.text


@pytest.mark.parametrize("secret_jobs", [False], indirect=True, ids=[""])
def test_a_secret_of_a_schedule_is_hidden_where_its_handler_is_not_known(
    secret_jobs: SecretJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    daily(secret_jobs)
    assert [text for text in commands(secret_jobs, monkeypatch) if secret_jobs.marker in text] == []


def daily(secret_jobs: SecretJobs) -> list[str]:
    """A schedule of jobs with secrets, and all that the service says of it."""
    asked = {"name": "daily", "queue": "cards", "cron": "0 7 * * *", "payload": secret_jobs.card()}
    with ServiceRunner(secret_jobs.app, ServiceOptions(policy=Security(rate=1e6), system_jobs=False)) as service:
        replies = [service.post("/api/v1/schedules", asked) for _ in range(2)]
        replies.append(service.post("/api/v1/schedules/daily/trigger"))
        assert [reply.status for reply in replies] == [201, 409, 201], replies
        secret_jobs.ids.append(replies[2].json()["id"])
        return [*map(str, replies), *looks(secret_jobs, service)]


def unfolded(text: str) -> str:
    """The text, and what stands in it as base64."""
    found = (
        piece + "=" * (-len(piece) % 4) for piece in re.findall(r"[A-Za-z0-9+/]{24,}", text) if len(piece) % 4 != 1
    )
    return text + "".join(base64.b64decode(piece).decode("latin-1") for piece in found)


def enqueue(secret_jobs: SecretJobs, service: ServiceRunner) -> str:
    said = ""
    for number, body in enumerate(secret_jobs.requests()):
        reply = service.post(JOBS, body, idempotency_key=f"key-{number}")
        again = service.post(JOBS, body, idempotency_key=f"key-{number}")
        assert (reply.status, again.status) == (201, 201), reply
        secret_jobs.ids.append(reply.json()["id"])
        said += f"{reply} {again}"
    return said


def problems(secret_jobs: SecretJobs, service: ServiceRunner) -> Iterator[str]:
    """Bad requests that have the marker in what is secret, and in places that are near it."""
    secret = {"payload": secret_jobs.card(), "secretFields": ["number", "owner.phone"]}
    bad: tuple[dict[str, Any], ...] = (
        {"queue": "no such name!", **secret},
        {"queue": "cards", **secret, "priority": "SOON"},
        {"queue": "cards", **secret, "delay": -1},
        {"queue": "cards", **secret, "unknown": 1},
        {"queue": "cards", **secret, "webhookUrl": "file:///etc/passwd"},
        {"queue": "cards", **secret, "payload": secret_jobs.card(deep=_deep(100))},
        {"queue": "cards", **secret, "payload": secret_jobs.card(large="x" * 300_000)},
        {"queue": "cards", **secret, "secretFields": 7},
        {"queue": "accoda.webhooks", **secret},
        {"queue": "cards", "payload": [secret_jobs.marker, 10**30]},
    )
    for body in bad:
        reply = service.post(JOBS, body)
        assert reply.status in (413, 422), reply
        yield f"{body['queue']}: {reply}"
        yield f"batch: {service.post(f'{JOBS}/batch', {'jobs': [body]})}"
    cut_off = b'{"queue":"cards","payload":"' + secret_jobs.marker.encode()
    yield f"cut off: {service.post(JOBS, cut_off)}"
    yield f"other body: {service.post(JOBS, {'queue': 'cards', **secret}, idempotency_key='key-0')}"


def _deep(levels: int) -> Any:
    value: Any = None
    for _ in range(levels):
        value = [value]
    return value


async def work(secret_jobs: SecretJobs) -> None:
    """Run what is ready as `accoda worker` does, with its log, and make the calls."""
    async with secret_jobs._app() as app:
        queues, monitors = ("cards", "letters"), (LogMonitor(),)
        options = WorkerOptions(queues=queues, burst=True, managed=False, system_jobs=False, monitors=monitors)
        await Worker(app, options).run()
        caller = SenderLoop(SenderOptions(policy=Policy.read("127.0.0.1"), resolve=_loopback))
        await caller.run_once(await app.connections.get())


async def _loopback(*_: Any) -> Any:
    return ["127.0.0.1"]


def looks(secret_jobs: SecretJobs, service: ServiceRunner) -> Iterator[str]:
    """Every GET that there is, with every id and name, and the pages of every state."""
    names = ("cards", "letters", "stays", "taken", "accoda.webhooks", "accoda.schedules", "daily")
    for operation in operations():
        if operation.method != "GET":
            continue
        values = secret_jobs.ids if "{id}" in operation.path else names if "{name}" in operation.path else [None]
        for value in values:
            path = operation.path.replace("{id}", str(value)).replace("{name}", str(value))
            reply = service.get(path)
            assert reply.status in (200, 202, 404, 409, 410, 422), (path, reply)
            yield f"GET {path}: {reply.status} {reply.headers} {reply.body.decode()}"
    for state in ("ready", "delayed", "taken", "dead", "done"):
        reply = service.get(f"{JOBS}?all=true&state={state}")
        assert reply.status == 200
        yield f"GET {state}: {reply.body.decode()}"


def retries(secret_jobs: SecretJobs, service: ServiceRunner) -> str:
    """What is answered by what changes a job."""
    said = ""
    for id in secret_jobs.ids:
        said += f"{service.request('PATCH', f'{JOBS}/{id}', {'priority': 'LOW'})}"
        said += f"{service.post(f'{JOBS}/{id}/retry')}"
    return said + f"{service.post('/api/v1/dead/replay', {'dryRun': True})}"


ELSEWHERE = {"worker", "serve", "migrate", "generate", "contract", "completion"}
"""Commands that show nothing of stored jobs."""


def commands(secret_jobs: SecretJobs, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Every command that looks at jobs, for people and for programs, with the app's handlers and without."""
    (secret_jobs.folder / "secret_shop.py").write_text(
        "from accoda import App\n"
        f"app = App({secret_jobs.url!r})\n"
        "@app.handler('cards', secret=('number', 'owner.phone'))\n"
        "async def charge(card: dict) -> None: ...\n"
    )
    monkeypatch.syspath_prepend(str(secret_jobs.folder))
    monkeypatch.setenv("ACCODA_URL", secret_jobs.url)
    words: list[list[str]] = [[name] for name in COMMANDS if name not in ELSEWHERE | {"job", "enqueue", "settings"}]
    words += [["jobs", "--all"], ["jobs", "--state", "dead"], ["queues", "--all"], ["dead", "groups"], ["settings"]]
    words += [["job", str(id)] for id in secret_jobs.ids]
    words += [["enqueue", "cards", msgspec.json.encode(secret_jobs.card()).decode()]]
    seen = {each[0] for each in words}
    assert seen | ELSEWHERE == set(COMMANDS)
    for each in words:
        for more in ([], ["--json"], ["--app", "secret_shop:app"]):
            result = CliRunner().invoke(accoda, [*each, *more])
            assert result.exception is None or isinstance(result.exception, SystemExit), (each, result.exception)
            yield f"{' '.join([*each[:1], *more])}: {result.output}"
