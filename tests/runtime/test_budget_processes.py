"""Budgets over real processes: shared by two workers, given back by the dead, spoken of from child processes."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proof.servers.pytest import need
from proof.servers.redis import RedisServer

from accoda import App, ManualClock, Priority
from accoda.errors import RateLimited, RetryLater
from accoda.runtime import heartbeat
from accoda.runtime.runners.raised import pack, unpack

HERE = Path(__file__).parent
PATH = os.pathsep.join((str(HERE), *sys.path))
CAPACITY, RATE, FROZEN_AT = 10, 60, 1_700_000_000_000
COSTS = [1, 3, 1, 7, 2, 1, 1, 5, 1, 1] * 5


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
    else:
        server = need(lambda: RedisServer().start())
        try:
            yield server.url
        finally:
            server.stop()


def start(url: str, folder: Path, queue: str, *, frozen: bool = False) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "accoda", "worker", "budget_jobs:app", "--no-manager", "--queues", queue]
    environment = {**os.environ, "ACCODA_URL": url, "CALLS_LOG": str(folder / "calls.log"), "PYTHONPATH": PATH}
    if frozen:
        environment["FROZEN"] = "1"
    with (folder / "worker.err").open("ab") as errors:
        return subprocess.Popen(command, cwd=folder, env=environment, stderr=errors)


def lines(folder: Path) -> list[tuple[float, int, int]]:
    log = folder / "calls.log"
    found = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return sorted((float(at), int(cost), int(pid)) for at, cost, pid in found)


async def until_called(folder: Path, count: int) -> list[tuple[float, int, int]]:
    async with asyncio.timeout(40):
        while len(found := lines(folder)) < count:
            await asyncio.sleep(0.02)
    return found


def most_ahead(calls: list[tuple[float, int, int]], since: float) -> float:
    """How many tokens more than an API that was full at `since` had given out by then were spent, at the worst moment.

    A call comes after its grant, however busy the machine is. So what was spent by a moment was granted by then.
    """
    spent, worst = 0, -float(CAPACITY)
    for at, cost, _ in calls:
        spent += cost
        worst = max(worst, spent - CAPACITY - RATE * (at - since))
    return worst


async def test_two_processes_never_spend_more_than_the_api_allows(url: str, tmp_path: Path) -> None:
    async with App(url) as app:
        workers = [start(url, tmp_path, "calls") for _ in range(2)]
        try:
            async with asyncio.timeout(30):
                while len(await app.storage.documents(heartbeat.PREFIX)) < 2:
                    await asyncio.sleep(0.02)
            since = time.monotonic()
            costs: list[int] = []
            calls: list[tuple[float, int, int]] = []
            async with asyncio.timeout(60):
                while len({pid for _, _, pid in calls}) < 2:  # on a busy machine one of them may get nothing at first
                    costs += COSTS
                    for cost in COSTS:
                        await app.enqueue("calls", cost, cost=cost)
                    calls = await until_called(tmp_path, len(costs))
        finally:
            for worker in workers:
                worker.terminate()
        assert [worker.wait(20) for worker in workers] == [0, 0]
        assert sorted(cost for _, cost, _ in calls) == sorted(costs)
        assert most_ahead(calls, since) <= 0.1  # 2 ms of the refill: moments are whole milliseconds
        app.budget("api", capacity=CAPACITY, refill=RATE, per=1)
        view = (await app.budget_views())["api"]
        assert (view.reserved, view.used_today) == (0, sum(costs))
        assert len(await app.spending("calls", limit=1000)) == min(1000, len(costs))


async def test_the_tokens_of_a_worker_that_was_killed_come_back(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    clock = ManualClock(FROZEN_AT)
    async with App(url, clock=clock) as app:
        app.budget("api", capacity=CAPACITY, refill=RATE, per=1)
        await app.enqueue("hangs", 10, cost=10)
        worker = start(url, tmp_path, "hangs", frozen=True)
        try:
            await until_called(tmp_path, 1)
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.wait(20)
        view = (await app.budget_views())["api"]
        assert (view.reserved, view.available) == (10, 0)
        ran: list[int] = []

        @app.handler("hangs", budget="api")
        async def again(cost: int) -> None:
            ran.append(cost)

        clock.advance(29)
        assert await app.run_until_idle() == 0
        clock.advance(7)  # the lease, and the moment that a reservation outlives it
        assert await app.run_until_idle() == 1
        assert ran == [10]
        view = (await app.budget_views())["api"]
        assert (view.reserved, view.left, view.used_today) == (0, 0, 10)


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(HERE))
    import budget_jobs  # type: ignore[import-not-found,unused-ignore]

    yield budget_jobs
    sys.modules.pop("budget_jobs")


def test_what_a_handler_in_a_child_process_says_of_its_budget_counts(jobs: Any) -> None:
    app: App = jobs.app
    with app.testing() as trial:
        app.sync.enqueue("child", 7)
        assert app.sync.run_until_idle(["child"]) == 1
        view = app.sync.budget_views()["api"]
        assert (view.left, view.used_today, view.next_refill) == (7, 2, trial.clock.now() + 30_000)
        app.sync.enqueue("child", 0)
        assert app.sync.run_until_idle(["child"]) == 1
        view = app.sync.budget_views()["api"]
        assert (view.used_today, view.closed_until, view.refused_today) == (2, trial.clock.now() + 30_000, 1)
        (failed,) = trial.runs("child", "failed")
        assert isinstance(failed.error, RateLimited)
        assert str(failed.error) == "429"
        trial.advance(30)
        app.sync.enqueue("closes", 90)
        assert app.sync.run_until_idle(["closes"]) == 1
        assert app.sync.budget_views()["api"].closed_until == trial.clock.now() + 90_000


def test_rate_limited_comes_out_of_a_child_as_itself() -> None:
    class TooFast(RateLimited):
        pass

    for kind in (RateLimited, TooFast):
        error = unpack(pack(kind(12, budget="api", reason="429")))
        assert isinstance(error, RateLimited)
        assert (type(error).__name__, error.delay, error.budget, str(error)) == (kind.__name__, 12, "api", "429")
    later = unpack(pack(RetryLater("busy", delay=5, priority=Priority.HIGH)))
    assert isinstance(later, RetryLater) and (later.delay, later.priority) == (5, 1)
    odd = unpack(pack(RetryLater(priority=10**40)))
    assert isinstance(odd, RetryLater) and str(odd.priority).startswith("1000")
    moment = unpack(pack(RateLimited(at=5)))
    assert isinstance(moment, RateLimited)
    assert (moment.delay, moment.at) == (None, 5)
