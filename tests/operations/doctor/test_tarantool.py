"""The doctor at a real Tarantool server, badly configured on purpose."""

from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace
from proof.servers.pytest import need
from proof.servers.tarantool import TarantoolServer, administer

from accoda import App, NewJob
from accoda.operations.doctor import Finding, examine, worst
from accoda.operations.doctor.tarantool import Facts, judge

GOOD = Facts("2.11.1", False, "running", "fsync", 256 << 20, 64 << 20, 10 << 20)


def one(findings: Sequence[Finding], what: str) -> Finding:
    found = [each for each in findings if each.what == what]
    assert len(found) == 1, findings
    return found[0]


@pytest.fixture(scope="module")
def server() -> Iterator[TarantoolServer]:
    with need(lambda: TarantoolServer(wal_mode="none")) as server:
        yield server


async def test_a_bad_server_is_told_what_to_change_and_nothing_is_installed(server: TarantoolServer) -> None:
    found = await examine(server.url)
    assert one(found, "durability").level == "problem" and "wal_mode = 'fsync'" in one(found, "durability").advice
    assert one(found, "application").level == "problem" and "accoda migrate" in one(found, "application").advice
    assert one(found, "clock").level == "ok"
    assert await administer(server.url, "return box.space.accoda_jobs == nil") is True
    async with App(server.url) as app:
        await app.storage.enqueue([NewJob("emails")])
    found = await examine(server.url)
    assert one(found, "application").level == "ok" and one(found, "queue").level == "warning"
    # A worker's account may call the functions, and look at nothing else.
    found = await examine(server.worker_url)
    assert one(found, "settings").level == "note" and "'role', 'accoda'" in one(found, "application").advice
    user = urlsplit(server.worker_url).username
    await administer(server.url, f"box.schema.user.grant('{user}', 'execute', 'role', 'accoda') return true")
    assert one(await examine(server.worker_url), "application").level == "ok"
    wrong = await examine(server.url.replace("tarantool://", "tarantool://nobody:secret@").replace("admin:", ""))
    assert worst(wrong) == "problem" and "secret" not in str(wrong)


async def test_a_server_that_may_not_be_written_is_a_problem(server: TarantoolServer) -> None:
    await administer(server.url, "box.cfg{read_only = true} return true")
    try:
        assert one(await examine(server.url), "role").level == "problem"
    finally:
        await administer(server.url, "box.cfg{read_only = false} return true")


async def test_nobody_at_home_is_a_problem() -> None:
    assert one(await examine("tarantool://127.0.0.1:1"), "store").level == "problem"


def test_memory_and_log_are_judged() -> None:
    assert worst(judge(GOOD)) == "ok"
    assert worst(judge(replace(GOOD, wal_mode="write"))) == "note"
    assert worst(judge(replace(GOOD, arena_used=230 << 20))) == "warning"
    assert worst(judge(replace(GOOD, arena_used=250 << 20))) == "problem"
    assert worst(judge(replace(GOOD, version="1.10.2"))) == "problem"
    assert worst(judge(replace(GOOD, mvcc=True))) == "note"
