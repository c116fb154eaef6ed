"""What docs/redis.md shows of redis-cli is what redis-cli prints."""

import re
import subprocess
from pathlib import Path

from proof.servers.process import find_program
from proof.servers.pytest import need
from proof.servers.redis import RedisServer

from accoda import open_storage
from accoda.clock import ManualClock
from accoda.model import NewJob
from accoda.payload import encode
from accoda.priority import Priority

PAGE = Path(__file__).parents[3] / "docs" / "redis.md"
SECTION = re.compile(r"^## Looking at a queue with redis-cli\n(.*?)^## ", re.MULTILINE | re.DOTALL)
SHOWN = re.compile(r"^\$ redis-cli (.*)\n((?:(?!\$ |```).*\n)*)", re.MULTILINE)
BATCH = re.compile(r"[0-9a-f]{10}(?=\.1)")  # begins with the client's random name


async def test_the_looks_at_a_queue_are_typed_and_answered_as_the_page_shows() -> None:
    section = SECTION.search(PAGE.read_text())
    assert section is not None
    shown = SHOWN.findall(section[1])
    assert [command.split()[:2] for command, _ in shown] == [
        ["ZRANGE", "scheduler:queue:ready"],
        ["ZCARD", "scheduler:queue:ready"],
        ["ZRANGE", "scheduler:queue:delayed"],
        ["ZRANGEBYSCORE", "scheduler:queue:delayed"],
        ["HGETALL", "scheduler:queue:taken"],
        ["HGETALL", "scheduler:queue:batches"],
    ]
    with need(RedisServer) as server:
        url = f"{server.url}?prefix=scheduler"
        async with await open_storage(url, clock=ManualClock(1_767_225_600_000)) as store:
            await store.enqueue([NewJob("queue", encode({"to": "ann"}), rank=Priority.CRITICAL)])
            await store.take("queue", 1, worker="worker-1")
            report = NewJob("queue", encode({"reportId": "monthly"}), rank=Priority.NORMAL, delay=3600)
            names = {"bob": Priority.NORMAL, "eve": Priority.HIGH}
            jobs = [NewJob("queue", encode({"to": name}), rank=rank) for name, rank in names.items()]
            await store.enqueue([*jobs, report])
            for command, text in shown:
                assert BATCH.sub("x", cli(server, command)) == BATCH.sub("x", text), command


async def test_a_queue_with_the_name_of_another_key_disturbs_nothing() -> None:
    """On one server a queue's keys have no hash tag: they stand beside the store's own."""
    queues = ["calls", "ids", "layout", "outbox", "moved", "docs", "queues", "shards"]
    with need(RedisServer) as server:
        async with await open_storage(server.url) as store:
            for queue in queues:
                await store.enqueue([NewJob(queue, queue.encode(), key="k"), NewJob(queue, delay=60)])
                await store.write(queue, b"document")
            taken = [job.data.decode() for queue in queues for job in await store.take(queue, 9)]
            async with await open_storage(server.url) as other:
                stats = (await other.stats()).queues
            assert taken == queues
            assert {name: (each.taken, each.delayed) for name, each in stats.items()} == dict.fromkeys(queues, (1, 1))


def cli(server: RedisServer, command: str) -> str:
    words = [find_program("redis-cli"), "--no-raw", "-p", str(server.port), *command.split()]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=20).stdout
