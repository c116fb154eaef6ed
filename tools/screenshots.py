"""Pictures of every page of the dashboard, wide and narrow, light and dark, into docs/screenshots/.

`make screenshots`, or `python -m tools.screenshots [--out FOLDER] [NAME ...]`. A service with a worker, a crowd that
wants deals, schedules, a budget and jobs that fail runs on SQLite for a while first, so that there is something to see.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from examples.demo.deals import RandomRequests, add_deals
from playwright.sync_api import Browser, sync_playwright
from proof.service import ServiceRunner
from tools.screenshot_flows import PICTURES, Shop, add_shop, start_flows
from tools.screenshot_lanes import LANES, add_lanes, fill_lanes

from accoda import App, Priority
from accoda.clock import SystemClock
from accoda.http import ServiceOptions
from accoda.http.security import Security, tokens
from accoda.runtime.worker import Worker, WorkerOptions
from accoda.settings import Settings

ROOT = Path(__file__).parent.parent
OUT = ROOT / "docs" / "screenshots"
SIZES = {"wide": (1440, 900), "narrow": (390, 844)}
THEMES = ("light", "dark")
SECONDS = 40.0
"""For which jobs flow before the first picture."""
SECTIONS = ("jobs", "dead", "workers", "schedules", "budgets", "demands")


class NoSuchAddress(Exception):
    """What a job of this world fails with."""


def make_app(url: str) -> tuple[App, RandomRequests, Shop]:
    """Queues that work, fail, wait and pause."""
    random = Random(3)
    app = App(url)

    @app.handler("emails", max_attempts=3, retry=1.0, keep_for=3600)
    async def send(email: dict[str, Any]) -> str:
        await asyncio.sleep(0.05)
        if email["n"] % 25 == 7:
            raise NoSuchAddress(f"mail-{email['n'] % 3}.example.com does not know {email['to']}")
        return f"sent to {email['to']}"

    @app.handler("reports", batch=1, secret=("password",), keep_for=3600)
    async def write(report: dict[str, Any]) -> None:
        await app.progress(0.4, "summing up")
        await asyncio.sleep(random.uniform(0.3, 1))

    @app.handler("thumbnails", policy="aging")
    async def draw(picture: dict[str, Any]) -> None:
        await asyncio.sleep(0.2)

    @app.handler("exports")
    async def export(table: dict[str, Any]) -> None:
        await asyncio.sleep(12)

    @app.cron("0 7 * * MON-FRI", tz="Europe/Rome", queue="newsletter")
    async def newsletter() -> None: ...

    @app.every("10s", queue="clean-up", keep_for=600)
    async def clean_up() -> int:
        return 12

    add_lanes(app)
    return app, RandomRequests(add_deals(app, random), SystemClock(), random), add_shop(app)


async def produce(app: App, requests: RandomRequests, stop: asyncio.Event) -> None:
    """Jobs of every kind, in waves, until told to stop."""
    number, random = 0, Random(5)
    await app.enqueue("invoices", {"month": "2026-10"}, name="Invoices of October", delay=3600)
    await app.storage.pause("imports", None)
    for n in range(40):
        await app.enqueue("imports", {"file": f"part-{n}.csv"})
    while not stop.is_set():
        for _ in range(random.randrange(0, 6)):
            number += 1
            level = random.choice(list(Priority))
            await app.enqueue("emails", {"n": number, "to": f"user{number}@example.com"}, priority=level)
        await app.enqueue("thumbnails", {"picture": f"{number}.jpg"})
        if random.randrange(16) == 0:
            await app.enqueue_many("exports", [{"table": f"orders_{number}", "part": part} for part in range(4)])
        if number % 9 == 0:
            await app.enqueue("reports", {"customer": {"id": number}, "password": "x"}, name=f"Report {number}")
        await requests.run_once()
        await asyncio.sleep(0.4)


class Worlds(threading.Thread):
    """A worker and producers, in an event loop of their own."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url = url
        self._loop = asyncio.new_event_loop()
        self._end = asyncio.Event()

    def run(self) -> None:
        self._loop.run_until_complete(self._live())

    async def _live(self) -> None:
        app, requests, shop = make_app(self._url)
        settings = Settings.load(environ={}, overrides={"max_processors": 4, "heartbeat": 1.0})
        worker = Worker(app, WorkerOptions(name="alpha", managed=False, settings=settings))
        await worker.init()
        working = asyncio.create_task(worker.run())
        await start_flows(app, shop)
        await fill_lanes(app)
        await produce(app, requests, self._end)
        worker.shutdown()
        await working
        await app.close()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self.join(20)


@contextmanager
def world(seconds: float) -> Iterator[str]:
    """The address of a service over a world that has lived for so long."""
    with tempfile.TemporaryDirectory(prefix="accoda-pictures-") as folder:
        url = f"sqlite:///{folder}/jobs.db"
        life = Worlds(url)
        life.start()
        try:
            threading.Event().wait(seconds)
            with ServiceRunner(make_app(url)[0], ServiceOptions(system_jobs=True)) as service:
                threading.Event().wait(5)
                yield service.url
        finally:
            life.stop()


@contextmanager
def locked() -> Iterator[str]:
    """The address of a service that asks for a token."""
    app = App("memory://")
    asyncio.run(tokens.create(app.storage, "anna", ["admin"], now=0))
    with ServiceRunner(app, ServiceOptions(system_jobs=False, policy=Security())) as service:
        yield service.url


def pages(browser: Browser, address: str) -> dict[str, str]:
    """Every page by a name. Those of one job, schedule or demand are found by following the first link to one."""
    page = browser.new_page()
    found = {"overview": "/", "queue": "/queues/emails", "lanes": LANES} | {name: f"/{name}" for name in SECTIONS}

    def first(name: str, start: str, prefix: str, within: str = "main") -> None:
        page.goto(address + start)
        link = page.locator(f"{within} a[href^='{prefix}']").first
        if link.count():
            found[name] = link.get_attribute("href") or start

    first("job-dead", "/jobs?state=dead", "/jobs/")
    first("job-waiting", "/jobs?queue=imports", "/jobs/")
    first("job-held", "/jobs?queue=mailings&state=held&lane=customer-9", "/jobs/")
    first("job-done", "/jobs?queue=emails&state=done", "/jobs/")
    first("schedule", "/schedules", "/schedules/")
    first("demand", "/demands", "/demands/")
    found["bulk-ask"] = "/bulk?action=retry&which=matching&queue=emails&state=dead"
    found["replay-ask"] = "/dead/replay?queue=emails"
    asked = {"action": "priority", "level": "LOW", "filter": {"queue": "imports"}}
    found["bulk"] = "/bulk/" + page.request.post(address + "/api/v1/jobs/bulk", data=asked).json()["id"]
    found |= PICTURES
    first("job-flow", "/flows/order-17?state=running", "/jobs/", "#nodes")
    found["nowhere"] = "/nowhere"
    page.close()
    return {name: address + path for name, path in found.items()}


def shoot(browser: Browser, found: dict[str, str], out: Path, only: set[str]) -> None:
    for name, address in found.items():
        if only and name not in only:
            continue
        for size, (width, height) in SIZES.items():
            for theme in THEMES:
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=theme, device_scale_factor=1
                )
                page = context.new_page()
                page.goto(address)
                page.wait_for_timeout(700)  # charts are drawn, the stream is open
                page.screenshot(path=out / f"{name}-{size}-{theme}.png", full_page=size == "narrow")
                context.close()
        sys.stderr.write(f"{name}\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="of pages; all, if none is named")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for which jobs flow before")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with world(given.seconds) as address, locked() as closed, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        shoot(browser, pages(browser, address) | {"login": f"{closed}/login"}, given.out, set(given.names))
        browser.close()


if __name__ == "__main__":
    main()
