"""Crowds of real processes that request one key: one fetch, each is served once, and none that has left is."""

from collections.abc import Iterator

import pytest
from proof.chaos.demand import crowd, leavers
from proof.chaos.demand.__main__ import show_crowds
from proof.chaos.demand.settings import Line
from proof.chaos.demand.stage import SERVERS, open_stage
from proof.servers.pytest import need

from accoda import open_storage


@pytest.fixture(scope="module", params=["sqlite", "redis", "redis-cluster", "postgres", "tarantool"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    name: str = request.param
    if name == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('jobs')}/jobs.db"
        return
    server = need(lambda: SERVERS[name]().start())
    try:
        yield server.url
    finally:
        server.close()


async def forget(url: str) -> None:
    """Let the next crowd find no result of the last one."""
    async with await open_storage(url) as store:
        await store.purge("deals.cache", "delayed")


@pytest.mark.parametrize("worker_first", [True, False])
async def test_a_thousand_requests_from_four_processes_are_one_fetch(url: str, worker_first: bool) -> None:
    await forget(url)
    async with open_stage(url, fetch_for=0.1) as stage:
        found = await crowd.run(stage, worker_first=worker_first)
        assert found.ok, (found, stage.errors.read_text()[-2000:])
    assert found.calls == 1
    assert (found.served, found.deliveries, found.jobs) == (1000, 1000, 1000)
    assert sum(found.answers.values()) == 1000
    assert found.answers["created"] == 1


@pytest.mark.parametrize("url", ["sqlite", "redis", "postgres"], indirect=True)
async def test_waiters_that_left_in_time_are_not_served_and_all_others_are(url: str) -> None:
    await forget(url)
    async with open_stage(url, lease=5.0, fetch_for=0.03, fresh_for=0.0, keys=8) as stage:
        found = await leavers.run(stage, 1.0, processes=2)
        assert found.ok, (found, stage.errors.read_text()[-2000:])
    assert found.joined > 20
    assert found.answers["left"] + found.answers["cancelled"] > 0


def test_the_harness_finds_forgotten_waiters_and_those_served_after_they_left() -> None:
    def lines(who: str, *what: str) -> list[Line]:
        return [Line(each, who, 0, 0, 1, at) for at, each in enumerate(what)]

    good = lines("w1", "attached", "deliver") + lines("w2", "created", "left") + lines("w3", "attached", "absent")
    assert leavers.what_is_wrong([*good, *lines("w3", "deliver")]) == []
    assert "w3 was served 0 times, not 1" in leavers.what_is_wrong(good)[0]
    assert "w4 was served 1 times, not 0" in leavers.what_is_wrong(lines("w4", "attached", "left", "deliver"))[0]
    assert "w5 was served 2 times, not 1" in leavers.what_is_wrong(lines("w5", "cached", "deliver", "deliver"))[0]


def test_a_table_says_what_became_of_each_storage() -> None:
    one = crowd.Crowd(
        answers={"created": 1, "attached": 9},
        calls=2,
        waiters=10,
        served=10,
        deliveries=10,
        jobs=10,
        asked_in=1,
        seconds=2,
    )
    assert "BROKEN" in show_crowds([("sqlite", "first", one)])[-1]
