"""The worker that serves a crowd is killed by SIGKILL again and again: no waiter is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from proof.chaos.demand import kills
from proof.chaos.demand.stage import SERVERS, open_stage
from proof.servers.pytest import need

from accoda.model import Revive


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/jobs.db"
        return
    server = need(lambda: SERVERS[request.param]().start())
    try:
        yield server.url
    finally:
        server.close()


async def test_five_kills_lose_no_waiter_and_make_no_second_delivery_job(url: str) -> None:
    # A fetch that is hit more often is quarantined for longer than a test should last.
    aims = ["fetch", "fetched", "deliver", "deliver", "deliver"]
    async with open_stage(url, lease=0.6, deliver_for=0.02, fetch_for=0.2, batch=10) as stage:
        found = await kills.run(stage, 5, aims=aims)
        assert found.ok, (found, stage.errors.read_text()[-2000:])
    assert sum(found.kills.values()) == 5
    assert found.calls >= 1 + found.kills.get("fetch", 0)
    assert found.served == found.waiters == 1000
    assert (found.second_jobs, found.unexplained, found.dead) == (0, 0, 0)


async def test_a_fetch_that_takes_its_workers_down_is_buried_with_its_waiters_and_serves_them_when_revived(
    tmp_path: Path,
) -> None:
    """With a limit of `max_crashes` the fetch becomes a dead letter after that many lost leases. No waiter is lost."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with open_stage(url, lease=2.0, fetch_for=0.2, max_crashes=2) as stage:
        found = await kills.run(stage, 2, waiters=40, aims=["fetch", "fetch"])
        assert (found.kills, found.calls, found.served, found.dead) == ({"fetch": 2}, 2, 0, 1)
        [dead] = await stage.store.browse("deals", "dead")
        assert (dead.key, dead.waiters) == ("k0", 40)
        assert "poison: its lease ended 2 times" in (dead.reason or "")
        assert await stage.store.change([Revive(dead.id)]) == 1
        assert await stage.until_served()
        assert sorted(line.subject for line in stage.lines("deliver")) == sorted(f"w{one}" for one in range(40))
