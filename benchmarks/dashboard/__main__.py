"""`python -m benchmarks.dashboard [--jobs N] [--open N] [STORAGE ...]`: every page and `why` with a million jobs.

A time is what one request takes over a connection of loopback that stays open, the median of several: the server's time
and about a quarter of a millisecond of the way there and back.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from proof.servers.redis import RedisServer

from accoda import open_storage
from benchmarks.__main__ import tell
from benchmarks.dashboard.filled_store import QUEUES, fill
from benchmarks.report import RESULTS, table

GOAL_MS = 100.0
GOAL_SHARE = 0.25
WATCHED = ("/", f"/queues/{QUEUES[0]}", "/jobs", "/workers", "/dead", "/budgets", "/jobs?state=taken")


@dataclass(frozen=True)
class Server:
    """A service in another process."""

    port: int
    pid: int

    def seconds_used(self) -> float:
        """Processor time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Timing:
    """Milliseconds of one page: the median of several looks and the slowest of them."""

    storage: str
    page: str
    median: float
    slowest: float
    size: int


@dataclass(frozen=True)
class Crowd:
    """What so many open dashboards cost: the share of one core, with them and without."""

    storage: str
    dashboards: int
    share: float
    idle: float


@contextmanager
def serving(url: str) -> Iterator[Server]:
    command = [sys.executable, "-m", "benchmarks.dashboard.filled_store", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Server(int(process.stdout.readline()), process.pid)
        finally:
            process.terminate()


def pages(ids: dict[str, int]) -> list[str]:
    """Every page, with the filters that make it work hardest."""
    queue = QUEUES[0]
    return [
        "/",
        *(f"/queues/{queue}?span={span}" for span in ("1h", "24h", "7d")),
        "/jobs",
        f"/jobs?queue={queue}&state=ready",
        "/jobs?state=dead&priority=LOW",
        "/jobs?field=" + quote("customer.id=999"),
        "/jobs?key=nobody",
        *(f"/jobs/{id}" for id in ids.values()),
        "/dead",
        "/workers",
        "/schedules",
        "/budgets",
        "/demands",
        *(f"/api/v1/jobs/{id}/why" for id in ids.values()),
    ]


def measure(storage: str, server: Server, ids: dict[str, int], looks: int) -> list[Timing]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    found = []
    for page in pages(ids):
        times, size = [], 0
        for _ in range(looks + 1):
            begin = time.perf_counter()
            connection.request("GET", page)
            answer = connection.getresponse()
            size = len(answer.read())
            times.append((time.perf_counter() - begin) * 1000)
            if answer.status != 200:
                raise SystemExit(f"{page}: {answer.status}")
        found.append(Timing(storage, _named(page, ids), statistics.median(times[1:]), max(times[1:]), size))
        tell(f"{storage}: {page} {found[-1].median:.1f} ms")
    return found


def _named(page: str, ids: dict[str, int]) -> str:
    """Ids differ from run to run: what they stand for does not."""
    for name, id in ids.items():
        page = page.replace(f"/jobs/{id}", f"/jobs/<{name}>")
    return page


async def crowd(storage: str, server: Server, dashboards: int, seconds: float) -> Crowd:
    """Open so many streams on several pages, while jobs come and go, and see what the service uses."""
    idle = await _share(server, seconds / 2)
    streams = [asyncio.create_task(_watch(server.port, WATCHED[n % len(WATCHED)])) for n in range(dashboards)]
    await asyncio.sleep(3)  # the first rendering of each is not what it costs to keep it open
    share = await _share(server, seconds)
    for stream in streams:
        if stream.done():
            raise SystemExit(f"a stream ended: {stream.exception()}")
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    return Crowd(storage, dashboards, share, idle)


async def _share(server: Server, seconds: float) -> float:
    before, begin = server.seconds_used(), time.perf_counter()
    await asyncio.sleep(seconds)
    return (server.seconds_used() - before) / (time.perf_counter() - begin)


async def _watch(port: int, page: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET /live?page={quote(page, safe='')} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.split(b"\r\n")[0]:
        raise RuntimeError(head.decode(errors="replace"))
    while await reader.read(65536):
        pass
    raise RuntimeError("the service closed the stream")


async def _traffic(url: str) -> None:
    """Take and settle jobs meanwhile, about 500 a second, so that what is shown changes."""
    from accoda import Done, NewJob

    async with await open_storage(url) as store:
        while True:
            await store.enqueue([NewJob(QUEUES[0], b"\x80")] * 50)
            await store.settle([Done(job.lease) for job in await store.take(QUEUES[0], 50)])
            await asyncio.sleep(0.1)


async def _crowd_in_traffic(storage: str, url: str, server: Server, dashboards: int, seconds: float) -> Crowd:
    traffic = asyncio.create_task(_traffic(url))
    try:
        return await crowd(storage, server, dashboards, seconds)
    finally:
        traffic.cancel()
        await asyncio.gather(traffic, return_exceptions=True)


async def _filled(url: str, jobs: int) -> dict[str, int]:
    async with await open_storage(url) as store:
        return await fill(store, jobs, tell)


def report(timings: Sequence[Timing], crowds: Sequence[Crowd], jobs: int) -> str:
    lines = [(one.storage, one.page, f"{one.median:.1f}", f"{one.slowest:.1f}", f"{one.size:,}") for one in timings]
    slowest = max(timings, key=lambda one: one.median)
    told = [
        f"- {jobs:,} jobs stored. Slowest page: {slowest.page} on {slowest.storage}, {slowest.median:.1f} ms "
        f"(goal: under {GOAL_MS:.0f} ms).",
        *(
            f"- {one.dashboards} dashboards open on {one.storage}, while jobs come and go: {one.share:.1%} of a core "
            f"(goal: under {GOAL_SHARE:.0%}); with none open {one.idle:.1%}."
            for one in crowds
        ),
    ]
    return "\n".join([table(("storage", "page", "ms", "slowest", "bytes"), lines), "", *told])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.dashboard", description=__doc__)
    parser.add_argument("storages", nargs="*", default=["sqlite", "redis"], help="sqlite, redis")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--looks", type=int, default=9, help="at each page")
    parser.add_argument("--open", type=int, default=50, help="dashboards at once")
    parser.add_argument("--seconds", type=float, default=20.0, help="for which they are open")
    parser.add_argument("--save", action=argparse.BooleanOptionalAction, default=True, help="into benchmarks/results/")
    given = parser.parse_args()
    timings: list[Timing] = []
    crowds: list[Crowd] = []
    for storage in given.storages:
        with ExitStack() as stack:
            if storage == "redis":
                url = stack.enter_context(RedisServer()).url
            else:
                url = f"sqlite:///{stack.enter_context(tempfile.TemporaryDirectory())}/jobs.db"
            ids = asyncio.run(_filled(url, given.jobs))
            server = stack.enter_context(serving(url))
            timings += measure(storage, server, ids, given.looks)
            crowds.append(asyncio.run(_crowd_in_traffic(storage, url, server, given.open, given.seconds)))
    print(text := report(timings, crowds, given.jobs))
    if given.save:
        facts = {"pages": [asdict(one) for one in timings], "crowds": [asdict(one) for one in crowds]}
        (RESULTS / "dashboard.json").write_text(json.dumps(facts, indent=1) + "\n")
        (RESULTS / "dashboard.md").write_text(text + "\n")


if __name__ == "__main__":
    main()
