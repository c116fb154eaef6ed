"""A small shop with a store in which there is something of everything, at a moment that stands still."""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
from click.testing import CliRunner, Result
from msgspec.structs import replace

from accoda import App, Bury, Done, ManualClock, Observation, Priority, Retry
from accoda.budget.usage import Usage, line_of
from accoda.cli.commands import accoda
from accoda.cli.draw import Surroundings
from accoda.connections import Connections
from accoda.envelope import Hook
from accoda.runtime.heartbeat import Heartbeat, ProcessorState, encode
from accoda.webhooks.call import Facts, call_job

NOW = round(datetime(2030, 1, 31, 9, tzinfo=UTC).timestamp() * 1000)
URL = "sqlite:///accoda.db"

SHOP = '''"""The handlers of a shop."""
from typing import Any

from accoda import App

app = App()
app.budget("keepa", capacity=300, refill=20, per=60)

@app.handler("emails", max_attempts=5, secret=("card",))
async def send(email: dict[str, Any]) -> None: ...

@app.handler("deals", budget="keepa", cost=5)
async def fetch(category: str) -> None: ...

prices = app.demand("prices", cost=5, budget="keepa")

@prices.fetch
async def look_up(category: str) -> list[float]: ...

@app.handler("reports", keep_for=86_400)
async def report(year: int) -> dict[str, int]: ...
'''
CONTRACT = """queues:
  - id: 1
    name: emails
    fields:
      - {name: to, type: string}
      - {name: user_id, type: int64}
"""
LINES = "".join(f'{{"to": "person{n}@example.com"}}\n' for n in range(1, 1201))
MAILING = '''"""Sends emails."""
from accoda import App

app = App("sqlite:///mailing.db")

@app.handler("emails", max_attempts=1)
async def send(email: dict[str, str]) -> None:
    if "@" not in email["to"]:
        raise ValueError("no address")
'''
FEW = '{"to": "anna@example.com"}\n{"to": "bruno@example.com"}\n{"to": "carla"}\n'
SCHEDULES = """[schedules.poll]
every = "6h"
queue = "deals"

[schedules.report]
cron = "0 7 * * MON-FRI"
tz = "Europe/Rome"
queue = "reports"
"""
FILES = {
    "few.jsonl": FEW,
    "mailing.py": MAILING,
    "schedules.toml": SCHEDULES,
    "wrong.toml": SCHEDULES.replace("every", "evry"),
    "shop.py": SHOP,
    "queues.yaml": CONTRACT,
    "new.yaml": CONTRACT + "      - {name: lang, type: string}\n",
    "people.jsonl": LINES,
    "wrong.jsonl": LINES + "{to: nobody}\n",
}


class World:
    """The folder, the clock, and the command line in it."""

    def __init__(self, clock: ManualClock, *, terminal: bool = False) -> None:
        self.clock = clock
        self.surroundings = Surroundings(clock, 80, terminal)

    def run(self, *words: str, input: str | bytes | None = None, terminal: bool = False) -> Result:
        """One command, as it is typed."""
        around = self.surroundings._replace(terminal=terminal)
        result = CliRunner().invoke(accoda, words, obj=around, input=input, prog_name="accoda")
        sys.modules.pop("shop", None)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    def store(self, work: Any) -> Any:
        """Do something with the store: `world.store(lambda app: app.find(3))`."""

        async def do() -> Any:
            async with App(URL, clock=self.clock) as app:
                return await work(app)

        return asyncio.run(do())


@contextmanager
def visit(prepared: Path, folder: Path, columns: int | None = None) -> Iterator[World]:
    """A copy of the shop to do as one likes in. With `columns`, that is what a shell would say."""
    shutil.copytree(prepared, folder)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("ACCODA_", "_ACCODA"))}
    environ |= {"NO_COLOR": "1", "TZ": "UTC"}
    environ.pop("COLUMNS", None)
    if columns is not None:
        environ["COLUMNS"] = str(columns)
    before, path = Path.cwd(), list(sys.path)
    with mock.patch.dict(os.environ, environ, clear=True):
        os.chdir(folder)
        try:
            yield World(ManualClock(NOW))
        finally:
            os.chdir(before)
            sys.path[:] = path


def build(folder: Path, now: int = NOW) -> None:
    """Fill the folder, with what a shop has at that moment."""
    for name, text in FILES.items():
        (folder / name).write_text(text)
    asyncio.run(_fill(f"sqlite:///{folder.as_posix()}/accoda.db", now))


async def _fill(url: str, now: int) -> None:
    """Three hours of the shop's life."""
    clock = ManualClock(now - 3 * 3_600_000)
    scope: dict[str, Any] = {"__name__": "shop"}
    exec(SHOP, scope)
    app: App = scope["app"]
    app.url, app.connections = url, Connections(url, clock)

    def at(seconds: float) -> None:
        clock.advance((now - clock.now()) / 1000 + seconds)

    async with app:
        await _reports(app, now)
        at(-7200)
        await _dead(app, clock)
        at(-3400)
        await _waiting(app)
        at(-400)
        await _retried(app, now)
        at(-52)
        await app.storage.take("emails", 1, lease=120.0, worker="post")
        at(-12)
        await _heartbeats(app, now)
        await app.books.observe(Observation("keepa", at=clock.now(), left=140.0))
        await _log(app, now)


async def _log(app: App, now: int) -> None:
    """Two calls that a budget has paid for."""
    call = Usage(now - 610_000, "deals", 7, "Libri", 5, {"keepa": 5}, duration=0.42)
    await app.storage.enqueue([line_of(call), line_of(replace(call, at=now - 540_000, success=False, duration=2.005))])


async def _reports(app: App, now: int) -> None:
    """Two reports: one is done, with its result; one waits for the year to be over."""
    await app.enqueue("reports", 2029, name="Report of the year 2029")
    for job in await app.storage.take("reports", 1, worker="office"):
        await app.storage.settle([Done(job.lease, result=b"\x81\xa5pages\x0c")])
    await app.enqueue("reports", 2030, name="Report of the year 2030", at=now + 335 * 86_400_000)


async def _dead(app: App, clock: ManualClock) -> None:
    """Emails that could not be sent, for two causes."""
    await app.enqueue_many("emails", [{"to": f"p{n}@example.com", "card": "4111"} for n in range(6)])
    for _ in range(4):
        failed = await app.storage.take("emails", 6, worker="post")
        await app.storage.settle([Retry(job.lease, reason="TimeoutError: no answer") for job in failed])
    for number, job in enumerate(await app.storage.take("emails", 6, lease=3600.0, worker="post")):
        clock.advance(300)
        cause = f"TimeoutError: no answer from 10.0.0.{number} after 30 s" if number else "LookupError: no user 4711"
        await app.storage.settle([Bury(job.lease, f"failed 5 times, the last time with {cause}")])


async def _waiting(app: App) -> None:
    email = {"to": "anna@example.com", "subject": "Your order", "card": "4111 1111 1111 1111"}
    await app.enqueue("emails", email, priority=Priority.HIGH, max_attempts=3)
    await app.enqueue_many("emails", [{"to": f"{name}@example.com"} for name in ("bruno", "carla", "dario")])
    await app.enqueue("deals", "Informatica", key="Informatica")


async def _retried(app: App, now: int) -> None:
    for job in await app.storage.take("emails", 1, worker="post"):
        await app.storage.settle([Retry(job.lease, delay=600.0, reason="SMTPServerDisconnected: try again")])
    await app.enqueue("emails", {"to": "elena@example.com"}, delay=3600, key="welcome/elena")
    await app.storage.pause("deals", now + 1_800_000)
    facts = Facts(id=1, queue="reports", attempts=0, created_at=now - 10_800_000, ended_at=now - 10_800_000)
    call = call_job(Hook("https://example.com/done"), "job.done", facts)
    await app.storage.enqueue([msgspec.structs.replace(call, delay=600.0)])


async def _heartbeats(app: App, now: int) -> None:
    beat = now - 14_000
    busy = ProcessorState("emails", 1, 10, now - 52_000)
    workers = [
        Heartbeat("a1", "post", "shop-1", 4711, now - 10_700_000, beat, ("emails",), 1, (busy,), slots=10, free=9),
        Heartbeat(
            "b2", "office", "shop-2", 812, now - 86_400_000, beat + 2000, ("deals", "reports"), 1, slots=10, free=10
        ),
    ]
    for worker in workers:
        await app.storage.write(f"worker/{worker.id}", encode(worker), ttl=60.0)
