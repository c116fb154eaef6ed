"""The doctor at real Redis servers, badly configured on purpose."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from proof.servers.process import wait_until
from proof.servers.pytest import need
from proof.servers.redis import ClusterSet, RedisServer, SentinelSet

from accoda import App, NewJob
from accoda.cli.doctor import doctor
from accoda.operations.doctor import Finding, examine


def one(findings: Sequence[Finding], what: str) -> Finding:
    found = [each for each in findings if each.what == what]
    assert len(found) == 1, findings
    return found[0]


def ask_quorum(sentinel: RedisServer) -> bool:
    return "OK" in str(sentinel.ask("SENTINEL", "CKQUORUM", SentinelSet.name))


@pytest.fixture(scope="module")
def bad() -> Iterator[RedisServer]:
    options = ("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
    with need(lambda: RedisServer("none", *options)) as server:
        yield server


@pytest.fixture
def good() -> Iterator[RedisServer]:
    with need(lambda: RedisServer("always")) as server:
        yield server


async def test_a_bad_server_is_told_each_setting_and_left_as_it_is(bad: RedisServer) -> None:
    found = await examine(bad.url)
    policy, durability = one(found, "maxmemory-policy"), one(found, "durability")
    assert policy.level == "problem" and "CONFIG SET maxmemory-policy noeviction" in policy.advice
    assert durability.level == "problem" and "CONFIG SET appendonly yes" in durability.advice
    assert "a restart loses every job" in durability.found
    assert one(found, "clock").level == "ok" and one(found, "round trip").level in ("ok", "note", "warning")
    assert bad.ask("DBSIZE") == 0, "nothing was written"
    assert "queues" not in {each.what for each in found}, "such a server is not opened"


def test_the_example_in_the_docs_is_what_is_printed(bad: RedisServer) -> None:
    page = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text("utf-8")
    [example] = [block for block in page.split("```") if "allkeys-lru" in block]
    told = CliRunner().invoke(doctor, ["--url", bad.url], env={"COLUMNS": "80"})
    assert told.exit_code == 2
    assert [_without_numbers(line) for line in told.stdout.splitlines()] == [
        _without_numbers(line) for line in example.strip().splitlines()
    ]


def _without_numbers(line: str) -> str:
    """Versions, times and sizes are those of the machine."""
    return re.sub(r"[0-9.]+(kb|mb)?", "#", line)


async def test_memory_that_has_run_out_is_a_problem(bad: RedisServer) -> None:
    bad.ask("CONFIG", "SET", "maxmemory", "1")
    assert one(await examine(bad.url), "memory").level == "problem"
    bad.ask("CONFIG", "SET", "maxmemory", "104857600")


async def test_a_good_server_is_well_and_an_empty_one_stays_empty(good: RedisServer) -> None:
    found = await examine(good.url)
    assert {each.level for each in found} <= {"ok", "note"}
    assert one(found, "layout").level == "note" and good.ask("DBSIZE") == 0
    async with App(good.url) as app:
        await app.storage.enqueue([NewJob("emails")])
    found = await examine(good.url)
    assert one(found, "layout").level == "ok" and one(found, "queue").level == "warning"
    assert one(found, "durability").found == "appendonly yes, appendfsync always"
    good.ask("SET", "accoda:layout", "99")
    assert "newer Accoda" in one(await examine(good.url), "layout").found
    good.ask("SET", "accoda:layout", "what")
    assert one(await examine(good.url), "layout").level == "problem"


async def test_a_user_who_may_not_look_at_settings_still_gets_an_answer(good: RedisServer) -> None:
    good.ask("ACL", "SETUSER", "anna", "on", ">secret", "~accoda:*", "+@all", "-config")
    found = await examine(good.url.replace("redis://", "redis://anna:secret@"))
    assert one(found, "durability").level == "ok", "INFO says that the append-only file is on"
    wrong = await examine(good.url.replace("redis://", "redis://anna:wrong@"))
    assert one(wrong, "store").level == "problem" and "wrong" not in str(wrong)


async def test_a_replica_is_no_place_for_a_queue(good: RedisServer, bad: RedisServer) -> None:
    good.ask("REPLICAOF", "127.0.0.1", str(bad.port))
    found = one(await examine(good.url), "role")
    assert found.level == "problem" and f"127.0.0.1:{bad.port}" in found.advice


async def test_nobody_at_home_is_a_problem() -> None:
    found = one(await examine("redis://127.0.0.1:1/0"), "store")
    assert found.level == "problem" and "cannot be reached" in found.found


async def test_sentinels_without_a_quorum_are_a_problem() -> None:
    with need(lambda: SentinelSet()) as sentinels:
        found = await examine(sentinels.url)
        told = [each for each in found if each.what == "sentinel"]
        assert told and {each.level for each in told} == {"ok"}
        wrong = await examine(sentinels.url.rpartition("/")[0] + "/nobody")
        assert any(each.what == "sentinel" and "'nobody'" in each.found for each in wrong)
        for sentinel in sentinels.sentinels[1:]:
            sentinel.stop()
        # The one that is left notices after its `down-after`.
        wait_until(lambda: not ask_quorum(sentinels.sentinels[0]), lambda: "it still has its quorum")
        lost = [each for each in await examine(sentinels.url) if each.what == "sentinel"]
        assert sorted(each.level for each in lost) == ["problem", "warning", "warning"]
        assert any("no fail-over is possible" in each.advice for each in lost)


async def test_a_cluster_is_looked_at_node_by_node() -> None:
    with need(lambda: ClusterSet()) as cluster:
        found = await examine(cluster.url)
        assert one(found, "cluster").level == "ok"
        nodes = [each for each in found if each.what == "durability"]
        assert len(nodes) == len(cluster.current_masters()) and {each.level for each in nodes} == {"problem"}
        single = await examine(f"redis://127.0.0.1:{cluster.current_masters()[0].port}/0")
        assert "redis+cluster://" in one(single, "store").advice
